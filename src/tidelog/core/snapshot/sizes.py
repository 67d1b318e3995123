"""How many rows the next reading has: what can be read in a wanted time, in whole chunks where their size is fixed.

A chunk of a fixed size is a unit, and no more: a reading takes as many neighbouring ones as fit into its time, under
one snapshot and one watermark, so that small chunks cost neither a connection nor a batch each.
"""

from __future__ import annotations

from tidelog.core.snapshot.cost import Cost
from tidelog.core.snapshot.world import Bounds, Manifest

_FIRST, _MIN, _MAX = 20_000, 2_000, 1_000_000
_BYTES_MAX = 64 << 20
_GROWTH_MAX, _SHRINK_MAX = 4, 2
"""One reading may change the size of the next by these factors at most: the first ones are slow."""
_UNNOTICED = 2
"""Where a batch or a reading is slow anyway, half of that for its rows is no matter."""
_PROBE, _PROBED = 2, 4
"""While nothing is known of the fixed part of a reading, small ones grow, up to so many times the least: it may be all
that they cost."""
_PART_MIN = 4
"""The batch as a whole makes a reading smaller, but not below this part of what can be read in the wanted time."""


def wanted(size: int, bounds: Bounds) -> int:
    """Of a table whose readings have led to `size`; 0 before the first."""
    if bounds.rows:
        return bounds.rows * max(1, size // bounds.rows)
    return size or _FIRST


def first(row_bytes: int, bounds: Bounds) -> int:
    """Of a table of which only the statistics are known; 0 for as many rows as of any other. It may only be smaller,
    and a chunk of a fixed size is not divided."""
    if bounds.rows:
        return 0
    room = max(1, _BYTES_MAX // row_bytes) if row_bytes else _FIRST
    return room if room < _FIRST else 0


def after(size: int, found: Manifest, batch: Cost, reading: Cost, bounds: Bounds) -> int:
    """As many rows as are read in the wanted time, and no more than memory likes. Fewer, where what the rows cost in
    all of the batch takes longer than that: changes wait for it. What a batch and a reading cost whatever their rows
    makes nothing smaller."""
    last, least = _last(size, bounds), bounds.rows or _MIN
    if (bounds.rows and not bounds.target_ms) or found.rows < min(_MIN, last) // 2:
        return size
    target_ms = max(1, bounds.target_ms)
    unnoticed_ms = batch.fixed_ms / _UNNOTICED
    read = _readable(found, reading, max(target_ms - reading.fixed_ms, target_ms / _UNNOTICED, unnoticed_ms), target_ms)
    if not reading.known and last <= _PROBED * least:
        read = max(read, _PROBE * last)
    if reading.known and not reading.row_ms:
        read = _PROBE * last
    whole = _MAX
    if batch.row_ms:
        ms = max(2 * target_ms - batch.fixed_ms, target_ms, unnoticed_ms)
        in_time = found.rows * target_ms // max(1, found.ms)
        whole = max(int(ms / batch.row_ms / max(1, bounds.parallelism)), in_time // _PART_MIN)
    room = max(1, _BYTES_MAX * found.rows // max(1, found.bytes))
    wanted = max(min(read, whole), last // _SHRINK_MAX)
    bounded = max(least, min(wanted, max(_MAX, least), max(last, found.rows * _GROWTH_MAX)))
    return min(bounded, room)  # a few rows of many megabytes are a reading too


def _readable(found: Manifest, reading: Cost, rows_ms: float, target_ms: int) -> int:
    """Rows that are read in `rows_ms`; while nothing is known of the fixed part, the whole reading takes that long."""
    if not reading.known:
        return int(found.rows * max(rows_ms, target_ms) / max(1, found.ms))
    return int(min(_MAX, rows_ms / max(reading.row_ms, 1e-6)))


def smaller(size: int, bounds: Bounds) -> int:
    """After a reading that failed: what takes too long for the server's patience is read in parts."""
    return max(bounds.rows or _MIN, _last(size, bounds) // _SHRINK_MAX)


def _last(size: int, bounds: Bounds) -> int:
    return size or bounds.rows or _FIRST
