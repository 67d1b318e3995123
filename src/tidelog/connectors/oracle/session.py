"""The life of a mining session: its files, its start for each pass, and its end.

A pass mines what lies between a start, as old as the oldest transaction that is still of interest, and an upper bound
that every redo thread has on disk. The files stay in the session until a log switch, a changed choice of files, or its
age ends it. What goes wrong on the way is cured by a new session, a few times in a row at most.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tidelog.connectors.oracle import queries
from tidelog.connectors.oracle.client import Row, Session
from tidelog.connectors.oracle.config import Config
from tidelog.connectors.oracle.faults import (
    ConnectionLost,
    DictionaryMissing,
    LogMissing,
    LogReused,
    MiningFailed,
    RangeInvalid,
    SessionGone,
)
from tidelog.connectors.oracle.logs import gathering
from tidelog.connectors.oracle.logs.bound import upper
from tidelog.connectors.oracle.logs.files import LogFile, has_dictionary
from tidelog.connectors.oracle.logs.gathering import Gathering
from tidelog.connectors.oracle.logs.selector import Chosen, Selector
from tidelog.connectors.oracle.logs.threads import Thread
from tidelog.connectors.oracle.queries import Statement
from tidelog.errors import PositionLost, TransientError

_LOG = logging.getLogger("tidelog.oracle")
_STARTS_MAX = 5
"""How often in a row a session that cannot be started is tried again."""
_REFUSED_WARN_S, _REFUSED_MAX_S = 30.0, 600.0
"""How long a range may be refused that the database says it has logged."""
_BROKEN = (LogMissing, LogReused, MiningFailed, SessionGone)


@dataclass(frozen=True)
class Window:
    """What a pass may read: the session is started, and holds all redo from `start` to `end`, both included."""

    start: int
    end: int
    threads: tuple[Thread, ...] = ()
    switched: bool = False
    """Whether the files are others than in the pass before."""

    @property
    def private(self) -> frozenset[int]:
        """Redo threads whose rows are not ours to read."""
        return frozenset(thread.number for thread in self.threads if thread.private)


class Miner:
    """A connection that mines, used by one thread. `committed` is how the unbuffered adapter asks.

    A pass: `window`, then `rows` with a statement of `queries`; at their end `whole` says whether all of it came."""

    def __init__(self, config: Config, *, committed: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._committed = committed
        self._clock = clock
        self._session: Session | None = None
        self._gathering = Gathering(config, clock)
        self._selector: Selector | None = None
        self._chosen: Chosen | None = None
        self._current: list[Row] = []
        self._from = 0
        self._since = 0.0
        self._primary = True
        self._built = -1
        self._failures = 0
        self._refused: float | None = None
        self._warned = False
        self._cut = 0
        self.whole = True
        """Whether the last result was read to its end; if not, its last SCN may be incomplete."""

    @property
    def session(self) -> Session:
        """The connection, made when it is needed; for questions between passes."""
        if self._session is None or self._session.closed:
            self._forget()
            self._session = Session(self._config)
            database = self._session.query(queries.DATABASE)[0]
            self._primary = database[4] == "PRIMARY"
        return self._session

    def window(self, start: int, read: int) -> Window | None:
        """Start a session for what comes after `read`, mined from `start` on; None when there is nothing (yet)."""
        session = self.session
        threads = tuple(gathering.state(session))
        end = upper(session, self._config, threads, primary=self._primary)
        if end <= max(read, start):
            return None
        before = self._chosen.logs if self._chosen else None
        try:
            chosen = self._files(session, start, threads)
            if chosen is None:
                return None
            end = min(end, chosen.limit - 1) if chosen.limit is not None else end
            if end <= max(read, start):
                return None
            self._start(start, end)
        except RangeInvalid as error:
            self._end()
            self._wait(error, start, end)
            return None
        except (*_BROKEN, DictionaryMissing) as error:
            self._failed(error)
            return None
        self._failures, self._refused, self._warned = 0, None, False
        return Window(start, end, threads, switched=chosen.logs != before)

    def rows(self, statement: Statement) -> Iterator[list[Row]]:
        """The result, batch by batch. A log file that was reused meanwhile ends it; twice in a row is an error."""
        self.whole = False
        try:
            yield from self.session.batches(statement)
        except _BROKEN:
            self._end()
            self._cut += 1
            if self._cut > 1:
                raise
            return
        self.whole, self._cut = True, 0

    def close(self) -> None:
        """A connection that is lost has ended its session, too."""
        if self._session is None:
            return
        with suppress(ConnectionLost):
            self._end()
        self._session.close()
        self._session = None

    # -- files -------------------------------------------------------------------------------------------------

    def _files(self, session: Session, start: int, threads: Sequence[Thread]) -> Chosen | None:
        """The files of the session, gathered anew where that is needed, and put into it."""
        state = [(thread.number, thread.open, thread.enabled) for thread in threads]
        current = [*state, *session.query(queries.CURRENT_LOGS)]  # a thread may be new between the two questions
        expired = 0 < self._config.session_max_s < self._clock() - self._since
        if self._chosen and not (expired or self._chosen.capped or current != self._current or start < self._from):
            return self._chosen
        found = self._found(session, start, threads)
        if found is None:
            return None
        if self._selector is None:
            self._selector = Selector(self._least(), _log_bytes(session))
        chosen, self._selector = self._selector.choose(found, threads)
        if self._chosen is None or expired or chosen.logs != self._chosen.logs or current != self._current:
            session = self._renew(session, expired)
            self._put(session, chosen)
        self._chosen, self._from, self._current = chosen, start, current
        return chosen

    def _least(self) -> int:
        """A dictionary in the log has to be in the session, wherever it lies: then all files are."""
        return 0 if self._config.strategy == "redo_log_catalog" else self._config.logs_min

    def _found(self, session: Session, start: int, threads: Sequence[Thread]) -> list[LogFile] | None:
        """Where names come from the log, a dictionary has to be in it: one that lies there already is good enough."""
        found = self._gathering.find(session, start, threads)
        if found is None or self._config.strategy != "redo_log_catalog":
            return found
        if has_dictionary(found) or self._built >= start:
            return found
        self._built = int(session.one(queries.CURRENT_SCN))
        session.execute(queries.BUILD_DICTIONARY)
        return self._gathering.find(session, start, threads)

    def _renew(self, session: Session, expired: bool) -> Session:
        """End the session; an aged one with its connection, if that is wanted: LogMiner's memory is freed with it."""
        self._end()
        if not (expired and self._config.renew_connection):
            return session
        session.close()
        return self.session

    def _put(self, session: Session, chosen: Chosen) -> None:
        for (name,) in session.query(queries.ADDED):
            session.execute(queries.remove_logfile(name))
        for file in chosen.files:
            session.execute(queries.add_logfile(file.name))
        self._since = self._clock()

    # -- start and end -----------------------------------------------------------------------------------------

    def _start(self, start: int, end: int) -> None:
        """Committed data only: transactions end where they end, so the session has no end; the query has."""
        last = None if self._committed else end
        self.session.execute(queries.start_logmnr(self._config, start, last, committed=self._committed))

    def _wait(self, error: RangeInvalid, start: int, end: int) -> None:
        """A range that is refused may be there a moment later; not for ever."""
        self._refused = self._clock() if self._refused is None else self._refused
        since_s = self._clock() - self._refused
        what = f"LogMiner refuses the range of SCNs from {start} to {end} for {since_s:.0f} s: {error.message}"
        if since_s >= _REFUSED_MAX_S:
            raise PositionLost(what, hint=gathering.START_OVER) from error
        if since_s >= _REFUSED_WARN_S and not self._warned:
            self._warned = True
            _LOG.warning("%s It is asked for again.", what)

    def _failed(self, error: TransientError) -> None:
        """A new session with newly gathered files cures it, mostly."""
        self._end()
        if isinstance(error, DictionaryMissing):
            self._built = -1
        self._failures += 1
        if self._failures > _STARTS_MAX:
            self._failures = 0
            raise error

    def _end(self) -> None:
        """End the session, if there is one. That it is over already is what was wanted."""
        session = self._session
        self._forget()
        if session is None or session.closed:
            return
        try:
            session.execute(queries.END_LOGMNR)
        except SessionGone:
            return

    def _forget(self) -> None:
        self._chosen = None
        self._current = []


def _log_bytes(session: Session) -> int:
    """How much an online log holds."""
    return max((int(row[3]) for row in session.query(queries.ONLINE_LOGS)), default=0)
