"""The universal transaction buffer: from records of many open transactions to transactions in commit order.

A mixed log (Oracle without a filter, IBM i, PostgreSQL while it streams) tells changes as they happen, and only later
whether they count. Open transactions are held in memory up to a bound. Past it the large ones are spilled: their
records go to disk once, each transaction's together, and stay there until the journal's segment of its commit refers
to them. So a rollback costs nothing, a commit costs what the transaction itself is worth, however long it was open and
whatever ran beside it, and memory does not depend on the largest transaction.

Whoever has little in memory stays there, however long it is open; each spill repeats that, so that it is complete: who
starts again with it reads on where it ended (`kept`), and who cannot begins with an empty buffer.

Law: all that `add` returns is in the journal before `add` or `flush` is called again. A spill says "everything up to
here is kept", and would otherwise lose what lies between the two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelog.contracts import Block, Kept, Limits, Merging, Mixed, Portion
from tidelog.journal import spill
from tidelog.journal.files import Files
from tidelog.journal.handover import Commit, Handover
from tidelog.journal.sorting import Group, Part, Run, Version, bundled, copied, grouped
from tidelog.journal.spill import OpenState, Piece, State
from tidelog.model.record import Mark
from tidelog.model.schema import Table

_COMMIT, _ROLLBACK = ord(Mark.COMMIT), ord(Mark.ROLLBACK)
_PIECE_ROWS = 50_000
"""A piece is what one Spark partition reads at least."""
_CARRY = 16
"""What is repeated in each spill has at most this part of the memory."""
_TRICKLE = 8 << 10
"""A transaction that is on disk adds to it there, unless it is hardly worth a file."""

Pieces = dict[int, list[Piece]]
"""By transaction."""


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
    undos: int = 0
    unwatched_us: int = 0
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
        scope: str = "",
        merging: Callable[[int], Merging] | None = None,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """Transactions that commit before `start` are delivered already; `scope` tells what is captured."""
        self._files = files
        self._memory = memory_bytes
        self._start = start
        self._epoch = epoch
        self._collections = collections
        self._limits = limits or Limits()
        self._persistent = persistent
        self._scope = scope
        self.merging = merging
        self._now_us = now_us
        self._open: dict[int, Open] = {}
        self._tables: dict[str, Table] = {}
        self._versions: dict[int, Table] = {}
        self._given_up = {x: 0 for x, at in spill.given_up(files).items() if not at or at >= start}
        """With the position of its commit, if that was read: whoever starts again may have to read it once more."""
        self._lost: list[Abandoned] = []
        self._held = self._pinned = 0
        self._resume: int | None = None
        self._flushed = True
        files.discard_drafts(spill.FOLDER)
        self._spills = set(spill.paths(files))
        self._number = spill.free_number(self._spills, epoch)
        self._state_path = ""
        self._spoken: set[str] = set()
        self._end = start
        self._restore(spill.restore(files) if persistent else None)

    # -- reading -----------------------------------------------------------------------------------------------

    def add(self, mixed: Mixed) -> Iterator[Portion]:
        """Take in what was read; the transactions that ended in it, in commit order, each as it is asked for."""
        if self._pinned > self._memory:
            self.flush() if self._held > self._memory // 2 else self._compact(self._open)
        told = [block.table for block in mixed.blocks if block.table is not None]
        self._tables |= {table.fingerprint: table for table in told}
        self._versions |= {table.id: table for table in told}
        groups = grouped(mixed, self._continued)
        ended = [commit for group in groups if (commit := self._take(group, mixed)) is not None]
        self._resume, self._flushed = mixed.resume, False
        self._give_up()
        ended.sort(key=lambda c: c.ordinal)
        return self._handed(ended)

    def _handed(self, ended: Sequence[Commit]) -> Iterator[Portion]:
        handover = Handover(self._files, self._tables, self.merging, self._memory // 4, self._collections)
        for portion in handover.portions(ended):
            yield portion
            self._end = max(self._end, portion.end)

    def _continued(self, xids: Sequence[int]) -> list[Mapping[int, int]]:
        """What the numbering of records goes on from: -1 for the transaction, then its tables by their number."""
        known = [self._open.get(xid) for xid in xids]
        return [{-1: one.events, **one.by_table} if one is not None else {} for one in known]

    def _take(self, group: Group, mixed: Mixed) -> Commit | None:
        if group.begins:
            self._drop(group.xid)
            self._given_up.pop(group.xid, None)
        if self._given_up.get(group.xid) == 0:
            self._pass_by(group)
            return None
        if group.end == _ROLLBACK:
            self._drop(group.xid)
            return None
        if group.end == _COMMIT:
            return self._committed(group, mixed)
        one = self._open.get(group.xid)
        if one is None:
            one = self._open[group.xid] = self._fresh(group)
        self._keep(group, mixed, one)
        return None

    def _fresh(self, group: Group) -> Open:
        return Open(begin=group.begin, since_us=self._now_us())

    def _keep(self, group: Group, mixed: Mixed, one: Open) -> None:
        for part in group.parts:
            self._pin(one, part)
            one.bytes += part.bytes
            one.undos += part.count if part.undo else 0
            table = part.table
            if table is not None:
                one.by_table[table.id] = one.by_table.get(table.id, 0) + part.count
                if table.fingerprint in mixed.merged:
                    one.merged.add(table.fingerprint)
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
            undone=one.undos > 0,
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
                self._lost.append(Abandoned(xid, one.begin, one.events, one.bytes, reason))
                self._drop(xid)
                self._given_up[xid] = 0
                spill.write_given_up(self._files, self._given_up)

    def _pass_by(self, group: Group) -> None:
        """A transaction that was given up, until its end."""
        if group.end:
            self._given_up[group.xid] = group.position if group.end == _COMMIT else 1
            spill.write_given_up(self._files, self._given_up)

    def abandoned(self) -> list[Abandoned]:
        """The transactions that were given up since this was last asked."""
        told, self._lost = self._lost, []
        return told

    # -- on disk -----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Whoever has much in memory leaves it. If the buffer is persistent, all that is open is on the disk when this
        returns."""
        if self._flushed:
            return
        small = self._small()
        large = [xid for xid in sorted(self._open) if xid not in small]
        if large:
            self._spill(large)
        if self._persistent:
            self._save(sorted(small))
            self._files.sync(spill.FOLDER)
        self._number += 1
        self._flushed = True
        self._compact(small)

    def _save(self, carried: Sequence[int]) -> None:
        """What the next start begins with."""
        path = spill.name(self._epoch, self._number, state=True)
        blocks, pieces = self._gather(path, carried)
        self._write(path, blocks, self._told(self._state(self._open, {}, pieces)))
        self._state_path, self._spoken = path, self._paths()
        if any(self._given_up.values()):  # the next start reads on behind their ends
            self._given_up = {xid: at for xid, at in self._given_up.items() if not at}
            spill.write_given_up(self._files, self._given_up)

    def _told(self, state: State) -> State:
        versions = {table.fingerprint: table for table in self._versions.values()}
        return replace(state, versions=tuple(versions), tables={**state.tables, **versions})

    def _spill(self, xids: Sequence[int]) -> None:
        """Records go to disk for good."""
        path = spill.name(self._epoch, self._number)
        blocks, pieces = self._gather(path, xids)
        self._write(path, blocks, self._state(xids, pieces, {}))
        for xid in xids:
            one = self._open[xid]
            self._unpin(one)
            one.pieces += pieces.get(xid, [])
            one.parts = []

    def _write(self, path: str, blocks: Sequence[Block], state: State) -> None:
        spill.write(self._files, path, blocks, state, durable=self._persistent)
        self._spills.add(path)

    def _paths(self) -> set[str]:
        return {piece.path for one in self._open.values() for piece in one.pieces}

    def _small(self) -> set[int]:
        """The transactions whose records stay in memory: those with the fewest there, while they are few enough."""
        small, taken = set(), 0
        for xid in sorted(self._open, key=lambda x: self._open[x].held):
            one = self._open[xid]
            if one.pieces and one.held > _TRICKLE:
                continue
            taken += one.held
            if taken > self._memory // _CARRY:
                break
            small.add(xid)
        return small

    def _gather(self, path: str, xids: Sequence[int]) -> tuple[list[Block], Pieces]:
        """Blocks of one table version each, in them the transactions one after the other, and where each stands."""
        blocks: list[Block] = []
        pieces: Pieces = {}
        for bundle in bundled((xid, part) for xid in xids for part in self._open[xid].parts):
            version = bundle.table.fingerprint if bundle.table is not None else None
            edges, owners = bundle.pieces(_PIECE_ROWS)
            for (first, last), xid, found in zip(edges, owners, spill.ranges(bundle.rows, edges), strict=True):
                piece = Piece(path, len(blocks), first, last, *found, version, bundle.undo)
                pieces.setdefault(xid, []).append(piece)
            blocks.append(Block(bundle.table, bundle.rows))
        for found_pieces in pieces.values():
            found_pieces.sort(key=lambda p: p.ordinal)
        return blocks, pieces

    def _state(self, xids: Iterable[int], pieces: Pieces, carried: Pieces) -> State:
        assert self._resume is not None
        transactions = {
            xid: OpenState(
                begin=one.begin,
                since_us=one.since_us,
                events=one.events,
                bytes=one.bytes,
                by_table=one.by_table,
                undos=one.undos,
                unwatched_us=one.unwatched_us,
                merged=tuple(sorted(one.merged)),
                pieces=tuple(pieces.get(xid, ())),
                carried=tuple(carried.get(xid, ())),
            )
            for xid, one in ((xid, self._open[xid]) for xid in xids)
        }
        used = {p.table for found in (*pieces.values(), *carried.values()) for p in found}
        tables = {k: t for k, t in self._tables.items() if k in used}
        return State(self._resume, self._end, transactions, tables, scope=self._scope, saved_us=self._now_us())

    def _compact(self, xids: Iterable[int]) -> None:
        """Let go the runs that these transactions lie in: their own records are a part of them."""
        by_version: dict[Version, list[tuple[Open, Part]]] = {}
        for xid in xids:
            one = self._open[xid]
            self._unpin(one)
            for part in one.parts:
                by_version.setdefault(part.version, []).append((one, part))
            one.parts = []
        for parts in by_version.values():
            table, undo = parts[0][1].table, parts[0][1].undo
            rows = copied([part for _, part in parts])
            run, at = Run(sum(part.weight for _, part in parts)), 0
            for one, part in parts:
                first, at = at, at + part.count
                self._pin(one, Part(rows, first, at, table, undo, part.bytes, part.weight, run))

    # -- starting again ----------------------------------------------------------------------------------------

    def _restore(self, state: State | None) -> None:
        if state is None or state.end > self._start or state.scope != self._scope:
            return
        self._resume, self._tables = state.resume, dict(state.tables)
        self._versions = {self._tables[f].id: self._tables[f] for f in state.versions}
        unwatched_us, reader = max(0, self._now_us() - state.saved_us), spill.Reader(self._files)
        for xid, was in state.open.items():
            if xid not in self._given_up:
                self._open[xid] = self._reopened(was, unwatched_us, reader)
        self._state_path = max(filter(spill.is_state, self._spills))
        self._spoken = self._paths()

    def _reopened(self, was: OpenState, unwatched_us: int, reader: spill.Reader) -> Open:
        one = Open(was.begin, was.since_us, was.events, was.bytes, 0, dict(was.by_table), was.undos)
        one.unwatched_us = was.unwatched_us + unwatched_us
        one.merged, one.pieces = set(was.merged), list(was.pieces)
        for piece in was.carried:
            table = self._tables[piece.table] if piece.table else None
            part = Part.of(reader.read(piece), table, undo=piece.undo)
            part.run = Run(part.weight)
            self._pin(one, part)
        return one

    def kept(self) -> Kept | None:
        """What need not be read again; None when nothing was kept."""
        if self._resume is None:
            return None
        return Kept(self._resume, self.open(), frozenset(xid for xid, at in self._given_up.items() if not at))

    def tables(self, journal: Iterable[Table]) -> list[Table]:
        """The tables as they were where the reading goes on: what was read after the journal's last word wins, and
        what the journal has learnt since then will be read again."""
        return list({**{table.id: table for table in journal}, **self._versions}.values())

    def open(self) -> dict[int, int]:
        """The open transactions, each with the place where it begins."""
        return {xid: one.begin for xid, one in self._open.items()}

    def held(self) -> int:
        """Bytes of records in memory."""
        return self._held

    def sweep(self, referred: Collection[str]) -> None:
        """Delete the spills that nobody needs: neither the journal's segments, nor an open transaction, nor the next
        start, which begins with the last state and all that it speaks of."""
        used = self._paths() | self._spoken | {self._state_path} | set(referred)
        for path in self._spills - used:
            self._files.delete(path)
            self._spills.discard(path)


def _too_much(one: Open, limits: Limits, now_us: int) -> str:
    age_s = (now_us - one.since_us - one.unwatched_us) / 1e6
    if limits.age_s and age_s > limits.age_s:
        return f"it was open for {age_s:.0f} s"
    if limits.events and one.events > limits.events:
        return f"it has {one.events} events"
    if limits.bytes and one.bytes > limits.bytes:
        return f"it has {one.bytes} bytes"
    return ""
