"""What is wrong is said with its place and its cure."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.offsets.samples import TOKEN, UUID
from tidelog import connectors
from tidelog.core.offsets import body
from tidelog.errors import ConfigError

PLACES: dict[str, dict[str, Any]] = {
    "postgres": {"lsn": 5},
    "mysql": {"file": "mysql-bin.000003", "pos": 4},
    "mongodb": {"sec": 1, "ord": 1},
    "oracle": {"scn": "5"},
    "sqlserver": {"commit_lsn": "00000025:00000d98:00a2"},
    "db2": {"commit_lsn": "00000000:00000000:0000000000052c25"},
    "iseries": {"offset.event_sequence": "82", "offset.receiver": "R1"},
    "vitess": {},
    "cassandra": {},
    "spanner": {},
}


@pytest.mark.parametrize(
    ("name", "changed", "path", "words"),
    [
        ("postgres", {"lsn": "23876608"}, "lsn", "without quotes: 23876608."),
        ("postgres", {"lsn": "0/16B3748"}, "lsn", "Write the LSN as a number: 23803720."),
        ("postgres", {"lsn": 5.0}, "lsn", "without a fraction: 5."),
        ("postgres", {"lsn": True}, "lsn", "Expected is a whole number, but the value true came."),
        ("postgres", {"lsn": -4}, "lsn", "it is negative"),
        ("postgres", {"lsn": 1 << 63}, "lsn", "is too large"),
        ("postgres", {"lsn": float("nan")}, "lsn", "but the number nan came"),
        ("postgres", {"LSN": 5}, "LSN", "Did you mean 'lsn'?"),
        ("postgres", {"lsn_comit": 5}, "lsn_comit", "Did you mean 'lsn_commit'?"),
        ("postgres", {"tx_id": 5}, "tx_id", "Did you mean 'txId'?"),
        ("postgres", {"tidelog_position": 5}, "tidelog_position", "tidelog's own book-keeping"),
        ("postgres", {"zzz": 5}, "zzz", "Known are: ts_usec, txId,"),
        ("postgres", {"transaction_data_colection_order_": 1}, "transaction_data_colection_order_", "<table>'?"),
        ("postgres", {"snapshot": "maybe"}, "snapshot", "one of INITIAL, BLOCKING, INCREMENTAL"),
        ("postgres", {"snapshot_completed": 1}, "snapshot_completed", "Expected is true or false"),
        ("postgres", {"lsn": None}, "", "none of lsn_commit, lsn_proc and lsn"),
        ("postgres", {"transaction_data_collection_order_": 1}, "transaction_data_collection_order_", "no field"),
        ("postgres", {"incremental_snapshot_primary_key": "xyz"}, "incremental_snapshot_primary_key", "hexadecimal"),
        ("postgres", {"incremental_snapshot_collections": "{}"}, "incremental_snapshot_collections", "JSON list"),
        ("postgres", {"incremental_snapshot_collections": []}, "incremental_snapshot_collections", "but a list came"),
        ("postgres", {"incremental_snapshot_collections": '[{"x":1}]'}, "incremental_snapshot_collections", "no field"),
        ("mysql", {"pos": None}, "pos", "It is null, but a whole number is expected."),
        ("mysql", {"file": ""}, "file", "but an empty text came"),
        ("mysql", {"file": 3}, "file", 'Write it in quotes: "3".'),
        ("mysql", {"gtids": "x:1"}, "gtids", "no UUID of a server"),
        ("mysql", {"ts_ms": 1, "ts_sec": 1}, "ts_ms", "says the same as ts_sec"),
        ("mysql", {"ts_ms": "1"}, "ts_ms", "without quotes"),
        ("mysql", {"server_id": 1 << 32}, "server_id", "too large"),
        ("mongodb", {"sec": -2}, "sec", "the lowest is -1"),
        ("mongodb", {"ord": None}, "ord", "It is null"),
        ("mongodb", {"resume_token": "%%"}, "resume_token", "is no resume token"),
        ("mongodb", {"resume_token": "00"}, "resume_token", "does not begin with a cluster time"),
        ("oracle", {"scn": "x"}, "scn", "Write its digits in quotes"),
        ("oracle", {"scn": None}, "scn", "It is missing, and LogMiner needs it."),
        ("oracle", {"scn_idx": 4, "lcr_position": "00"}, "scn", "not used beside lcr_position"),
        ("oracle", {"commit_scn": "1:2"}, "commit_scn", "is no entry of a commit_scn"),
        ("oracle", {"commit_scn": "1:1:,2:1:"}, "commit_scn", "the redo thread 1 twice"),
        ("oracle", {"snapshot_pending_tx": "a"}, "snapshot_pending_tx", "Write transaction:scn,transaction:scn."),
        ("sqlserver", {"event_serial_no": None}, "event_serial_no", "It is null"),
        ("sqlserver", {"commit_lsn": "0x0000002500000d9800a2"}, "commit_lsn", "Write it as 00000025:00000d98:00a2."),
        ("sqlserver", {"commit_lsn": "25:d98:a2"}, "commit_lsn", "in the form 00000000:00000000:0000"),
        ("sqlserver", {"commit_lsn": "NULL"}, "commit_lsn", "It is missing, and streaming needs it."),
        ("db2", {"commit_lsn": "00000025:00000d98:00a2"}, "commit_lsn", "00000000:00000000:0000000000000000"),
        ("iseries", {"offset.event_sequence": 82}, "offset.event_sequence", 'Write it in quotes: "82".'),
        ("iseries", {"offset.receiver": ""}, "offset.receiver", "counts in a receiver, but none is named"),
        ("iseries", {"offset.processed": "yes"}, "offset.processed", '"true" or "false"'),
        ("vitess", {}, "", "The offset is empty."),
        ("vitess", {"vgtid": "[]"}, "vgtid", "a list of shards, but an empty one came"),
        ("vitess", {"vgtid": "nothing"}, "vgtid", "the text of a JSON list of shards"),
        ("vitess", {"transaction_id": "x"}, "vgtid", "It is missing, and streaming needs it."),
        ("cassandra", {"ks.t": "CommitLog-6-1.log"}, "ks.t", "is no place in a commit log"),
        ("cassandra", {"ks.t": "other.log:1"}, "ks.t", "is no name of a commit log"),
        ("cassandra", {"a.b.c": ":-1"}, "a.b.c", "Known are: <keyspace>.<table>"),
        ("cassandra", {"k.t": "CommitLog-6-1.log:1", "k.t.commitlog": "CommitLog-6-1.log:1"}, "k.t.commitlog", "same"),
        ("spanner", {"offset": "2023-02-30T00:00:00Z"}, "offset", "is no moment in UTC"),
        ("spanner", {"startTime": "2023-01-01T00:00:00Z"}, "offset", "It is missing"),
    ],
)
def test_a_mistake(name: str, changed: dict[str, Any], path: str, words: str) -> None:
    problems = connectors.offsets(name).DOCUMENT.problems({**PLACES[name], **changed})
    assert path in [p.path for p in problems]
    assert any(words in str(p) for p in problems if p.path == path)


def test_everything_wrong_is_said_at_once() -> None:
    document = connectors.offsets("postgres").DOCUMENT
    offset = {"lsn": "x", "txId": -1, "foo": 1}
    assert [p.path for p in document.problems(offset)] == ["foo", "lsn", "txId"]
    with pytest.raises(ConfigError, match=r"foo: .* lsn: .* txId: ") as caught:
        document.read(offset)
    assert caught.value.hint


@pytest.mark.parametrize("raw", [None, [], "x", 5, True])
def test_an_offset_is_an_object(raw: Any) -> None:
    (problem,) = connectors.offsets("postgres").DOCUMENT.problems(raw)
    assert problem.message.startswith("An offset is an object of fields, but ")


@pytest.mark.parametrize(
    ("name", "raw", "read"),
    [
        ("postgres", {"server": "s"}, {"server": "s"}),
        ("postgres", {"database": "d"}, {"database": "d"}),
        ("postgres", {"server": "s", "database": "d"}, {"server": "s"}),
        ("sqlserver", {"server": "s", "database": "d"}, {"server": "s", "database": "d"}),
        ("sqlserver", {"server": "s"}, {"server": "s"}),
        ("mongodb", {"server_id": "s", "rs": "rs0"}, {"server_id": "s"}),
        ("vitess", {"server": "s", "task_key": "task0_2_0"}, {"server": "s", "task_key": "task0_2_0"}),
        ("spanner", {"partitionToken": "Parent0"}, {"partitionToken": "Parent0"}),
        ("cassandra", {}, {}),
        ("cassandra", {"server": "s"}, {}),
    ],
)
def test_partitions(name: str, raw: dict[str, Any], read: dict[str, Any]) -> None:
    assert connectors.offsets(name).DOCUMENT.partition.read(raw) == read


@pytest.mark.parametrize(
    ("name", "raw", "words"),
    [
        ("postgres", {}, 'Write {"server": …}'),
        ("postgres", {"sever": "s"}, "Did you mean 'server'?"),
        ("postgres", {"server": ""}, "an empty text came"),
        ("postgres", {"server": 5}, 'Write it in quotes: "5".'),
        ("postgres", {"server": None}, "It is null."),
        ("mongodb", {"rs": "rs0"}, "names no part of the source"),
        ("mongodb", {"server": "s"}, "Did you mean 'server_id'?"),
        ("spanner", [], "A partition is an object, but a list came."),
    ],
)
def test_wrong_partitions(name: str, raw: Any, words: str) -> None:
    problems = connectors.offsets(name).DOCUMENT.partition.problems(raw)
    assert words in " ".join(map(str, problems))


def test_whose_partition_it_is() -> None:
    one = connectors.offsets("postgres").DOCUMENT.partition
    assert one.matches({"server": "s"}, server="s", database="d")
    assert one.matches({"database": "d"}, server="s", database="d")
    assert one.matches({"server": "d"}, server="s", database="d"), "documents may call the server by the database"
    assert not one.matches({"server": "x"}, server="s", database="d")
    many = connectors.offsets("sqlserver").DOCUMENT.partition
    assert many.matches({"server": "s", "database": "d"}, server="s", database="d")
    assert not many.matches({"server": "s", "database": "s"}, server="s", database="d")
    assert many.write(server="s", database="d") == {"server": "s", "database": "d"}


@pytest.mark.parametrize(
    ("sent", "path", "words"),
    [
        ([], "", "The body is an object, but a list came."),
        ({}, "offsets", "It is missing."),
        ({"offset": []}, "offset", "Did you mean 'offsets'?"),
        ({"offsets": {}}, "offsets", "It is a list, but an object came."),
        ({"offsets": []}, "offsets", "It is empty."),
        ({"offsets": [5]}, "offsets[0]", "It is an object, but the number 5 came."),
        ({"offsets": [{"offset": None}]}, "offsets[0].partition", "It is missing."),
        ({"offsets": [{"partition": {"server": "s"}}]}, "offsets[0].offset", "or null to remove it"),
        ({"offsets": [{"partition": {}, "offset": {"lsn": 1}}]}, "offsets[0].partition", "The partition is empty"),
        ({"offsets": [{"partition": {"server": "s"}, "offset": {"lsn": "1"}}]}, "offsets[0].offset.lsn", "quotes"),
        ({"offsets": [{"partition": {"server": "s"}, "offset": {}}]}, "offsets[0].offset", "The offset is empty."),
        ({"offsets": [{"partition": {"server": "s"}, "offset": None}] * 2}, "offsets[1].partition", "twice"),
        ({"offsets": [{"partition": {"server": "s"}, "offest": None}]}, "offsets[0].offest", "Did you mean 'offset'?"),
    ],
)
def test_wrong_bodies(sent: Any, path: str, words: str) -> None:
    problems = body.problems(connectors.offsets("postgres").DOCUMENT, sent)
    assert any(p.path == path and words in str(p) for p in problems), problems
    with pytest.raises(ConfigError):
        body.read(connectors.offsets("postgres").DOCUMENT, sent)


def test_null_removes() -> None:
    sent = {"offsets": [{"partition": {"server": "s"}, "offset": None}]}
    (entry,) = body.read(connectors.offsets("postgres").DOCUMENT, sent)
    assert entry.offset is None
    assert body.write([entry]) == sent


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expecting value"),
        ('{"offsets": NaN}', "NaN is no number in JSON"),
        ('{"a": 1, "a": 2}', "'a' is given twice"),
        ("[" * 100_000, "is no JSON"),
        ("1" * 5000, "is no JSON"),
        (b"\xff\xfe\xfa", "is no JSON"),
    ],
)
def test_what_is_no_json(text: str | bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        body.parse(text)


@pytest.mark.parametrize(
    ("name", "raw", "written"),
    [
        ("postgres", {"lsn": 5, "snapshot": True}, {"lsn": 5, "snapshot": "INITIAL"}),
        ("postgres", {"lsn": 5, "snapshot": "true"}, {"lsn": 5, "snapshot": "INITIAL"}),
        ("postgres", {"lsn": 5, "snapshot": False, "xmin": None}, {"lsn": 5}),
        ("postgres", {"lsn": 5, "snapshot_completed": "true"}, {"lsn": 5, "snapshot_completed": True}),
        ("postgres", {"lsn": 5, "lsn_events_processed": 0}, {"lsn": 5}),
        ("mysql", {"ts_ms": 123456789000}, {"ts_sec": 123456789}),
        ("mysql", {"ts_ms": 1600733377}, {"ts_sec": 1600733377}),
        ("mysql", {"event": 0, "row": 0, "server_id": 0, "gtids": ""}, {}),
        ("mysql", {"gtids": f"{UUID.upper()}:1-2:3"}, {"gtids": f"{UUID}:1-3"}),
        ("oracle", {"scn": 12345, "commit_scn": 23456}, {"scn": "12345", "commit_scn": "23456:1:"}),
        ("oracle", {"commit_scn": "12345:00241f.00093ff0.0010:0:1"}, {"commit_scn": "12345:1:"}),
        ("oracle", {"snapshot_pending_tx": "", "snapshot_scn": None}, {}),
        ("sqlserver", {"change_lsn": "NULL"}, {"change_lsn": None}),
        ("sqlserver", {"change_lsn": "0000002500000D980003"}, {"change_lsn": "00000025:00000d98:0003"}),
        ("iseries", {"offset.processed": True}, {"offset.processed": "true"}),
        ("mongodb", {"initsync": False}, {}),
        ("mongodb", {"resume_token": "82635021A0000000012B0229296E04"}, {"resume_token": TOKEN}),
    ],
)
def test_older_and_other_forms_are_read(name: str, raw: dict[str, Any], written: dict[str, Any]) -> None:
    document = connectors.offsets(name).DOCUMENT
    assert document.read({**PLACES[name], **raw}) == document.read({**PLACES[name], **written})
    assert document.read({**PLACES[name], **raw}) == {**PLACES[name], **written}


def test_collections_in_the_documents_words() -> None:
    """The names that the design document has: a misspelt condition, and a surrogate key without its plural."""
    raw = (
        '[{"incremental_snapshot_collections_id": "public.a",'
        ' "incremental_snapshot_collections_additional_condication": "x=1",'
        ' "incremental_snapshot_collection_surrogate_key": "NAME"}]'
    )
    read = connectors.offsets("postgres").DOCUMENT.read({"lsn": 5, "incremental_snapshot_collections": raw})
    assert read["incremental_snapshot_collections"] == (
        '[{"incremental_snapshot_collections_id":"public.a",'
        '"incremental_snapshot_collections_additional_condition":"(x=1)",'
        '"incremental_snapshot_collections_surrogate_key":"NAME",'
        '"incremental_snapshot_collections_correlation_id":null}]'
    )
    mongodb = connectors.offsets("mongodb").DOCUMENT.read(
        {**PLACES["mongodb"], "incremental_snapshot_collections": raw}
    )
    assert "surrogate" not in mongodb["incremental_snapshot_collections"]
