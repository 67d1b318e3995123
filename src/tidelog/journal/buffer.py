"""The universal transaction buffer: from records of many open transactions to transactions in commit order.

A mixed log (Oracle without a filter, IBM i, PostgreSQL while it streams) tells changes as they happen, and only later
whether they count. Open transactions are held in memory up to a bound. Past it the large ones are spilled: their
records go to disk once, each transaction's together, and stay there until the journal's segment of its commit refers
to them. So a rollback costs nothing, a commit costs what the transaction itself is worth, however long it was open and
whatever ran beside it, and memory does not depend on the largest transaction.

Whoever has little in memory stays there, however long it is open; each state repeats that, so that it is complete: who
starts again with it reads on where it ended (`kept`), and who cannot begins with an empty buffer. Whoever has much is
written while we read on, as soon as that is certain to be needed.

Law: all that `add` returns is in the journal before `add` or `flush` is called again. A state says "everything up to
here is kept", and would otherwise lose what lies between the two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidelog.contracts import Kept, Limits, Merging, Mixed, Portion
from tidelog.core.settings import counted
from tidelog.journal import spill
from tidelog.journal.abandoning import GivenUp
from tidelog.journal.draft import Draft, Worker
from tidelog.journal.files import Files
from tidelog.journal.handover import Commit, Handover
from tidelog.journal.holding import Disk, Memory, Open, Run, bundled
from tidelog.journal.sorting import Ending, Owners, Reading
from tidelog.journal.spill import Piece, in_order
from tidelog.journal.state import State, restore
from tidelog.model.record import Mark
from tidelog.model.schema import Table

_COMMIT = ord(Mark.COMMIT)
_PIECE_ROWS = 50_000
"""A piece is what one Spark partition reads at least."""
_CARRY = 16
"""What is repeated in each state has at most this part of the memory."""
_TRICKLE = 8 << 10
"""A transaction that is on disk adds to it there, unless it is hardly worth a file."""
_EARLY = 3
"""What is certain to be spilled need not wait for the flush, once it has this part of the memory."""
_MOSTLY = 0.75


@dataclass(frozen=True)
class Abandoned:
    """A transaction that was given up, and what the operator hears of it."""

    xid: int
    begin: int
    events: int
    bytes: int
    reason: str


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
        self._bound = memory_bytes
        self._start = start
        self._epoch = epoch
        self._collections = collections
        self._limits = limits or Limits()
        self._persistent = persistent
        self._scope = scope
        self.merging = merging
        self._now_us = now_us
        self._open: dict[int, Open] = {}
        self._memory = Memory()
        self._versions: dict[int, Table] = {}
        self._given_up = GivenUp(files, spill.FOLDER, start)
        self._lost: list[Abandoned] = []
        self._resume: int | None = None
        self._end = start
        self._flushed = True
        files.discard_drafts(spill.FOLDER)
        self._disk = Disk(spill.paths(files))
        self._number = spill.free_number(self._disk.pieces, epoch)
        self._thread = Worker()
        self._draft: Draft | None = None
        self._spoken: set[str] = set()
        """The last state, and all that it speaks of."""
        self._restore(restore(files) if persistent else None)

    # -- reading -----------------------------------------------------------------------------------------------

    def add(self, mixed: Mixed) -> Iterator[Portion]:
        """Take in what was read; the transactions that ended in it, in commit order, each as it is asked for."""
        self._make_room()
        self._versions |= {block.table.id: block.table for block in mixed.blocks if block.table is not None}
        reading = Reading(mixed)
        owners = [self._owner(*group) for group in reading.groups()]
        for run, mine in reading.runs(owners):
            self._keep(run, mine, mixed.merged)
        ended = list(self._ended(owners, reading.endings))
        self._resume, self._flushed = mixed.resume, False
        self._give_up()
        self._given_up.write()
        self._spill_early(owners)
        ended.sort(key=lambda c: c.ordinal)
        return self._handed(ended)

    def _make_room(self) -> None:
        drafted = self._draft.bytes if self._draft is not None else 0
        full = self._memory.pinned > self._bound
        if self._memory.held + drafted > self._bound or (full and self._memory.held > self._bound // 2):
            self.flush()
        elif full:
            self._memory.compact(self._open.values())

    def _handed(self, ended: Sequence[Commit]) -> Iterator[Portion]:
        handover = Handover(self._files, self.merging, self._bound // 4, self._collections)
        for portion in handover.portions(ended):
            yield portion
            self._end = max(self._end, portion.end)

    def _owner(self, xid: int, begins: bool, begin: int, ending: Ending | None) -> Open | None:
        """Whose records these are; None if nobody wants them."""
        if begins:
            self._drop(xid)
            self._given_up.begin(xid)
        if xid in self._given_up:
            if ending is not None:
                self._given_up.end(xid, ending.position if ending.kind == _COMMIT else 1)
            return None
        if ending is None:
            return self._open.get(xid) or self._open.setdefault(xid, Open(xid, begin, self._now_us()))
        if ending.kind == _COMMIT:
            return self._open.pop(xid, None) or Open(xid, begin, self._now_us())
        self._drop(xid)
        return None

    def _keep(self, run: Run, owners: Owners, merged: Collection[str]) -> None:
        version = run.version[0]
        for k, one in enumerate(owners):
            if one is not None:
                self._memory.keep(one, run, k)
                one.bytes += run.sizes[k]
                if run.undo:
                    one.undos += run.edges[k + 1] - run.edges[k]
                elif version in merged:
                    one.merged |= {version}

    def _ended(self, owners: Owners, endings: Sequence[Ending | None]) -> Iterator[Commit]:
        """The transactions that count; what is over holds nothing any more."""
        for one, ending in zip(owners, endings, strict=True):
            if one is None:
                continue
            if ending is not None:
                yield from self._committed(one, ending)
            elif self._open.get(one.xid) is not one:  # it began again in the same reading
                self._memory.release(one)

    def _committed(self, one: Open, ending: Ending) -> Iterator[Commit]:
        if ending.position >= self._start and one.events:
            if self._is_drafted(one):
                self._seal()
            yield Commit(
                xid=one.xid,
                ordinal=ending.ordinal,
                position=ending.position,
                end=ending.end,
                committed=ending.committed,
                note=ending.note,
                events=one.events,
                bytes=one.bytes,
                undone=one.undos > 0,
                merged=one.merged,
                pieces=in_order(one.pieces) if one.pieces else (),
                parts=one.parts(),
            )
        self._forget(one)

    def _is_drafted(self, one: Open) -> bool:
        """Whether some of its records lie in a file that has no name yet."""
        return self._draft is not None and bool(one.pieces) and one.pieces[-1][0].path == self._draft.path

    def _drop(self, xid: int) -> None:
        one = self._open.pop(xid, None)
        if one is not None:
            self._forget(one)

    def _forget(self, one: Open) -> None:
        self._memory.release(one)
        self._disk.release(one)

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
                self._given_up.add(xid)

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
        self._spill([one for one in self._open.values() if one.held and one.xid not in small])
        self._seal()
        if self._persistent:
            self._save(small.values())
        self._flushed = True
        self._memory.compact(small.values())
        self._disk.loosen(self._open.values())

    def _small(self) -> dict[int, Open]:
        """The transactions whose records stay in memory: those with the fewest there, while they are few enough."""
        small, taken = {}, 0
        for one in sorted((one for one in self._open.values() if one.held), key=lambda one: one.held):
            if one.pieces and one.held > _TRICKLE:
                continue
            taken += one.held
            if taken > self._bound // _CARRY:
                break
            small[one.xid] = one
        return small

    def _spill_early(self, read: Owners) -> None:
        """Who is on disk adds to it there. Where these hold most of the memory, it is written while we read on; then
        others that lie beside them go along, unless they are hardly worth it."""
        large = [one for one in read if one is not None and one.held > _TRICKLE]
        certain = sum(one.held for one in large if one.pieces)
        if certain > self._bound // _EARLY and certain > _MOSTLY * self._memory.held:
            self._spill(large)

    def _spill(self, transactions: Sequence[Open]) -> None:
        """Records go to disk for good."""
        if not transactions:
            return
        if self._draft is None:
            self._draft = self._begun()
        for bundle in bundled(transactions, _PIECE_ROWS):
            self._disk.keep(self._draft.lay(bundle), bundle.owners)
        for one in transactions:
            self._memory.release(one)

    def _begun(self, state: State | None = None) -> Draft:
        path = spill.name(self._epoch, self._number, state=state is not None)
        metadata = state.to_metadata() if state is not None else None
        self._disk.pieces[path] = 0
        self._number += 1
        return Draft(self._files, path, self._thread, durable=self._persistent, metadata=metadata)

    def _seal(self) -> None:
        """What was spilled is in its file, and can be referred to."""
        if self._draft is not None:
            self._draft.close()
            self._draft = None
            if self._persistent:
                self._files.sync(spill.FOLDER)

    def _save(self, carried: Iterable[Open]) -> None:
        """What the next start begins with."""
        assert self._resume is not None
        versions, transactions = tuple(self._versions.values()), tuple(self._open.values())
        used, given_up = sorted(self._disk.used()), sorted(self._given_up.xids())
        state = State(self._resume, self._end, versions, self._scope, self._now_us(), given_up, used, transactions)
        draft = self._begun(state)
        for bundle in bundled(carried, _PIECE_ROWS):
            draft.lay(bundle)
        draft.close()
        self._files.sync(spill.FOLDER)
        self._spoken = {draft.path, *used}
        self._given_up.saved(draft.path)

    # -- starting again ----------------------------------------------------------------------------------------

    def _restore(self, state: State | None) -> None:
        if state is None or state.end > self._start or state.scope != self._scope:
            return
        self._resume = state.resume
        self._versions = {table.id: table for table in state.versions}
        unwatched_us, reader = max(0, self._now_us() - state.saved_us), spill.Reader(self._files)
        self._given_up.restored(state.path, set(state.given_up))
        for one in state.open:
            if one.xid not in self._given_up:
                one.unwatched_us += unwatched_us
                self._reopen(one, in_order(state.carried.get(one.life, ())), reader)
        self._memory.compact(self._open.values())
        self._spoken = {state.path, *state.spills}

    def _reopen(self, one: Open, carried: Sequence[Piece], reader: spill.Reader) -> None:
        self._open[one.xid] = one
        for ranges, _ in one.pieces:
            self._disk.count(ranges)
        for piece in carried:
            rows = reader.read(piece)
            self._memory.keep(one, Run(rows, piece.table, piece.undo, [0, len(rows)]), 0)

    def kept(self) -> Kept | None:
        """What need not be read again; None when nothing was kept."""
        if self._resume is None:
            return None
        return Kept(self._resume, self.open(), self._given_up.xids())

    def tables(self, journal: Iterable[Table]) -> list[Table]:
        """The tables as they were where the reading goes on: what was read after the journal's last word wins, and
        what the journal has learnt since then will be read again."""
        return list({**{table.id: table for table in journal}, **self._versions}.values())

    def open(self) -> dict[int, int]:
        """The open transactions, each with the place where it begins."""
        return {xid: one.begin for xid, one in self._open.items()}

    def held(self) -> int:
        """Bytes of records in memory."""
        return self._memory.held

    def sweep(self, referred: Collection[str]) -> None:
        """Delete the spills that nobody needs: neither the journal's segments, nor an open transaction, nor the next
        start, which begins with the last state and all that it speaks of."""
        used = self._disk.used() | self._spoken | set(referred)
        if self._draft is not None:
            used.add(self._draft.path)
        for path in self._disk.pieces.keys() - used:
            self._files.delete(path)
            del self._disk.pieces[path]


def _too_much(one: Open, limits: Limits, now_us: int) -> str:
    age_s = (now_us - one.since_us - one.unwatched_us) / 1e6
    if limits.age_s and age_s > limits.age_s:
        return f"it was open for {age_s:.0f} s"
    if limits.events and one.events > limits.events:
        return f"it has {counted(one.events, 'event')}"
    if limits.bytes and one.bytes > limits.bytes:
        return f"it has {one.bytes} bytes"
    return ""
