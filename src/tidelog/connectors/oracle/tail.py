"""What both ways of mining share: passes over the log, pauses between them, and the answers to the engine.

A pass mines up to where every redo thread has its log on disk. What it reads goes to the transaction buffer in both
modes: buffered, because transactions come mixed; unbuffered, because a change may still be taken back before the
COMMIT, and because a transaction may be larger than memory. Only a pass that was read to its end moves `reached`.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tidelog.connectors.oracle import draft, position, queries
from tidelog.connectors.oracle.catalog import Catalog
from tidelog.connectors.oracle.client import Row, Session
from tidelog.connectors.oracle.config import Config
from tidelog.connectors.oracle.dispatch import Dispatch
from tidelog.connectors.oracle.draft import Draft
from tidelog.connectors.oracle.merging import RowMerging
from tidelog.connectors.oracle.note import Inside, Note, Notes
from tidelog.connectors.oracle.position import Commits
from tidelog.connectors.oracle.queries import Statement
from tidelog.connectors.oracle.row import Feed, Mask, Rows
from tidelog.connectors.oracle.session import Miner, Window
from tidelog.connectors.oracle.versions import Versions
from tidelog.contracts import Block, Merging, Mixed
from tidelog.errors import PositionLost, TidelogError
from tidelog.model.record import Mark, Op
from tidelog.model.schema import Table

_LOG = logging.getLogger("tidelog.oracle")
_ROW_BYTES_MAX = 5000
"""A row with a full SQL_REDO, as the driver hands it over."""
_ROWS_MIN = 100
_PING_S = 0.2
_CLOCK_S = 60.0


class MiningTail(ABC):
    """`note` is that of the last commit before `start`."""

    committed: bool
    """Whether the database is asked for committed transactions only."""

    def __init__(self, config: Config, start: int, known: Sequence[Table], memory_bytes: int, note: Note) -> None:
        rows = max(_ROWS_MIN, min(config.fetch_rows, memory_bytes // _ROW_BYTES_MAX))
        self._config = replace(config, fetch_rows=rows)
        self._start = start
        self._note = note
        self._notes = Notes(note)
        self._commits = Commits(start, note.commit_scn)
        self._awaited = _awaited(note)
        self._passed_by: int | None = None
        self._session = Session(config, inside=True)
        try:
            self._tables = Versions(Catalog(self._session, config.selection), config, known)
            self._look_at_clock()
            self._charset = str(self._session.one(queries.CHARSET) or "AL32UTF8") if config.lob else "AL32UTF8"
        except TidelogError:
            self._session.close()
            raise
        self._dispatch = Dispatch(self._tables, config)
        self._miner = Miner(self._config, committed=self.committed)
        self._names = queries.columns(config)
        self._pass: Iterator[list[Row]] | None = None
        self._window: Window | None = None
        self._told_private: frozenset[int] = frozenset()
        self._feed = self._fresh_feed()
        self._found = False
        self._pause_s = 0.0
        self._due = self._ended = 0.0
        self._reached = position.scn_of(start) - 1
        self._beat = time.monotonic()

    # -- the contract ------------------------------------------------------------------------------------------

    def poll(self, wait_s: float, eager: bool) -> Mixed | None:  # noqa: ARG002  a pass is handed over as it comes
        deadline = time.monotonic() + wait_s
        while True:
            if self._pass is None and not self._begin():
                left = min(deadline, self._due) - time.monotonic()
                if left > 0:
                    time.sleep(left)
                if time.monotonic() >= deadline:
                    return self._heartbeat()
                continue
            found = self._step()
            if found is not None or time.monotonic() >= deadline:
                return found or self._heartbeat()

    def merging(self, xid: int) -> Merging:
        inside = self._note.inside
        skip = inside.sequence if inside is not None and inside.xid == xid and not self.committed else 0
        return RowMerging(self._charset, skip=skip, undone=self._may_be_undone(xid))

    def acknowledge(self, at: int) -> None:  # noqa: B027
        """Oracle keeps no place for us: its archived logs live as long as the administrator says."""

    def seen(self) -> int:
        return max(self._start, position.of_scn(self._read_scn()))

    def reached(self) -> int:
        return max(self.seen(), position.of_scn(self._reached))

    def quiet(self) -> bool:
        return self._pass is None and not self._feed.holds

    def keep_alive(self) -> None:  # noqa: B027
        """The sessions need nothing while the journal is full; one that the server ends meanwhile is made anew."""

    def ping(self) -> None:
        self._due = min(self._due, self._ended + max(self._config.pauses.min_s, _PING_S))

    def close(self) -> None:
        try:
            self._miner.close()
        finally:
            self._session.close()

    # -- passes ------------------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Start a pass, if one is due and there is something to read."""
        if time.monotonic() < self._due:
            return False
        self._before_pass()
        if time.monotonic() - self._clocked >= _CLOCK_S:
            self._look_at_clock()
        self._window = self._next_window()
        if self._window is None:
            self._rest(found=False)
            return False
        self._tell_private(self._window)
        self._feed, self._found = self._fresh_feed(), False
        self._pass = self._miner.rows(self._statement(self._window))
        return True

    def _step(self) -> Mixed | None:
        """The next rows of the pass, or its end."""
        assert self._pass is not None
        fetched = next(self._pass, None)
        if fetched is not None:
            self._found = True
            return self._hand_over(self._feed.push(fetched))
        self._pass = None
        found = self._finish(self._feed.finish() if self._miner.whole else None)
        self._rest(found=self._found)
        return found

    def _finish(self, rest: Rows | None) -> Mixed | None:
        """At the end of a pass; `rest` is what was held back, None if the pass was cut off."""
        found = Draft()
        if rest is not None and len(rest):
            self._digest(found, rest)
        self._pass_over(found, whole=rest is not None)
        self._require_awaited()
        if rest is not None:
            assert self._window is not None
            self._reached = max(self._reached, self._window.end)
        return self._mixed(found)

    def _hand_over(self, rows: Rows) -> Mixed | None:
        if not len(rows):
            return None
        found = Draft()
        self._digest(found, rows)
        return self._mixed(found)

    def _mixed(self, found: Draft) -> Mixed | None:
        return None if found.empty else found.mixed(self._read_scn())

    def _rest(self, *, found: bool) -> None:
        self._pause_s = self._config.pauses.after(self._pause_s, found)
        self._ended = time.monotonic()
        self._due = self._ended + self._pause_s

    def _fresh_feed(self) -> Feed:
        return Feed(self._names, whole=not self.committed, ahead_us=self._ahead_us)

    # -- what the two do differently ---------------------------------------------------------------------------

    def _before_pass(self) -> None:  # noqa: B027
        """Whatever is due between two passes."""

    @abstractmethod
    def _next_window(self) -> Window | None: ...

    @abstractmethod
    def _statement(self, window: Window) -> Statement: ...

    @abstractmethod
    def _digest(self, found: Draft, rows: Rows) -> None: ...

    @abstractmethod
    def _pass_over(self, found: Draft, *, whole: bool) -> None: ...

    @abstractmethod
    def _read_scn(self) -> int:
        """All that was logged up to here has been read."""

    @abstractmethod
    def _low(self, scn: int) -> int:
        """Where the log has to be read from to go on after a commit at `scn`."""

    @abstractmethod
    def _may_be_undone(self, xid: int) -> bool: ...

    # -- commits -----------------------------------------------------------------------------------------------

    def _commit(self, found: Draft, ordinal: int, xid: int, at: int, scn: int, committed: int) -> None:
        """A captured transaction is complete."""
        self._expect(xid, scn)
        found.mark(ordinal, xid, Mark.COMMIT, position=at, end=at + 1, committed=committed, note=self._noted(scn))

    def _noted(self, scn: int) -> str:
        return self._notes.text(self._low(scn), self._commits.commit_scn(), self._awaited)

    def _expect(self, xid: int, scn: int) -> None:
        """An offset of another connector may stand inside a transaction: that one has to come next, or one that
        committed at the same moment."""
        if self._awaited is None:
            return
        if self._awaited.xid == xid:
            self._awaited = self._passed_by = None
        elif self._passed_by is None:
            self._passed_by = scn
        elif scn > self._passed_by:
            self._require_awaited()

    def _require_awaited(self) -> None:
        if self._awaited is None or self._passed_by is None:
            return
        xid = position.xid_text(self._awaited.xid)
        raise PositionLost(
            f"The offset stands inside the transaction {xid}, after its event {self._awaited.sequence}, but the log "
            f"tells a later commit, at SCN {self._passed_by}, and not this transaction.",
            hint="Correct the offset: take txId and txSeq out if the transaction was delivered, or set scn to where it "
            "began; or delete the offset, and take a new snapshot of the tables.",
        )

    def _private(self, rows: Rows) -> Mask:
        """Rows of redo threads that are not ours to read."""
        private = sorted(self._window.private) if self._window is not None else []
        return np.isin(rows.thread, private) if private else np.zeros(len(rows), np.bool_)

    def _look_at_clock(self) -> None:
        """How far the server's clock is before UTC: that changes twice a year."""
        self._ahead_us = _ahead_us(self._session.one(queries.UTC_OFFSET))
        self._clocked = time.monotonic()

    def _tell_private(self, window: Window) -> None:
        """Once for each: what their instances commit would be missed without a word."""
        for thread in sorted(window.private - self._told_private):
            _LOG.warning("Redo thread %d is enabled as PRIVATE: changes of its instance are not captured.", thread)
        self._told_private |= window.private

    # -- records of our own ------------------------------------------------------------------------------------

    def _heartbeat(self) -> Mixed | None:
        """Only at an SCN that was read to its end: after a restart its place counts as that of a commit which no offset
        lists, and one that was still to come would be taken for it."""
        interval, scn = self._config.heartbeat_interval_s, self._read_scn()
        if not interval or time.monotonic() - self._beat < interval or not self.quiet():
            return None
        here = max(scn, position.scn_of(self._start))
        if self._reached < here:
            return None
        at, now_us = self._commits.own(here), time.time_ns() // 1000
        if at is None:
            return None
        self._beat = time.monotonic()
        found = Draft()
        found.blocks.append(_own(Op.HEARTBEAT, scn))
        found.mark(1, 0, Mark.COMMIT, position=at, end=at + 1, committed=now_us, note=self._noted(scn))
        return self._mixed(found)


def _own(op: Op, scn: int) -> Block:
    one, nothing = np.array([scn], np.int64), np.zeros(1, np.int64)
    payload = pa.array([b""], pa.binary())
    return draft.block(None, key=nothing, ordinal=nothing, xid=nothing, scn=one, op=[ord(op)], payload=payload)


def _awaited(note: Note) -> Inside | None:
    """The transaction that the offset stands in; none that was delivered to its end."""
    if note.inside is None:
        return None
    listed = {xid for thread in note.commit_scn.threads.values() for xid in thread.transactions}
    return None if position.xid_text(note.inside.xid) in listed else note.inside


def _ahead_us(zone: str | None) -> int:
    """`+02:00` in microseconds."""
    hours, _, minutes = (zone or "+00:00").strip().partition(":")
    seconds = abs(int(hours)) * 3600 + int(minutes or 0) * 60
    return (-seconds if hours.startswith("-") else seconds) * 1_000_000
