"""Has the server told everything, although its log goes on?

The log's end is often not the end of a record. A transaction that is still open fills pages, whole pages are made
durable, and what stands on both sides of the last one is half a record; or the newest records lie in memory until
somebody commits. The server reports complete and durable records only, so on an idle database it stops short of the
end, for up to 15 seconds, and who waits for the end waits as long.

Nothing that is committed lies in that gap: a commit is durable before others see it, or, if it was asynchronous,
within three rounds of the WAL writer. So the end is remembered, those rounds go by, and then the server is watched
until it is seen to wait for more log after it has answered us: then all that was committed at that end has come.

Law: this is no place from which to read on. A record that is not complete may begin before it, and be a commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tidelog.connectors.postgres.client import Session

_INSERTED = """
SELECT CASE WHEN pg_is_in_recovery() THEN 0 ELSE (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint END,
       (SELECT setting::int FROM pg_settings WHERE name = 'wal_writer_delay')
"""
"""A standby replays whole records: there the end is the end of one."""
_WAITS = "SELECT lower(wait_event) = 'walsenderwaitforwal' FROM pg_stat_activity WHERE pid = %s"
_ROUNDS = 3
_EVERY_S = 0.5
_ANSWERS = 2
"""One may have been on its way when we began to count."""


@dataclass(frozen=True)
class _Proof:
    end: int
    """What is to be proved: everything that was committed when the log ended here has come."""
    ripe_s: float
    """From when on it was durable."""
    answers: int = -1
    """How often the server had answered then; -1: not counted yet."""
    waits: bool = False
    """The server was seen to wait, and what it had sent before is still on its way."""


class Rest:
    """Looked after by the thread that reads the log, whenever nothing came."""

    def __init__(self, session: Session, sender: int, ping: Callable[[], None]) -> None:
        self._session = session
        self._sender = sender
        self._ping = ping
        self._proof: _Proof | None = None
        self._due_s = 0.0
        self.reached = 0
        """Everything that was committed when the log ended here has come."""

    def look(self, seen: int, answers: int) -> None:
        """One step of a proof; `seen` is what the server reports, `answers` how often it did."""
        now = time.monotonic()
        if self._proof is None and now >= self._due_s:
            self._due_s = now + _EVERY_S
            self._proof = self._begun(seen, now)
        elif self._proof is None:
            return
        elif seen >= self._proof.end:
            self._proof = None
        elif now >= self._proof.ripe_s:
            self._proof = self._pursued(self._proof, answers)

    def _begun(self, seen: int, now: float) -> _Proof | None:
        end, delay_ms = self._session.query(_INSERTED)[0]
        return _Proof(int(end), now + _ROUNDS * delay_ms / 1000) if end > max(seen, self.reached) else None

    def _pursued(self, proof: _Proof, answers: int) -> _Proof | None:
        if proof.answers < 0:
            self._ping()
            return replace(proof, answers=answers)
        if answers < proof.answers + _ANSWERS:
            self._ping()
            return proof
        if proof.waits:
            self.reached = proof.end
            return None
        found = self._session.query(_WAITS, [self._sender])
        return replace(proof, answers=-1, waits=bool(found and found[0][0]))
