"""Chunks against the log: whatever was read when, and emitted when, the replica equals the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_fold import COLUMNS, Key, Row, World, changes, event, loose_event
from tidelog.core import metadata
from tidelog.core.fold import Run
from tidelog.core.snapshot.watermark import Replayed, Visible
from tidelog.core.snapshot.window import reconcile, stamp, uncovered
from tidelog.model.schema import Table
from tidelog.spark import chunks

UNKNOWN = "?"
State = dict[Key, Row]


def chunk(rows: list[Row]) -> pa.Table:
    return stamp(pa.Table.from_pylist(rows, COLUMNS), position=9, ts_us=1_000_000)


def log(events: list[Row]) -> pa.Table:
    """Each event is a transaction of its own, at its place in the list."""
    return changes(events)


def emitted(rows: list[Row], window: pa.Table, key: tuple[str, ...], cut: int = 0, *, whole: bool = False) -> State:
    staged = chunk(rows)
    runs = [Run(window[:cut], whole=whole), Run(window[cut:], whole=whole)]
    found = reconcile(staged, runs, key)
    assert found.schema.equals(staged.schema)
    assert set(found[metadata.OP].to_pylist()) <= {"r"}
    found.validate(full=True)
    read = found.select(COLUMNS.names).to_pylist()
    state = {tuple(r[k] for k in key): r for r in read}
    assert len(state) == len(read)
    return state


def deliver(target: State, reads: State, events: list[Row], key: tuple[str, ...], source: State | None) -> State:
    """What a sink does with a batch, one by one: reads last; what nobody told is asked of the source."""
    state = dict(target)
    for e in events:
        _apply(state, e, key)
    state |= reads
    for at, row in list(state.items()):
        gaps = [c for c, v in row.items() if v == UNKNOWN]
        known = (source or {}).get(at)
        if gaps and known:
            state[at] = row | {c: known[c] for c in gaps}
        elif gaps and source is not None:
            del state[at]
    return state


def _apply(state: State, e: Row, key: tuple[str, ...]) -> None:
    if e["op"] == "t":
        state.clear()
        return
    at = tuple(e["row"][k] for k in key)
    old = tuple(e["before"][k] for k in key) if e.get("before") else at
    base = state.pop(old, {})
    if e["op"] != "d":
        state[at] = {c: base.get(c, UNKNOWN) for c in e.get("unchanged") or ()} | e["row"]


class History:
    """A table's life: its state after each event, and the events."""

    def __init__(self, key: tuple[str, ...], past: list[Any], life: list[Any], *, full: bool = False) -> None:
        world = World(key, full=full)
        for e in past:
            world.step(*e)
        world.events = []
        self.states: list[State] = [dict(world.rows)]
        for e in life:
            before = len(world.events)
            world.step(*e)
            if len(world.events) > before:
                self.states.append(dict(world.rows))
        self.events = world.events


keys = st.sampled_from([("a",), ("a", "b")])


@settings(max_examples=500, deadline=None)
@given(keys, st.lists(event, max_size=8), st.lists(event, max_size=14), st.data())
def test_a_chunk_of_the_whole_table(
    key: tuple[str, ...], past: list[Any], life: list[Any], data: st.DataObject
) -> None:
    """Read at one moment, emitted later, with events of both sides delivered before: nothing has to be asked."""
    history = History(key, past, life)
    end = len(history.events)
    read, start = data.draw(st.integers(0, end)), data.draw(st.integers(0, end))
    target = deliver({}, {}, history.events[:start], key, None)
    window = uncovered(log(history.events), Replayed(read))
    reads = emitted(list(history.states[read].values()), window, key, data.draw(st.integers(0, window.num_rows)))
    assert reads.items() <= history.states[end].items()
    assert deliver(target, reads, history.events[start:], key, None) == history.states[end]


@settings(max_examples=300, deadline=None)
@given(st.lists(loose_event, max_size=8), st.lists(loose_event, max_size=14), st.data())
def test_a_chunk_of_a_table_whose_keys_may_be_null(past: list[Any], life: list[Any], data: st.DataObject) -> None:
    key = ("a", "b")
    history = History(key, past, life, full=True)
    end = len(history.events)
    read, start = data.draw(st.integers(0, end)), data.draw(st.integers(0, end))
    target = deliver({}, {}, history.events[:start], key, None)
    window = uncovered(log(history.events), Replayed(read))
    reads = emitted(list(history.states[read].values()), window, key, whole=True)
    assert deliver(target, reads, history.events[start:], key, None) == history.states[end]


@settings(max_examples=500, deadline=None)
@given(keys, st.lists(event, max_size=8), st.lists(event, max_size=16), st.data())
def test_chunks_of_ranges_at_their_own_moments(
    key: tuple[str, ...], past: list[Any], life: list[Any], data: st.DataObject
) -> None:
    history = History(key, past, life)
    end = len(history.events)
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, end), max_size=4))), end]
    moments = {a: data.draw(st.integers(0, end)) for a in range(4)}
    batches = {
        a: data.draw(st.sampled_from([i for i in range(1, len(cuts)) if cuts[i] >= moments[a]])) for a in moments
    }
    target: State = {}
    for i in range(1, len(cuts)):
        reads: State = {}
        for a in (a for a in moments if batches[a] == i):
            rows = [r for r in history.states[moments[a]].values() if r["a"] == a]
            reads |= emitted(rows, uncovered(log(history.events[: cuts[i]]), Replayed(moments[a])), key)
        target = deliver(target, reads, history.events[cuts[i - 1] : cuts[i]], key, history.states[cuts[i]])
    assert target == history.states[end]


def row(a: int, x: int | None = 1, y: str | None = "big") -> Row:
    return {"a": a, "b": "p", "x": x, "y": y}


def told(a: int, x: int, old: int | None = None) -> Row:
    """An update that leaves `y` out."""
    before = None if old is None else {"a": old}
    return {"op": "u", "row": {"a": a, "b": "p", "x": x}, "before": before, "unchanged": ["y"]}


def window(*events: Row) -> pa.Table:
    return changes(list(events))


def test_keys_of_the_window_go() -> None:
    update = {"op": "u", "row": row(1, 5)}
    move = {"op": "u", "row": row(7, 5), "before": {"a": 2}}
    gone = {"op": "d", "row": {"a": 3}}
    new = {"op": "c", "row": row(4, 5)}
    found = emitted([row(i) for i in range(6)], window(update, move, gone, new), ("a",))
    assert sorted(found) == [(0,), (5,)]


def test_left_out_columns_come_from_the_chunk() -> None:
    gone = {"op": "d", "row": {"a": 3}}
    found = emitted(
        [row(1), row(2), row(3)], window(told(1, 5), told(8, 6, old=2), told(3, 7), gone, told(9, 1)), ("a",)
    )
    assert found == {(1,): row(1, 5), (8,): row(8, 6)}


@pytest.mark.parametrize("exact", [True, False])
def test_a_chunk_that_may_have_seen_the_window(exact: bool) -> None:
    """Then the row under a key that was changed may be the next one already: only rows that kept theirs go on."""
    staged = chunk([row(1, 1, "kept"), row(2, 1, "was under 9"), row(4, 1, "left and came back")])
    events = window(told(1, 5), told(3, 6, old=2), told(2, 7, old=9), told(8, 1, old=4), told(4, 1, old=8))
    found = reconcile(staged, [Run(events)], ("a",), exact=exact).select(COLUMNS.names).to_pylist()
    sure = [row(1, 5, "kept")]
    assert found == (sure if not exact else [*sure, row(3, 6, "was under 9"), row(4, 1, "left and came back")])


def test_a_row_of_another_chunk_gives_nothing() -> None:
    """Key 2 ends and 1 moves in from a range that was not read: the old row of 2 is none of its own."""
    gone = {"op": "d", "row": {"a": 2}}
    assert emitted([row(2, y="old")], window(gone, told(2, 5, old=1)), ("a",)) == {}


@pytest.mark.parametrize("count", [3, 40])
def test_keys_that_all_move_on_by_one(count: int) -> None:
    """Each row takes the key of its neighbour: a chain, however long."""
    shift = [told(i + 1, i, old=i) for i in reversed(range(count))]
    elsewhere = [told(i, 0) for i in range(100, 110)]
    found = emitted([row(0, y="zero"), row(5000)], window(*elsewhere, *shift), ("a",))
    assert found == {(1,): row(1, 0, "zero"), (5000,): row(5000)}


def test_an_uncovered_truncate_takes_all() -> None:
    assert emitted([row(1), row(2)], window({"op": "t"}, {"op": "c", "row": row(3)}), ("a",)) == {}


def test_without_a_key_only_a_truncate_counts() -> None:
    rows = chunk([row(1), row(1)])
    assert reconcile(rows, [Run(window({"op": "d", "row": row(1)}))], ()) is rows
    assert reconcile(rows, [Run(window({"op": "t"}))], ()).num_rows == 0


def test_columns_that_an_older_version_could_not_tell() -> None:
    update = {"op": "u", "row": {"a": 1, "b": "q", "x": 2}}
    found = reconcile(chunk([row(1)]), [Run(window(update), unknown=frozenset({"y"}))], ("a",))
    assert found.select(COLUMNS.names).to_pylist() == [{"a": 1, "b": "q", "x": 2, "y": "big"}]


def test_an_old_image_of_the_key_alone() -> None:
    """`core.evolve.conform` narrows `_before` to the key."""
    events = window(told(8, 6, old=2))
    narrow = pa.array([{"a": 2}], pa.struct([("a", pa.int32())]))
    events = events.set_column(events.column_names.index(metadata.BEFORE), metadata.BEFORE, narrow)
    assert emitted([row(2)], events, ("a",)) == {(8,): row(8, 6)}


@pytest.mark.parametrize("old_image", ["full", "key"])
@pytest.mark.parametrize("added", [[], ["x"]])
def test_a_window_knows_what_its_version_tells_of_old_rows(old_image: str, added: list[str]) -> None:
    """Also where the chunk has a column that the events do not know."""
    version = Table(1, "public", "t", (), ("a", "b"), old_image)
    staged = chunk([{"a": 1, "b": None, "x": 1}])
    events = changes([{"op": "u", "row": {"a": 1, "b": "n"}, "before": {"a": 1, "b": None}}])
    run = chunks._aligned(events.drop_columns(added), staged.schema, version, version)
    assert run is not None
    left = [(row["a"], row["b"]) for row in reconcile(staged, [run], version.key).to_pylist()]
    assert ((1, None) in left) is (old_image == "key")


@pytest.mark.parametrize("rows", [0, 3])
def test_nothing_to_do(rows: int) -> None:
    staged = chunk([row(i) for i in range(rows)])
    assert reconcile(staged, [], ("a",)) is staged
    assert reconcile(staged, [Run(window())], ("a",)) is staged


def test_uncovered_is_decided_by_transaction() -> None:
    events = window(*({"op": "c", "row": row(i)} for i in range(4)))
    at = events.column_names.index(metadata.XID)
    events = events.set_column(at, metadata.XID, pa.array(np.array([9, 10, 11, 12])))
    assert uncovered(events, Visible(10, 12, (10,)))["a"].to_pylist() == [1, 3]
    assert uncovered(events[:0], Visible(10, 12)).num_rows == 0


@pytest.mark.parametrize("text", ["795:799:795,797", "795:799:795,797,", "795:799:795,797,,", "795:799:795,797,795"])
def test_a_snapshot_as_text(text: str) -> None:
    assert Visible.parse(text) == Visible(795, 799, (795, 797))


@pytest.mark.parametrize(
    "text", ["", "1:2", "1:2:,", "1:2:3,,4", "\u0667:\u0668:", f"{1 << 63}:1:", f"1:{1 << 63}:", "1:2:3 "]
)
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a snapshot"):
        Visible.parse(text)
