"""Ids that come again, states that were torn, files without number: what a buffer begins with, and how it lives on."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

import pytest

from tests.contract.test_buffer import ITEMS, ORDERS, WIDER, Rig, Said, in_order, model, reading
from tests.patience import Patience
from tidelog.contracts import Limits
from tidelog.journal import spill
from tidelog.journal.buffer import Buffer
from tidelog.journal.files import Files
from tidelog.model.record import Mark


def small(xid: int, events: int, first: int) -> list[Said]:
    return [Said(first + i, xid, None, ORDERS, 1, b"x") for i in range(events)]


class Short:
    """A buffer that gives up what has more than 50 events."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.die()

    def die(self, start: int = 0) -> None:
        files = Files(str(self.folder))
        limits = Limits(events=50)
        self.buffer = Buffer(files, memory_bytes=1 << 20, limits=limits, persistent=True, start=start)

    def add(self, said: list[Said]) -> list[int]:
        """Where transactions committed."""
        return [at for p in self.buffer.add(reading(said)) for at in p.transactions.column("position").to_pylist()]


# -- given up ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [True, False])
def test_an_id_that_was_given_up_comes_again(tmp_path: Path, ends: bool) -> None:
    short = Short(tmp_path)
    short.add(small(7, 60, 1))
    assert [one.xid for one in short.buffer.abandoned()] == [7]
    if ends:
        assert short.add([Said(100, 7, Mark.COMMIT, position=100)]) == []
    short.add([Said(200, 7, Mark.BEGIN, position=200), *small(7, 5, 201)])
    short.buffer.flush()
    short.die()
    assert short.buffer.open() == {7: 200}
    assert short.add([*small(7, 2, 300), Said(400, 7, Mark.COMMIT, position=400)]) == [400]


def test_an_id_that_came_again_is_still_given_up_for_who_reads_its_first_life_once_more(tmp_path: Path) -> None:
    """The state is older than both the giving up and the begin."""
    short = Short(tmp_path)
    short.add(small(7, 40, 1))
    short.buffer.flush()
    first = [*small(7, 20, 100), Said(200, 7, Mark.COMMIT, position=200)]
    second = [Said(300, 7, Mark.BEGIN, position=300), *small(7, 5, 301)]
    short.add(first[:-1])
    assert [one.xid for one in short.buffer.abandoned()] == [7]
    short.add(first[-1:])
    short.add(second)
    short.die()
    assert short.buffer.open() == {}
    assert short.add([*first, *second]) == []
    assert short.add([Said(400, 7, Mark.COMMIT, position=400)]) == [400]


def test_who_gives_up_many_writes_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short, syncs = Short(tmp_path), []
    monkeypatch.setattr(Files, "sync", lambda _, folder: syncs.append(folder))
    short.add([said for xid in range(100) for said in small(xid, 51, 1 + 100 * xid)])
    assert len(short.buffer.abandoned()) == 100
    assert len(syncs) == 1
    short.die()
    assert short.add([*small(7, 3, 20_000), Said(20_100, 7, Mark.COMMIT, position=20_100)]) == []


def test_what_is_given_up_after_a_start_does_not_cost_the_others_their_state(tmp_path: Path) -> None:
    short = Short(tmp_path)
    short.add([*small(7, 40, 1), *small(8, 3, 100)])
    short.buffer.flush()
    short.add(small(7, 20, 200))
    for _ in range(2):
        short.die()
        short.buffer.sweep(())
        assert set(short.buffer.open()) == {8}


# -- states --------------------------------------------------------------------------------------------------------


def test_a_state_that_was_torn_does_not_hide_the_one_before(tmp_path: Path) -> None:
    """An object store has no names for what is complete."""
    rig = Rig(tmp_path, 1 << 20, True)
    list(rig.buffer.add(reading(small(7, 5, 1))))
    rig.flush()
    good = max((tmp_path / "open").glob("*.state.arrow"))
    good.with_name(good.name.replace("0.state", "9.state")).write_bytes(good.read_bytes()[:500])
    rig.die()
    assert rig.buffer.open() == {7: 1}


def test_restored_blocks_share_what_they_say_of_their_table(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 64 << 10, True)
    for first in range(1, 5_000, 1_000):
        list(rig.buffer.add(reading([Said(first + i, 7, None, ORDERS, 1, b"x" * 400) for i in range(300)])))
        rig.flush()
    rig.die()
    tables = {id(ranges.table) for ranges, _ in rig.buffer._open[7].pieces}
    assert len(rig.buffer._open[7].pieces) > 3
    assert len(tables) == 1


# -- files and memory ----------------------------------------------------------------------------------------------


def test_there_are_more_spills_than_files_may_be_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "_FILES_OPEN", 3)
    rig = Rig(tmp_path, 64 << 10, True)
    said: list[Said] = []
    for first in range(1, 20_000, 1_000):
        said += (new := [Said(first + i, 7, None, ORDERS, 1, b"%d" % i + b"x" * 400) for i in range(100)])
        list(rig.buffer.add(reading(new)))
        rig.flush()
    rig.die()
    assert set(rig.buffer.open()) == {7}
    reader = spill.Reader(Files(str(tmp_path)))
    found = [reader.read(piece).num_rows for piece in spill.in_order(rig.buffer._open[7].pieces)]
    assert sum(found) == len(said)
    assert len(reader._opened) == 3
    undo = Said(30_000, 7, Mark.UNDO, key=99)
    commit = Said(30_001, 7, Mark.COMMIT, position=99)
    for portion in rig.buffer.add(reading([undo, commit])):
        rig.journal.append(portion)
    assert in_order(rig.rows()) == model([*said, undo, commit])


def test_who_stays_open_does_not_keep_the_lists_of_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.journal.holding._LISTED", 300)
    monkeypatch.setattr("tidelog.journal.buffer._CARRY", 1 << 30)
    rig = Rig(tmp_path, 4 << 20, True)
    kept: list[Said] = []
    for turn in range(8):
        first, others = 1 + turn * 10_000, range(1_000 * (turn + 1), 1_000 * (turn + 1) + 200)
        said = [Said(first + i, xid, None, ITEMS, 1, b"y" * 100) for i, xid in enumerate([*others] * 3)]
        kept += (mine := [Said(first + 5_000 + i, 7, None, ITEMS, 1, b"%d:%d" % (turn, i)) for i in range(10)])
        list(rig.buffer.add(reading([*said, *mine])))
        rig.flush()
        list(rig.buffer.add(reading([Said(first + 6_000 + xid % 1_000, xid, Mark.ROLLBACK) for xid in others])))
        rig.flush()
        rig.buffer.sweep(rig.journal.referred())
    listed = sum(len(ranges.firsts) for ranges, _ in rig.buffer._open[7].pieces)
    assert listed <= 700
    commit = Said(90_000, 7, Mark.COMMIT, position=99)
    for portion in rig.buffer.add(reading([commit])):
        rig.journal.append(portion)
    assert in_order(rig.rows()) == model([*kept, commit])


@pytest.mark.parametrize("undo", [True, False])
def test_two_versions_of_a_table_come_in_order(tmp_path: Path, undo: bool) -> None:
    """What is left in memory was moved together with what others have of the later version."""
    rig = Rig(tmp_path, 256 << 10, True)
    said = [Said(i, 7, None, ORDERS, 1, b"%07d" % i * 100) for i in range(1, 2_500)]
    for low in range(0, len(said), 500):
        list(rig.buffer.add(reading(said[low : low + 500])))
    rig.flush()
    more = [
        Said(5_000, 7, None, ORDERS, 2, b"o" * 500),
        Said(5_001, 8, None, WIDER, 1, b"b"),
        Said(5_002, 7, None, WIDER, 3, b"w" * 500),
        *([Said(5_003, 7, Mark.UNDO, key=99)] if undo else []),
    ]
    list(rig.buffer.add(reading(more)))
    rig.flush()
    commit = Said(6_000, 7, Mark.COMMIT, position=99)
    for portion in rig.buffer.add(reading([commit])):
        rig.journal.append(portion)
    found = rig.rows()
    assert found == in_order(found) == model([*said, *more, commit])


# -- the thread ----------------------------------------------------------------------------------------------------


def writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "spill"]


def test_the_thread_goes_with_its_buffer_and_holds_up_no_exit(tmp_path: Path) -> None:
    gc.collect()
    before = set(writers())
    rig = Rig(tmp_path, 64 << 10, True)
    list(rig.buffer.add(reading(small(7, 5, 1))))
    rig.flush()
    [mine] = set(writers()) - before
    assert mine.daemon
    rig.journal.close()
    del rig
    gc.collect()
    patience = Patience()
    while mine.is_alive() and not patience.is_over():
        time.sleep(0.01)
    assert not mine.is_alive()
