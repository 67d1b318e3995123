"""Statements of a start that wait for other sessions.

A publication needs a lock on each of its tables, and a slot needs every transaction to end that is open anywhere on the
server. Neither wait has a limit, because both end by themselves. So a statement that takes long is explained in the
log, and the server ends it when this process is gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.connectors.postgres.client import Session
from tidelog.connectors.postgres.config import Config
from tidelog.core.settings import counted
from tidelog.errors import TidelogError

_LOG = logging.getLogger("tidelog")

_FIRST_REPORT_S, _NEXT_REPORT_S = 3.0, 60.0
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


def end_with_client(session: Session) -> None:
    """Let the server end a waiting statement when its client is gone. Without this, it would notice only at the end of
    the wait, and a slot would appear that nobody reads."""
    if session.version >= _CLIENT_CHECK_VERSION:
        session.query("SELECT set_config('client_connection_check_interval', %s, false)", [_CLIENT_CHECK])


@contextmanager
def reported(config: Config, session: Session, action: str) -> Iterator[None]:
    """While the body runs a statement on `session`, the log says after some seconds, and then once a minute, which
    sessions hold it up. `action` names the statement."""
    done = threading.Event()
    reporter = threading.Thread(target=_report, args=(config, session.backend_pid, action, done), daemon=True)
    reporter.start()
    try:
        yield
    finally:
        done.set()
        reporter.join()


def _report(config: Config, pid: int, action: str, done: threading.Event) -> None:
    delay_s = _FIRST_REPORT_S
    while not done.wait(delay_s):
        try:
            with Session(config) as observer:
                reason = describe(observer, pid)
        except TidelogError as exc:  # the wait itself is not affected
            reason = f"; what it waits for could not be looked up: {exc.message}"
        _LOG.warning("%s takes long%s", action, reason)
        delay_s = _NEXT_REPORT_S


def describe(session: Session, pid: int) -> str:
    """What the server's process `pid` waits for, as the end of a sentence."""
    blocking = session.query(_BLOCKING, [pid])
    if blocking:
        named = "; ".join(_blocker(*row) for row in blocking[:_NAMED_MAX])
        more = len(blocking) - _NAMED_MAX
        others = f"; and {counted(more, 'other session')}" if more > 0 else ""
        return f": it waits for the end of a transaction. {named}{others}."
    if session.query(_WAITS_FOR_PRIMARY, [pid]) == [(True,)]:
        return ": a standby waits for the primary. Run there: SELECT pg_log_standby_snapshot();"
    return "."


def _blocker(
    pid: int, application: str | None, user: str | None, database: str | None, state: str | None, since: str | None
) -> str:
    if pid == 0:
        return "It is a prepared transaction (see pg_prepared_xacts)"
    if since is None:
        return f"Server process {pid}, of another role"
    return f"Server process {pid}: {application!r} as {user} in database {database}, {state}, since {since}"
