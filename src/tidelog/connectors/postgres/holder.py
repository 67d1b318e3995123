"""The process that reads our slot, when it is not us.

The server admits one reader per slot. After a broken connection, the server's process of that connection holds the slot
until the server notices, which takes `wal_sender_timeout` at most: this is waited for. A reader that lives is another
pipeline, and waiting for it would never end: after a short patience it is named in an error.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tidelog.connectors.postgres.client import Session
from tidelog.errors import Refused, SlotBusy

_READER = """
SELECT s.active_pid, r.reply_time::text, a.application_name, host(a.client_addr), a.usename::text,
       to_char(a.backend_start, 'YYYY-MM-DD HH24:MI:SS TZ'),
       (SELECT setting::float8 / 1000 FROM pg_settings WHERE name = 'wal_sender_timeout')
  FROM pg_replication_slots s
  LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
  LEFT JOIN pg_stat_replication r ON r.pid = s.active_pid
 WHERE s.slot_name = %s AND s.active
"""
"""A role without pg_read_all_stats sees no `reply_time`, and of other roles' processes nothing but the pid."""
_PATIENCE_S = 8.0
_TIMEOUT_DEFAULT_S = 60.0
_MARGIN_S = 5.0
"""The server looks after its timeouts now and then."""


@dataclass(frozen=True)
class _Reader:
    pid: int
    replied: str | None
    """When it last answered the server."""
    application: str | None
    host: str | None
    user: str | None
    since: str | None
    """When it connected; None where we may not know."""
    timeout_s: float

    def describe(self) -> str:
        if self.since is None:
            return f"server process {self.pid}, of another role"
        where = self.host or "the server's own machine"
        return f"server process {self.pid}: {self.application!r} as {self.user} from {where}, since {self.since}"


class SlotHolder:
    """Remembers for how long a foreign process has held the slot. Used by one thread."""

    def __init__(self, slot: str) -> None:
        self._slot = slot
        self._own: set[int] = set()
        self._first: _Reader | None = None
        self._first_s = 0.0

    def add_own_sender(self, sender: int) -> None:
        """We read the slot, by this process of the server."""
        self._own.add(sender)
        self._first = None

    def require_free(self, session: Session) -> None:
        """`SlotBusy` while waiting may help, `Refused` once the slot proves to be in use elsewhere."""
        found = session.query(_READER, [self._slot])
        if not found or found[0][0] is None:
            self._first = None
            return
        reader = _Reader(*found[0])
        if reader.pid in self._own:
            raise SlotBusy(
                f"The server still holds the slot {self._slot} for our last connection (server process {reader.pid})."
            )
        if self._first is None or self._first.pid != reader.pid:
            self._first, self._first_s = reader, time.monotonic()
        self._judge(self._first, reader)

    def _judge(self, first: _Reader, now: _Reader) -> None:
        waited_s = time.monotonic() - self._first_s
        lives = now.replied is not None and now.replied != first.replied
        overdue = now.replied is None and not self._own and waited_s > (now.timeout_s or _TIMEOUT_DEFAULT_S) + _MARGIN_S
        if overdue or (lives and waited_s > _PATIENCE_S):
            raise Refused(
                f"The slot {self._slot} is read by {now.describe()}.",
                hint="If this pipeline runs there, stop it there; if that is another one, give this one a slot.name of "
                f"its own. To end a reader that nobody needs, run: SELECT pg_terminate_backend({now.pid})",
            )
        raise SlotBusy(f"The slot {self._slot} is in use: waiting for {now.describe()}.")
