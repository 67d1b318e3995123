"""Cases of what stands inside offsets: GTID sets, commit_scn, vgtid, resume tokens, places in commit logs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidelog.connectors.cassandra import position
from tidelog.connectors.cassandra.position import Marks, Position
from tidelog.connectors.mariadb import gtid as mariadb_gtid
from tidelog.connectors.mongodb import offset as mongodb_offset
from tidelog.connectors.mongodb import token
from tidelog.connectors.mysql import gtid as mysql_gtid
from tidelog.connectors.oracle import offset as oracle_offset
from tidelog.connectors.oracle import scn
from tidelog.connectors.vitess import epoch, vgtid
from tidelog.connectors.vitess import gtid as vitess_gtid
from tidelog.core.offsets import intervals
from tidelog.core.snapshot import document
from tidelog.core.snapshot.document import Asked
from tidelog.core.transactions import Transaction
from tidelog.engine.home import Home
from tidelog.errors import TidelogError

Case = Mapping[str, Any]
Given = Mapping[str, Any]


def adapter(ops: Mapping[str, Callable[[Given], Any]]) -> Callable[[Case], Any]:
    """Op by op. That something is refused is theirs, in which words is ours."""

    def answer(case: Case) -> Any:
        try:
            return ops[case["input"]["op"]](case["input"])
        except TidelogError as refused:
            said = case["expected"].get("error") if isinstance(case["expected"], dict) else None
            return {"error": said} if said else {"refused": str(refused)}

    return answer


def _parsed(given: Given) -> Any:
    found = mysql_gtid.parse(given["gtids"])
    return {"string": str(found), "intervals": {s: [list(i) for i in parts] for s, parts in found.sources.items()}}


def _retained(given: Given) -> Any:
    found = mysql_gtid.parse(given["gtids"]).retain(lambda uuid: uuid in given["uuids"])
    return {"uuids": sorted({source.partition(":")[0] for source in found.sources}), "string": str(found)}


MYSQL: dict[str, Callable[[Given], Any]] = {
    "parse": _parsed,
    "contains": lambda g: mysql_gtid.parse(g["gtids"]).contains(g["gtid"]),
    "is_contained_within": lambda g: mysql_gtid.parse(g["a"]).within(mysql_gtid.parse(g["b"])),
    "retain": _retained,
    "retain_known_tsids": lambda g: str(mysql_gtid.parse(g["gtids"]).retain_known(mysql_gtid.parse(g["known"]))),
    "subtract": lambda g: str(mysql_gtid.parse(g["a"]).subtract(mysql_gtid.parse(g["b"]))),
    "union": lambda g: str(mysql_gtid.parse(g["a"]).union(mysql_gtid.parse(g["b"]))),
    "interval_remove": lambda g: [list(i) for i in intervals.subtract([tuple(g["a"])], map(tuple, g["b"]))],
}


def _sequences(given: Given) -> Any:
    found = mariadb_gtid.parse(given["gtids"]).sequences(given["domain"])
    return None if found is None else list(found)


def _has_sequence(given: Given) -> bool:
    wanted = mariadb_gtid.Gtid(given["domain"], given["server"], given["sequence"])
    return mariadb_gtid.parse(given["gtids"]).contains(wanted)


MARIADB: dict[str, Callable[[Given], Any]] = {
    "has_sequence": _has_sequence,
    "is_contained_within": lambda g: mariadb_gtid.parse(g["a"]).within(mariadb_gtid.parse(g["b"])),
    "domain_sequences": _sequences,
    "contains": lambda g: mariadb_gtid.parse(g["gtids"]).contains(mariadb_gtid.parse_one(g["gtid"])),
    "subtract": lambda g: str(mariadb_gtid.parse(g["a"]).subtract(mariadb_gtid.parse(g["b"]))),
}


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _commit_scn(given: Given) -> Any:
    found = scn.parse(given["value"])
    threads = {str(t): {"scn": str(c.scn), "tx": list(c.transactions)} for t, c in found.threads.items()}
    return {"threads": threads, "max": _text(found.highest), "min": _text(found.lowest), "encoded": str(found) or None}


def _all_threads(given: Given) -> Any:
    found = scn.parse(given["value"]).with_scn(int(given["scn"]))
    threads = {str(thread): str(c.scn) for thread, c in found.threads.items()}
    transactions = {str(thread): list(c.transactions) for thread, c in found.threads.items() if c.transactions}
    return {"max": _text(found.highest), "threads": threads, "tx": transactions}


def _handled(given: Given) -> bool:
    return scn.parse(given["value"]).handled(given["thread"], int(given["scn"]), given["tx"])


def _recorded(given: Given) -> Any:
    found = scn.parse(given["value"])
    for commit in given["commits"]:
        found = found.record(commit["thread"], int(commit["scn"]), commit["tx"])
    return {"encoded": str(found) or None}


def _oracle_loaded(given: Given) -> Any:
    read = oracle_offset.DOCUMENT.normal(given["offset"])
    commits = scn.parse(read.get("commit_scn"))
    return {**{n: read.get(n) for n in ("scn", "txId", "txSeq")}, "commit_max": _text(commits.highest)}


def _oracle_stored(given: Given) -> Any:
    names = (f.name for f in oracle_offset.DOCUMENT.fields if not f.keys)
    return {**dict.fromkeys(names), **oracle_offset.DOCUMENT.read(given["offset"])}


ORACLE: dict[str, Callable[[Given], Any]] = {
    "parse": _commit_scn,
    "set_all_threads": _all_threads,
    "compare": lambda g: scn.parse(g["value"]).against(scn.parse_scn(g["scn"])),
    "has_been_handled": _handled,
    "record": _recorded,
    "load_offset": _oracle_loaded,
    "load_then_store": _oracle_stored,
}


def _shard(given: Given) -> Any:
    found = vgtid.parse(given["vgtid"]).shard(given["shard"])
    return found and found.to_json()


def _vitess_gtid(given: Given) -> Any:
    found = vitess_gtid.parse(given["gtid"])
    return {"version": found.version, "sequences": list(found.sequences), "hosts": list(found.hosts)}


def _epochs(given: Given) -> Any:
    inherit = given.get("inherit_epoch", False)
    found = epoch.of_shards(given["epochs"], given["previous"], given["current"], inherit=inherit)
    return {"epoch": found[given["shard"]], "epochs": found}


def _last_key(given: Given) -> Any:
    """Of the table that is copied first; others wait behind it."""
    found, *_ = vgtid.last_keys(given["table_p_ks"])
    return {"table": found.table, "fields": list(found.fields)}


VITESS: dict[str, Callable[[Given], Any]] = {
    "will_trigger_copy": lambda g: vgtid.parse(g["vgtid"]).copies,
    "canonical": lambda g: str(vgtid.of(g["vgtid"])),
    "shard": _shard,
    "local": lambda g: str(vgtid.parse(g["vgtid"]).local(g["shard"])),
    "gtid": _vitess_gtid,
    "host_superset": lambda g: vitess_gtid.parse(g["a"]).has_hosts_of(vitess_gtid.parse(g["b"])),
    "rank": lambda g: vitess_gtid.parse(g["gtid"]).rank,
    "epoch": lambda g: epoch.following(g["previous_epoch"], g["previous"], g["current"]),
    "epoch_vgtid": _epochs,
    "inherited_epoch": lambda g: epoch.inherited(g["shard"], g["epochs"]),
    "parse_last_pk": _last_key,
}


def _marked(given: Given) -> Any:
    marks, told = Marks(), []
    for step, _, table, place in given["steps"]:
        if step == "check":
            told.append(marks.processed(table, position.parse(place)))
        else:
            marks = marks.mark(table, position.parse(place))
            told.append(None)
    return told


def _opened_twice(_: Given) -> Any:
    """Offsets have one writer: whoever holds the pipeline's name."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        with home.lock(), home.lock(patience_s=0):
            return {"error": False}


CASSANDRA: dict[str, Callable[[Given], Any]] = {
    "serialize": lambda g: str(Position(g["file"], g["pos"])),
    "parse": lambda g: str(position.parse(g["value"])),
    "compare_logs": lambda g: position.compare_logs(g["a"], g["b"]),
    "sequence": _marked,
    "open_twice": _opened_twice,
}


def _cluster_time(given: Given) -> Any:
    event = given["event"]
    return mongodb_offset.cluster_time(event and tuple(event["clusterTime"]), given.get("cursor_token"))


def _mongodb_loaded(given: Given) -> Any:
    offset = given["offset"]
    transaction = Transaction.from_offset(offset)
    return {
        "snapshot_running": mongodb_offset.snapshot_running(offset),
        "resume_token": offset.get("resume_token"),
        "transaction_id": transaction and transaction.id,
    }


def _timestamp(given: Given) -> Any:
    return dict(zip(("sec", "ord"), token.timestamp(given["token"]), strict=True))


def _condition(given: Given) -> Any:
    read = mongodb_offset.DOCUMENT.read
    offset = {"sec": 1, "ord": 1, **document.write([Asked(given["collection"], given["filter"], id="s")])}
    for _ in range(given["times"]):
        found = document.read(read(offset))
        assert found is not None
        offset = {**offset, **document.write(found.queue)}
    (entry,) = json.loads(read(offset)[document.COLLECTIONS])
    assert f"{document.COLLECTIONS}_surrogate_key" not in entry
    return {"additional_condition": entry[f"{document.COLLECTIONS}_additional_condition"]}


MONGODB: dict[str, Callable[[Given], Any]] = {
    "offset": _cluster_time,
    "load": _mongodb_loaded,
    "load_then_store": lambda g: mongodb_offset.DOCUMENT.read(g["offset"]),
    "incremental_roundtrip": _condition,
    "timestamp": _timestamp,
    "encode_offset": lambda g: {"resume_token": token.encode(g["token"])},
    "decode_offset": lambda g: {"token": token.shown(token.decode(g["resume_token"]))},
}
