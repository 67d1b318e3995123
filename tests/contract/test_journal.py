"""One behaviour, every journal: on a local folder and on S3, plain and compressed.

The oracle is a plain list of transactions, the log. Whatever happens to files and readers, a range of the journal gives
exactly the log's records of that range, or the journal says from where they have to be read again.
"""

from __future__ import annotations

import gc
import random
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.servers import S3
from tidelog.contracts import RECORDS, TRANSACTIONS, Block, Journal, Portion, Slice
from tidelog.errors import CorruptState, PositionLost
from tidelog.journal import segment
from tidelog.journal.files import Files
from tidelog.journal.journal import SegmentJournal
from tidelog.journal.ledger import Ledger
from tidelog.model.schema import Column, Table

ORDERS = Table(1, "public", "orders", (Column("id", "int4"), Column("name", "text")), ("id",))
ITEMS = Table(2, "public", "items", (Column("id", "int4"),), ("id",))
TABLES: Sequence[Table | None] = (ORDERS, ITEMS, None)
START = 1000
Record = tuple[str, int, int, bytes]


# -- the log -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transaction:
    position: int
    rows: Sequence[Table | None]
    origin: str | None = None

    @property
    def end(self) -> int:
        return self.position + 9

    @property
    def note(self) -> str | None:
        return f"after {self.position}" if self.position % 3 else None

    @property
    def committed(self) -> int:
        return 10**15 + self.position

    @property
    def size(self) -> int:
        return 100 * len(self.rows)

    def records(self) -> list[Record]:
        return [(name(t), self.position, i, payload(self.position, i)) for i, t in enumerate(self.rows)]


def name(table: Table | None) -> str:
    return table.name if table else ""


def payload(position: int, ordinal: int) -> bytes:
    return b"%d.%d" % (position, ordinal) * (1 + ordinal % 3)


def log(count: int, *, seed: int = 1, rows: int = 6) -> list[Transaction]:
    """Transactions of random sizes over several tables, one of them in ten rather long."""
    r = random.Random(seed)
    made, at = [], START
    for _ in range(count):
        at += 8 * r.randint(1, 5)
        n = r.randint(1, rows) * (8 if r.random() < 0.1 else 1)
        made.append(Transaction(at | 7, r.choices(TABLES, k=n), r.choice([None, None, "north"])))
        at = made[-1].end
    return made


def block(table: Table | None, part: Sequence[tuple[Transaction, int]]) -> Block:
    columns = {
        "position": [t.position for t, _ in part],
        "ordinal": [i for _, i in part],
        "table_ordinal": [i for _, i in part],
        "xid": [t.position for t, _ in part],
        "committed": [t.committed for t, _ in part],
        "lsn": [t.position - 7 for t, _ in part],
        "op": [ord("c")] * len(part),
        "origin": [t.origin for t, _ in part],
        "payload": [payload(t.position, i) for t, i in part],
    }
    return Block(table, pa.RecordBatch.from_pydict(columns, schema=RECORDS))


def portion(part: Sequence[tuple[Transaction, int]], done: Sequence[Transaction]) -> Portion:
    blocks = [block(t, [(x, i) for x, i in part if x.rows[i] is t]) for t in TABLES]
    commits = {
        "position": [t.position for t in done],
        "end": [t.end for t in done],
        "xid": [t.position for t in done],
        "committed": [t.committed for t in done],
        "events": [len(t.rows) for t in done],
        "bytes": [t.size for t in done],
        "collections": [None] * len(done),
        "note": [t.note for t in done],
    }
    transactions = pa.RecordBatch.from_pydict(commits, schema=TRANSACTIONS)
    return Portion(done[-1].end if done else 0, [b for b in blocks if b.records.num_rows], transactions)


@dataclass
class Reader:
    """The tail of the log: hands over the next events, wherever a transaction is at that moment."""

    log: Sequence[Transaction]
    pending: list[tuple[Transaction, int]] = field(default_factory=list)

    def start(self, at: int) -> None:
        self.pending = [(t, i) for t in self.log if t.position >= at for i in range(len(t.rows))]

    def next(self, events: int) -> Portion:
        part, self.pending = self.pending[:events], self.pending[events:]
        return portion(part, [t for t, i in part if i == len(t.rows) - 1])


def whole(transactions: Sequence[Transaction]) -> Portion:
    return portion([(t, i) for t in transactions for i in range(len(t.rows))], transactions)


def expected(transactions: Sequence[Transaction], start: int, end: int) -> list[Record]:
    return [row for t in transactions if start <= t.position < end for row in t.records()]


# -- the journal ---------------------------------------------------------------------------------------------------


@dataclass
class Lab:
    """A place for journals, and what can happen to it."""

    files: Files
    ledger: Path
    compression: str | None
    opened: list[SegmentJournal] = field(default_factory=list)

    def journal(self, *, own_ledger: bool = False, **more: Any) -> SegmentJournal:
        ledger = Ledger(":memory:" if own_ledger else str(self.ledger))
        made = SegmentJournal(self.files, ledger, compression=self.compression, **more)
        self.opened.append(made)
        return made

    def read(self, piece: Slice) -> list[Record]:
        rows = segment.read(self.files, piece.path, piece.index, piece.checksum).slice(
            piece.first, piece.last - piece.first
        )
        return [
            (name(piece.table), row["position"], row["ordinal"], row["payload"])
            for row in rows.to_pylist()
            if piece.low <= row["position"] < piece.high
        ]

    def served(self, journal: Journal, start: int, end: int) -> list[Record]:
        """A range in log order; each table's records must come in order by themselves."""
        rows = [row for piece in journal.plan(start, end) for row in self.read(piece)]
        for table in TABLES:
            mine = [row for row in rows if row[0] == name(table)]
            assert mine == sorted(mine, key=lambda row: row[1:3])
        return sorted(rows, key=lambda row: row[1:3])

    def segments(self) -> list[str]:
        return [f"{segment.FOLDER}/{base}" for base in self.files.names(segment.FOLDER)]

    def content(self, path: str) -> bytes:
        found = self.files.read(path)
        assert found is not None
        return found

    def forget_ledger(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.ledger}{suffix}").unlink(missing_ok=True)

    def close(self) -> None:
        for journal in self.opened:
            journal.close()


@pytest.fixture(params=["local", "local-zstd", "s3-lz4"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    where, _, compression = request.param.partition("-")
    if where == "s3":
        s3: S3 = request.getfixturevalue("s3")
        files = Files(s3.url("journal"))
    else:
        files = Files(str(tmp_path / "journal"))
    made = Lab(files, tmp_path / "ledger.sqlite", compression or None)
    yield made
    made.close()


@pytest.fixture(params=[None, "lz4"], ids=["plain", "lz4"])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """For what is about bytes, not about the place where they lie."""
    made = Lab(Files(str(tmp_path / "journal")), tmp_path / "ledger.sqlite", request.param)
    yield made
    made.close()


def filled(lab: Lab, transactions: Sequence[Transaction], events: int, **more: Any) -> SegmentJournal:
    """A journal that holds the whole log in segments of so many events."""
    journal, reader = lab.journal(**more), Reader(transactions)
    reader.start(journal.open(START))
    while reader.pending:
        journal.append(reader.next(events))
    return journal


# -- append, plan, limit -------------------------------------------------------------------------------------------


def test_a_range_gives_its_records(lab: Lab) -> None:
    transactions = log(12)
    journal = filled(lab, transactions, 7)
    assert journal.end() == transactions[-1].end
    ends = [START, *(t.end for t in transactions)]
    for low, high in pairwise(ends):
        assert lab.served(journal, low, high) == expected(transactions, low, high)
    assert lab.served(journal, START, journal.end()) == expected(transactions, START, journal.end())
    assert journal.plan(START, START) == []
    assert {t.name for t in journal.tables()} == {"orders", "items"}


def test_the_end_waits_for_the_commit(lab: Lab) -> None:
    long = Transaction(2007, [ORDERS] * 30)
    journal, reader = lab.journal(), Reader([Transaction(1007, [ITEMS]), long])
    reader.start(journal.open(START))
    for _ in range(3):
        journal.append(reader.next(10))
        assert journal.end() == 1016
        assert lab.served(journal, START, journal.end()) == Transaction(1007, [ITEMS]).records()
    journal.append(reader.next(10))
    assert journal.end() == long.end
    assert lab.served(journal, 1016, journal.end()) == long.records()


def test_limits(lab: Lab) -> None:
    """As much as fits, at least one transaction, never past `until`, however the segments are cut."""
    transactions = log(15, seed=3)
    journal = filled(lab, transactions, 9)
    ends = [START, *(t.end for t in transactions)]
    r = random.Random(5)
    for _ in range(40):
        first = r.randrange(len(transactions))
        events, size = r.choice([None, 1, 10, 40, 10**6]), r.choice([None, 1, 900, 5000])
        until = r.choice([None, r.choice(ends), r.choice(ends) + 3])
        last = first
        for t in transactions[first:]:
            taken = transactions[first : last + 1]
            over = events is not None and sum(len(x.rows) for x in taken) > events
            over |= size is not None and sum(x.size for x in taken) > size
            if (last > first and over) or (until is not None and t.end > until):
                break
            last += 1
        assert journal.limit(ends[first], events, size, until) == ends[last], (first, events, size, until)
    assert journal.limit(ends[-1], 10, None) == ends[-1]


def test_commit_times(lab: Lab) -> None:
    transactions = log(8)
    journal = filled(lab, transactions, 5)
    ends = [START, *(t.end for t in transactions)]
    for before, after, t in zip(ends, ends[1:], transactions, strict=False):
        assert journal.oldest_pending(before) == t.committed
        assert journal.last_commit(after) == (t.position, t.committed, t.note)
    assert journal.oldest_pending(ends[-1]) == 0
    assert journal.last_commit(START) == (0, 0, None)


def test_commits_of_a_range(lab: Lab) -> None:
    transactions = log(10)
    journal = filled(lab, transactions, 4)
    low, high = transactions[2].end, transactions[7].end
    found = [row for piece in journal.commit_slices(low, high) for row in lab.read(piece)]
    assert [at for _, at, _, _ in found] == [t.position for t in transactions[3:8]]


def test_a_huge_block_is_read_in_slices(tmp_path: Path) -> None:
    lab = Lab(Files(str(tmp_path)), tmp_path / "ledger.sqlite", None)
    journal = lab.journal()
    journal.open(START)
    huge = Transaction(2007, [ORDERS] * 120_001)
    journal.append(whole([huge]))
    pieces = journal.plan(START, huge.end)
    assert [(p.first, p.last) for p in pieces] == [(0, 50_000), (50_000, 100_000), (100_000, 120_001)]
    assert [row for p in pieces for row in lab.read(p)] == huge.records()
    lab.close()


# -- release -------------------------------------------------------------------------------------------------------


def test_released_segments_go_and_the_newest_stays(lab: Lab) -> None:
    transactions = log(12)
    journal = filled(lab, transactions, 6)
    before, size = len(lab.segments()), journal.bytes()
    journal.release(transactions[5].end)
    assert 1 < len(lab.segments()) < before
    assert journal.bytes() < size
    rest = lab.served(journal, transactions[5].end, journal.end())
    assert rest == expected(transactions, transactions[5].end, journal.end())
    journal.release(journal.end())
    assert len(lab.segments()) == 1
    again = lab.journal()
    assert again.open(transactions[-1].end) == transactions[-1].end


def test_retention_keeps_delivered_segments_for_a_rewind(lab: Lab) -> None:
    transactions = log(20)
    journal = filled(lab, transactions, 6, retention_bytes=1 << 30)
    everything = lab.segments()
    journal.release(journal.end())
    assert lab.segments() == everything
    again = lab.journal(retention_bytes=1 << 30)
    assert again.open(transactions[3].end) == transactions[-1].end
    assert lab.served(again, transactions[3].end, again.end()) == expected(transactions, transactions[3].end, 1 << 40)
    small = lab.journal(retention_bytes=journal.bytes() // 2)
    small.open(transactions[-1].end)
    small.release(transactions[-1].end)
    assert 0 < small.bytes() <= journal.bytes() // 2 + 1


def test_a_rewind_into_a_transaction_that_is_partly_released_reads_it_again(lab: Lab) -> None:
    """The segment that is left begins in mid-transaction: it must not pass for the whole."""
    first, long, last = Transaction(1007, [ITEMS]), Transaction(2007, [ORDERS] * 20), Transaction(3007, [ITEMS])
    journal = filled(lab, [first, long, last], 11)
    assert len(lab.segments()) == 2
    journal.release(long.end)
    assert len(lab.segments()) == 1
    assert journal.oldest() > long.position
    again = lab.journal()
    assert again.open(first.end) == first.end
    assert lab.served(again, first.end, last.end) == []


def test_full_until_released_but_a_huge_transaction_passes(lab: Lab) -> None:
    small, huge, last = Transaction(1007, [ORDERS] * 5), Transaction(2007, [ORDERS] * 50), Transaction(3007, [ITEMS])
    journal, reader = lab.journal(max_bytes=1), Reader([small, huge, last])
    reader.start(journal.open(START))
    assert not journal.full()
    journal.append(reader.next(15))
    assert journal.full()
    journal.release(small.end)
    for _ in range(4):
        assert not journal.full()  # nothing of it could be released before its commit
        journal.append(reader.next(10))
    assert journal.full()
    journal.release(huge.end)
    assert not journal.full()


# -- reopen --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ledger", ["kept", "deleted"])
def test_reopened_it_serves_what_it_held(lab: Lab, ledger: str) -> None:
    reopen(lab, ledger)


@pytest.mark.parametrize("ledger", ["garbage", "half garbage", "empty", "of another version"])
def test_a_ledger_is_only_a_cache(local: Lab, ledger: str) -> None:
    reopen(local, ledger)


def reopen(lab: Lab, ledger: str) -> None:
    transactions = log(12)
    filled(lab, transactions, 7).close()
    spoil(lab.ledger, ledger)
    again = lab.journal()
    assert again.open(transactions[2].end) == transactions[-1].end
    for t, end in ((2, 5), (2, 11), (7, 9)):
        low, high = transactions[t].end, transactions[end].end
        assert lab.served(again, low, high) == expected(transactions, low, high)


def spoil(ledger: Path, how: str) -> None:
    if how == "of another version":
        with sqlite3.connect(ledger) as db:
            db.execute("PRAGMA user_version = 99")
            db.execute("DROP TABLE segment")
        db.close()
        return
    for suffix in ("-wal", "-shm"):
        Path(f"{ledger}{suffix}").unlink(missing_ok=True)
    content = ledger.read_bytes()
    noise = random.Random(1).randbytes(len(content))
    match how:
        case "deleted":
            ledger.unlink()
        case "garbage":
            ledger.write_bytes(noise)
        case "half garbage":
            ledger.write_bytes(content[: len(content) // 2] + noise[len(content) // 2 :])
        case "empty":
            ledger.write_bytes(b"")


def test_a_ledger_that_knows_other_segments_of_the_same_names_is_not_believed(lab: Lab) -> None:
    """The journal moved to another driver and back; the ledger that stayed behind is stale."""
    filled(lab, log(6, seed=1), 50).close()
    stale = lab.ledger.read_bytes()
    for path in (*lab.segments(), *(f"epochs/{base}" for base in lab.files.names("epochs"))):
        lab.files.delete(path)
    lab.forget_ledger()
    other = log(9, seed=2)
    filled(lab, other, 50).close()
    lab.forget_ledger()
    lab.ledger.write_bytes(stale)
    again, reader = lab.journal(), Reader(other)
    reader.start(again.open(START))
    while reader.pending:
        again.append(reader.next(50))
    assert lab.served(again, START, again.end()) == expected(other, START, 1 << 40)


def test_transient_reads_everything_again_but_not_after_a_reconnect(lab: Lab) -> None:
    transactions = log(6)
    filled(lab, transactions, 7).close()
    journal, reader = lab.journal(persistent=False), Reader(transactions)
    assert journal.open(START) == START
    reader.start(START)
    journal.append(reader.next(10))
    assert journal.open(START) == journal.end() > START
    assert lab.served(journal, START, journal.end()) == expected(transactions, START, journal.end())


def test_a_start_that_the_journal_does_not_reach_reads_from_there(lab: Lab) -> None:
    transactions = log(12)
    journal = filled(lab, transactions, 6)
    journal.release(transactions[8].end)
    assert lab.journal().open(START) == START
    assert lab.segments() == []
    filled(lab, transactions, 6)
    beyond = transactions[-1].end + 80
    assert lab.journal().open(beyond) == beyond


def test_half_a_transaction_of_a_broken_session_is_not_seen_twice(lab: Lab) -> None:
    transactions = [Transaction(1007, [ITEMS] * 3), Transaction(2007, [ORDERS] * 40), Transaction(3007, [ITEMS])]
    reader = Reader(transactions)
    for events in (20, 30, 7, 44):
        journal = lab.journal()
        reader.start(journal.open(START))
        journal.append(reader.next(events))
    for fresh in (journal, lab.journal(own_ledger=True)):
        if fresh is not journal:
            fresh.follow(START)
        assert fresh.end() == transactions[-1].end
        assert lab.served(fresh, START, fresh.end()) == expected(transactions, START, fresh.end())


def test_a_late_write_of_a_reader_that_was_replaced_is_ignored(lab: Lab) -> None:
    """The old reader is not dead but slow: what it still writes must neither count nor hide what is not there yet."""
    transactions = log(12)
    old, reader = lab.journal(own_ledger=True), Reader(transactions)
    reader.start(old.open(START))
    old.append(reader.next(12))
    new, newer = lab.journal(own_ledger=True), Reader(transactions)
    newer.start(new.open(START))
    new.append(newer.next(10))
    while reader.pending:
        old.append(reader.next(10))
    follower = lab.journal(own_ledger=True)
    follower.follow(START)
    assert follower.end() == new.end() < transactions[-1].end
    assert lab.served(follower, START, follower.end()) == expected(transactions, START, new.end())
    assert follower.limit(START, 10**6, None) == new.end()
    third = lab.journal(own_ledger=True)
    assert third.open(START) == new.end()
    rest = Reader(transactions)
    rest.start(new.end())
    while rest.pending:
        third.append(rest.next(10))
    assert lab.served(third, START, third.end()) == expected(transactions, START, 1 << 40)


def test_a_segment_that_was_never_finished_goes_when_the_journal_is_opened(local: Lab) -> None:
    """Its writer died; nobody else ever writes under that name."""
    filled(local, log(3), 2)
    draft = Path(local.files.path(f"{segment.segment_name(1, 99)}.tmp"))
    draft.write_bytes(b"half a segment")
    local.journal(own_ledger=True).follow(START)
    assert draft.exists(), "only who writes the journal may tidy it"
    local.journal().open(START)
    assert not draft.exists()


def test_two_readers_that_start_on_nothing_do_not_share_names(lab: Lab) -> None:
    transactions = log(4)
    old, new = lab.journal(own_ledger=True), lab.journal(own_ledger=True)
    for journal in (old, new):
        journal.open(START)
    new.append(whole(transactions[:3]))
    old.append(whole(transactions[:1]))
    assert lab.served(new, START, new.end()) == expected(transactions, START, new.end())


def test_a_follower_sees_new_segments(lab: Lab) -> None:
    transactions = log(10)
    journal, reader, follower = lab.journal(), Reader(transactions), lab.journal(own_ledger=True)
    reader.start(journal.open(START))
    follower.follow(START)
    seen = START
    assert follower.end() == seen
    while reader.pending:
        journal.append(reader.next(6))
        follower.refresh()
        assert follower.end() == journal.end()
        assert lab.served(follower, seen, follower.end()) == expected(transactions, seen, journal.end())
        seen = follower.end()
    assert lab.served(follower, START, seen) == expected(transactions, START, seen)
    journal.release(transactions[5].end)
    follower.refresh()
    assert lab.served(follower, transactions[5].end, follower.end()) == expected(
        transactions, transactions[5].end, 1 << 40
    )


def test_a_follower_that_comes_too_late_is_told(lab: Lab) -> None:
    transactions = log(12)
    journal = filled(lab, transactions, 5)
    journal.release(transactions[8].end)
    with pytest.raises(PositionLost, match="was released"):
        lab.journal(own_ledger=True).follow(transactions[2].end)
    lab.journal(own_ledger=True).follow(transactions[8].end)


# -- damage --------------------------------------------------------------------------------------------------------


def heal(lab: Lab, transactions: Sequence[Transaction], start: int) -> int:
    """Open after damage: what is served is right, and reading on from the answer makes it whole again."""
    journal, reader = lab.journal(), Reader(transactions)
    at = journal.open(start)
    assert lab.served(journal, start, at) == expected(transactions, start, at)
    reader.start(at)
    while reader.pending:
        journal.append(reader.next(9))
    assert lab.served(journal, start, journal.end()) == expected(transactions, start, 1 << 40)
    journal.close()
    return at


@pytest.mark.parametrize("how", ["missing", "torn"])
def test_damage_heals_wherever_the_journal_lies(lab: Lab, how: str) -> None:
    damage_and_heal(lab, 1, how, "kept")


@pytest.mark.parametrize("which", [0, 2, -1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("how", ["missing", "torn", "empty", "replaced"])
@pytest.mark.parametrize("ledger", ["kept", "deleted"])
def test_a_damaged_segment_is_cut_and_read_again(local: Lab, which: int, how: str, ledger: str) -> None:
    damage_and_heal(local, which, how, ledger)


def damage_and_heal(lab: Lab, which: int, how: str, ledger: str) -> None:
    transactions = log(14)
    filled(lab, transactions, 8).close()
    paths = lab.segments()
    content = lab.content(paths[which])
    match how:
        case "missing":
            lab.files.delete(paths[which])
        case "torn":
            lab.files.write(paths[which], content[: len(content) * 2 // 3])
        case "empty":
            lab.files.write(paths[which], b"")
        case "replaced":
            lab.files.write(paths[which], lab.content(paths[1]))
    if ledger == "deleted":
        lab.forget_ledger()
    at = heal(lab, transactions, START)
    assert at < transactions[-1].end
    lab.forget_ledger()
    heal(lab, transactions, START)


def regions(content: bytes) -> dict[str, range]:
    """The header up to the first block, the blocks, and the footer that describes them."""
    footer = len(content) - 10 - int.from_bytes(content[-10:-6], "little")
    header = 16 + int.from_bytes(content[12:16], "little")
    return {"header": range(header), "payload": range(header, footer), "footer": range(footer, len(content))}


@pytest.mark.parametrize("region", ["header", "payload", "footer"])
@pytest.mark.parametrize("ledger", ["kept", "deleted"])
def test_a_flipped_byte_never_gives_wrong_records(local: Lab, region: str, ledger: str) -> None:
    transactions = log(8)
    filled(local, transactions, 8).close()
    path = local.segments()[1]
    sound = {p: local.content(p) for p in local.segments()}
    kept = local.ledger.read_bytes()
    places = regions(sound[path])[region]
    r = random.Random(7)
    cut = 0
    for place in sorted(r.sample(places, min(40, len(places)))):
        for other in local.segments():
            local.files.delete(other)
        for p, content in sound.items():
            local.files.write(p, content)
        local.forget_ledger()
        if ledger == "kept":
            local.ledger.write_bytes(kept)
        broken = bytearray(sound[path])
        broken[place] ^= 1 << r.randrange(8)
        local.files.write(path, bytes(broken))
        journal = local.journal()
        at = journal.open(START)
        assert local.served(journal, START, at) == expected(transactions, START, at), place
        assert {t.to_json() for t in journal.tables()} <= {ORDERS.to_json(), ITEMS.to_json()}
        cut += at < transactions[-1].end
        journal.close()
    assert cut or region == "header"  # the header repeats what the footer says, and is not read


def test_a_byte_that_flips_while_open_is_noticed_by_who_reads_it(local: Lab) -> None:
    transactions = log(6)
    journal = filled(local, transactions, 8)
    path = local.segments()[0]
    content = bytearray(local.content(path))
    places = regions(bytes(content))["payload"]
    right = expected(transactions, START, journal.end())
    outcomes = set()
    for place in range(places.start, places.stop, 97):
        broken = bytearray(content)
        broken[place] ^= 0x10
        local.files.write(path, bytes(broken))
        outcomes.add(outcome(local, journal, right))
    assert outcomes == {"right", "noticed"}  # right where only padding was hit
    local.files.write(path, b"")
    with pytest.raises(CorruptState, match="can't be read"):
        local.served(journal, START, journal.end())


def outcome(lab: Lab, journal: SegmentJournal, right: list[Record]) -> str:
    try:
        return "right" if lab.served(journal, START, journal.end()) == right else "wrong"
    except CorruptState:
        return "noticed"


# -- everything at once --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_any_history_of_a_journal(local: Lab, seed: int) -> None:
    """Appends, releases, restarts and damage in any order, against the list."""
    r = random.Random(seed)
    transactions = log(120, seed=seed)
    ends = [START, *(t.end for t in transactions)]
    journal, reader, delivered = local.journal(retention_bytes=r.choice([0, 20_000])), Reader(transactions), START
    reader.start(journal.open(START))
    for _ in range(60):
        match r.choices(["append", "release", "restart", "damage", "ledger"], [10, 4, 1.5, 1, 0.5])[0]:
            case "append":
                if reader.pending:
                    journal.append(reader.next(r.randint(1, 30)))
            case "release":
                delivered = r.choice([e for e in ends if delivered <= e <= journal.end()])
                journal.release(delivered)
            case kind:
                journal.close()
                if kind == "ledger":
                    local.forget_ledger()
                if kind == "damage" and local.segments():
                    damage(local, r)
                journal = local.journal(retention_bytes=r.choice([0, 20_000]))
                reader.start(journal.open(delivered))
        low, high = sorted(r.choice([e for e in ends if delivered <= e <= journal.end()]) for _ in range(2))
        assert local.served(journal, low, high) == expected(transactions, low, high)
        reached = journal.limit(low, r.choice([None, 5, 50]), None)
        assert reached in ends
        assert low <= reached <= journal.end()


def damage(lab: Lab, r: random.Random) -> None:
    path = r.choice(lab.segments())
    content = bytearray(lab.content(path))
    kind = r.choice(["missing", "torn", "flip"])
    if kind == "missing":
        return lab.files.delete(path)
    if kind == "torn":
        content = content[: r.randrange(len(content))]
    else:
        content[r.randrange(len(content))] ^= 1 << r.randrange(8)
    return lab.files.write(path, bytes(content))


def test_what_a_writer_that_failed_has_written_is_gone(lab: Lab) -> None:
    """An object store shows an object when it is closed, whole or not."""
    with pytest.raises(ConnectionError), lab.files.create("half") as out:  # noqa: PT012
        out.write(b"half a file")
        raise ConnectionError
    assert "half" not in lab.files.names("")


def test_a_ledger_that_nobody_needs_any_more_is_closed() -> None:
    ledger = Ledger(":memory:")
    connection = ledger._db
    del ledger
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
