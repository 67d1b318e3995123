"""Statements that wait for other sessions, at a start and when a table is read.

A publication needs a lock on each of its tables, and a slot needs every transaction to end that is open anywhere on the
server. Such a wait has no limit, because it ends by itself. So the log and the caller hear which sessions are waited
for, and the caller may give the statement up. At a start, the server cancels the statement when this process is gone.
While the pipeline runs, the planner adds a table to the publication: that wait has a limit, and its error names the
sessions.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidelog.connectors.postgres.client import Session
from tidelog.connectors.postgres.config import Config
from tidelog.contracts import WatchWait, ignore_wait
from tidelog.core.settings import counted
from tidelog.errors import ConfigError, LockTimeout, TidelogError

_LOG = logging.getLogger("tidelog")

_FIRST_REPORT_S, _NEXT_REPORT_S = 3.0, 60.0
_LOOK_S = 5.0
"""How often the sentence for the caller is brought up to date."""
_WATCH_S = 0.2
_NAMED_MAX = 3
_CLIENT_CHECK = "5s"
_CLIENT_CHECK_VERSION = 140000

_BLOCKING = """
SELECT b.pid, a.application_name, a.usename::text, a.datname::text, a.state,
       to_char(coalesce(a.xact_start, a.backend_start), 'YYYY-MM-DD HH24:MI:SS TZ')
  FROM (SELECT DISTINCT unnest(pg_blocking_pids(%s)) AS pid) b
  LEFT JOIN pg_stat_activity a ON a.pid = b.pid
 ORDER BY a.xact_start NULLS LAST, b.pid
"""
"""A role without pg_read_all_stats sees nothing but the pid of other roles' sessions."""
_WAITS_FOR_PRIMARY = """
SELECT pg_is_in_recovery() AND wait_event_type IS DISTINCT FROM 'Lock' FROM pg_stat_activity WHERE pid = %s
"""


def cancel_if_client_disconnects(session: Session) -> None:
    """Without this, the server notices only at the end of the wait that its client is gone, and an unused slot would
    remain."""
    if session.version < _CLIENT_CHECK_VERSION:
        return
    try:
        session.query("SELECT set_config('client_connection_check_interval', %s, false)", [_CLIENT_CHECK])
    except ConfigError as exc:  # some platforms, and some hosted servers, cannot check their clients
        _LOG.debug("The server does not check whether its clients are still there: %s", exc.message)


@contextmanager
def warn_while_waiting(config: Config, session: Session, action: str, watch: WatchWait = ignore_wait) -> Iterator[None]:
    """While the body runs a statement on `session`, the log says after three seconds, and then once a minute, which
    sessions it waits for. `action` names the statement. `watch` gets the same sentence several times a second; if it
    raises, the statement is cancelled and its error is raised here, unless the statement has succeeded before."""
    report = _Report(config, session, action, watch, first_report_s=_FIRST_REPORT_S)
    report.start()
    try:
        yield
    except TidelogError as exc:
        report.end()
        if report.refusal is not None:
            raise report.refusal from exc
        raise
    finally:
        report.end()
    report.withdraw()


@contextmanager
def explain_lock_timeout(config: Config, session: Session, action: str, patience_s: float) -> Iterator[None]:
    """The body runs a statement on `session`, which waits `patience_s` for a lock at most. If it gets none, the error
    says which sessions it has waited for. `action` names the statement."""
    report = _Report(config, session, action, ignore_wait, first_report_s=patience_s / 2, level=logging.DEBUG)
    report.start()
    try:
        yield
    except LockTimeout as exc:
        report.end()
        if report.reason:
            raise LockTimeout(report.reason) from exc
        raise
    finally:
        report.end()


class _Report(threading.Thread):
    """Looks at a statement from beside it."""

    def __init__(
        self,
        config: Config,
        session: Session,
        action: str,
        watch: WatchWait,
        *,
        first_report_s: float,
        level: int = logging.WARNING,
    ) -> None:
        super().__init__(name="tidelog-lock-waits", daemon=True)
        self._config, self._session, self._action, self._watch = config, session, action, watch
        self._level = level
        self._pid = session.backend_pid
        self._done = threading.Event()
        self._look_at_s = self._log_at_s = time.monotonic() + first_report_s
        self.reason = ""
        """Why the statement takes long, in a sentence."""
        self.refusal: BaseException | None = None
        """What `watch` raised."""

    def run(self) -> None:
        while not self._done.wait(_WATCH_S):
            if self.refusal is None:
                self._look()
                self._ask()
            if self.refusal is not None:  # again, because the body may have begun with its next statement
                self._cancel()

    def end(self) -> None:
        self._done.set()
        self.join()

    def withdraw(self) -> None:
        """Tells the caller that nothing is waited for any more. It cannot refuse: the statement has succeeded."""
        if self.reason:
            self.reason = ""
            self._ask()

    def _look(self) -> None:
        now_s = time.monotonic()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + min(_LOOK_S, _NEXT_REPORT_S)
        self.reason = f"{self._action} waits for {self._describe()}"
        if now_s >= self._log_at_s:
            self._log_at_s = now_s + _NEXT_REPORT_S
            _LOG.log(self._level, self.reason)

    def _describe(self) -> str:
        try:
            with Session(self._config) as observer:
                return describe(observer, self._pid)
        except TidelogError as exc:  # the wait itself is not affected
            return f"something that could not be looked up: {exc.message}"

    def _ask(self) -> None:
        try:
            self._watch(self.reason)
        except BaseException as exc:  # noqa: BLE001  it is raised in the thread that runs the statement
            self.refusal = exc

    def _cancel(self) -> None:
        with suppress(TidelogError):  # the connection is gone, and the statement with it
            self._session.cancel()


def describe(session: Session, pid: int) -> str:
    """What the server's process `pid` waits for, as the end of a sentence."""
    blocking = session.query(_BLOCKING, [pid])
    if blocking:
        named = "; ".join(_blocker(*row) for row in blocking[:_NAMED_MAX])
        more = len(blocking) - _NAMED_MAX
        return f"{counted(len(blocking), 'session')}: {named}{f'; and {more} more' if more > 0 else ''}."
    if session.query(_WAITS_FOR_PRIMARY, [pid]) == [(True,)]:
        return "the primary, because this is a standby. Run there: SELECT pg_log_standby_snapshot();"
    return "the server."


def _blocker(
    pid: int, application: str | None, user: str | None, database: str | None, state: str | None, since: str | None
) -> str:
    if pid == 0:
        return "a prepared transaction (see pg_prepared_xacts)"
    if since is None:
        return f"pid {pid} (details hidden: grant pg_read_all_stats to see them)"
    details = [f"application {application!r}" if application else "", f"user {user}" if user else ""]
    details += [f"database {database}" if database else "", f"{state or 'active'} since {since}"]
    return f"pid {pid} ({', '.join(filter(None, details))})"
