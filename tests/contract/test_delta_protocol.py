"""What a reader of our tables has to understand: the protocol of a Delta table lists only what its columns need."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tidelog.core.evolve import Step
from tidelog.errors import TransientError
from tidelog.spark.sinks.delta_rust import RustTarget
from tidelog.spark.sinks.target import Mark, Merge

NEVER = 2**31 - 1
"""PostgreSQL's `infinity`, which delta-rs cannot count."""
PLAIN = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))])
LOCAL = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("at", pa.timestamp("us"))])


def rows(schema: pa.Schema, *ids: int) -> pa.Table:
    numbers = pa.array(ids, pa.int64())
    days = pa.array([NEVER] * len(ids), pa.int32()).cast(pa.date32())
    return pa.table([numbers, days, numbers.cast(schema.field("at").type)], schema=schema)


def after_every_operation(folder: Path, schema: pa.Schema) -> list[RustTarget]:
    target = RustTarget(str(folder / "table"), every=1)
    target.create(schema, {"delta.checkpointInterval": "2", "tidelog.table": "1"})
    target.describe({"tidelog.pending": "[]"})
    for number in range(3):
        target.append(rows(schema, number), Mark("query", number))
    target.merge(Merge(rows(schema, 1, 9), ("id",), tuple(schema.names)), Mark("query", 3))
    target.extend([pa.field("more", pa.int32())])
    target.rewrite([*(Step(f, f.name) for f in schema), Step(pa.field("text", pa.string()), None)])
    target.replace(rows(schema, 1, 2, 3), Mark("query", 4))
    target.tidy()
    copy = RustTarget(str(folder / "copy"))
    copy.become(target, target.version(), {"tidelog.table": "2"})
    copy.describe({"tidelog.missing": ""})
    return [target, copy]


@pytest.mark.parametrize(
    ("schema", "versions", "features"),
    [(PLAIN, (1, 2), None), (LOCAL, (3, 7), ["timestampNtz"])],
    ids=["with zone", "without zone"],
)
def test_nothing_is_asked_of_readers_that_no_column_needs(
    tmp_path: Path, schema: pa.Schema, versions: tuple[int, int], features: list[str] | None
) -> None:
    for target in after_every_operation(tmp_path, schema):
        protocol = DeltaTable(target.uri).protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == versions
        assert (protocol.reader_features, protocol.writer_features) == (features, features)
        assert target.read(["id", "day"])["day"].cast(pa.int32()).to_pylist() == [NEVER] * 3


def test_properties_are_set_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then by delta-rs, which has other ways to put a file in place (storage.allow_unsafe_rename)."""

    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    target = RustTarget(str(tmp_path / "table"))
    target.create(LOCAL, {"tidelog.table": "1"})
    target.describe({"tidelog.table": "2"})
    assert target.properties()["tidelog.table"] == "2"
    assert not list((tmp_path / "table" / "_delta_log").glob(".*"))


def test_properties_leave_everything_else_as_it_was(tmp_path: Path) -> None:
    """Also in a folder whose name URLs write otherwise."""
    described = pa.schema([f.with_metadata({"tidelog.number": str(i)}) for i, f in enumerate(LOCAL)])
    target = RustTarget(str(tmp_path / "a table, 50%"))
    target.create(described, {"tidelog.table": "1"})
    target.append(rows(LOCAL, 1), Mark("query", 7))
    before = DeltaTable(target.uri)
    target.describe({"tidelog.pending": "[1]", "tidelog.table": "2"})
    after = DeltaTable(target.uri)
    assert after.version() == before.version() + 1
    assert after.schema().to_json() == before.schema().to_json()
    assert {**after.metadata().configuration} == {
        **before.metadata().configuration,
        "tidelog.pending": "[1]",
        "tidelog.table": "2",
    }
    assert (after.metadata().id, after.metadata().created_time) == (
        before.metadata().id,
        before.metadata().created_time,
    )
    assert target.properties() == after.metadata().configuration
    assert (target.applied("query"), target.read(["id"])["id"].to_pylist()) == (7, [1])


def test_the_commit_of_another_writer_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = RustTarget(str(tmp_path / "table"))
    target.create(LOCAL, {})
    other = RustTarget(target.uri)
    other.append(rows(LOCAL, 5), None)
    stale = target._existing()
    monkeypatch.setattr(type(stale), "update_incremental", lambda _: None)  # the other one was a moment faster
    with pytest.raises(TransientError, match="Another writer"):
        target.describe({"tidelog.table": "1"})
    monkeypatch.undo()
    assert target.read(["id"])["id"].to_pylist() == [5]
    target.describe({"tidelog.table": "1"})
    assert target.properties()["tidelog.table"] == "1"
    assert not [*(tmp_path / "table" / "_delta_log").glob(".*")]
