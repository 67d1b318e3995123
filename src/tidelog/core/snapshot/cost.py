"""What a batch costs, or a reading: a fixed part, however many rows it has, and a part that grows with them.

Only the second part depends on the size of a reading. A slow checkpoint, a trigger with an interval, a sink that waits
for something else, or a server far away make all of them slow, and reading less would not make them quicker. The two
parts are told apart by samples with different numbers of rows: Theil and Sen's estimate, the median of the slopes
between any two of them, tolerates up to a quarter of outliers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import combinations
from statistics import median

_SAMPLES = 24
_PAIRS_MIN = 6
_APART_ROWS, _APART = 1_000, 0.2
"""Two samples say something about a row's cost if they differ by so many rows, and by this part of the larger one."""

_SCATTER = 2
_DOUBT = 0.8
"""While chance makes more of a difference than rows do, they are taken to cost less and less: readings grow until it
shows what they cost."""


@dataclass(frozen=True)
class Cost:
    """In milliseconds."""

    fixed_ms: float = 0.0
    row_ms: float = 0.0
    known: bool = False
    """Whether the two parts could be told apart; before that, everything counts as fixed."""


class CostModel:
    """Learns from samples, and forgets old ones. Used by one thread."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=_SAMPLES)
        self._learned = 0
        self.cost = Cost()

    def learn(self, rows: float, ms: int) -> None:
        if self._learned == 1:  # the first sample also paid for what a process does once: the second one replaces it
            self._samples.clear()
        self._learned += 1
        self._samples.append((rows, ms))
        row_ms = self._row_ms()
        fixed_ms = self._fixed_ms(row_ms or 0.0)
        self.cost = Cost(max(0.0, fixed_ms), row_ms or 0.0, row_ms is not None)

    def _row_ms(self) -> float | None:
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(self._samples, 2) if _differ(a[0], b[0])]
        if len(slopes) < _PAIRS_MIN:
            return self.cost.row_ms if self.cost.known else None  # all alike: what was known before still holds
        slope = median(slopes)
        return slope if self._shows(slope) else self.cost.row_ms * _DOUBT

    def _shows(self, slope: float) -> bool:
        """Whether the rows make more of a difference than chance does."""
        fixed_ms = self._fixed_ms(slope)
        scatter_ms = median(abs(ms - fixed_ms - slope * rows) for rows, ms in self._samples)
        rows = [rows for rows, _ in self._samples]
        return slope * (max(rows) - min(rows)) > _SCATTER * scatter_ms

    def _fixed_ms(self, row_ms: float) -> float:
        return median(ms - row_ms * rows for rows, ms in self._samples)


def _differ(rows: float, others: float) -> bool:
    return abs(rows - others) >= max(_APART_ROWS, _APART * max(rows, others))
