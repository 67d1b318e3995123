"""The tail of committed transactions: LogMiner gathers them, and tells one after the other in commit order.

A pass asks for what was committed from the last known commit on, that SCN included, because others may share it;
`position.Commits` knows which were delivered. START decides whether a transaction is wanted; until its COMMIT, or until
another one begins, its rows are taken or left. A START and a DDL come without a COMMIT_SCN, also of transactions that
lie outside of the range: of those nothing else comes, and they are forgotten.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tidelog.connectors.oracle import position, queries
from tidelog.connectors.oracle.config import Config
from tidelog.connectors.oracle.dispatch import Sorted
from tidelog.connectors.oracle.draft import STEP, Draft
from tidelog.connectors.oracle.note import Note
from tidelog.connectors.oracle.queries import Statement
from tidelog.connectors.oracle.row import Ints, Mask, Rows
from tidelog.connectors.oracle.session import Window
from tidelog.connectors.oracle.tail import MiningTail
from tidelog.connectors.oracle.watermark import Watermark
from tidelog.errors import CorruptState
from tidelog.model.record import Mark
from tidelog.model.schema import Table

_LOG = logging.getLogger("tidelog.oracle")


@dataclass
class Current:
    """The transaction that is being read."""

    xid: int
    wanted: bool | None
    """None: that is not known before its commit is."""
    begun: bool = False
    """Whether a record of it was handed over."""


class UnbufferedTail(MiningTail):
    committed = True

    def __init__(self, config: Config, start: int, known: Sequence[Table], memory_bytes: int, note: Note) -> None:
        super().__init__(config, start, known, memory_bytes, note)
        first = position.scn_of(start)
        told = note.mine_from
        self._scn = first - 1 if told is None else told
        self._from = first
        self._end = first - 1
        self._current: Current | None = None
        self._watermark = Watermark(self._config)
        self._looked = time.monotonic()
        self._undone: set[int] = set()

    def close(self) -> None:
        try:
            self._watermark.close()
        finally:
            super().close()

    # -- passes ------------------------------------------------------------------------------------------------

    def _before_pass(self) -> None:
        if time.monotonic() - self._looked >= self._config.watermark_interval_s and self._end > self._scn:
            self._scn = self._watermark.look(self._scn, self._end)
            self._looked = time.monotonic()

    def _next_window(self) -> Window | None:
        return self._miner.window(self._scn + 1, self._end)

    def _statement(self, window: Window) -> Statement:
        self._commits.again()
        self._current = None
        return queries.contents_unbuffered(self._config, self._from, window.end + 1)

    def _pass_over(self, found: Draft, *, whole: bool) -> None:
        """What has not committed in this pass comes again in the next one, if it counts."""
        self._leave(found, 1 << 40)
        self._from = max(self._from, self._commits.last_scn)
        if whole and self._window is not None:
            self._end = self._window.end

    def _read_scn(self) -> int:
        return self._commits.last_scn

    def _low(self, scn: int) -> int:
        return min(self._scn, scn)

    def _may_be_undone(self, xid: int) -> bool:
        return xid in self._undone

    # -- rows --------------------------------------------------------------------------------------------------

    def _digest(self, found: Draft, rows: Rows) -> None:
        if self._current is None:
            self._undone.clear()
        for base, part in self._dispatch.pieces(rows):
            private = self._private(part)
            kinds = self._dispatch.sort(part, private)
            self._skip_delivered(part, kinds)
            keep = self._walk(found, part, kinds, private, base)
            self._undone.update(part.xid[kinds.undo & keep].tolist())
            self._dispatch.emit(found, part, kinds, keep, part.xid, base)

    def _skip_delivered(self, rows: Rows, kinds: Sorted) -> None:
        """An offset may stand inside a transaction: its events up to there were delivered."""
        inside = self._note.inside
        if inside is not None:
            done = (rows.xid == inside.xid) & (rows.sequence <= inside.sequence)
            kinds.record[done] = kinds.undo[done] = False

    def _walk(self, found: Draft, rows: Rows, kinds: Sorted, private: Mask, base: int) -> Mask:
        """Transaction by transaction; which rows are taken."""
        keep = np.zeros(len(rows), np.bool_)
        told = (kinds.op != 0) | np.isin(rows.code, [queries.START, queries.COMMIT, queries.ROLLBACK, queries.DDL])
        places = np.flatnonzero(told & ~private)
        if not len(places):
            return keep
        for run in _runs(rows, places):
            self._run(found, rows, kinds, keep, places[run], base)
        return keep

    def _run(self, found: Draft, rows: Rows, kinds: Sorted, keep: Mask, places: Ints, base: int) -> None:
        first, last = int(places[0]), int(places[-1])
        current = self._entered(found, rows, first, base)
        scn = int(rows.commit_scn[places].max())
        if current.wanted is None and scn:
            current.wanted = not self._commits.handled(int(rows.thread[last]), scn, current.xid)
        records = places[kinds.record[places]]
        if current.wanted is not False:
            keep[places] = True
            if len(records) and not current.begun:
                current.begun = True
                begin = int(rows.start_scn[first]) or int(rows.scn[first])
                found.mark((base + int(records[0])) * STEP, current.xid, Mark.BEGIN, position=begin)
        if rows.code[last] == queries.COMMIT:
            self._committed(found, rows, last, base)
        elif rows.code[last] == queries.ROLLBACK:
            self._rolled_back(found, rows, last, base)

    def _entered(self, found: Draft, rows: Rows, place: int, base: int) -> Current:
        xid = int(rows.xid[place])
        if self._current is not None and self._current.xid == xid and rows.code[place] != queries.START:
            return self._current
        self._leave(found, (base + place) * STEP)
        taken = self._config.accounts.takes(rows.user[place], rows.client[place])
        self._current = Current(xid, None if taken else False)
        return self._current

    def _leave(self, found: Draft, ordinal: int) -> None:
        """The transaction has not ended: all that came of it does not belong to this pass."""
        if self._current is not None and self._current.begun:
            found.mark(ordinal, self._current.xid, Mark.ROLLBACK)
        self._current = None

    def _committed(self, found: Draft, rows: Rows, place: int, base: int) -> None:
        assert self._current is not None
        current, self._current = self._current, None
        scn = int(rows.commit_scn[place]) or int(rows.scn[place])
        thread = int(rows.thread[place])
        if not thread and not current.begun:
            return
        placed = self._commits.place(thread, scn, current.xid)
        ordinal = (base + place) * STEP + 2
        if not current.begun:
            return
        if placed is None or current.wanted is False:
            found.mark(ordinal, current.xid, Mark.ROLLBACK)
        else:
            committed = int(rows.commit_us[place]) or int(rows.time_us[place])
            self._commit(found, ordinal, current.xid, placed, scn, committed)

    def _rolled_back(self, found: Draft, rows: Rows, place: int, base: int) -> None:
        """Of committed data there is no rollback."""
        assert self._current is not None
        current = self._current
        what = f"The log rolls back the transaction {position.xid_text(current.xid)} at SCN {rows.scn[place]}"
        if current.begun:
            raise CorruptState(
                f"{what}, although only committed ones were asked for, and changes of it were told.",
                hint="Use database.connection.adapter = logminer, which knows of rollbacks, and report this.",
            )
        _LOG.warning("%s; nothing of it was captured.", what)
        self._leave(found, (base + place) * STEP)


def _runs(rows: Rows, places: Ints) -> list[slice]:
    """Rows of one transaction after the other; each run ends with its transaction's end, if that is there."""
    xids, codes = rows.xid[places], rows.code[places]
    ended = np.isin(codes[:-1], [queries.COMMIT, queries.ROLLBACK])
    cuts = (xids[1:] != xids[:-1]) | (codes[1:] == queries.START) | ended
    edges = [0, *(np.flatnonzero(cuts) + 1).tolist(), len(places)]
    return [slice(first, last) for first, last in pairwise(edges)]
