"""How a run is doing: what its batches brought, and how fast."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tidelog.contracts import Status
from tidelog.engine.capture import last_status, write_status
from tidelog.engine.home import Home
from tidelog.engine.startup import waiting_for
from tidelog.engine.watching import Ended, Walks
from tidelog.errors import TransientError

_RECENT_S = 5.0


@dataclass(frozen=True)
class Progress:
    """How a running pipeline is doing."""

    events_total: int = 0
    events_per_s: float = 0.0
    lag_ms: int = 0
    lag_bytes: int = 0
    batch_id: int = -1
    batch_events: int = 0
    batch_ms: int = 0
    tables: Mapping[str, int] = field(default_factory=dict)
    """Events of this run, by table."""
    state: str = "starting"
    unreachable_since_us: int = 0
    """Since when the database does not answer; 0 while it does."""
    waits_for: str = ""
    """What the capture waits for before it can read the log; empty while it reads."""
    warnings: tuple[str, ...] = ()
    snapshots: Walks = field(default_factory=Walks)
    """The tables whose rows are being read."""
    ended: tuple[Ended, ...] = ()
    """The snapshots that ended during this run."""
    writing: str = ""
    """The tables that the sink is writing now."""


def waiting(watch: Callable[[Progress], None]) -> Callable[[TransientError], None]:
    """Shows by `watch` why a run has not started yet."""
    return lambda reason: watch(Progress(state=waiting_for(reason), warnings=(str(reason),)))


class Tally:
    """The batches of one run, counted."""

    def __init__(self) -> None:
        self.events = 0
        self.tables: Counter[str] = Counter()
        self.batch_id = -1
        self.batch_events = 0
        self.batch_ms = 0
        self._started = time.monotonic()
        self._recent: list[tuple[float, int]] = []

    def add(self, batch_id: int, tables: Mapping[str, int], events: int, began: float) -> None:
        now = time.monotonic()
        self.events += events
        self.tables.update(tables)
        self.batch_id, self.batch_events, self.batch_ms = batch_id, events, int((now - began) * 1000)
        self._recent = [*self._lately(now), (now, events)]

    def rate(self) -> float:
        """Events a second, of late."""
        now = time.monotonic()
        return sum(n for _, n in self._lately(now)) / min(_RECENT_S, max(0.5, now - self._started))

    def _lately(self, now: float) -> list[tuple[float, int]]:
        return [(at, n) for at, n in self._recent if now - at < _RECENT_S]


def read_status(home: Home) -> Status:
    """What the capture last said of itself."""
    return last_status(home.status) or Status("starting")


def mark_stopped(home: Home) -> None:
    """The capture may have been ended before it could say so."""
    status = read_status(home)
    if status.state != "failed":
        write_status(home.status)(replace(status, state="stopped", unreachable_since_us=0, waits_for=""))
