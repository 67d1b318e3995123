"""A start beside a database that does not answer yet, as when both come up with the machine: it is retried.

A first start gives up after a minute, because its settings may be wrong. A pipeline that has run before knows that they
are right, and waits as long as it would in the middle of the stream.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from tidelog.engine.backoff import Backoff
from tidelog.errors import TransientError

T = TypeVar("T")

_WAITING_FOR = "waiting for "
WAITING = f"{_WAITING_FOR}{TransientError.awaited}"
_FIRST_START_S = 60.0
_LOOK_S = 0.1


def waiting_for(reason: TransientError) -> str:
    """The state of what has not started yet."""
    return f"{_WAITING_FOR}{reason.awaited}"


def is_waiting(state: str) -> bool:
    return state.startswith(_WAITING_FOR)


def start_when_reachable(attempt: Callable[[], T], watch: Callable[[TransientError], None], *, first: bool) -> T:
    """The result of `attempt`, which is repeated after a `TransientError`. `watch` gets the error several times a
    second until the next attempt is due, and ends the waiting by raising."""
    deadline = time.monotonic() + (_FIRST_START_S if first else math.inf)
    backoff = Backoff("The start")
    while True:
        try:
            return attempt()
        except TransientError as exc:
            if time.monotonic() >= deadline:
                raise
            reason = exc
        _pause(backoff.failed(str(reason)), watch, reason)


def _pause(seconds: float, watch: Callable[[TransientError], None], reason: TransientError) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        watch(reason)
        time.sleep(_LOOK_S)
