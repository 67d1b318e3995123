"""The fold against a naive model: a dictionary that applies the changes one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.core import metadata
from tidelog.core.fold import ROW, Folded, Run, answer, carry, fold, match

COLUMNS = pa.schema([("a", pa.int32()), ("b", pa.string()), ("x", pa.int64()), ("y", pa.string())])
Row = dict[str, Any]
Key = tuple[Any, ...]


def changes(events: list[Row]) -> pa.Table:
    """Rows as a decoder makes them, from `{op, row, before, unchanged}`."""
    rows = [e.get("row") or {} for e in events]
    columns = {f.name: pa.array([r.get(f.name) for r in rows], f.type) for f in COLUMNS}
    count = len(events)
    meta = {
        metadata.OP: pa.array([e["op"] for e in events], pa.string()),
        metadata.POSITION: pa.array(range(count), pa.int64()),
        metadata.COMMIT_TS: pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * count, pa.timestamp("us", "UTC")),
        metadata.XID: pa.array([7] * count, pa.int64()),
        metadata.ORDINAL: pa.array(range(count), pa.int64()),
        metadata.BEFORE: pa.array([e.get("before") for e in events], pa.struct(list(COLUMNS))),
        metadata.UNCHANGED: pa.array([e.get("unchanged") for e in events], pa.list_(pa.string())),
    }
    return pa.table({**columns, **meta})


@dataclass
class World:
    """A table at the source, its log since the batch began, and the events so far."""

    key: tuple[str, ...]
    rows: dict[Key, Row] = field(default_factory=dict)
    events: list[Row] = field(default_factory=list)
    full: bool = False
    """Whether the log tells the whole old row of every update, or its key if that changed."""

    def step(self, op: str, which: int, new: Row, hidden: frozenset[str]) -> None:
        keys = sorted(self.rows, key=repr)
        at = tuple(new[k] for k in self.key)
        if op == "t":
            self.rows.clear()
            self.events.append({"op": "t"})
        elif op == "c" and at not in self.rows:
            self.rows[at] = dict(new)
            self.events.append({"op": "c", "row": new})
        elif op == "d" and keys:
            old = self.rows.pop(keys[which % len(keys)])
            self.events.append({"op": "d", "row": {k: old[k] for k in self.key}})
        elif op in "um" and keys:
            self._update(keys[which % len(keys)], new, hidden, moves=op == "m")

    def _update(self, at: Key, new: Row, hidden: frozenset[str], moves: bool) -> None:
        old = self.rows[at]
        target = tuple(new[k] for k in self.key) if moves else at
        if target != at and target in self.rows:
            return
        whole = {c: old[c] if c in hidden else new[c] for c in COLUMNS.names} | dict(zip(self.key, target, strict=True))
        del self.rows[at]
        self.rows[target] = whole
        left_out = sorted(hidden - set(self.key))
        told = {c: v for c, v in whole.items() if c not in left_out}
        before = old if self.full else dict(zip(self.key, at, strict=True)) if target != at else None
        self.events.append({"op": "u", "row": told, "before": before, "unchanged": left_out or None})


def apply(folded: Folded, key: tuple[str, ...], target: dict[Key, Row]) -> dict[Key, Row]:
    """What a sink does, naively."""
    if folded.origins.num_rows:
        folded = carry(folded, key, pa.Table.from_pylist(list(target.values()), schema=COLUMNS))
    result = {} if folded.truncate else dict(target)
    for row in folded.deletes.to_pylist():
        result.pop(tuple(row[k] for k in key), None)
    for i, row in enumerate(folded.upserts.select(COLUMNS.names).to_pylist()):
        at = tuple(row[k] for k in key)
        kept = {c for c, mask in folded.keeps.items() if mask[i]}
        result[at] = {c: result.get(at, {}).get(c) if c in kept else v for c, v in row.items()}
    return result


small = st.integers(0, 3)
row = st.fixed_dictionaries(
    {"a": small, "b": st.sampled_from(["p", "q"]), "x": st.none() | small, "y": st.none() | st.text("yz", max_size=2)}
)
hidden = st.frozensets(st.sampled_from(["x", "y"]))
event = st.tuples(st.sampled_from("ccuuumdmdt"), st.integers(0, 9), row, hidden)
loose = row.flatmap(lambda r: st.sampled_from(["p", None]).map(lambda b: {**r, "b": b}))
loose_event = st.tuples(st.sampled_from("ccuummmmd"), st.integers(0, 9), loose, hidden)
"""With keys that may be NULL: only a whole old row tells from which key such a row came."""


@settings(max_examples=400, deadline=None)
@given(st.sampled_from([("a",), ("a", "b")]), st.lists(event, max_size=8), st.lists(event, max_size=14), st.data())
def test_the_fold_is_what_one_by_one_gives(
    key: tuple[str, ...], past: list[Any], batch: list[Any], data: st.DataObject
) -> None:
    world = World(key)
    for e in past:
        world.step(*e)
    target, world.events = dict(world.rows), []
    for e in batch:
        world.step(*e)
    cut = data.draw(st.integers(0, len(world.events)))
    runs = [Run(changes(world.events[:cut])), Run(changes(world.events[cut:]))]
    assert apply(fold(runs, key), key, target) == world.rows


@settings(max_examples=400, deadline=None)
@given(st.sampled_from([("b",), ("a", "b")]), st.lists(loose_event, max_size=8), st.lists(loose_event, max_size=14))
def test_keys_that_are_null_or_become_so(key: tuple[str, ...], past: list[Any], batch: list[Any]) -> None:
    world = World(key, full=True)
    for e in past:
        world.step(*e)
    target, world.events = dict(world.rows), []
    for e in batch:
        world.step(*e)
    assert apply(fold([Run(changes(world.events), whole=True)], key), key, target) == world.rows


@pytest.mark.parametrize(("old", "new"), [("n", None), (None, "n")])
def test_a_key_leaves_null_and_comes_to_it(old: str | None, new: str | None) -> None:
    events = [{"op": "u", "row": {"a": 1, "b": new, "x": 2}, "before": {"a": 1, "b": old, "x": 1}}]
    folded = fold([Run(changes(events), whole=True)], ["a", "b"])
    assert folded.deletes.select(["a", "b"]).to_pylist() == [{"a": 1, "b": old}]
    assert folded.upserts.select(["a", "b"]).to_pylist() == [{"a": 1, "b": new}]


def test_null_in_an_old_image_of_less_than_the_row_is_no_value() -> None:
    """Runs of both kinds in one batch: the log may begin to tell the whole row at any time."""
    event = {"op": "u", "row": {"a": 1, "b": "n"}, "before": {"a": 1, "b": None}}
    unknown, other = changes([event]), changes([{**event, "row": {"a": 2, "b": "n"}, "before": {"a": 2, "b": None}}])
    folded = fold([Run(unknown), Run(other, whole=True)], ["a", "b"])
    assert folded.deletes.select(["a", "b"]).to_pylist() == [{"a": 2, "b": None}]
    silent = fold([Run(changes([{**event, "before": None}, event]), whole=True)], ["a", "b"])
    assert silent.deletes.num_rows == 1


@settings(max_examples=200, deadline=None)
@given(st.lists(event, max_size=8), st.lists(event, max_size=14))
def test_a_soft_fold_keeps_the_last_values_of_what_ended(past: list[Any], batch: list[Any]) -> None:
    key = ("a",)
    world = World(key)
    for e in past:
        world.step(*e)
    target, world.events = dict(world.rows), []
    ghosts: dict[Key, Row] = {}
    for e in (e for e in batch if e[0] != "t"):
        was = dict(world.rows)
        world.step(*e)
        ghosts.update({k: v for k, v in was.items() if k not in world.rows})
    folded = fold([Run(changes(world.events))], key, soft=True)
    dead = {(r["a"],) for r in folded.upserts.to_pylist() if r[metadata.DELETED]}
    result = apply(folded, key, target)
    assert {k: v for k, v in result.items() if k not in dead} == world.rows
    assert {k: result[k] for k in dead} == {k: ghosts[k] for k in dead}


def one(*events: Row, key: tuple[str, ...] = ("a",)) -> Folded:
    return fold([Run(changes(list(events)))], key)


def test_reads_apply_before_the_log() -> None:
    read = {"op": "r", "row": {"a": 1, "b": "p", "x": 1, "y": "stale"}}
    update = {"op": "u", "row": {"a": 1, "b": "q", "x": 2}, "unchanged": ["y"]}
    gone = {"op": "d", "row": {"a": 2}}
    late = {"op": "r", "row": {"a": 2, "b": "p", "x": 0, "y": ""}}
    folded = one(update, gone, read, late)
    assert folded.upserts.select(COLUMNS.names).to_pylist() == [{"a": 1, "b": "q", "x": 2, "y": "stale"}]
    assert folded.deletes["a"].to_pylist() == [2]


def test_a_swap_through_a_third_key() -> None:
    def move(old: int, new: int, x: int) -> Row:
        return {"op": "u", "row": {"a": new, "b": "p", "x": x}, "before": {"a": old}, "unchanged": ["y"]}

    folded = one(move(1, 9, 10), move(2, 1, 20), move(9, 2, 10))
    rows = {r["a"]: r["x"] for r in folded.upserts.to_pylist()}
    assert rows == {1: 20, 2: 10}
    assert folded.deletes["a"].to_pylist() == [9]
    origins = {folded.upserts["a"][r[ROW]].as_py(): r["a"] for r in folded.origins.to_pylist()}
    assert origins == {1: 2, 2: 1}


def test_a_key_change_carries_from_the_row_in_the_batch() -> None:
    create = {"op": "c", "row": {"a": 1, "b": "p", "x": 1, "y": "big"}}
    move = {"op": "u", "row": {"a": 2, "b": "p", "x": 3}, "before": {"a": 1}, "unchanged": ["y"]}
    folded = one(create, move)
    assert folded.upserts.select(COLUMNS.names).to_pylist() == [{"a": 2, "b": "p", "x": 3, "y": "big"}]
    assert folded.origins.num_rows == 0
    assert not folded.keeps


def test_truncate_voids_what_came_before() -> None:
    folded = one(
        {"op": "c", "row": {"a": 1}}, {"op": "r", "row": {"a": 5}}, {"op": "t"}, {"op": "c", "row": {"a": 2, "x": 1}}
    )
    assert folded.truncate
    assert folded.truncated_at is not None
    assert folded.upserts["a"].to_pylist() == [2]


def test_only_truncate_and_nothing() -> None:
    assert one({"op": "t"}).truncate
    assert one().empty


def test_an_unknown_column_is_answered_by_the_source() -> None:
    old = Run(changes([{"op": "c", "row": {"a": 1, "x": 1}}, {"op": "u", "row": {"a": 2, "x": 2}}]), frozenset({"y"}))
    new = Run(changes([{"op": "u", "row": {"a": 2, "x": 3, "y": "told"}}, {"op": "c", "row": {"a": 3, "y": "own"}}]))
    folded = fold([old, new], ["a"])
    assert folded.keeps["y"].tolist() == [True, False, False]
    found = pa.Table.from_pylist(
        [{"a": 3, "y": "later"}, {"a": 1, "y": "source"}], pa.schema([("a", pa.int32()), ("y", pa.string())])
    )
    done = answer(folded, ["a"], ["y"], found)
    assert done.upserts["y"].to_pylist() == ["source", "told", "own"]
    assert not done.keeps


def test_unchanged_knows_the_older_name() -> None:
    rows = changes([{"op": "u", "row": {"a": 1, "x": 1}, "unchanged": ["once", "dropped"]}])
    folded = fold([Run(rows, aliases={"once": "y"})], ["a"])
    assert list(folded.keeps) == ["y"]


def test_the_stamps_are_those_of_the_last_change() -> None:
    folded = one({"op": "c", "row": {"a": 1}}, {"op": "c", "row": {"a": 2}}, {"op": "u", "row": {"a": 1}})
    assert folded.upserts.select(["a", metadata.OP, metadata.POSITION]).to_pylist() == [
        {"a": 2, metadata.OP: "c", metadata.POSITION: 1},
        {"a": 1, metadata.OP: "u", metadata.POSITION: 2},
    ]


def test_a_long_chain_of_updates_finds_its_first_value() -> None:
    first = {"op": "c", "row": {"a": 1, "x": 0, "y": "first"}}
    rest = [{"op": "u", "row": {"a": 1, "x": i}, "unchanged": ["y"]} for i in range(5000)]
    assert one(first, *rest).upserts.select(["x", "y"]).to_pylist() == [{"x": 4999, "y": "first"}]


@pytest.mark.parametrize("key", [("a",), ("a", "b")])
def test_match_by_key(key: tuple[str, ...]) -> None:
    keys = pa.table({"a": pa.array([1, 2, None, 3], pa.int32()), "b": ["p", "q", "p", "p"]})
    found = pa.table({"a": pa.array([3, 1], pa.int32()), "b": ["p", "p"]})
    assert match(keys, found, key).tolist() == [1, -1, -1, 0]


def test_the_masks_are_numpy() -> None:
    folded = one({"op": "u", "row": {"a": 1}, "unchanged": ["y"]})
    assert isinstance(folded.keeps["y"], np.ndarray)
