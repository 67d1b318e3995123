"""From a case of a peer's tests to our own functions: thin, one adapter per file, `op` by `op`.

`run` gives what we answer in the case's own words, to be compared with `expected`. What we decide against is named here
with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.cases import chunk_queries, journal, logs, mining, offsets, positions, redo, snapshots
from tidelog.core import transactions
from tidelog.core.transactions import Transaction

Case = Mapping[str, Any]

ROOMS = {
    "ibmi_journal": journal,
    "oracle_buffered_processing": mining,
    "oracle_dml_parser": redo,
    "oracle_lob_merge": redo,
    "oracle_log_collection": logs,
    "oracle_log_session_selector": logs,
    "oracle_redo_fragments": redo,
}
"""Files whose adapter is a module of its own."""

DECIDED_AGAINST: dict[str, str] = {
    "chunk_queries/physical_rowid.order_by_pk": "the rows of a chunk need no order: a range is read whole, and sinks "
    "merge by key",
    **journal.DECIDED_AGAINST,
    **logs.DECIDED_AGAINST,
    **mining.DECIDED_AGAINST,
    **redo.DECIDED_AGAINST,
}
"""`file/name` of a case, and why we answer differently."""


def run(file: str, case: Case) -> Any:
    return ROOMS[file].run(file, case) if file in ROOMS else ADAPTERS[file](case)


def _signals_and_tx(case: Case) -> Any:
    given = case["input"]
    match given["op"]:
        case "tx":
            return _transaction(given)
        case "tx_offset":
            return Transaction(given["tx"], given["counts"]).to_offset() if given["tx"] else {}
        case _:
            return snapshots.signal(given)


def _transaction(given: Mapping[str, Any]) -> dict[str, Any]:
    restored = given.get("restored")
    current = Transaction(restored["transaction_id"], restored.get("counts") or {}) if restored else None
    if current is not None:
        current = Transaction.from_offset(current.to_offset())
    told: list[dict[str, Any]] = []
    for step, *arguments in given["steps"]:
        if step == "start":
            current, news = transactions.begin(current, arguments[0])
            told += news
        elif step == "event":
            current = current and current.event(arguments[0])
        else:
            told += [current.end()] if current else []
            current = None
    for entry in told:
        if "data_collections" in entry:
            entry["data_collections"] = {c["data_collection"]: c["event_count"] for c in entry["data_collections"]}
    return {"emitted": told, "total": current.total if current else 0}


ADAPTERS: dict[str, Callable[[Case], Any]] = {
    "cassandra_offsets": positions.adapter(positions.CASSANDRA),
    "chunk_queries": chunk_queries.answer,
    "gtid_mariadb": positions.adapter(positions.MARIADB),
    "gtid_mysql": positions.adapter(positions.MYSQL),
    "incremental_snapshot_context": snapshots.context,
    "mongodb_resume_tokens": positions.adapter(positions.MONGODB),
    "offsets": offsets.answer,
    "oracle_commit_scn": positions.adapter(positions.ORACLE),
    "pg_snapshot": lambda case: snapshots.postgres(case["input"]),
    "signals_and_tx": _signals_and_tx,
    "vitess_vgtid": positions.adapter(positions.VITESS),
}
