"""Both modes, over a simulated LogMiner: what begins, ends, is taken back, is left out, and where reading goes on."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from tests.oracle import redo
from tests.oracle.literals import Column
from tests.unit.oracle.world import BUFFERED, MODES, START, UNBUFFERED, World, commit, insert, keys
from tidelog.connectors.oracle import note as notes
from tidelog.connectors.oracle import position
from tidelog.connectors.oracle.buffered import Begun
from tidelog.connectors.oracle.note import Inside, Note
from tidelog.contracts import Kept, Mixed
from tidelog.errors import CorruptState, PositionLost

both = pytest.mark.parametrize("adapter", MODES)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    return lambda adapter, **options: World(tmp_path, monkeypatch, adapter, **options)


@both
def test_transactions_come_in_the_order_of_their_commits(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    world = make(adapter)
    first, second = world.begin(), world.begin()
    insert(first, world.table, 1)
    insert(second, world.table, 2)
    insert(first, world.table, 3)
    commit(second)
    commit(first)
    assert keys(world.drained()) == ["c2", "c1", "c3"]


@both
def test_two_commits_may_share_an_scn(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    world = make(adapter)
    first, second = world.begin(), world.begin()
    insert(first, world.table, 1)
    insert(second, world.table, 2)
    scn = commit(second)
    first.commit(scn)
    world.drained()
    assert [t["position"] for t in world.transactions()] == [scn * 4096, scn * 4096 + 1]
    assert json.loads(world.transactions()[1]["note"])["commit_scn"] == (
        f"{scn}:1:{'-'.join(sorted([first.work.hex, second.work.hex]))}"
    )


@both
@pytest.mark.parametrize("shown", [True, False])
def test_what_is_taken_back_never_comes(make, adapter: str, shown: bool) -> None:  # type: ignore[no-untyped-def]
    world = make(adapter)
    world.database.shows_undone = shown
    begun = world.begin()
    row = insert(begun, world.table, 1)
    saved = begun.savepoint()
    begun.update(world.table, row, {"NAME": "x"})
    insert(begun, world.table, 2)
    begun.rollback_to(saved)
    insert(begun, world.table, 3)
    commit(begun)
    gone = world.begin()
    insert(gone, world.table, 4)
    gone.rollback()
    assert keys(world.drained()) == ["c1", "c3"]


@both
def test_a_transaction_without_a_start(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    world = make(adapter)
    begun = world.begin(silent=True)
    insert(begun, world.table, 1)
    commit(begun)
    assert keys(world.drained()) == ["c1"]


@both
def test_users_are_left_out(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    world = make(adapter, log_mining_username_exclude_list="batch")
    mine, other = world.begin(), world.begin(user="BATCH")
    insert(mine, world.table, 1)
    insert(other, world.table, 2)
    commit(other)
    commit(mine)
    assert keys(world.drained()) == ["c1"]


@both
def test_private_redo_threads_are_not_ours(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    world = make(adapter)
    world.database.redo.enable(2).enabled = "PRIVATE"
    begun = world.begin(thread=2)
    insert(begun, world.table, 1)
    commit(begun)
    world.committed(2)
    assert keys(world.drained()) == ["c2"]


@both
def test_replication_markers(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    world = make(adapter)
    begun = world.begin()
    insert(begun, world.table, 1)
    begun.mark()
    world.committed(2)
    assert keys(world.drained()) == ["c2"]
    assert world.open == {}


@both
def test_ddl_is_told_where_it_happened(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    world = make(adapter)
    world.committed(1)
    tail = world.tail()
    world.read(tail)
    world.database.redo.advance()
    wider = [*world.table.columns, Column("MORE", "NUMBER", 22, 10, 0)]
    world.database.alter(world.table, wider, 'alter table "SHOP"."T" add more number', 1)
    world.committed(2)
    assert keys(world.drained(tail)) == ["c1", "s", "c2"]
    versions = [b.table for p in world.portions for b in p.blocks]
    assert [len(t.columns) for t in dict.fromkeys(versions) if t is not None] == [2, 3]


@both
def test_reading_goes_on_after_any_commit(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    """Each commit's note is enough to read all that follows it, and nothing twice."""
    world = make(adapter)
    long = world.begin()
    insert(long, world.table, 100)
    for n in range(1, 6):
        world.committed(n)
        insert(long, world.table, 100 + n)
    commit(long)
    whole = keys(world.drained())
    assert whole == [f"c{n}" for n in (1, 2, 3, 4, 5, 100, 101, 102, 103, 104, 105)]
    for done, transaction in enumerate(world.transactions(), 1):
        world.portions.clear()
        told = notes.parse(transaction["note"])
        tail = world.tail(transaction["end"], told)
        left = keys(world.drained(tail, transaction["end"]))
        assert left == whole[done:] if done < 6 else left == []


@both
def test_a_transaction_that_was_delivered_in_part(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    world = make(adapter)
    before = world.committed(1)
    inside = world.begin()
    for n in range(2, 7):
        insert(inside, world.table, n)
    commit(inside)
    world.committed(9)
    delivered = f"{before.work.commit_scn}:1:{before.work.hex}"
    # The unbuffered offset counts as the log does, START included; the buffered one counts events.
    sequence = 4 if adapter == UNBUFFERED else 3
    told = Note(1000, notes.scn.parse(delivered), inside=Inside(position.xid_of(inside.work.hex), sequence))
    start = notes.position_of(told)
    assert keys(world.drained(world.tail(start, told), start)) == ["c5", "c6", "c9"]


@both
def test_a_transaction_that_never_comes_back_is_a_lost_position(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    world = make(adapter)
    before = world.committed(1)
    world.committed(2)
    told = Note(
        1000,
        notes.scn.parse(f"{before.work.commit_scn}:1:{before.work.hex}"),
        inside=Inside(position.xid_of("0a00140012345678"), 3),
    )
    start = notes.position_of(told)
    with pytest.raises(PositionLost, match="inside the transaction 0a00140012345678, after its event 3"):
        world.drained(world.tail(start, told), start)


@both
def test_heartbeats_carry_the_place(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    world = make(adapter, heartbeat_interval_ms="1")
    world.committed(1)
    tail = world.tail()
    world.settle()
    beats = []
    for _ in range(50):
        found = tail.poll(0.002, True)
        if isinstance(found, Mixed) and found.blocks and found.blocks[0].table is None:
            beats.append(found)
    tail.close()
    places = [beat.marks.column("position")[0].as_py() for beat in beats]
    assert places == sorted(set(places))
    assert all(json.loads(beat.marks.column("note")[0].as_py())["commit_scn"] for beat in beats)
    assert beats


# -- buffered ------------------------------------------------------------------------------------------------------


def test_a_start_that_comes_again_begins_anew(make) -> None:  # type: ignore[no-untyped-def]
    world = make(BUFFERED)
    begun = world.begin()
    insert(begun, world.table, 1)
    world.database.redo.advance()
    world.database.redo.write(1, redo.START, begun.work, sql="set transaction read write;")
    insert(begun, world.table, 2)
    commit(begun)
    assert keys(world.drained()) == ["c2"]


def test_undo_and_rollback_without_a_sequence(make) -> None:  # type: ignore[no-untyped-def]
    world = make(BUFFERED)
    kept, gone = world.begin(), world.begin()
    saved = kept.savepoint()
    insert(kept, world.table, 1)
    insert(gone, world.table, 2)
    kept.rollback_to(saved, nameless=True)
    insert(kept, world.table, 3)
    gone.rollback(nameless=True)
    commit(kept)
    assert keys(world.drained()) == ["c3"]
    assert world.open == {}


def test_of_several_that_a_rollback_may_mean_none_is_dropped(make, caplog: pytest.LogCaptureFixture) -> None:  # type: ignore[no-untyped-def]
    world = make(BUFFERED)
    first, second = world.begin(), world.begin()
    second.work.xid = first.work.xid[:4] + b"\x77\0\0\0"
    insert(first, world.table, 1)
    insert(second, world.table, 2)
    world.database.redo.advance()
    world.database.redo.write(1, redo.ROLLBACK, first.work, sql="rollback;", nameless=True)
    commit(first)
    commit(second)
    with caplog.at_level(logging.WARNING):
        assert keys(world.drained()) == ["c1", "c2"]
    assert "all of them are kept" in caplog.text


def test_what_is_kept_is_not_read_again(make) -> None:  # type: ignore[no-untyped-def]
    world = make(BUFFERED)
    begun = world.begin()
    insert(begun, world.table, 1)
    resume = world.settle()
    insert(begun, world.table, 2)
    commit(begun)
    xid = position.xid_of(begun.work.hex)
    tail = world.tail(START, Note(1000), Kept(resume, {xid: begun.work.start_scn}))
    assert keys(world.drained(tail)) == ["c2"]


def test_the_log_behind_us_may_go_while_the_buffer_holds_it(make) -> None:  # type: ignore[no-untyped-def]
    world = make(BUFFERED, **{"log.mining.log.query.max.retries": "0"})
    begun = world.begin()
    insert(begun, world.table, 1)
    tail = world.tail()
    world.database.redo.switch(1)
    for archive in world.database.redo.pending_archives():
        archive.ready = True
    world.committed(5)
    world.read(tail)
    assert world.database.redo.delete_archives(world.database.scn)
    insert(begun, world.table, 2)
    world.database.redo.switch(1)
    for archive in world.database.redo.pending_archives():
        archive.ready = True
    commit(begun)
    assert keys(world.drained(tail)) == ["c5", "c1", "c2"]


def test_sessions_without_a_captured_change_hold_nothing_back(make) -> None:  # type: ignore[no-untyped-def]
    world = make(BUFFERED)
    idle = world.begin()
    world.committed(1)
    world.drained()
    (last,) = world.transactions()
    scn = int(json.loads(last["note"])["scn"])
    assert scn == last["position"] // 4096 - 1  # others may log more with the commit's own SCN
    assert scn > idle.work.start_scn


def test_a_transaction_that_was_given_up_holds_nothing_back() -> None:
    now = 0.0
    open_ = Begun(60, lambda: now)
    open_.add(1, 100)
    assert open_.oldest() == 100
    now = 61.0
    open_.add(2, 200)
    assert open_.oldest() == 200
    assert 1 in open_


# -- unbuffered ----------------------------------------------------------------------------------------------------


def test_committed_data_has_no_rollback(
    make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    world = make(UNBUFFERED)
    empty = world.begin()
    world.database.redo.advance()
    world.database.redo.write(1, redo.ROLLBACK, empty.work, sql="rollback;")
    empty.work.commit_scn = world.database.scn
    monkeypatch.setattr("tests.oracle.mining.Session._committed", lambda _, entries: entries)
    world.database.open.remove(empty)
    with caplog.at_level(logging.WARNING):
        assert world.drained() == []
    assert "nothing of it was captured" in caplog.text
    full = world.begin()
    insert(full, world.table, 1)
    full.work.commit_scn = world.database.scn + 1
    full.rollback()
    with pytest.raises(CorruptState, match="although only committed ones were asked for"):
        world.drained()


def test_the_watermark_is_in_the_notes(make) -> None:  # type: ignore[no-untyped-def]
    world = make(UNBUFFERED)
    world.committed(1)
    open_ = world.begin()
    insert(open_, world.table, 2)
    tail = world.tail()
    for n in range(3, 9):
        world.committed(n)
        world.settle()
        for _ in range(4):
            found = tail.poll(0.0, True)
            if isinstance(found, Mixed) and found.marks.num_rows:
                last = found.marks.column("note").to_pylist()[-1]
    tail.close()
    low = int(json.loads(last)["scn"])
    assert 1000 < low < open_.work.start_scn
