"""The transaction buffer against a plain list of what a mixed log says.

A seed makes a log: transactions that begin, change tables, take changes back, commit or roll back, interleaved, some
without a begin, some large. The model replays it with dictionaries. Whatever the memory, wherever the readings are cut,
whenever a process dies, the journal holds the committed records in commit order, once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelog.contracts import MARKS, RECORDS, Block, Limits, Mixed
from tidelog.errors import CorruptState
from tidelog.journal import holding, segment, spill
from tidelog.journal.buffer import Buffer
from tidelog.journal.files import Files
from tidelog.journal.journal import SegmentJournal
from tidelog.journal.ledger import Ledger
from tidelog.model.record import Mark, Op
from tidelog.model.schema import Column, Table

ORDERS = Table(1, "public", "orders", (Column("id", "int4"), Column("name", "text")), ("id",))
WIDER = Table(1, "public", "orders", (*ORDERS.columns, Column("more", "text")), ("id",))
ITEMS = Table(2, "public", "items", (Column("id", "int4"),), ("id",))
LOBS = Table(3, "public", "lobs", (Column("id", "int4"),), ("id",))
SEEDS = 25


@dataclass(frozen=True)
class Said:
    """One thing that the log says, at a place of it."""

    lsn: int
    xid: int
    mark: Mark | None = None
    table: Table | None = None
    key: int = 0
    payload: bytes = b""
    position: int = 0


Row = tuple[str, str, int, int, bytes]
"""Table, its version, commit position, ordinal, payload."""


def a_log(seed: int, length: int = 400) -> list[Said]:
    r = random.Random(seed)
    said: list[Said] = []
    alive: dict[int, list[int]] = {}
    ids = 0
    size = r.choice([10, 200, 3000])
    for lsn in range(1, length):
        if not alive or (len(alive) < r.choice([2, 8, 40]) and r.random() < 0.2):
            ids += 1
            alive[ids] = []
            if r.random() < 0.7:
                said.append(Said(lsn, ids, Mark.BEGIN, position=lsn))
                continue
        xid = r.choice(sorted(alive))
        what = r.random()
        if what < 0.04:
            said.append(Said(lsn, xid, Mark.ROLLBACK))
            del alive[xid]
        elif what < 0.16:
            said.append(Said(lsn, xid, Mark.COMMIT, position=lsn * 8 + 7))
            del alive[xid]
        elif what < 0.22 and alive[xid]:
            said.append(Said(lsn, xid, r.choice([Mark.UNDO, Mark.UNDO, Mark.UNDO_ALL]), key=r.choice(alive[xid])))
        elif what < 0.23:
            said.append(Said(lsn, xid, Mark.BEGIN, position=lsn))
            alive[xid] = []
        else:
            orders = ORDERS if lsn < length // 2 else WIDER
            table = r.choice([orders, orders, ITEMS, LOBS])
            key = r.randint(1, 6)
            alive[xid].append(key)
            said.append(Said(lsn, xid, None, table, key, b"%d:" % lsn + b"x" * r.randint(0, size)))
    return said


def model(said: Sequence[Said]) -> list[Row]:
    """What counts, in commit order."""
    open_: dict[int, list[tuple[Said, bool]]] = {}
    rows: list[Row] = []
    for one in said:
        mine = open_.setdefault(one.xid, [])
        if one.mark is None:
            mine.append((one, True))
        elif one.mark is Mark.BEGIN:
            open_[one.xid] = []
        elif one.mark is Mark.ROLLBACK:
            del open_[one.xid]
        elif one.mark is Mark.COMMIT:
            rows += _told(one, [s for s, counts in open_.pop(one.xid) if counts])
        else:
            _undo(mine, one)
    return rows


def _undo(mine: list[tuple[Said, bool]], one: Said) -> None:
    found = [i for i, (s, counts) in enumerate(mine) if counts and s.key == one.key]
    for i in found if one.mark is Mark.UNDO_ALL else found[-1:]:
        mine[i] = (mine[i][0], False)


def _told(commit: Said, records: Sequence[Said]) -> list[Row]:
    joined: list[Said] = []
    lobs: dict[int, int] = {}
    for one in records:  # neighbours of the table of LOBs belong together
        if one.table is LOBS and one.key in lobs:
            was = joined[lobs[one.key]]
            joined[lobs[one.key]] = Said(was.lsn, was.xid, None, LOBS, was.key, was.payload + one.payload)
            continue
        if one.table is LOBS:
            lobs[one.key] = len(joined)
        joined.append(one)
    return [(s.table.name, s.table.fingerprint, commit.position, i, s.payload) for i, s in enumerate(joined) if s.table]


class Joining:
    """Joins the records of one key, as a connector joins the pieces of a LOB."""

    def __init__(self) -> None:
        self._found: dict[int, dict[str, Any]] = {}

    def feed(self, block: Block) -> list[Block]:
        for row in block.records.to_pylist():
            if row["position"] in self._found:
                self._found[row["position"]]["payload"] += row["payload"]
            else:
                self._found[row["position"]] = row
        return []

    def close(self) -> list[Block]:
        return [Block(LOBS, pa.RecordBatch.from_pylist(list(self._found.values()), schema=RECORDS))]


def reading(said: Sequence[Said]) -> Mixed:
    """A part of the log as a tail hands it over."""
    rows: dict[Table, list[dict[str, Any]]] = {}
    marks: list[dict[str, Any]] = []
    for ordinal, one in enumerate(said):
        if one.mark is None:
            assert one.table is not None
            plain = dict.fromkeys(RECORDS.names, 0) | {"position": one.key, "ordinal": ordinal, "xid": one.xid}
            row = plain | {"lsn": one.lsn, "op": ord(Op.CREATE), "origin": None, "payload": one.payload}
            rows.setdefault(one.table, []).append(row)
        else:
            mark = {"ordinal": ordinal, "xid": one.xid, "kind": ord(one.mark), "key": one.key}
            end = {"position": one.position, "end": one.position + 1, "committed": one.lsn, "note": f"n{one.lsn}"}
            marks.append(mark | end)
    blocks = [Block(t, pa.RecordBatch.from_pylist(found, schema=RECORDS)) for t, found in rows.items()]
    resume = said[-1].lsn if said else 0
    merged = frozenset({LOBS.fingerprint})
    return Mixed(blocks, pa.RecordBatch.from_pylist(marks, schema=MARKS), resume, merged)


@dataclass
class Rig:
    """A buffer and its journal on one folder; `die` forgets the processes and keeps the disk."""

    folder: Path
    memory: int
    persistent: bool
    scope: str = "all"
    journal: SegmentJournal = field(init=False)
    buffer: Buffer = field(init=False)
    done: int = 0
    """How much of the log this life has read."""
    saved: int = 0
    """How much of it a persistent buffer must remember."""
    released: int = 0
    told: list[Row] = field(default_factory=list)
    """What was delivered, and need not be in the journal any more."""

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        files = Files(str(self.folder))
        self.journal = SegmentJournal(files, Ledger(str(self.folder / "ledger.db")))
        start = self.journal.open(self.released)
        self.buffer = Buffer(
            files,
            memory_bytes=self.memory,
            start=start,
            epoch=self.journal.epoch,
            persistent=self.persistent,
            scope=self.scope,
            merging=lambda _: Joining(),
        )
        self.buffer.sweep(self.journal.referred())
        kept = self.buffer.kept()
        self.done = kept.resume if kept is not None else 0

    def read(self, said: Sequence[Said], r: random.Random, dies: float = 0.0) -> None:
        while self.done < said[-1].lsn:
            rest = [s for s in said if s.lsn > self.done][: r.randint(1, 60)]
            portions = self.buffer.add(reading(rest))
            for portion in portions:
                self.journal.append(portion)
                if r.random() < dies:
                    self.die()
                    return
            self.done = rest[-1].lsn
            if r.random() < 0.1:
                self.flush()
            if r.random() < 0.1:
                self.deliver()
            if r.random() < dies:
                self.die()
                return

    def flush(self) -> None:
        self.buffer.flush()
        self.saved = self.done if self.persistent else 0

    def deliver(self) -> None:
        """Everything so far: the journal and the buffer may forget it."""
        self.told += in_order(self.rows())
        self.released = self.journal.end()
        self.journal.release(self.released)
        self.buffer.sweep(self.journal.referred())

    def die(self) -> None:
        self.journal.close()
        self.open()
        assert self.done >= self.saved

    def rows(self) -> list[Row]:
        files = Files(str(self.folder))
        found: list[Row] = []
        for piece in self.journal.plan(self.released, self.journal.end()):
            assert piece.table is not None
            for row in segment.load(files, piece).to_pylist():
                version = piece.table.fingerprint
                found.append((piece.table.name, version, row["position"], row["ordinal"], row["payload"]))
        return found


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row[2], row[3]))


@pytest.mark.parametrize("first", [0, *(pytest.param(n * SEEDS, marks=pytest.mark.long) for n in range(1, 24))])
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "transient"])
def test_what_committed_comes_in_commit_order(
    tmp_path: Path, persistent: bool, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first, first + SEEDS):
        r = random.Random(seed)
        monkeypatch.setattr(holding, "_TINY_ROWS", r.choice([1, 16]))
        monkeypatch.setattr("tidelog.journal.buffer._TRICKLE", r.choice([0, 500, 8 << 10]))
        monkeypatch.setattr("tidelog.journal.buffer._EARLY", r.choice([3, 100, 1 << 20]))
        monkeypatch.setattr("tidelog.journal.buffer._PIECE_ROWS", r.choice([3, 50_000]))
        monkeypatch.setattr("tidelog.journal.handover._INLINE_BYTES", inline := r.choice([0, 1 << 20]))
        said = [one for one in a_log(seed) if inline or one.table is not LOBS]
        rig = Rig(tmp_path / str(seed), r.choice([1 << 10, 20 << 10, 1 << 20]), persistent)
        dies = r.choice([0.0, 0.02, 0.1])
        for _ in range(r.randint(0, 4)):
            rig.read(said, r, dies)
        rig.read(said, r)
        found, expected = rig.rows(), model(said)
        assert [*rig.told, *in_order(found)] == expected, f"seed {seed}"
        for table in (1, 2, 3):  # a table's slices are in order without sorting
            mine = [row for row in found if row[0] == {1: "orders", 2: "items", 3: "lobs"}[table]]
            assert mine == in_order(mine), f"seed {seed}, {mine[0][0]}"
        rig.journal.close()


def _large(xid: int, events: int, first: int = 1) -> list[Said]:
    return [Said(first + i, xid, None, ORDERS, 1, b"%07d" % i * 30) for i in range(events)]


def _read_all(rig: Rig, said: Sequence[Said], at_once: int = 500) -> None:
    for low in range(0, len(said), at_once):
        for portion in rig.buffer.add(reading(said[low : low + at_once])):
            rig.journal.append(portion)


def test_a_large_transaction_is_written_once_and_not_read_for_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, 64 << 10, True)
    said = _large(7, 20_000)
    _read_all(rig, said)
    assert rig.buffer.held() < 1 << 20
    monkeypatch.setattr(spill.Reader, "read", lambda *_: pytest.fail("it was read"))
    commit = Said(30_000, 7, Mark.COMMIT, position=99)
    [portion] = rig.buffer.add(reading([commit]))
    monkeypatch.undo()
    rig.journal.append(portion)
    assert portion.extents
    assert sum(b.records.num_rows for b in portion.blocks) < 2000
    assert in_order(rig.rows()) == model([*said, commit])


def test_a_journal_that_fell_back_is_read_again_with_all_that_was_open(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 64 << 10, True)
    said = [*_large(7, 10), Said(20, 7, Mark.COMMIT, position=99), *_large(8, 10, 21)]
    _read_all(rig, said)
    rig.buffer.flush()
    rig.die()
    assert rig.done == said[-1].lsn
    for file in (tmp_path / "segments").iterdir():
        file.unlink()
    rig.die()
    assert rig.done == 0
    assert rig.buffer.open() == {}


def test_a_rollback_leaves_no_files(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 64 << 10, True)
    _read_all(rig, _large(7, 10_000))
    assert len(list((tmp_path / "open").iterdir())) > 3
    list(rig.buffer.add(reading([Said(20_000, 7, Mark.ROLLBACK)])))
    rig.buffer.flush()
    rig.buffer.sweep(rig.journal.referred())
    assert [spill.is_state(p.name) for p in (tmp_path / "open").iterdir()] == [True]  # what a restart begins with


def test_files_stay_until_their_transaction_is_delivered(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 64 << 10, True)
    said = [*_large(7, 10_000), Said(20_000, 7, Mark.COMMIT, position=99), *_large(8, 10, 20_001)]
    said.append(Said(20_100, 8, Mark.COMMIT, position=199))
    _read_all(rig, said)
    rig.buffer.flush()
    rig.buffer.sweep(rig.journal.referred())
    assert in_order(rig.rows()) == model(said)
    rig.journal.release(150)
    rig.buffer.sweep(rig.journal.referred())
    assert len(list((tmp_path / "open").iterdir())) == 1


def _damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def _spilled(folder: Path) -> list[Path]:
    return sorted(p for p in (folder / "open").glob("*.arrow") if not spill.is_state(p.name))


def test_a_damaged_file_is_found_and_read_from_the_database_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 64 << 10, True)
    said = [*_large(7, 10_000), Said(20_000, 7, Mark.COMMIT, position=99)]
    _read_all(rig, said)
    _damage(_spilled(tmp_path)[1])
    with pytest.raises(CorruptState, match="damaged"):
        rig.rows()
    rig.die()
    assert (rig.journal.end(), rig.done) == (0, 0)
    _read_all(rig, said)
    assert in_order(rig.rows()) == model(said)


@pytest.mark.parametrize("kind", ["records", "state"])
def test_a_damaged_file_of_an_open_transaction_is_not_begun_with(tmp_path: Path, kind: str) -> None:
    rig = Rig(tmp_path, 64 << 10, True)
    said = [*_large(7, 2_000), *_large(8, 20, 5_000)]
    _read_all(rig, said)
    rig.buffer.flush()
    rig.buffer.sweep(rig.journal.referred())
    _damage(_spilled(tmp_path)[0] if kind == "records" else max((tmp_path / "open").glob("*.state.arrow")))
    rig.die()
    assert rig.done == 0
    said += [Said(6_000, 8, Mark.COMMIT, position=98), Said(6_001, 7, Mark.COMMIT, position=99)]
    _read_all(rig, said)
    assert in_order(rig.rows()) == model(said)


def test_under_other_filters_open_transactions_are_read_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 64 << 10, True)
    _read_all(rig, _large(7, 10))
    rig.buffer.flush()
    rig.scope = "more"
    rig.die()
    assert rig.done == 0


def test_the_next_start_knows_the_tables_as_they_were(tmp_path: Path) -> None:
    """What an open transaction tells of a table is not in the journal yet, or not any more."""
    rig = Rig(tmp_path, 64 << 10, True)
    _read_all(rig, [*_large(7, 3), Said(5, 8, None, WIDER, 1), Said(6, 7, Mark.COMMIT, position=99)])
    rig.buffer.flush()
    assert [t.fingerprint for t in rig.journal.tables()] == [ORDERS.fingerprint]
    rig.die()
    assert rig.buffer.tables([ORDERS, ITEMS]) == [WIDER, ITEMS]


def test_what_the_next_start_begins_with_stays_until_there_is_something_newer(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 64 << 10, True)
    _read_all(rig, [*_large(7, 2_000), *_large(8, 20, 5_000)])
    rig.buffer.flush()
    _read_all(rig, [Said(6_000, 7, Mark.ROLLBACK)])
    rig.buffer.sweep(rig.journal.referred())
    rig.die()
    assert set(rig.buffer.open()) == {7, 8}


def test_a_commit_of_nothing_does_not_keep_a_restart_from_what_was_kept(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 64 << 10, True)
    _read_all(rig, [*_large(7, 2), Said(4, 7, Mark.UNDO_ALL, key=1), Said(5, 7, Mark.COMMIT, position=99)])
    _read_all(rig, _large(8, 20, 10))
    rig.buffer.flush()
    rig.die()
    assert set(rig.buffer.open()) == {8}


def test_a_transaction_that_trickles_on_does_not_leave_a_file_each_time(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 256 << 10, True)
    _read_all(rig, _large(7, 4_000))
    rig.buffer.flush()
    before = len(_spilled(tmp_path))
    for i in range(20):
        _read_all(rig, _large(7, 1, 5_000 + i))
        rig.buffer.flush()
        rig.buffer.sweep(rig.journal.referred())
    assert len(_spilled(tmp_path)) == before
    assert len(list((tmp_path / "open").glob("*.state.arrow"))) == 1


def test_what_lies_in_other_files_counts_for_the_journal(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 64 << 10, True)
    said = [*_large(7, 10_000), Said(20_000, 7, Mark.COMMIT, position=99)]
    _read_all(rig, said)
    payload = sum(len(s.payload) for s in said)
    assert rig.journal.bytes() > payload * 0.9
    rig.die()
    assert rig.journal.bytes() > payload * 0.9


def test_what_was_taken_back_of_a_large_transaction_does_not_fill_the_memory(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 64 << 10, True)
    said = [s for i in range(60) for s in (*_large(7, 100, i * 300), Said(i * 300 + 250, 7, Mark.UNDO, key=1))]
    _read_all(rig, said)
    before = pa.total_allocated_bytes()
    for portion in rig.buffer.add(reading([Said(90_000, 7, Mark.COMMIT, position=99)])):
        assert pa.total_allocated_bytes() - before < 600 << 10
        rig.journal.append(portion)
    assert in_order(rig.rows()) == model([*said, Said(90_000, 7, Mark.COMMIT, position=99)])


def test_ten_thousand_open_at_once_stay_in_bounds(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 4 << 20, True)
    for round_ in range(8):
        rows = np.random.default_rng(round_).permutation(10_000)
        said = [Said(1 + round_ * 10_000 + i, int(x) + 1, None, ITEMS, 1, b"y" * 100) for i, x in enumerate(rows)]
        assert list(rig.buffer.add(reading(said))) == []
        assert rig.buffer.held() < 8 << 20
    assert len(rig.buffer.open()) == 10_000
    commits = [Said(300_000 + x, x, Mark.COMMIT, position=300_000 + x) for x in range(1, 10_001)]
    for portion in rig.buffer.add(reading(commits)):
        rig.journal.append(portion)
    assert len(rig.rows()) == 80_000


def test_a_small_transaction_does_not_hold_what_it_was_read_with(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 1 << 20, True)
    before = pa.total_allocated_bytes()
    for i in range(40):
        lsn, table = 1 + i * 1000, Table(10 + i, "public", f"t{i}", ORDERS.columns, ("id",))
        said = [Said(lsn + n, 5, None, table, 1, b"%07d" % n * 30) for n in range(500)]
        said += [Said(lsn + 500, 1_000_000 + i, None, table, 1, b"z"), Said(lsn + 600, 5, Mark.ROLLBACK)]
        list(rig.buffer.add(reading(said)))
    assert len(rig.buffer.open()) == 40
    assert pa.total_allocated_bytes() - before < 3 << 20
    assert not _spilled(tmp_path)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [(Limits(events=50), "51 events"), (Limits(bytes=2000), "bytes"), (Limits(age_s=5), "6 s")],
)
def test_an_abandoned_transaction_is_told_of_and_never_delivered(tmp_path: Path, limits: Limits, reason: str) -> None:
    clock = iter(range(0, 10**9, 3_000_000))
    buffer = Buffer(Files(str(tmp_path)), memory_bytes=1 << 20, limits=limits, now_us=lambda: next(clock))
    assert list(buffer.add(reading([*_large(7, 20), *_large(8, 2, 500)]))) == []
    list(buffer.add(reading(_large(7, 31, 100))))
    told = buffer.abandoned()
    assert told[0].xid == 7
    assert reason in told[0].reason
    assert buffer.abandoned() == []
    rest = [*_large(7, 5, 900), Said(990, 7, Mark.COMMIT, position=99), *_large(7, 1, 991)]
    rest.append(Said(995, 7, Mark.COMMIT, position=199))
    [portion] = buffer.add(reading(rest))
    assert portion.transactions.column("position").to_pylist() == [199]


def _short(folder: Path, persistent: bool = True, clock: int = 1) -> Buffer:
    """A buffer that gives up what has more than 50 events, or is open for more than an hour."""
    limits = Limits(events=50, age_s=3600)
    files = Files(str(folder))
    return Buffer(files, memory_bytes=1 << 20, limits=limits, persistent=persistent, now_us=lambda: clock * 1_000_000)


@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "transient"])
def test_an_abandoned_transaction_does_not_come_to_life_in_half(tmp_path: Path, persistent: bool) -> None:
    buffer = _short(tmp_path, persistent)
    list(buffer.add(reading([*_large(7, 60), *_large(8, 1, 100)])))
    buffer.flush()
    assert [one.xid for one in buffer.abandoned()] == [7]
    rest = [*_large(7, 5, 200), Said(210, 7, Mark.COMMIT, position=99)]
    assert list(_short(tmp_path, persistent).add(reading(rest))) == []
    buffer = _short(tmp_path, persistent)  # the end was read, but nothing tells that it need not be read again
    assert list(buffer.add(reading(rest))) == []
    [portion] = buffer.add(reading([*_large(7, 5, 300), Said(310, 7, Mark.COMMIT, position=199)]))
    assert portion.transactions.column("events").to_pylist() == [5]  # an id that came again


def test_what_was_given_up_after_the_last_state_is_not_opened_again(tmp_path: Path) -> None:
    buffer = _short(tmp_path)
    list(buffer.add(reading([*_large(7, 40), *_large(8, 1, 100)])))
    buffer.flush()
    list(buffer.add(reading(_large(7, 20, 200))))
    kept = _short(tmp_path).kept()
    assert kept is not None
    assert (set(kept.open), kept.given_up) == ({8}, {7})


def test_the_time_when_nobody_read_is_no_age(tmp_path: Path) -> None:
    buffer = _short(tmp_path, clock=10)
    list(buffer.add(reading(_large(7, 3))))
    buffer.flush()
    buffer = _short(tmp_path, clock=8 * 3600)
    list(buffer.add(reading(_large(7, 3, 100))))
    buffer.flush()
    assert buffer.abandoned() == []
    buffer = _short(tmp_path, clock=16 * 3600)
    assert buffer.abandoned() == []
    assert set(buffer.open()) == {7}


def test_records_of_one_origin_beside_others(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 1 << 20, True)
    mixed = reading([*_large(7, 50), *_large(8, 50, 100)])
    [block] = mixed.blocks
    origins = pa.array(["there"] * 50 + [None] * 50)
    named = block.records.set_column(7, RECORDS.field(7), origins)
    list(rig.buffer.add(Mixed([Block(ORDERS, named)], mixed.marks, mixed.resume)))
    rig.buffer.flush()
    rig.die()
    assert set(rig.buffer.open()) == {7, 8}


def test_a_state_of_an_earlier_way_to_read_is_not_begun_with(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 64 << 10, True)
    _read_all(rig, _large(7, 10))
    rig.buffer.flush()
    rig.persistent = False
    rig.die()
    rig.persistent = True
    rig.die()
    assert rig.buffer.kept() is None


def test_numbers_of_files_are_not_given_twice(tmp_path: Path) -> None:
    """An epoch may come again when the disk has lost its mark."""
    for life in range(3):
        buffer = Buffer(Files(str(tmp_path)), memory_bytes=1 << 20, epoch=1, persistent=True)
        list(buffer.add(reading(_large(7 + life, 3, 1 + life * 10))))
        buffer.flush()
    assert len(list((tmp_path / "open").glob("*.state.arrow"))) == 3


def test_commits_that_were_delivered_are_left_out(tmp_path: Path) -> None:
    buffer = Buffer(Files(str(tmp_path)), memory_bytes=1 << 20, start=100)
    said = [
        *_large(1, 2),
        Said(5, 1, Mark.COMMIT, position=99),
        *_large(2, 2, 6),
        Said(9, 2, Mark.COMMIT, position=100),
    ]
    [portion] = buffer.add(reading(said))
    assert portion.transactions.column("xid").to_pylist() == [2]
    assert portion.transactions.column("note").to_pylist() == ["n9"]


def test_a_transaction_of_which_all_was_taken_back_is_no_news(tmp_path: Path) -> None:
    buffer = Buffer(Files(str(tmp_path)), memory_bytes=1 << 20)
    said = [*_large(1, 2), Said(4, 1, Mark.UNDO_ALL, key=1), Said(5, 1, Mark.COMMIT, position=99)]
    assert list(buffer.add(reading(said))) == []


def test_the_events_of_each_table_are_counted(tmp_path: Path) -> None:
    buffer = Buffer(Files(str(tmp_path)), memory_bytes=1 << 20, collections=True)
    said = [
        *_large(1, 3),
        Said(4, 1, None, ITEMS, 2),
        Said(5, 1, Mark.UNDO, key=1),
        Said(6, 1, Mark.COMMIT, position=9),
    ]
    [portion] = buffer.add(reading(said))
    assert portion.transactions.column("collections").to_pylist() == ['{"public.orders": 2, "public.items": 1}']
    assert portion.transactions.column("events").to_pylist() == [3]
