"""The tail of a mixed log: transactions as they run, most of them still open; the buffer puts them together.

Two places of the log matter. `read` is the last SCN of which all is read. The log is mined from the beginning of
the oldest open transaction on, because LogMiner knows more of a transaction whose start it has seen; if that part of
the log is gone, from `read`, since the buffer holds what came before.

A transaction begins with its START, or with its first change if there is none. A START alone holds nothing back:
sessions may stay open for days without touching a captured table. Only when users decide what is captured, START
counts, for it names them: whoever begins to read after it is told that the user is unknown. So the START of a
transaction that is left out is read again after every restart, until the transaction ends.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from tidelog.connectors.oracle import position, queries
from tidelog.connectors.oracle.config import Accounts, Config
from tidelog.connectors.oracle.dispatch import Sorted
from tidelog.connectors.oracle.draft import STEP, Draft
from tidelog.connectors.oracle.note import Note
from tidelog.connectors.oracle.position import is_partial, same_slot
from tidelog.connectors.oracle.queries import Statement
from tidelog.connectors.oracle.row import Ints, Mask, Rows
from tidelog.connectors.oracle.session import Window
from tidelog.connectors.oracle.tail import MiningTail
from tidelog.contracts import Kept
from tidelog.errors import PositionLost
from tidelog.model.record import Mark
from tidelog.model.schema import Table

_LOG = logging.getLogger("tidelog.oracle")
_ENDS = [queries.COMMIT, queries.ROLLBACK, queries.REPLICATION_MARKER]


class Begun:
    """Transactions with the SCN where each begins, and the oldest of them. One that the buffer has given up, for its
    age, holds nothing back any more."""

    def __init__(self, retention_s: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._retention_s = retention_s
        self._clock = clock
        self._scns: dict[int, int] = {}
        self._heap: list[tuple[int, int, float]] = []

    def __contains__(self, xid: int) -> bool:
        return xid in self._scns

    def __iter__(self) -> Iterator[int]:
        return iter(self._scns)

    def add(self, xid: int, scn: int) -> None:
        self._scns[xid] = scn
        heapq.heappush(self._heap, (scn, xid, self._clock()))

    def pop(self, xid: int) -> int | None:
        return self._scns.pop(xid, None)

    def oldest(self) -> int | None:
        while self._heap and self._is_over(*self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _is_over(self, scn: int, xid: int, since: float) -> bool:
        given_up = 0 < self._retention_s < self._clock() - since
        return given_up or self._scns.get(xid) != scn


class BufferedTail(MiningTail):
    committed = False

    def __init__(
        self,
        config: Config,
        start: int,
        known: Sequence[Table],
        memory_bytes: int,
        note: Note,
        kept: Kept | None = None,
    ) -> None:
        super().__init__(config, start, known, memory_bytes, note)
        told = note.mine_from
        self._read = kept.resume if kept is not None else position.scn_of(start) - 1 if told is None else told
        self._open = Begun(config.retention_s)
        self._started = Begun(config.retention_s)
        self._skipped = Begun()
        self._undone: set[int] = set()
        for xid, scn in (kept.open if kept is not None else {}).items():
            self._open.add(xid, scn)
            self._undone.add(xid)  # nobody remembers: then it may be
        self._by_account = config.accounts != Accounts()
        self._held = self._read
        if kept is not None and self._by_account and told is not None:
            self._read = min(self._read, told)
        self._floor = self._read + 1

    def read_from(self) -> int:
        """All that was logged up to here has been read, or is kept in the buffer."""
        return max(self._read, self._held)

    def mine_from(self) -> int:
        """Where the log is mined from."""
        oldest = self._oldest()
        return self._read if oldest is None else min(self._read, oldest - 1)

    def _oldest(self) -> int | None:
        """Where the oldest open transaction begins that matters."""
        counted = (self._open, self._started, self._skipped) if self._by_account else (self._open,)
        return min((scn for begun in counted if (scn := begun.oldest()) is not None), default=None)

    # -- passes ------------------------------------------------------------------------------------------------

    def _next_window(self) -> Window | None:
        start = max(self._floor, self.mine_from())
        try:
            return self._miner.window(start, max(self._read, self._reached))  # only if the log has grown
        except PositionLost:
            if start >= self._read:
                raise
            self._floor = self._read  # what began before is in the buffer: the log behind us is not needed
            return None

    def _statement(self, window: Window) -> Statement:
        return queries.contents_buffered(self._config, self._read, window.end)

    def _pass_over(self, found: Draft, *, whole: bool) -> None:
        """What was read stays read, also if the pass was cut off: each piece holds whole SCNs."""

    def _read_scn(self) -> int:
        return self.read_from()

    def _low(self, scn: int) -> int:
        """Below the commit itself: what others logged with its SCN, but after it, has to be read again."""
        oldest = self._oldest()
        return (scn if oldest is None else min(oldest, scn)) - 1

    def _may_be_undone(self, xid: int) -> bool:
        return xid in self._undone

    # -- rows --------------------------------------------------------------------------------------------------

    def _digest(self, found: Draft, rows: Rows) -> None:
        self._undone = {xid for xid in self._undone if xid in self._open}  # the others were handed over since
        counting = self._awaited is not None
        for base, part in self._dispatch.pieces(self._unheld(rows)):
            private = self._private(part)
            ignored = private | self._unwanted(part)
            kinds = self._dispatch.sort(part, ignored)
            xids = part.xid.copy()
            self._walk(found, part, kinds, private, ignored, xids, base)
            self._dispatch.emit(found, part, kinds, ~ignored, xids, base)
        if counting:  # the events of a transaction that was delivered in part
            found.merged |= {b.table.fingerprint for b in found.blocks if b.table is not None}
        self._read = max(self._read, int(rows.scn.max()))

    def _unheld(self, rows: Rows) -> Rows:
        """The rows that the buffer does not hold yet; the others say whom it has left out."""
        held: Mask = rows.scn <= self._held
        if not held.any():
            return rows
        self._recall(rows.take(held))
        return rows.take(~held)

    def _recall(self, rows: Rows) -> None:
        """What is open began later, maybe in a slot that was another's: here it is nobody's candidate."""
        unwanted = self._unwanted(rows)
        for place in np.flatnonzero(np.isin(rows.code, [queries.START, *_ENDS])).tolist():
            xid = int(rows.xid[place])
            if rows.code[place] == queries.START:
                if unwanted[place]:
                    self._skipped.add(xid, int(rows.scn[place]))
            else:
                for known in _meant(xid, self._skipped):
                    self._skipped.pop(known)

    def _unwanted(self, rows: Rows) -> Mask:
        """Rows of users and clients that are left out; a row that names none belongs to whom the START named."""
        if not self._by_account:
            return np.zeros(len(rows), np.bool_)
        pairs = list(zip(rows.user.tolist(), rows.client.tolist(), strict=True))
        takes = {pair: self._config.accounts.takes(*pair) for pair in set(pairs)}
        unwanted = ~np.array([takes[pair] for pair in pairs], np.bool_)
        skipped = [*self._skipped, *rows.xid[unwanted & (rows.code == queries.START)].tolist()]
        return unwanted | np.isin(rows.xid, skipped)

    def _walk(
        self, found: Draft, rows: Rows, kinds: Sorted, private: Mask, ignored: Mask, xids: Ints, base: int
    ) -> None:
        """What becomes of transactions, in the order of the log."""
        starts = (rows.code == queries.START) & ~private
        ends = np.isin(rows.code, _ENDS) & ~private
        partial = kinds.undo & ((rows.xid & 0xFFFFFFFF) == 0xFFFFFFFF)
        records = np.flatnonzero(kinds.record)
        firsts = records[np.unique(rows.xid[records], return_index=True)[1]]
        over = rows.xid[ends & (rows.code != queries.COMMIT)]
        firsts = np.union1d(firsts, records[np.isin(rows.xid[records], over)])  # some go on after a marker
        if kinds.undo.any():  # of what was never read, nothing can be taken back
            alive = [*self._open, *rows.xid[firsts].tolist()]
            kinds.undo[:] &= partial | np.isin(rows.xid, alive)
            self._undone.update(rows.xid[kinds.undo].tolist())
        codes = rows.code
        for place in np.union1d(np.flatnonzero(starts | ends | partial), firsts).tolist():
            at, xid = (base + place) * STEP, int(rows.xid[place])
            if starts[place] and ignored[place]:
                self._skipped.add(xid, int(rows.scn[place]))
            elif starts[place]:
                self._start_again(found, at, xid, int(rows.scn[place]))
            elif partial[place]:
                self._undo_partly_named(found, rows, kinds, xids, place, base)
            elif codes[place] == queries.COMMIT:
                self._end_commit(found, at + 2, rows, place)
            elif ends[place]:
                self._end_rollback(found, at + 2, xid)
            else:
                self._touch(found, at, xid, int(rows.scn[place]))

    def _start_again(self, found: Draft, at: int, xid: int, scn: int) -> None:
        """A START of a transaction that is open already begins it anew: it is told once more."""
        if xid in self._open:
            found.mark(at, xid, Mark.BEGIN, position=scn)
            self._open.add(xid, scn)
        else:
            self._started.add(xid, scn)

    def _touch(self, found: Draft, at: int, xid: int, scn: int) -> None:
        """A change: from here on the transaction matters. That it begins is told only if its START was read: one that
        the buffer has given up must not come to life again in its middle."""
        if xid in self._open:
            return
        begun = self._started.pop(xid)
        self._open.add(xid, scn if begun is None else begun)
        if begun is not None:
            found.mark(at, xid, Mark.BEGIN, position=begun)

    def _end_commit(self, found: Draft, at: int, rows: Rows, place: int) -> None:
        xid, scn, thread = int(rows.xid[place]), int(rows.scn[place]), int(rows.thread[place])
        self._started.pop(xid)
        self._skipped.pop(xid)
        captured = self._open.pop(xid) is not None
        if not thread and not captured:
            return
        placed = self._commits.place(thread, scn, xid)
        if not captured:
            return
        if placed is None:
            found.mark(at, xid, Mark.ROLLBACK)  # it was delivered already
        else:
            self._commit(found, at, xid, placed, scn, int(rows.time_us[place]))

    def _end_rollback(self, found: Draft, at: int, xid: int) -> None:
        """Also a replication marker: such transactions are never heard of again."""
        candidates = self._candidates(xid)
        if len(candidates) > 1:
            _LOG.warning(
                "The log rolls back the transaction %s, of which only the slot is known; %d open ones have it, and all "
                "of them are kept.",
                position.xid_text(xid),
                len(candidates),
            )
            return
        for known in candidates:
            self._started.pop(known)
            self._skipped.pop(known)
            if self._open.pop(known) is not None:
                found.mark(at, known, Mark.ROLLBACK)

    def _undo_partly_named(self, found: Draft, rows: Rows, kinds: Sorted, xids: Ints, place: int, base: int) -> None:
        """It takes back a change of the transaction in this slot; of several, whichever has changed that row."""
        candidates = [xid for xid in self._candidates(int(rows.xid[place])) if xid in self._open]
        if not candidates:
            kinds.undo[place] = False
            return
        xids[place] = candidates[-1]
        self._undone.update(candidates)
        for other in candidates[:-1]:
            self._dispatch.undo_in(found, rows, kinds, place, other, base)

    def _candidates(self, xid: int) -> list[int]:
        return _meant(xid, dict.fromkeys([*self._open, *self._started, *self._skipped]))


def _meant(xid: int, known: Iterable[int]) -> list[int]:
    """The transactions that a row may mean: of some it tells the slot alone."""
    return [other for other in known if same_slot(other, xid)] if is_partial(xid) else [xid]
