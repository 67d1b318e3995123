"""Sets of transaction numbers as sorted, disjoint, non-touching intervals `(first, last)`, both included."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tidelog.errors import ConfigError

Interval = tuple[int, int]
Intervals = tuple[Interval, ...]

_INTERVAL = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")


def parse(text: str) -> Interval:
    """`1-191` or `7`."""
    found = _INTERVAL.fullmatch(text.strip())
    if not found or int(found[2] or found[1]) < int(found[1]) or int(found[1]) == 0:
        raise ConfigError(f"{text[:60]!r} is no interval of transactions.", hint="Write it like 1-191 or 7.")
    return int(found[1]), int(found[2] or found[1])


def shown(intervals: Intervals) -> str:
    return ":".join(str(first) if first == last else f"{first}-{last}" for first, last in intervals)


def normal(intervals: Iterable[Interval]) -> Intervals:
    done: list[Interval] = []
    for first, last in sorted(intervals):
        if done and first <= done[-1][1] + 1:
            done[-1] = (done[-1][0], max(last, done[-1][1]))
        else:
            done.append((first, last))
    return tuple(done)


def subtract(these: Sequence[Interval], those: Iterable[Interval]) -> Intervals:
    left = list(these)
    for first, last in those:
        left = [part for interval in left for part in _without(interval, first, last)]
    return tuple(left)


def _without(interval: Interval, first: int, last: int) -> list[Interval]:
    low, high = interval
    return [part for part in ((low, min(high, first - 1)), (max(low, last + 1), high)) if part[0] <= part[1]]


def contains(intervals: Intervals, number: int) -> bool:
    return any(first <= number <= last for first, last in intervals)
