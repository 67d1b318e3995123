"""Backoff: how long to wait before an operation that failed is retried, and what the log says about it.

One schedule for every retry of a run: the delay doubles with each failure in a row, up to a limit.
"""

from __future__ import annotations

import logging
import math
import time

_LOG = logging.getLogger("tidelog.retry")
_FIRST_S, _LIMIT_S = 0.5, 30.0
_REMINDER_S = 60.0
_TIMES_LASTED = 5
"""An attempt that took long, while something else waited for it, is not repeated soon."""


class Backoff:
    """The retries of one operation. Used by one thread."""

    def __init__(self, operation: str, *, limit_s: float = _LIMIT_S) -> None:
        self._operation = operation
        self._limit_s = limit_s
        self._due_s = 0.0
        self.failures = 0
        """Failures in a row."""
        self._logged_reason = ""
        self._logged_s = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the delay after the last failure is over, for an operation that is not waited for."""
        return time.monotonic() >= self._due_s

    def succeeded(self) -> None:
        """The next failure is the first one again."""
        if self.failures:
            _LOG.info("%s: succeeded on attempt %d", self._operation, self.failures + 1)
        self.failures = 0
        self._due_s = 0.0
        self._logged_reason = ""

    def failed(self, reason: str, lasted_s: float = 0.0) -> float:
        """Counts a failed attempt, which took `lasted_s`, and returns the seconds to wait before the next one. The log
        gets the first failure, each new reason, and a reminder once a minute."""
        delay_s = min(self._limit_s, max(_delay_after(self.failures), _TIMES_LASTED * lasted_s))
        self.failures += 1
        now_s = time.monotonic()
        self._due_s = now_s + delay_s
        if reason != self._logged_reason or now_s - self._logged_s >= _REMINDER_S:
            _LOG.info(  # no warning: people read of it in the status, which each caller keeps
                "%s: attempt %d failed, the next one follows in %.1f s: %s",
                self._operation,
                self.failures,
                delay_s,
                reason,
            )
            self._logged_reason, self._logged_s = reason, now_s
        return delay_s


def _delay_after(earlier_failures: int) -> float:
    doublings = min(earlier_failures, 10)  # beyond that it is above the limit in any case
    return min(_LIMIT_S, math.ldexp(_FIRST_S, doublings))
