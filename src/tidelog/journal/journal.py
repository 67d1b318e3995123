"""The journal: append portions, plan ranges, release what is delivered.

Law: the journal is a cache of the database's log, addressed by its positions. A range [start, end) gives the same
records whether they were read once, twice after a crash, or again after the files were lost. Each reader session is
an *epoch*: what it wrote counts only up to where the next epoch starts, so the half transaction at the end of a
broken session, or a late write of a reader that was replaced, is never seen.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tidelog.contracts import Portion, Slice
from tidelog.errors import CorruptState, PositionLost
from tidelog.journal import segment
from tidelog.journal.files import Files
from tidelog.journal.ledger import Entry, Ledger, Placed
from tidelog.model.schema import Table

_LOG = logging.getLogger("tidelog")
_EPOCHS = "epochs"
_SPLIT_ROWS = 50_000
"""A slice has at most as many rows: a huge transaction spreads over many partitions."""


class SegmentJournal:
    def __init__(
        self,
        files: Files,
        ledger: Ledger,
        *,
        max_bytes: int = 4 << 30,
        retention_bytes: int = 0,
        compression: str | None = None,
        persistent: bool = True,
    ) -> None:
        self._files = files
        self._ledger = ledger
        self._max_bytes = max_bytes
        self._retention = retention_bytes
        self._compression = compression
        self._persistent = persistent
        self._epoch = 0
        self._number = 0
        self._begun = False
        self._epoch_start = 0
        self._end = 0
        self._released = 0
        self._entries: list[Entry] = []
        self._starts: dict[int, int] = {}
        self._changed = threading.Condition()

    # -- opening -----------------------------------------------------------------------------------------------

    def open(self, start: int, log_end: int | None = None) -> int:
        """Serve everything from `start` on; returns where the tail must continue, which begins a new epoch. A journal
        that reaches past `log_end` is emptied: the database was restored, and will write other changes there."""
        with self._changed:
            first = self._epoch == 0
            self._epoch = self._claim()
            self.refresh()
            if first and not self._persistent:
                self._drop(self._entries)
            if log_end is not None and any(entry.end > log_end for entry in self._entries):
                _LOG.warning("The journal is emptied: it reaches past the end of the database's log.")
                self._drop(self._entries)
            self._cut_damage(start)
            if not self._covers(start):
                self._drop(self._entries)
            self._sweep()
            self._released = start
            self._end = max([start, *(e.end for e in self._entries)])
            self._number, self._epoch_start, self._begun = 0, self._end, False
            self._ledger.forget(self._end)
            return self._end

    def reached(self) -> int:
        """Up to where its files hold the log; 0 when there are none."""
        with self._changed:
            self.refresh()
            return max((e.end for e in self._entries), default=0)

    def newest_version(self) -> int:
        """The position of the newest table version, also where its records are released; -1 if there is none."""
        return self._ledger.newest_version()

    def follow(self, start: int) -> None:
        """Serve a journal that another process writes."""
        with self._changed:
            self._released = start
            self.refresh()
            self.require(start)

    def require(self, start: int) -> None:
        """Refuse to serve from a place that the journal does not hold any more."""
        with self._changed:
            if not self._entries and self._end > max(start, self._released):
                raise CorruptState("The journal's segments are gone.", hint="Start again: they are read once more.")
            if self._entries and self._entries[0].floor > start:
                raise PositionLost(
                    f"The journal starts at {self._entries[0].floor}, past the wanted {start}: what lies between them "
                    "was released.",
                    hint="Was this query silent for so long that the capture forgot it? Start it with a new checkpoint "
                    "and take a new snapshot of the tables.",
                )

    def _claim(self) -> int:
        """A new epoch: no reader before us writes under its number, and none after us will."""
        claimed = self._files.names(_EPOCHS)
        epoch = 1 + max([self._epoch, *map(int, claimed), *(e for e, _ in self._names())])
        self._files.write(f"{_EPOCHS}/{epoch:08d}", b"")
        for name in claimed:
            self._files.delete(f"{_EPOCHS}/{name}")
        return epoch

    def _names(self) -> dict[tuple[int, int], str]:
        names = (n for n in self._files.names(segment.FOLDER) if n.endswith(".arrow"))
        return {segment.parse_name(name): name for name in names}

    def _sweep(self) -> None:
        """Delete files that do not count: unreadable ones and what came after them, late writes of older readers,
        and what they never finished."""
        self._files.discard_drafts(segment.FOLDER)
        kept = {(e.epoch, e.number) for e in self._entries}
        for key, name in self._names().items():
            if key not in kept:
                self._files.delete(f"{segment.FOLDER}/{name}")
        self._ledger.remove([e for e in self._ledger.segments() if (e.epoch, e.number) not in kept])

    def refresh(self) -> None:
        """Take notice of segments that the ledger does not know, and forget those that are gone."""
        known = {(e.epoch, e.number): e for e in self._ledger.segments()}
        bases = self._names()
        self._ledger.remove([e for key, e in known.items() if key not in bases])
        for key in sorted(bases.keys() - known.keys()):
            try:
                self._ledger.add(segment.describe(self._files, bases[key]))
            except CorruptState:
                break  # a gap in the numbers: everything after it is cut, and read from the database again
        entries = self._ledger.segments()
        self._starts = {e.epoch: e.epoch_start for e in entries}
        limits = self._epoch_limits()
        self._entries = [e for e in entries if e.begin < limits[e.epoch]]
        self._end = max([self._released, *(e.end for e in self._entries)])

    def _cut_damage(self, start: int) -> None:
        """Drop the first segment that is missing or damaged, and everything written after it."""
        expected: dict[int, int] = {}
        for i, entry in enumerate(self._entries):
            gap = entry.number != expected.get(entry.epoch, entry.number)
            needed = entry.high >= start
            if gap or (needed and not self._intact(entry)):
                self._drop(self._entries[i:])
                return
            expected[entry.epoch] = entry.number + 1

    def _intact(self, entry: Entry) -> bool:
        try:
            info = segment.describe(self._files, entry.name.rpartition("/")[2])
        except CorruptState:
            return False
        if Entry.of(info) != entry or not segment.verify(self._files, info):
            return False
        self._ledger.add(info)  # what the ledger says of its blocks may be as old
        return True

    def _covers(self, start: int) -> bool:
        """Whether what is left holds everything from `start` to its own end."""
        if not self._entries:
            return False
        return self._entries[0].floor <= start <= max(e.end for e in self._entries) and self._seamless()

    def _seamless(self) -> bool:
        """Each epoch starts where the one before it had come to."""
        epochs = [list(group) for _, group in itertools.groupby(self._entries, key=lambda e: e.epoch)]
        reached = max(e.end for e in epochs[0])
        for group in epochs[1:]:
            if group[0].number != 0 or group[0].epoch_start > reached:
                return False
            reached = max([reached, *(e.end for e in group)])
        return True

    # -- writing -----------------------------------------------------------------------------------------------

    def append(self, portion: Portion) -> None:
        place = segment.Place(self._epoch, self._number, self._epoch_start, self._end)
        info, buffer = segment.encode(portion, place, self._compression, begun=self._begun)
        self._files.write(info.name, buffer)
        self._ledger.add(info)
        with self._changed:
            self._number += 1
            self._starts[info.epoch] = info.epoch_start
            self._entries.append(Entry.of(info))
            self._end = max(self._end, info.end)
            self._begun = any(b.rows and b.high >= self._end for b in info.blocks)
            self._changed.notify_all()

    def full(self) -> bool:
        """Whether capture has to wait. A transaction that alone exceeds the limit is let through: nobody could
        release any of it before its commit."""
        with self._changed:
            pending = [e for e in self._entries if e.high >= self._released]
            return self._end > self._released and sum(e.size for e in pending) >= self._max_bytes

    # -- reading -----------------------------------------------------------------------------------------------

    def end(self) -> int:
        with self._changed:
            return self._end

    def wait(self, beyond: int, seconds: float) -> int:
        """The end, once it lies beyond a position or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._end > beyond, seconds)
            return self._end

    def limit(self, start: int, events: int | None, bytes: int | None, until: int | None = None) -> int:
        """The furthest end of a batch from `start`: within the limits, but at least one transaction; never past
        `until`."""
        with self._changed:
            entries, end = [e for e in self._entries if e.end > start], self._end
        if events is None and bytes is None and (until is None or end <= until):
            return max(start, end)
        taken_events = taken_bytes = 0
        reached = start
        for entry in entries:
            over = _exceeds(taken_events + entry.events, events) or _exceeds(taken_bytes + entry.bytes, bytes)
            if over or entry.low < start or _exceeds(entry.end, until):
                for commit_end, n, size in self._commits(entry, start):
                    if _exceeds(commit_end, until):
                        return reached
                    taken_events, taken_bytes = taken_events + n, taken_bytes + size
                    if reached > start and (_exceeds(taken_events, events) or _exceeds(taken_bytes, bytes)):
                        return reached
                    reached = commit_end
            else:
                taken_events, taken_bytes, reached = taken_events + entry.events, taken_bytes + entry.bytes, entry.end
        return max(reached, start)

    def last_commit(self, end: int) -> tuple[int, int, str | None]:
        """Transaction id, commit time and note of the last transaction before `end`; zeros when it is not here."""
        with self._changed:
            entries = [e for e in self._entries if e.end and e.low < end]
        for entry in reversed(entries):
            batch = self._commit_block(entry)
            ends = batch.column("lsn").to_numpy()
            at = int(np.searchsorted(ends, end, side="right")) - 1
            if at >= 0:
                return tuple(batch.column(c)[at].as_py() for c in ("xid", "committed", "origin"))
        return 0, 0, None

    def commits(self, start: int, end: int) -> pa.Table:
        """`position`, `xid` and `ordinal` (its events) of the transactions that end in (start, end]."""
        with self._changed:
            entries = [e for e in self._entries if e.end > start and e.low < end]
        parts = []
        for entry in entries:
            batch = self._commit_block(entry)
            ends = batch.column("lsn").to_numpy()
            first, last = np.searchsorted(ends, [start, end], side="right").tolist()
            parts.append(batch.select(["position", "xid", "ordinal"]).slice(first, last - first))
        empty = pa.schema([(n, pa.int64()) for n in ("position", "xid", "ordinal")])
        return pa.Table.from_batches(parts, empty)

    def oldest_pending(self, position: int) -> int:
        """Commit time of the first transaction at or after `position`; 0 when there is none."""
        with self._changed:
            entry = next((e for e in self._entries if e.end > position), None)
        if entry is None:
            return 0
        try:
            batch = self._commit_block(entry)
        except CorruptState:
            return 0  # released meanwhile; real damage shows where the records are read
        at = int(np.searchsorted(batch.column("lsn").to_numpy(), position, side="right"))
        return int(batch.column("committed")[at].as_py()) if at < batch.num_rows else 0

    def plan(self, start: int, end: int) -> list[Slice]:
        """What a batch reads: slices in log order for each table."""
        limits = self._epoch_limits()
        slices: list[Slice] = []
        for placed in self._ledger.between(start, end):
            low, high = start, min(end, limits[placed.epoch])
            if placed.info.low < high:
                slices += self._slices(placed, low, high)
        return slices

    def commit_slices(self, start: int, end: int) -> list[Slice]:
        """The commits of a range, for the transaction metadata."""
        limits = self._epoch_limits()
        with self._changed:
            entries = [e for e in self._entries if e.end > start and e.low < end]
        found: list[Slice] = []
        for entry in entries:
            info = self._ledger.commits(entry)
            placed = Placed(entry.epoch, entry.number, info)
            found += self._slices(placed, start, min(end, limits[entry.epoch])) if info.rows else []
        return found

    def tables(self) -> list[Table]:
        return self._ledger.latest()

    def _slices(self, placed: Placed, low: int, high: int) -> Iterator[Slice]:
        info = placed.info
        table = self._ledger.version(info.table) if info.table else None
        if info.path:
            yield Slice(
                info.path,
                info.index,
                table,
                info.first,
                info.last,
                low,
                high,
                info.checksum,
                info.bytes,
                info.low,
                info.committed,
            )
            return
        for first in range(0, info.rows, _SPLIT_ROWS):
            last = min(first + _SPLIT_ROWS, info.rows)
            yield Slice(
                path=placed.name,
                index=info.index,
                table=table,
                first=first,
                last=last,
                low=low,
                high=high,
                checksum=info.checksum,
                bytes=info.bytes * (last - first) // info.rows,
            )

    def _epoch_limits(self) -> dict[int, int]:
        """Up to where each epoch's word counts: where the next one starts."""
        with self._changed:
            starts = dict(self._starts)
        limits, next_start = {}, 1 << 62
        for epoch in sorted(starts, reverse=True):
            limits[epoch] = next_start
            next_start = min(next_start, starts[epoch])
        return limits

    def _commits(self, entry: Entry, start: int) -> Iterator[tuple[int, int, int]]:
        batch = self._commit_block(entry)
        ends, events, sizes = (batch.column(c).to_numpy() for c in ("lsn", "ordinal", "table_ordinal"))
        first = int(np.searchsorted(ends, start, side="right"))
        yield from zip(ends[first:].tolist(), events[first:].tolist(), sizes[first:].tolist(), strict=True)

    def _commit_block(self, entry: Entry) -> pa.RecordBatch:
        info = self._ledger.commits(entry)
        return segment.read(self._files, entry.name, 0, info.checksum)

    # -- releasing ---------------------------------------------------------------------------------------------

    def release(self, position: int) -> None:
        with self._changed:
            self._released = max(self._released, position)
            done = [e for e in self._entries if e.high < self._released and e.end <= self._released]
            # The newest segment stays: it tells a restart how far the reader had come.
            done = [e for e in done if e is not self._entries[-1]]
            self._drop(_oldest(done, sum(e.size for e in self._entries) - self._retention))
            self._changed.notify_all()

    def _drop(self, entries: Sequence[Entry]) -> None:
        gone = {(e.epoch, e.number) for e in entries}
        self._ledger.remove(entries)
        for entry in entries:
            self._files.delete(entry.name)
        self._entries = [e for e in self._entries if (e.epoch, e.number) not in gone]

    def oldest(self) -> int:
        """The oldest position that can still be served."""
        with self._changed:
            return self._entries[0].floor if self._entries else self._end

    def holds(self, position: int) -> bool:
        """Whether what lies between its oldest position and this one can be served without a gap."""
        with self._changed:
            return self._covers(position)

    def referred(self) -> set[str]:
        """The files beside the segments that they refer to."""
        return self._ledger.referred()

    @property
    def epoch(self) -> int:
        return self._epoch

    def bytes(self) -> int:
        with self._changed:
            return sum(e.size for e in self._entries)

    def close(self) -> None:
        self._ledger.close()


def _exceeds(taken: int, limit: int | None) -> bool:
    return limit is not None and taken > limit


def _oldest(entries: Sequence[Entry], excess: int) -> list[Entry]:
    """The oldest entries, as many as have to go for `excess` bytes."""
    chosen = []
    for entry in entries:
        if excess <= 0:
            break
        chosen.append(entry)
        excess -= entry.size
    return chosen
