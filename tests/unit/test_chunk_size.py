"""How large the next chunk is: the reading's own time decides, unless the batch is slow for other reasons."""

from __future__ import annotations

from itertools import pairwise

from tidelog.core.snapshot import sizes
from tidelog.core.snapshot.world import Bounds, Manifest, Now

BOUNDS = Bounds(target_ms=300)


def settled(fixed_ms: float, row_us: float, batch_ms: int, rounds: int = 40) -> int:
    """Where the size ends up, if a chunk costs so much, and the batch as much as that whatever the chunk does."""
    seen = [20_000]
    for _ in range(rounds):
        ms = int(fixed_ms + seen[-1] * row_us / 1000)
        found = Manifest(attempt="a", passed=0, rows=seen[-1], bytes=seen[-1] * 50, ms=ms, shape="", refused="")
        seen.append(sizes.after(seen[-1], found, Now(0, 0, batch_ms=batch_ms), BOUNDS))
    assert all(b <= a * 4 and b * 2 >= a - 1 for a, b in pairwise(seen))
    return seen[-1]


def test_a_fast_table_gets_chunks_of_the_wanted_time() -> None:
    assert 100_000 <= settled(20, 2, batch_ms=0) <= 150_000


def test_a_batch_that_takes_long_makes_chunks_smaller() -> None:
    assert settled(20, 10, batch_ms=1000) < settled(20, 10, batch_ms=500)


def test_what_a_batch_costs_anyway_does_not_keep_chunks_small() -> None:
    """A batch of 20,000 rows that takes 340 ms, 100 of them its own: what is left would carry 41,666."""
    found = Manifest(attempt="a", passed=0, rows=20_000, bytes=1 << 20, ms=100, shape="", refused="")
    assert sizes.after(20_000, found, Now(0, 0, batch_ms=340, least_ms=100), BOUNDS) == 41_666
    assert sizes.after(20_000, found, Now(0, 0, batch_ms=340), BOUNDS) == 35_294
    assert sizes.after(20_000, found, Now(0, 0, batch_ms=600, least_ms=100), BOUNDS) == 20_000


def test_the_first_batch_is_also_the_quickest() -> None:
    found = Manifest(attempt="a", passed=0, rows=20_000, bytes=1 << 20, ms=100, shape="", refused="")
    assert sizes.after(20_000, found, Now(0, 0, batch_ms=200, least_ms=200), BOUNDS) == 60_000
    assert sizes.after(20_000, found, Now(0, 0, batch_ms=700, least_ms=700), BOUNDS) == 15_000


def test_chunks_do_not_vanish_where_the_batch_is_slow_anyway() -> None:
    """A busy machine, a slow sink: what a chunk costs before its first row would be all that it does."""
    assert settled(400, 20, batch_ms=10_000) > 8_000
    assert settled(400, 20, batch_ms=5_000) >= 2_000
