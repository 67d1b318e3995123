"""What goes wrong again and again: told when it begins and as long as it lasts, and given time to pass."""

from __future__ import annotations

import logging
import time

_LOG = logging.getLogger("tidelog.snapshots")
_REST_S, _REST_MAX_S = 1.0, 30.0
_RESTS = 5
"""A try that took long is not repeated soon: the stream waits for it."""
_REMINDER_S = 60.0


class Trouble:
    """Used by one thread."""

    def __init__(self, said: str) -> None:
        self._said = said
        self._reason = ""
        self._told_s = self._until_s = 0.0

    @property
    def rests(self) -> bool:
        """Whether it is too early for another try."""
        return time.monotonic() < self._until_s

    def met(self, reason: str, lasted_s: float = 0.0) -> None:
        now_s = time.monotonic()
        if reason != self._reason or now_s - self._told_s > _REMINDER_S:
            _LOG.warning("%s: %s", self._said, reason)
            self._reason, self._told_s = reason, now_s
        self._until_s = now_s + min(_REST_MAX_S, max(_REST_S, _RESTS * lasted_s))
