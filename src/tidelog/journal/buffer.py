"""The universal transaction buffer: from records of many open transactions to transactions in commit order.

A mixed log (Oracle without a filter, IBM i, PostgreSQL while it streams) tells changes as they happen, and only later
whether they count. Open transactions are held in memory up to a bound. Past it the large ones are spilled: their
records go to disk once, each transaction's together, and stay there until the journal's segment of its commit refers
to them. So a rollback costs nothing, a commit costs what the transaction itself is worth, however long it was open and
whatever ran beside it, and memory does not depend on the largest transaction.

Small transactions stay in memory however long they are open; each spill repeats them, so that it is complete: who
starts again with it reads on where it ended (`kept`), and who cannot begins with an empty buffer.

Law: what `add` returned is in the journal before `add` or `flush` is called again. A spill says "everything up to here
is kept", and would otherwise lose what lies between the two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.contracts import Block, Kept, Limits, Merging, Mixed, Portion
from tidelog.journal import spill
from tidelog.journal.files import Files
from tidelog.journal.handover import Commit, Handover
from tidelog.journal.sorting import Group, Part, Run, grouped, together
from tidelog.journal.spill import OpenState, Piece, State
from tidelog.model.record import Mark
from tidelog.model.schema import Table

_COMMIT, _ROLLBACK = ord(Mark.COMMIT), ord(Mark.ROLLBACK)
_PIECE_ROWS = 50_000
"""A piece is what one Spark partition reads at least."""
_CARRY = 8
"""The small transactions that are repeated in each spill have at most this part of the memory."""


@dataclass(frozen=True)
class Abandoned:
    """A transaction that was given up, and what the operator hears of it."""

    xid: int
    begin: int
    events: int
    bytes: int
    reason: str


@dataclass
class Open:
    """A transaction whose end has not come yet."""

    begin: int
    since_us: int
    events: int = 0
    bytes: int = 0
    held: int = 0
    """Bytes in memory."""
    by_table: dict[int, int] = field(default_factory=dict)
    undone: bool = False
    merged: set[str] = field(default_factory=set)
    parts: list[Part] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)


class Buffer:
    """Used by one thread."""

    def __init__(
        self,
        files: Files,
        *,
        memory_bytes: int,
        start: int = 0,
        epoch: int = 0,
        collections: bool = False,
        limits: Limits | None = None,
        persistent: bool = False,
        merging: Callable[[int], Merging] | None = None,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """Transactions that commit before `start` are delivered already."""
        self._files = files
        self._memory = memory_bytes
        self._start = start
        self._epoch = epoch
        self._number = 0
        self._collections = collections
        self._limits = limits or Limits()
        self.merging = merging
        self._now_us = now_us
        self._open: dict[int, Open] = {}
        self._tables: dict[str, Table] = {}
        self._given_up: set[int] = set()
        self._told: list[Abandoned] = []
        self._held = self._pinned = 0
        self._resume: int | None = None
        self._spills = set(spill.paths(files))
        self._end = start
        self._restore(spill.restore(files) if persistent else None)

    # -- reading -----------------------------------------------------------------------------------------------

    def add(self, mixed: Mixed) -> list[Portion]:
        """Take in what was read; the transactions that ended in it, in commit order."""
        if self._pinned > self._memory:
            self.flush() if self._held > self._memory // 2 else self._compact(self._open)
        self._tables |= {b.table.fingerprint: b.table for b in mixed.blocks if b.table is not None}
        groups = grouped(mixed, self._continued)
        ended = [commit for group in groups if (commit := self._take(group, mixed)) is not None]
        self._resume = mixed.resume
        self._give_up()
        ended.sort(key=lambda c: c.ordinal)
        self._end = max([self._end, *(commit.end for commit in ended)])
        handover = Handover(self._files, self._tables, self.merging, self._memory // 4, self._collections)
        return list(handover.portions(ended))

    def _continued(self, xids: Sequence[int]) -> list[Mapping[int, int]]:
        """What the numbering of records goes on from: -1 for the transaction, then its tables by their number."""
        known = [self._open.get(xid) for xid in xids]
        return [{-1: one.events, **one.by_table} if one is not None else {} for one in known]

    def _take(self, group: Group, mixed: Mixed) -> Commit | None:
        if group.begins:
            self._drop(group.xid)
            self._given_up.discard(group.xid)
        if group.xid in self._given_up:
            if group.end:
                self._given_up.discard(group.xid)
            return None
        if group.end == _ROLLBACK:
            self._drop(group.xid)
            return None
        if group.end == _COMMIT:
            return self._committed(group, mixed)
        self._keep(group, mixed, self._open.setdefault(group.xid, self._fresh(group)))
        return None

    def _fresh(self, group: Group) -> Open:
        return Open(begin=group.begin, since_us=self._now_us())

    def _keep(self, group: Group, mixed: Mixed, one: Open) -> None:
        for part in group.parts:
            self._pin(one, part)
            one.bytes += part.bytes
            one.undone |= part.undo
            if part.table is not None:
                one.merged |= {part.table.fingerprint} & mixed.merged
                one.by_table[part.table.id] = one.by_table.get(part.table.id, 0) + part.count
        one.events += group.events

    def _pin(self, one: Open, part: Part) -> None:
        """A part holds the whole run that it lies in."""
        one.parts.append(part)
        one.held += part.weight
        self._held += part.weight
        run = part.run
        if run is not None:
            self._pinned += 0 if run.alive else run.weight
            run.alive += part.weight

    def _unpin(self, one: Open) -> None:
        self._held -= one.held
        for part in one.parts:
            run = part.run
            if run is not None:
                run.alive -= part.weight
                self._pinned -= 0 if run.alive else run.weight
        one.held = 0

    def _committed(self, group: Group, mixed: Mixed) -> Commit | None:
        one = self._open.pop(group.xid, None) or self._fresh(group)
        self._keep(group, mixed, one)
        self._unpin(one)
        if group.position < self._start or not one.events:
            return None
        return Commit(
            xid=group.xid,
            ordinal=group.at,
            position=group.position,
            end=group.after,
            committed=group.committed,
            note=group.note,
            events=one.events,
            bytes=one.bytes,
            undone=one.undone,
            merged=frozenset(one.merged),
            pieces=one.pieces,
            parts=one.parts,
        )

    def _drop(self, xid: int) -> None:
        one = self._open.pop(xid, None)
        if one is not None:
            self._unpin(one)

    # -- giving up ---------------------------------------------------------------------------------------------

    def _give_up(self) -> None:
        limits = self._limits
        if not (limits.age_s or limits.events or limits.bytes):
            return
        now = self._now_us()
        for xid, one in list(self._open.items()):
            reason = _too_much(one, limits, now)
            if reason:
                self._told.append(Abandoned(xid, one.begin, one.events, one.bytes, reason))
                self._drop(xid)
                self._given_up.add(xid)

    def abandoned(self) -> list[Abandoned]:
        """The transactions that were given up since this was last asked."""
        told, self._told = self._told, []
        return told

    # -- on disk -----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Lay down what is open: durable when this returns. The large transactions leave memory."""
        if self._resume is None:
            return
        small = self._small()
        path = spill.name(self._epoch, self._number)
        large = [xid for xid in sorted(self._open) if xid not in small]
        blocks, pieces = self._gather(path, large, 0)
        carried_blocks, carried = self._gather(path, sorted(small), len(blocks))
        spill.write(self._files, path, [*blocks, *carried_blocks], self._state(pieces, carried))
        self._spills.add(path)
        self._number += 1
        for xid in large:
            one = self._open[xid]
            self._unpin(one)
            one.pieces += pieces.get(xid, [])
            one.parts = []
        self._compact(small)

    def _small(self) -> set[int]:
        """The transactions that stay in memory: the smallest, while they are few enough."""
        small, taken = set(), 0
        for xid in sorted(self._open, key=lambda x: self._open[x].bytes):
            one = self._open[xid]
            if one.pieces:
                continue
            taken += one.held
            if taken > self._memory // _CARRY:
                break
            small.add(xid)
        return small

    def _gather(self, path: str, xids: Sequence[int], base: int) -> tuple[list[Block], dict[int, list[Piece]]]:
        """One block for each table version, the transactions one after the other in it, and where each stands."""
        by_version: dict[tuple[str | None, bool], list[tuple[int, Part]]] = {}
        for xid in xids:
            for part in self._open[xid].parts:
                fingerprint = part.table.fingerprint if part.table is not None else None
                by_version.setdefault((fingerprint, part.undo), []).append((xid, part))
        blocks: list[Block] = []
        pieces: dict[int, list[Piece]] = {}
        for (version, undo), parts in by_version.items():
            rows = together([part for _, part in parts])
            edges, owners = _edges(parts)
            for (first, last), xid, found in zip(edges, owners, spill.ranges(rows, edges), strict=True):
                piece = Piece(path, base + len(blocks), first, last, *found, version, undo)
                pieces.setdefault(xid, []).append(piece)
            blocks.append(Block(self._tables.get(version) if version else None, rows))
        for found_pieces in pieces.values():
            found_pieces.sort(key=lambda p: p.ordinal)
        return blocks, pieces

    def _state(self, pieces: Mapping[int, Sequence[Piece]], carried: Mapping[int, Sequence[Piece]]) -> State:
        assert self._resume is not None
        transactions = {
            xid: OpenState(
                begin=one.begin,
                since_us=one.since_us,
                events=one.events,
                bytes=one.bytes,
                by_table=one.by_table,
                undone=one.undone,
                merged=tuple(sorted(one.merged)),
                pieces=tuple(pieces.get(xid, ())),
                carried=tuple(carried.get(xid, ())),
            )
            for xid, one in self._open.items()
        }
        used = {p.table for found in (*pieces.values(), *carried.values()) for p in found}
        tables = {k: t for k, t in self._tables.items() if k in used}
        return State(self._resume, self._end, transactions, tuple(self._given_up), tables)

    def _compact(self, xids: Iterable[int]) -> None:
        """Let go the runs that these transactions lie in: their own records are a part of them."""
        by_version: dict[tuple[Table | None, bool], list[tuple[Open, Part]]] = {}
        for xid in xids:
            one = self._open[xid]
            self._unpin(one)
            for part in one.parts:
                by_version.setdefault((part.table, part.undo), []).append((one, part))
            one.parts = []
        for (table, undo), parts in by_version.items():
            rows = together([part for _, part in parts])
            run, at = Run(sum(part.weight for _, part in parts)), 0
            for one, part in parts:
                first, at = at, at + part.count
                self._pin(one, Part(rows, first, at, table, undo, part.bytes, part.weight, run))

    # -- starting again ----------------------------------------------------------------------------------------

    def _restore(self, state: State | None) -> None:
        if state is None or state.end > self._start:
            return
        self._resume, self._given_up, self._tables = state.resume, set(state.abandoned), dict(state.tables)
        for xid, was in state.open.items():
            one = Open(was.begin, was.since_us, was.events, was.bytes, 0, dict(was.by_table), was.undone)
            one.merged, one.pieces = set(was.merged), list(was.pieces)
            for piece in was.carried:
                table = self._tables[piece.table] if piece.table else None
                part = Part.of(spill.read(self._files, piece), table, undo=piece.undo)
                part.run = Run(part.weight)
                self._pin(one, part)
            self._open[xid] = one

    def kept(self) -> Kept | None:
        """What need not be read again; None when nothing was kept."""
        if self._resume is None:
            return None
        return Kept(self._resume, {xid: one.begin for xid, one in self._open.items()})

    def open(self) -> dict[int, int]:
        """The open transactions, each with the place where it begins."""
        return {xid: one.begin for xid, one in self._open.items()}

    def held(self) -> int:
        """Bytes of records in memory."""
        return self._held

    def sweep(self, referred: Collection[str]) -> None:
        """Delete the spills that nobody needs: neither the journal's segments, nor an open transaction, nor the next
        start."""
        used = {p.path for one in self._open.values() for p in one.pieces} | set(referred)
        newest = max(self._spills, default=None)
        for path in [p for p in self._spills if p not in used and p != newest]:
            self._files.delete(path)
            self._spills.discard(path)

    def clear(self) -> None:
        """Forget everything that is open: it will be read again."""
        self._open, self._held, self._pinned, self._resume, self._given_up = {}, 0, 0, None, set()


def _edges(parts: Sequence[tuple[int, Part]]) -> tuple[list[tuple[int, int]], list[int]]:
    """Where each transaction's rows stand when the parts follow each other, in pieces of bounded size."""
    edges: list[tuple[int, int]] = []
    owners: list[int] = []
    at = 0
    for xid, part in parts:
        first, at = at, at + part.count
        if owners and owners[-1] == xid:
            first = edges.pop()[0]
            owners.pop()
        for low in range(first, at, _PIECE_ROWS):
            edges.append((low, min(low + _PIECE_ROWS, at)))
            owners.append(xid)
    return edges, owners


def _too_much(one: Open, limits: Limits, now_us: int) -> str:
    age_s = (now_us - one.since_us) / 1e6
    if limits.age_s and age_s > limits.age_s:
        return f"it was open for {age_s:.0f} s"
    if limits.events and one.events > limits.events:
        return f"it has {one.events} events"
    if limits.bytes and one.bytes > limits.bytes:
        return f"it has {one.bytes} bytes"
    return ""
