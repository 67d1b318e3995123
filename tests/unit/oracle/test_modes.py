"""Both modes, over a simulated LogMiner: what begins, ends, is taken back, is left out, and where reading goes on."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from tests.oracle import redo
from tests.oracle.literals import Column
from tests.unit.oracle.world import BUFFERED, MODES, START, UNBUFFERED, World, commit, insert, keys
from tidelog.connectors.oracle import client, pending, position, queries
from tidelog.connectors.oracle import note as notes
from tidelog.connectors.oracle.buffered import Begun
from tidelog.connectors.oracle.decode import OracleDecoder
from tidelog.connectors.oracle.note import Inside, Note
from tidelog.contracts import Kept, Mixed
from tidelog.errors import CorruptState, PositionLost
from tidelog.model.selection import Selection

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
def test_users_stay_left_out_after_a_restart(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    """LogMiner does not know the user of a transaction whose start it has not read: it is read again."""
    world = make(adapter, log_mining_username_exclude_list="batch")
    other = world.begin(user="BATCH")
    insert(other, world.table, 1)
    world.committed(2)
    world.drained()
    (last,) = world.transactions()
    insert(other, world.table, 3)
    commit(other)
    world.committed(4)
    tail = world.tail(last["end"], notes.parse(last["note"]))
    assert keys(world.drained(tail, last["end"])) == ["c2", "c4"]


@both
def test_redo_sql_that_is_no_utf_8_is_set_aside(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    """The capture goes on, and decoding says which record it is."""
    world = make(adapter)
    begun = world.begin()
    sql = b"""insert into "SHOP"."T"("ID","NAME") values ('1','caf\xe9');"""
    world.database.write(begun, redo.INSERT, world.table, sql=sql, row_id="AAASJqAANAAAAnkAAI")
    commit(begun)
    tail = world.tail()
    world.settle()
    found = next(mixed for _ in range(20) if isinstance(mixed := tail.poll(0.0, True), Mixed))
    tail.close()
    (block,) = found.blocks
    decoded = OracleDecoder().typed(block.records, block.table, Selection(failures="dead-letter"))
    assert decoded.rows.num_rows == 0
    (letter,) = decoded.failures.to_pylist()
    assert "UTF-8" in str(letter)


@both
def test_private_redo_threads_are_not_ours(make, adapter: str, caplog: pytest.LogCaptureFixture) -> None:  # type: ignore[no-untyped-def]
    world = make(adapter)
    world.database.redo.enable(2).enabled = "PRIVATE"
    begun = world.begin(thread=2)
    insert(begun, world.table, 1)
    commit(begun)
    world.committed(2)
    tail = world.tail()
    world.read(tail)
    world.committed(3)
    assert keys(world.drained(tail)) == ["c2", "c3"]
    assert caplog.text.count("Redo thread 2 is enabled as PRIVATE") == 1


@both
def test_commits_of_no_thread_are_not_counted(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    world = make(adapter)
    world.begin().commit(loose=True)
    last = world.committed(1)
    assert keys(world.drained()) == ["c1"]
    assert json.loads(world.transactions()[-1]["note"])["commit_scn"] == f"{last.work.commit_scn}:1:{last.work.hex}"


@both
@pytest.mark.parametrize("pdb", ["", "FREEPDB1"])
def test_a_gap_in_the_log_is_told_once(make, adapter: str, pdb: str, caplog: pytest.LogCaptureFixture) -> None:  # type: ignore[no-untyped-def]
    """It belongs to no transaction and no container, and the unbuffered way reads of it in every pass."""
    world = make(adapter, database_pdb_name=pdb)
    world.database.redo.advance()
    world.database.redo.write(1, redo.MISSING_SCN, info="Missing SCN 5 - 9")
    tail = world.tail()
    for n in range(1, 4):
        world.committed(n)
        world.read(tail)
    tail.close()
    assert caplog.text.count("The log has a gap at SCN") == 1


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
def test_what_happens_while_the_start_is_looked_for(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    """The SCN and the open transactions are not asked for in one moment: nothing may fall between the two."""
    world = make(adapter)
    ended = world.begin()
    insert(ended, world.table, 1)
    begun = []

    def meanwhile(statement: str) -> None:
        if "tidelog pending" in statement:
            commit(ended)
        elif "tidelog scn" in statement and ended.over and not begun:
            begun.append(world.begin())
            insert(begun[0], world.table, 2)

    world.server.before = meanwhile
    with client.Session(world.config) as session:
        start = pending.look(session)
    world.server.before = lambda _: None
    assert ended.work.commit_scn <= start.scn
    assert begun[0].work.start_scn < start.scn
    insert(begun[0], world.table, 3)
    commit(begun[0])
    at = position.last_at(position.of_scn(start.scn))
    told = Note(start.mine_from, snapshot_scn=start.scn, pending=start.pending)
    assert keys(world.drained(world.tail(at, told), at)) == ["c2", "c3"]


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
def test_of_commits_that_share_an_scn_an_older_note_lists_the_first_only(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    """After a restart the log is read from before the place, with the note of an earlier one; when a connection breaks
    then, reading goes on at the place itself, still with that note."""
    world = make(adapter)
    begun = [world.begin() for _ in range(4)]
    for n, one in enumerate(begun, 1):
        insert(one, world.table, n)
    scn = commit(begun[0])
    for one in begun[1:]:
        one.commit(scn)
    assert keys(world.drained()) == ["c1", "c2", "c3", "c4"]
    transactions = world.transactions()
    last = notes.parse(transactions[-1]["note"])
    for older, transaction in enumerate(transactions):
        told = notes.parse(transaction["note"])
        for done in range(older + 1, 5):
            world.portions.clear()
            start = transactions[done - 1]["end"]
            assert keys(world.drained(world.tail(start, told), start)) == [f"c{n}" for n in range(done + 1, 5)]
            if done < 4:  # and the notes are whole again
                assert notes.parse(world.transactions()[-1]["note"]).commit_scn == last.commit_scn


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


@both
def test_no_heartbeat_stands_where_the_log_is_not_read_yet(make, adapter: str) -> None:  # type: ignore[no-untyped-def]
    """Its place would count as that of a commit that shares the SCN and is still to come."""
    world = make(adapter, heartbeat_interval_ms="1")
    first, second = world.begin(), world.begin()
    insert(first, world.table, 1)
    insert(second, world.table, 2)
    scn = commit(first)
    second.commit(scn)
    told = Note(1000, notes.scn.parse(f"{scn}:1:{first.work.hex}"))
    tail = world.tail(scn * 4096 + 1, told)
    tail._due = float("inf")  # the next pass is far away
    assert [tail.poll(0.002, True) for _ in range(3)] == [None] * 3
    tail._due = 0.0
    assert keys(world.drained(tail, scn * 4096 + 1)) == ["c2"]


def test_the_servers_clock_is_looked_at_again(make, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """Summer time begins while the capture runs."""
    world = make(BUFFERED)
    zone = "+01:00"
    real = client.Session.one

    def one(self: client.Session, statement: object) -> object:
        return zone if statement is queries.UTC_OFFSET else real(self, statement)  # type: ignore[arg-type]

    monkeypatch.setattr(client.Session, "one", one)
    monkeypatch.setattr("tidelog.connectors.oracle.tail._CLOCK_S", 0.0)
    tail = world.tail()
    first = world.committed(1)
    world.read(tail)
    zone = "+02:00"
    second = world.committed(2)
    world.drained(tail)
    told = [row["committed"] // 3_600_000_000 for row in world.transactions()]
    hours = [int(redo.day_of(one.work.commit_scn) * 24) for one in (first, second)]
    assert [hour - at for hour, at in zip(hours, told, strict=True)] == [1, 2]


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


def test_users_stay_left_out_where_the_buffer_is_kept(make) -> None:  # type: ignore[no-untyped-def]
    world = make(BUFFERED, log_mining_username_include_list="app")
    other, gone = world.begin(user="BATCH"), world.begin(user="BATCH")
    insert(other, world.table, 1)
    insert(gone, world.table, 9)
    gone.rollback(nameless=True)
    mine = world.begin()
    mine.work.xid = gone.work.xid[:4] + b"\x77\0\0\0"  # in the slot that is free again
    insert(mine, world.table, 2)
    resume = world.settle()
    insert(other, world.table, 3)
    insert(mine, world.table, 4)
    commit(mine)
    tail = world.tail(START, Note(1000), Kept(resume, {position.xid_of(mine.work.hex): mine.work.start_scn}))
    assert tail.seen() >= position.of_scn(resume)
    world.read(tail)
    commit(other)
    world.committed(5)
    assert keys(world.drained(tail)) == ["c4", "c5"]
    first, last = world.transactions()
    assert int(json.loads(first["note"])["scn"]) == other.work.start_scn - 1
    assert int(json.loads(last["note"])["scn"]) > other.work.commit_scn


def test_the_end_of_who_was_left_out_frees_the_log(make) -> None:  # type: ignore[no-untyped-def]
    """Also where a rollback names its slot alone, and another one takes the slot right after it."""
    world = make(BUFFERED, log_mining_username_exclude_list="batch")
    first = world.begin(user="BATCH")
    insert(first, world.table, 1)
    first.rollback(nameless=True)
    second = world.begin(user="BATCH")
    second.work.xid = first.work.xid[:4] + b"\x77\0\0\0"
    insert(second, world.table, 2)
    commit(second)
    world.committed(3)
    world.drained()
    (last,) = world.transactions()
    assert int(json.loads(last["note"])["scn"]) > second.work.start_scn


def test_a_transaction_that_was_given_up_stays_dead(make) -> None:  # type: ignore[no-untyped-def]
    """Without its START it is not told to begin: the buffer would take the rest of it for all of it."""
    world = make(BUFFERED)
    begun = world.begin()
    insert(begun, world.table, 1)
    middle = world.settle()
    insert(begun, world.table, 2)
    world.settle()
    tail = world.tail(START, Note(scn=middle))
    found = tail.poll(0.0, True) or tail.poll(0.0, True)
    tail.close()
    assert isinstance(found, Mixed)
    assert found.marks.num_rows == 0


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


def test_an_idle_redo_thread_does_not_ask_for_its_old_log(make) -> None:  # type: ignore[no-untyped-def]
    """Its last commit is long ago: what it says bounds the commits that are asked for, not the log that is mined."""
    world = make(UNBUFFERED, **{"log.mining.log.query.max.retries": "0"})
    world.database.redo.enable(2)
    idle = world.begin(thread=2)
    insert(idle, world.table, 1)
    commit(idle)
    for thread in (1, 2):
        world.database.redo.switch(thread)
    for archive in world.database.redo.pending_archives():
        archive.ready = True
    busy = world.committed(2)
    low = world.settle()
    assert world.database.redo.delete_archives(low)
    world.committed(3)
    commits = f"{busy.work.commit_scn}:1:{busy.work.hex},{idle.work.commit_scn}:2:{idle.work.hex}"
    told = Note(low, notes.scn.parse(commits))
    start = notes.position_of(told)
    assert keys(world.drained(world.tail(start, told), start)) == ["c3"]


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
