"""Backoff: how long to wait before an operation that failed is retried, and what the log says about it.

One schedule for every retry of a run, except for chunk readings (`trouble`): the delay doubles with each failure in a
row, up to a limit.
"""

from __future__ import annotations

import logging
import math
import time

_LOG = logging.getLogger("tidelog.retry")
_FIRST_S, _LIMIT_S = 0.5, 30.0
_REMINDER_S = 60.0


class Backoff:
    """The retries of one operation. Used by one thread."""

    def __init__(self, operation: str) -> None:
        self._operation = operation
        self.failures = 0
        """Failures in a row."""
        self._logged_reason = ""
        self._logged_s = 0.0

    def succeeded(self) -> None:
        """The next failure is the first one again."""
        if self.failures:
            _LOG.info("%s: succeeded on attempt %d", self._operation, self.failures + 1)
        self.failures = 0
        self._logged_reason = ""

    def failed(self, reason: str) -> float:
        """Counts a failed attempt and returns the seconds to wait before the next one. The log gets the first failure,
        each new reason, and a reminder once a minute."""
        delay_s = _delay_after(self.failures)
        self.failures += 1
        now_s = time.monotonic()
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
