"""Redo threads: each instance of a cluster writes its own, and each may be open, closed or disabled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Thread:
    number: int
    open: bool = True
    enabled: str = "PUBLIC"
    """`PUBLIC`, `PRIVATE` or `DISABLED`."""
    enable_scn: int = 0
    disable_scn: int = 0
    checkpoint_scn: int = 0
    last_redo_scn: int = 0
    """How far its redo is on disk."""

    @property
    def private(self) -> bool:
        """It belongs to one instance that does not take part in the cluster's life: its redo is not ours to read."""
        return self.enabled == "PRIVATE"

    @property
    def disabled(self) -> bool:
        return self.enabled == "DISABLED"

    @property
    def closed_scn(self) -> int:
        """Where a thread that is not open ended: where it was disabled, or with its last checkpoint."""
        return self.disable_scn if self.disabled else self.checkpoint_scn


def of_row(row: Sequence[Any]) -> Thread:
    """From a row of `queries.THREADS`."""
    number, status, enabled, enable, disable, checkpoint, last = row[:7]
    scns = (int(scn or 0) for scn in (enable, disable, checkpoint, last))
    return Thread(int(number), status == "OPEN", enabled, *scns)


def public(threads: Iterable[Thread]) -> list[Thread]:
    return [thread for thread in threads if not thread.private]


def flushed(threads: Iterable[Thread]) -> int | None:
    """How far the redo of all open threads is on disk; None if nobody says."""
    known = [t.last_redo_scn for t in public(threads) if t.open and t.last_redo_scn]
    return min(known, default=None)
