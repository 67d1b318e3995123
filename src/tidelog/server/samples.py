"""How a connector does, second by second, for charts: the last ten minutes, and no more."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelog.contracts import Status
from tidelog.core.settings import utc_text
from tidelog.engine.capture import last_status
from tidelog.engine.home import Home
from tidelog.spark.progress import Progress

KEPT_S = 600


@dataclass(frozen=True)
class Sample:
    at_ms: int
    capture: str
    """What the capture says of itself."""
    lag_ms: int = 0
    lag_bytes: int = 0
    events_per_second: float = 0.0
    events_total: int = 0
    """Delivered since the service began with this connector."""
    journal_bytes: int = 0
    batch_id: int = -1
    batch_ms: int = 0
    batch_events: int = 0
    position: int = 0
    """Captured up to here."""
    operations: Mapping[str, int] = field(default_factory=dict)
    """Captured since its start, by operation."""
    warnings: tuple[str, ...] = ()
    unreachable_since_ms: int = 0
    """Since when the database does not answer; 0 while it does. Until it answers again, the lag is not known."""
    waits_for: str = ""
    """What the capture waits for before it can read the log; empty while it reads. Until then, the lag is not known."""


def captured(home: Home) -> Status:
    """What the capture wrote about itself last."""
    return last_status(home.status) or Status("stopped")


def sample(home: Home, progress: Progress | None, before: int) -> Sample:
    """Now; `before` are the events of earlier runs."""
    status, now = captured(home), time.time_ns() // 1_000_000
    if progress is None:
        return Sample(now, "stopped", journal_bytes=status.journal_bytes, position=status.position, events_total=before)
    return Sample(
        at_ms=now,
        capture=progress.state,
        lag_ms=progress.lag_ms,
        lag_bytes=progress.lag_bytes,
        events_per_second=round(progress.events_per_s, 1),
        events_total=before + progress.events_total,
        journal_bytes=status.journal_bytes,
        batch_id=progress.batch_id,
        batch_ms=progress.batch_ms,
        batch_events=progress.batch_events,
        position=status.position,
        operations=status.events,
        warnings=(*_unknown_lag(progress), *progress.warnings),
        unreachable_since_ms=progress.unreachable_since_us // 1000,
        waits_for=progress.waits_for,
    )


def _unknown_lag(progress: Progress) -> Sequence[str]:
    if since_us := progress.unreachable_since_us:
        return [f"The database has not answered since {utc_text(since_us)}; the lag is not known."]
    return [f"The lag is not known: waiting for {progress.waits_for}."] if progress.waits_for else []


class Samples:
    def __init__(self) -> None:
        self._kept: deque[Sample] = deque(maxlen=KEPT_S)

    def add(self, sample: Sample) -> None:
        self._kept.append(sample)

    def since(self, seconds: int) -> list[Sample]:
        oldest = time.time_ns() // 1_000_000 - seconds * 1000
        return [s for s in list(self._kept) if s.at_ms >= oldest]

    def points(self, seconds: int) -> list[dict[str, Any]]:
        """What charts draw."""
        names = ("at_ms", "lag_ms", "lag_bytes", "events_per_second", "events_total", "journal_bytes", "batch_ms")
        return [{name: getattr(s, name) for name in names} for s in self.since(seconds)]
