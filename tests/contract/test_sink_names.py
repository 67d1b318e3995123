"""Two tables of one name in one batch: dropped and made anew, or another took the name. Neither loses a row, nor gets
one of the other, whichever is listed first, however many are written at once, and wherever it breaks."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tests.contract.sink_rig import ORDERS, KeysOf, Rig, Row, c, crash_before, d, rows, table, u
from tests.contract.test_sink_delta import deliver
from tidelog.contracts import Batch, TableChanges
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection
from tidelog.spark.sinks.delta import DeltaSink
from tidelog.spark.sinks.delta_rust import RustTarget
from tidelog.spark.sinks.history import DeltaLog, ParquetFiles
from tidelog.spark.sinks.target import Mark

OLD, NEW = replace(ORDERS, id=1), replace(ORDERS, id=2)
ATTIC, DRAFT = replace(OLD, name="orders_old"), replace(NEW, name="orders_new")
LISTED = pytest.mark.parametrize("listed", ["in order", "reversed"])


@pytest.fixture(params=["1", "4"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    return Rig({"type": "delta", "path": str(tmp_path), "engine": "rust", "tables.parallel": request.param})


def changes(version: Table, events: list[Row], start: int, **more: Any) -> TableChanges:
    """As the log tells them in the transaction at `start`, of which PostgreSQL says no other position."""
    told = rows(version, [{**event, "position": start, "ordinal": i} for i, event in enumerate(events)])
    return TableChanges((version,), [(version, told)], **{"told": (start, len(events)), **more})


def both(rig: Rig, first: list[Row], second: list[Row], *, listed: str = "in order") -> Batch:
    """Changes of the old table, then of the new one, under one name."""
    return several(rig, changes(OLD, first, 100), changes(NEW, second, 200), listed=listed)


def several(rig: Rig, *told: TableChanges, listed: str = "in order") -> Batch:
    batch = Batch("query-1", rig.next, Selection(), list(told if listed == "in order" else told[::-1]))
    rig.next += 1
    return batch


def ids(rig: Rig, version: Table) -> list[int]:
    return [row["id"] for row in rig.read(version)]


@LISTED
@pytest.mark.parametrize("known", ["from before", "from this batch"])
def test_a_table_dropped_and_made_anew(rig: Rig, listed: str, known: str) -> None:
    if known == "from before":
        rig.feed((OLD, [c(id=0, name="zero")]))
    batch = both(rig, [c(id=1, name="old")], [c(id=2, name="new"), c(id=3)], listed=listed)
    rig.sink.apply(batch)
    rig.restart()
    rig.sink.apply(batch)
    assert ids(rig, NEW) == [2, 3]
    rig.feed((ATTIC, [u(id=1, name="late")]))  # it was not dropped, only renamed
    assert ids(rig, ATTIC) == ([0, 1] if known == "from before" else [1])
    assert rig.read(ATTIC)[-1]["name"] == "late"
    assert ids(rig, NEW) == [2, 3]


def test_a_table_made_anew_with_another_key(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the old one is left there that could not be followed; should it come back, it is whole."""
    rig.feed((OLD, [c(id=1, name="one")]))
    anew = table(Column("id", "text", nullable=False), Column("extra", "int4"), id=2)
    batch = rig.batch((anew, [c(id="x", extra=1)]))
    crash_before(monkeypatch, RustTarget, "rewrite")
    with pytest.raises(KeyboardInterrupt):
        rig.sink.apply(batch)
    monkeypatch.undo()
    rig.restart()
    rig.sink.apply(batch)
    assert rig.read(anew) == [{"id": "x", "extra": 1}]
    assert rig.sink._target(anew).schema().names == ["id", "extra"]
    rig.feed((ATTIC, [c(id=2)]))
    assert [(row["id"], row["name"]) for row in rig.read(ATTIC)] == [(1, "one"), (2, None)]


@LISTED
def test_another_table_takes_the_name(rig: Rig, listed: str) -> None:
    """As online migrations do: `orders` becomes `orders_old`, and `orders_new` becomes `orders`."""
    rig.feed((OLD, [c(id=1, name="one"), c(id=2, name="two")]))
    rig.feed((DRAFT, [c(id=1, name="one!"), c(id=2, name="two!")]))
    rig.sink.apply(both(rig, [d(id=1), c(id=3)], [c(id=3, name="three!")], listed=listed))
    assert [(row["id"], row["name"]) for row in rig.read(NEW)] == [(1, "one!"), (2, "two!"), (3, "three!")]
    rig.feed((ATTIC, [c(id=4)]))
    assert ids(rig, ATTIC) == [2, 3, 4]


@LISTED
@pytest.mark.parametrize("old", [1, 9])
def test_another_table_takes_the_name_within_a_transaction(rig: Rig, listed: str, old: int) -> None:
    """Its rows of before are of an earlier position; of the transaction itself only the order of records tells."""
    had, took = replace(OLD, id=old), replace(NEW, id=10 - old)
    draft = replace(took, name="orders_new")
    rig.feed((had, [c(id=1, name="one")]))
    before, inside = changes(draft, [c(id=1, name="one!")], 50), changes(took, [c(id=2, name="two!")], 100)
    grown = TableChanges((draft, took), [*before.rows, *inside.rows], told=(100, 1))
    rig.sink.apply(several(rig, changes(had, [u(id=1, name="late")], 100, told=(100, 0)), grown, listed=listed))
    assert [(row["id"], row["name"]) for row in rig.read(took)] == [(1, "one!"), (2, "two!")]


@LISTED
def test_a_name_is_taken_without_a_row(rig: Rig, listed: str) -> None:
    """`DROP TABLE orders; ALTER TABLE orders_new RENAME TO orders`: nothing was written under the name since."""
    rig.feed((OLD, [c(id=1, name="one")]))
    rig.feed((DRAFT, [c(id=7, name="seven")]))
    rig.sink.apply(several(rig, changes(OLD, [c(id=2)], 100), changes(NEW, [], 200), listed=listed))
    assert ids(rig, NEW) == [7]


@LISTED
def test_a_table_that_was_swept_and_then_made_anew(rig: Rig, listed: str) -> None:
    rig.feed((OLD, [c(id=1), c(id=2)]))
    swept = TableChanges((OLD,), [], keep=KeysOf(pa.table({"id": pa.array([1], pa.int32())})), told=(100, -1))
    rig.sink.apply(several(rig, swept, changes(NEW, [c(id=9)], 200), listed=listed))
    assert ids(rig, NEW) == [9]
    rig.feed((ATTIC, [c(id=3)]))  # it was not dropped, only renamed
    assert ids(rig, ATTIC) == [1, 3]


def crash_at(monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    """Before the n-th commit of changes."""
    real, calls = DeltaSink._commit, []

    def commit(*args: object) -> None:
        calls.append(args)
        if len(calls) == nth:
            raise KeyboardInterrupt
        real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaSink, "_commit", commit)


@pytest.mark.parametrize("nth", [1, 2])
def test_a_crash_between_the_two(rig: Rig, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    rig.feed((OLD, [c(id=1, name="one"), c(id=2, name="two")]))
    batch = both(rig, [d(id=1), c(id=3)], [c(id=9)])
    crash_at(monkeypatch, nth)
    with pytest.raises(KeyboardInterrupt):
        rig.sink.apply(batch)
    monkeypatch.undo()
    for _ in range(2):
        rig.restart()
        rig.sink.apply(batch)
    assert ids(rig, NEW) == [9]
    rig.feed((ATTIC, [c(id=4)]))
    assert ids(rig, ATTIC) == [2, 3, 4]


@pytest.mark.parametrize("step", ["describe", "replace", "merge", "append"])
def test_a_crash_at_any_step(rig: Rig, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    rig.feed((OLD, [c(id=1, name="one"), c(id=2, name="two")]))
    batch = both(rig, [d(id=1), c(id=3)], [c(id=9)])
    crash_before(monkeypatch, RustTarget, step)
    with pytest.raises(KeyboardInterrupt):
        rig.sink.apply(batch)
    monkeypatch.undo()
    rig.restart()
    rig.sink.apply(batch)
    assert ids(rig, NEW) == [9]
    rig.feed((ATTIC, [c(id=4)]))
    assert ids(rig, ATTIC) == [2, 3, 4]


def test_one_that_had_nothing_to_say_does_not_come_back(rig: Rig) -> None:
    """Its part left no mark; the other's tells that it is done."""
    rig.feed((OLD, [c(id=1)]))
    batch = both(rig, [], [c(id=9)])
    rig.sink.apply(batch)
    rig.restart()
    rig.sink.apply(batch)
    assert ids(rig, NEW) == [9]


def test_a_batch_that_a_former_release_applied(rig: Rig) -> None:
    rig.feed((OLD, [c(id=1, name="one")]))
    batch = rig.batch((OLD, [c(id=2, name="two")]))
    RustTarget(f"{rig.options['path']}/public/orders").append(
        pa.Table.from_pylist([{"id": 2, "name": "since changed"}]), Mark("query-1:public.orders", batch.id)
    )
    rig.restart()
    rig.sink.apply(batch)
    assert [row["name"] for row in rig.read(OLD)] == ["one", "since changed"]
    rig.feed((OLD, [c(id=3)]))
    assert ids(rig, OLD) == [1, 2, 3]


def test_what_a_former_release_called_a_batch_is_asked_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never found, so it is looked for in the whole log of the table."""
    asked, real = [], RustTarget.applied
    monkeypatch.setattr(RustTarget, "applied", lambda target, app: asked.append(app) or real(target, app))
    for i in range(3):
        rig.feed((OLD, [c(id=i)]))
    assert asked.count("query-1:public.orders") == 1
    assert asked.count("query-1:1:public.orders") == 3


class Database:
    """Tables that are renamed, dropped and made anew, and a log of what happens to their rows."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.position = rng, 0
        self.names = {1: "a", 2: "b", 3: "c"}
        self.rows: dict[int, set[int]] = {1: set(), 2: set(), 3: set()}
        self.spoke: dict[int, str] = {}
        self.holders: dict[str, int] = {}
        self.log: dict[int, list[tuple[Table, pa.Table]]] = {}
        self.told: dict[int, tuple[int, int]] = {}

    def step(self) -> None:
        match self.rng.choice(["change", "change", "change", "swap", "rename", "anew"]):
            case "change":
                self._change(self.rng.choice(sorted(self.names)))
            case "swap":
                one, other = self.rng.sample(sorted(self.names), 2)
                self.names[one], self.names[other] = self.names[other], self.names[one]
            case "rename":
                free = sorted(set("abcd") - set(self.names.values()))
                self.names[self.rng.choice(sorted(self.names))] = self.rng.choice(free)
            case "anew":
                name, new = self.names.pop(self.rng.choice(sorted(self.names))), max(self.rows) + 1
                self.names[new], self.rows[new] = name, set()

    def _change(self, id: int) -> None:
        version, key = replace(ORDERS, id=id, name=self.names[id]), self.rng.randrange(6)
        event = d(id=key) if key in self.rows[id] else c(id=key, name=str(id))
        self.rows[id] ^= {key}
        self.position += 1
        self.told[id] = (self.position // 4, self.position % 4)
        self.spoke.pop(id, None)
        self.spoke[id] = version.name
        self.log.setdefault(id, []).extend(changes(version, [event], self.position // 4).rows)

    def batch(self, number: int) -> Batch:
        told = [
            TableChanges(tuple(dict.fromkeys(v for v, _ in reversed(runs)))[::-1], runs, told=self.told[id])
            for id, runs in self.log.items()
        ]
        self.log = {}
        self.holders |= {name: id for id, name in self.spoke.items() if any(c.table.id == id for c in told)}
        self.rng.shuffle(told)
        return Batch("query-1", number, Selection(), told)

    def expected(self) -> dict[str, set[tuple[int, str]]]:
        """By name, the rows of the table that came to it last, unless it has left it since."""
        return {
            name: {(key, str(id)) for key in self.rows[id]}
            for name, id in self.holders.items()
            if self.spoke[id] == name
        }


@pytest.mark.parametrize("seed", range(8))
def test_random_lives_of_names_with_crashes(rig: Rig, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    world = Database(rng)
    for number in range(10):
        for _ in range(rng.randrange(1, 9)):
            world.step()
        deliver(rig, world.batch(number), rng, monkeypatch)
        for name, content in world.expected().items():
            found = rig.read(replace(ORDERS, name=name))
            assert sorted((row["id"], row["name"]) for row in found) == sorted(content), (number, name)


@pytest.fixture(params=["parquet", "delta"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    return Rig({"type": "history", "path": str(tmp_path), "format": request.param})


def written(rig: Rig) -> list[int]:
    where = f"{rig.options['path']}/public/orders"
    found = RustTarget(where).read(["id"]) if rig.options["format"] == "delta" else ds.dataset(where).to_table()
    return sorted(found["id"].to_pylist())


def test_the_history_has_both(history: Rig) -> None:
    batch = both(history, [c(id=1)], [c(id=2), c(id=3)])
    for _ in range(2):
        history.sink.apply(batch)
        history.restart()
    assert written(history) == [1, 2, 3]


def test_only_the_first_batch_may_have_been_begun_by_a_former_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig({"type": "history", "path": str(tmp_path), "format": "parquet"})
    marks: list[Mark] = []
    monkeypatch.setattr(ParquetFiles, "append", lambda *args: marks.append(args[-1]))
    first = rig.feed((OLD, [c(id=1)]))
    rig.sink.apply(first)  # it failed and comes again
    rig.feed((OLD, [c(id=2)]))
    assert [mark.former for mark in marks] == ["query-1:history:public.orders"] * 2 + [""]


@pytest.mark.parametrize("kind", [ParquetFiles, DeltaLog])
def test_a_history_that_a_former_release_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    """It wrote the first table, or the last, under a mark that says nothing of which."""
    rig = Rig({"type": "history", "path": str(tmp_path), "format": "delta" if kind is DeltaLog else "parquet"})
    batch = both(rig, [c(id=1)], [c(id=2), c(id=3)])
    real = kind.append  # type: ignore[attr-defined]
    mark = Mark("query-1:history:public.orders", batch.id)
    with monkeypatch.context() as patch:
        patch.setattr(kind, "append", lambda log, where, runs, _: real(log, where, runs, mark))
        rig.sink.apply(batch)
    assert written(rig) == ([1] if kind is DeltaLog else [2, 3])
    for _ in range(2):
        rig.restart()
        rig.sink.apply(batch)
    assert written(rig) == [1, 2, 3]
