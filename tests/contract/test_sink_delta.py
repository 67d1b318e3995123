"""The Delta sink by delta-rs: crashes at every step, moves, short cuts, and random lives of a table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tests.contract.sink_rig import ORDERS, Rig, Row, c, crash_after, crash_before, d, parse, r, rows, shape, table, u
from tests.servers import S3
from tests.unit.test_fold import World
from tidelog.contracts import FAILURES, Batch, TableChanges
from tidelog.core.fold import Run
from tidelog.core.snapshot.watermark import Replayed
from tidelog.core.snapshot.window import reconcile, stamp, uncovered
from tidelog.errors import ConfigError, TargetAway, UnsupportedChange
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection
from tidelog.spark import sinks
from tidelog.spark.sinks import delta_rust
from tidelog.spark.sinks.delta import DeltaSink
from tidelog.spark.sinks.delta_rust import RustTarget


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig({"type": "delta", "path": str(tmp_path), "engine": "rust"})


@pytest.mark.parametrize("newer", [False, True])
def test_a_key_that_becomes_null_and_was_null(rig: Rig, newer: bool) -> None:
    """One row of the source stays one row, also where the batch ends with another version of the table."""
    loose = replace(table(Column("id", "int4"), Column("n", "text"), key=("id", "n")), old_image="full")
    last = replace(loose, columns=(*loose.columns, Column("more", "text", number=3))) if newer else loose
    rig.feed((loose, [c(id=1, n="n"), c(id=2, n=None)]))
    rig.feed((loose, [u(id=1, n=None, before={"id": 1, "n": "n"})]), versions=[last])
    rig.feed((loose, [u(id=1, n="z", before={"id": 1}), u(id=2, n="y", before={"id": 2})]), versions=[last])
    assert [(row["id"], row["n"]) for row in rig.read(last)] == [(1, "z"), (2, "y")]


def test_a_crash_between_evolving_and_merging(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    v1 = table(Column("id", "int4"), Column("a", "text"))
    rig.feed((v1, [c(id=1, a="1"), c(id=2, a="2")]))
    v2 = table(Column("id", "int4"), Column("b", "text", number=2), Column("c", "text", number=3, rewritten=True))
    rig.source.rows = [{"id": 1, "c": "c1"}, {"id": 2, "c": "c2"}]
    batch = rig.batch((v1, [u(id=2, a="two")]), (v2, [c(id=3, b="3", c="c3")]))
    kind = type(rig.sink._target(v1))
    for step in ("describe", "rewrite"):
        crash_after(monkeypatch, kind, step)
        with pytest.raises(KeyboardInterrupt):
            rig.sink.apply(batch)
        monkeypatch.undo()
        rig.restart()
    crash_before(monkeypatch, DeltaSink, "_commit")
    with pytest.raises(KeyboardInterrupt):
        rig.sink.apply(batch)
    monkeypatch.undo()
    rig.restart()
    rig.sink.apply(batch)
    rig.sink.apply(batch)
    assert rig.read(v2) == [
        {"id": 1, "b": "1", "c": "c1"},
        {"id": 2, "b": "two", "c": "c2"},
        {"id": 3, "b": "3", "c": "c3"},
    ]


def test_dead_letters_and_several_tables(rig: Rig) -> None:
    letters = pa.Table.from_pylist(
        [{"table": "public.orders", "position": 1, "reason": "why", "payload": b"?"}], FAILURES
    )
    tables = [replace(ORDERS, id=i, name=f"t{i}") for i in range(3)]
    changes = [TableChanges((t,), [(t, rows(t, [c(id=t.id, name="x")]))]) for t in tables]
    batch = Batch("query-1", 0, Selection(), changes, letters)
    for _ in range(2):
        rig.sink.apply(batch)
    assert [rig.read(t)[0]["id"] for t in tables] == [0, 1, 2]
    buried = RustTarget(rig.options["path"] + "/_dead_letters").read(["reason"])
    assert buried.to_pylist() == [{"reason": "why"}]


def test_a_table_without_a_key_is_refused(rig: Rig) -> None:
    with pytest.raises(ConfigError, match=r"public\.orders has no key.*message\.key\.columns.*history"):
        rig.feed((replace(ORDERS, key=()), [c(id=1)]))
    rig.next = 0
    rig.feed((replace(ORDERS, key=()), [c(id=1)]), selection=Selection(message_keys="public.orders:id"))
    assert [r["id"] for r in rig.read(ORDERS)] == [1]


def test_a_nullable_key_the_user_named(rig: Rig) -> None:
    chosen = Selection(message_keys="public.orders:id,name")
    orders = replace(ORDERS, old_image="full")
    rig.feed((orders, [c(id=1, name=None, big="a"), c(id=1, name="n", big="b")]), selection=chosen)
    rig.feed((orders, [u(id=1, name=None, big="c"), d(id=1, name="n")]), selection=chosen)
    assert rig.read(orders) == [{"id": 1, "name": None, "big": "c"}]


def test_what_only_the_source_knows_needs_a_source(tmp_path: Path) -> None:
    sink = sinks.create({"type": "delta", "path": str(tmp_path), "engine": "rust"}, parse=parse, shape=shape)
    feeder = Rig({"type": "delta", "path": str(tmp_path), "engine": "rust"})
    feeder.feed((ORDERS, [c(id=1, name="x")]))
    volatile = table(*ORDERS.columns, Column("extra", "text", rewritten=True))
    with pytest.raises(UnsupportedChange, match=r"extra.*public\.orders"):
        sink.apply(feeder.batch((volatile, [c(id=2, name="y", extra="e")])))


def test_a_table_that_was_made_anew(rig: Rig) -> None:
    rig.feed((ORDERS, [c(id=1, name="old")]))
    rig.feed((replace(ORDERS, id=2), [c(id=5, name="new")]))
    assert [r["id"] for r in rig.read(ORDERS)] == [5]
    rig.feed((replace(ORDERS, name="attic"), [c(id=6, name="late")]))  # table 1 was renamed before 2 was made
    assert [r["id"] for r in rig.read(replace(ORDERS, name="attic"))] == [1, 6]


def test_another_query_goes_on_with_the_target(rig: Rig) -> None:
    rig.feed((ORDERS, [c(id=1, name="kept")]))
    other = replace(ORDERS, id=77)  # a restored database: same table, other id
    rig.sink.apply(Batch("query-2", 0, Selection(), [TableChanges((other,), [(other, rows(other, [c(id=2)]))])]))
    assert [r["id"] for r in rig.read(ORDERS)] == [1, 2]


def test_appending_is_exact(rig: Rig) -> None:
    """Keys outside the range of every file are appended; one key within makes it a merge."""
    for ids in ([1, 2], [3, 4], [4, 5], [9], [7], [9, 10]):
        rig.feed((ORDERS, [c(id=i, name=str(ids)) for i in ids]))
    rig.source.rows = [{"id": 20, "name": "now", "big": "B"}]
    rig.feed((ORDERS, [u(id=20, name="u", unchanged=["big"]), d(id=21)]))
    log = rig.sink._target(ORDERS)._table.history()
    assert [r["id"] for r in rig.read(ORDERS)] == [1, 2, 3, 4, 5, 7, 9, 10, 20]
    assert [h["operation"] for h in reversed(log)].count("MERGE") == 2


@pytest.mark.usefixtures("few_reads")
def test_rows_of_a_snapshot_are_appended_ahead(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """If all are new; the rest of the batch is merged after, and a crash between the two is healed."""
    rig.feed((ORDERS, [c(id=i, name="old") for i in (0, 99)]))
    batch = rig.batch((ORDERS, [r(id=i, name="read") for i in range(1, 6)] + [d(id=0), u(id=99, name="u"), c(id=7)]))
    crash_after(monkeypatch, RustTarget, "append")
    with pytest.raises(KeyboardInterrupt):
        rig.sink.apply(batch)
    monkeypatch.undo()
    rig.restart()
    assert [row["id"] for row in rig.read(ORDERS)] == [0, 1, 2, 3, 4, 5, 99]
    rig.sink.apply(batch)
    rig.sink.apply(batch)
    state = {row["id"]: row["name"] for row in rig.read(ORDERS)}
    assert state == {**dict.fromkeys(range(1, 6), "read"), 7: None, 99: "u"}
    assert len(rig.read(ORDERS)) == len(state)
    rig.feed((ORDERS, [r(id=i, name="more") for i in range(50, 60)]))  # within a file's range, and all new
    log = [entry["operation"] for entry in rig.sink._target(ORDERS)._table.history()]
    assert log[0] == "WRITE"
    assert rig.sink._target(ORDERS).applied("query-1:1:public.orders") == rig.next - 1


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz", "date"])
def test_appending_by_moments_is_exact(rig: Rig, kind: str) -> None:
    """The statistics of a file cut moments off at milliseconds: neighbours within one must still be found."""
    version = table(Column("at", kind), Column("n", "int4"), key=("at",))
    start = datetime(1969, 12, 31, 23, 59, 59, 998_500, tzinfo=UTC if kind == "timestamptz" else None)
    expected: dict[Any, int] = {}
    for n, steps in enumerate([range(0, 900, 300), range(1500, 3000, 500), [2500], [0, 900], range(1100, 1400, 100)]):
        moments = [start.date() + timedelta(s) if kind == "date" else start + timedelta(microseconds=s) for s in steps]
        rig.feed((version, [r(at=at, n=n) for at in moments]))
        expected |= dict.fromkeys(moments, n)
        assert {row["at"]: row["n"] for row in rig.read(version)} == expected
        assert len(rig.read(version)) == len(expected)


def test_columns_that_differ_in_case_are_refused(rig: Rig) -> None:
    with pytest.raises(ConfigError, match="upper and lower case"):
        rig.feed((table(Column("id", "int4"), Column("a", "text"), Column("A", "text")), [c(id=1)]))


@pytest.mark.parametrize("name", ["..", "_tables", "a/b", "50% $ off"])
def test_no_name_leaves_its_place(rig: Rig, name: str) -> None:
    odd = replace(ORDERS, schema=name, name=name)
    rig.feed((odd, [c(id=1, name="x")]))
    assert [r["id"] for r in rig.read(odd)] == [1]
    assert {p.name[0] for p in Path(rig.options["path"]).iterdir() if p.name != "_tables"} <= set("-a5")


def test_joining_small_files_loses_nothing(tmp_path: Path) -> None:
    target = Rig({"type": "delta", "path": str(tmp_path), "engine": "rust", "optimize.every": "12"})
    for i in range(30):
        target.feed((ORDERS, [c(id=i, name=str(i))]))
    table_ = target.sink._target(ORDERS)._table
    assert [r["id"] for r in target.read(ORDERS)] == list(range(30))
    assert len(table_.file_uris()) < 12
    assert table_.transaction_version("query-1:1:public.orders") == 29


def test_the_target_is_read_by_range(rig: Rig) -> None:
    rig.feed((ORDERS, [c(id=i, name=str(i)) for i in range(10)]))
    found = sinks.delta.read({"path": rig.options["path"]}, ORDERS, ["id"], '"id" >= 3 AND "id" < 6')
    assert sorted(found["id"].to_pylist()) == [3, 4, 5]


FOLDED = table(Column("a", "int4"), Column("b", "text"), Column("x", "int8"), Column("y", "text"), key=("a",))
STEPS = ("create", "describe", "extend", "rewrite", "merge", "replace", "append")


@pytest.mark.parametrize("seed", range(12))
def test_a_random_life_with_crashes(rig: Rig, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of random changes and renames; any step may break, before or after its work."""
    rng = random.Random(seed)
    version = replace(FOLDED, key=("a",) if seed % 2 else ("a", "b"))
    world = World(version.key)
    for _ in range(12):
        for _ in range(rng.randrange(8)):
            row = {
                "a": rng.randrange(6),
                "b": rng.choice("pq"),
                "x": rng.randrange(9),
                "y": rng.choice(["", "yy", None]),
            }
            hidden = frozenset(rng.sample(["x", "y"], rng.randrange(3)))
            world.step(rng.choice("cccuuummdt" if rng.random() < 0.2 else "cccuuummd"), rng.randrange(9), row, hidden)
        run = (version, world.events)
        world.events = []
        if rng.random() < 0.3:
            version = replace(version, name=rng.choice(["orders", "later", "third"]))
        rig.source.rows = [dict(row) for row in world.rows.values()]
        deliver(rig, rig.batch(run, versions=[version]), rng, monkeypatch)
        found = [tuple(r.values()) for r in rig.read(version)]
        assert sorted(map(str, found)) == sorted(str(tuple(r.values())) for r in world.rows.values())


@pytest.fixture
def few_reads() -> Iterator[None]:
    """Rows of a snapshot are written apart, however few they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta_rust, "MANY_READS", 1)
        yield


@pytest.mark.usefixtures("few_reads")
@pytest.mark.parametrize("seed", range(16))
def test_a_random_snapshot_with_crashes(rig: Rig, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges are read and emitted at moments of their own while changes flow; in the end the target is the table, and
    it is again when the snapshot is taken once more."""
    rng = random.Random(seed)
    version = replace(FOLDED, key=("a",) if seed % 2 else ("a", "b"))
    world = World(version.key)
    live(world, rng, 12, "c")
    log, world.events = [], []
    for _ in range(2):
        staged: dict[int, tuple[int, list[Row]]] = {}
        todo = set(range(RANGES))
        while todo:
            start = len(log)
            live(world, rng, rng.randrange(4), "ummmmd")
            for a in rng.sample(sorted(todo - set(staged)), min(len(todo - set(staged)), rng.randrange(3))):
                staged[a] = (len(log) + len(world.events), [row for row in world.rows.values() if row["a"] == a])
            live(world, rng, rng.randrange(4), "cumt" if rng.random() < 0.1 else "cummmmd")
            log, world.events = log + world.events, []
            ready = [a for a in sorted(staged) if rng.random() < 0.5]
            reads = [reconciled(version, *staged.pop(a), log) for a in ready]
            todo -= set(ready)
            rig.source.rows = list(world.rows.values())
            runs = [(version, rows(version, log)[start:]), *((version, found) for found in reads)]
            changes = TableChanges((version,), runs, snapshotting=True)
            deliver(rig, Batch("query-1", rig.next, Selection(), [changes]), rng, monkeypatch)
            rig.next += 1
        found = [str(tuple(row.values())) for row in rig.read(version)]
        assert sorted(found) == sorted(str(tuple(row.values())) for row in world.rows.values())


RANGES = 12


def live(world: World, rng: random.Random, steps: int, ops: str) -> None:
    for _ in range(steps):
        row = {"a": rng.randrange(RANGES), "b": rng.choice("pq"), "x": rng.randrange(9), "y": rng.choice(["", "yy"])}
        world.step(rng.choice(ops), rng.randrange(9), row, frozenset(rng.sample(["x", "y"], rng.randrange(3))))


def reconciled(version: Table, moment: int, read: list[Row], log: list[Row]) -> pa.Table:
    events = rows(version, log)
    columns = pa.schema([events.schema.field(column.name) for column in version.columns])
    staged = stamp(pa.Table.from_pylist(read, columns), position=moment, ts_us=0)
    return reconcile(staged, [Run(uncovered(events, Replayed(moment)))], version.key)


def deliver(rig: Rig, batch: Batch, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    while rng.random() < 0.4:
        crash = rng.choice([crash_before, crash_after])
        crash(monkeypatch, RustTarget, rng.choice(STEPS))
        with suppress(KeyboardInterrupt):
            rig.sink.apply(batch)
        monkeypatch.undo()
        rig.restart()
    rig.sink.apply(batch)


def test_a_bucket(s3: S3) -> None:
    storage = {
        "storage.aws_access_key_id": s3.access_key,
        "storage.aws_secret_access_key": s3.secret_key,
        "storage.aws_region": s3.region,
        "storage.aws_endpoint_url": s3.endpoint,
        "storage.aws_allow_http": "true",
    }
    rig = Rig({"type": "delta", "path": f"s3://{s3.bucket}/lake", "engine": "rust", **storage})
    rig.feed((ORDERS, [c(id=1, name="a"), c(id=2, name="b")]))
    batch = rig.feed((ORDERS, [d(id=1), u(id=2, name="b2", unchanged=["big"])]))
    rig.restart()
    rig.sink.apply(batch)
    assert rig.read(ORDERS) == [{"id": 2, "name": "b2", "big": None}]
    log = Rig({"type": "history", "path": f"s3://{s3.bucket}/log", **storage})
    log.sink.apply(batch)
    log.sink.apply(batch)
    where, _ = sinks.history.filesystem("s3://x", {k.removeprefix("storage."): v for k, v in storage.items()})
    assert ds.dataset(f"{s3.bucket}/log/public/orders", filesystem=where).count_rows() == 2


def test_a_damaged_log_is_named_with_a_remedy(tmp_path: Path) -> None:
    """Without the native stack that delta-rs appends."""
    target = Rig({"type": "delta", "path": str(tmp_path), "engine": "rust"})
    target.feed((ORDERS, [c(id=1)]))
    target.feed((ORDERS, [c(id=2)]))
    for commit in (tmp_path / "public/orders/_delta_log").glob("*.json"):
        commit.write_text(commit.read_text()[: commit.stat().st_size // 2])
    target.restart()
    with pytest.raises(TargetAway, match="because one of its files is damaged") as caught:
        target.feed((ORDERS, [c(id=3)]))
    assert "move the folder of the table away and start again" in caught.value.hint
    assert "<unknown>" not in str(caught.value)
