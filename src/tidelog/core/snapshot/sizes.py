"""How many rows the next chunk has: a fixed number, or what can be read in a wanted time."""

from __future__ import annotations

from tidelog.core.snapshot.world import Bounds, Manifest, Now

_FIRST, _MIN, _MAX = 20_000, 2_000, 500_000
_BYTES_MAX = 64 << 20
_GROWTH_MAX, _SHRINK_MAX = 4, 2
"""One reading may change the size of the next by these factors at most: the first ones are slow."""


def wanted(size: int, bounds: Bounds) -> int:
    """Of a table whose readings have led to `size`; 0 before the first."""
    return bounds.rows or size or _FIRST


def after(size: int, found: Manifest, now: Now, bounds: Bounds) -> int:
    """As many rows as are read in the wanted time, and no more than memory likes. Fewer, down to a quarter, where the
    batch as a whole takes longer than twice that time: changes wait for it. But its own cost neither grows nor shrinks
    along: where the batch is slow anyway, nobody notices a chunk that takes a quarter of it."""
    if bounds.rows or found.rows < _MIN // 2:
        return size
    read = found.rows * bounds.target_ms // max(1, found.ms)
    own = min(now.least_ms, bounds.target_ms)
    whole = found.rows * (2 * bounds.target_ms - own) // max(1, now.batch_ms - own) if now.batch_ms else read
    unnoticed = found.rows * max(bounds.target_ms, now.batch_ms // 4) // max(1, found.ms)
    room = _BYTES_MAX * found.rows // max(1, found.bytes)
    last = size or _FIRST
    wanted = max(min(read, whole), unnoticed // 4, last // _SHRINK_MAX)
    return max(_MIN, min(wanted, room, _MAX, last * _GROWTH_MAX))


def smaller(size: int) -> int:
    """After a reading that failed: what takes too long for the server's patience is read in parts."""
    return max(_MIN, (size or _FIRST) // _SHRINK_MAX)
