"""Columns with more than 2 GiB of texts or bytes.

Arrow addresses a text by 32 bits within its array. A column of several arrays may hold more, but what joins them before
it works, as `take` does, fails or wraps around. So such columns are taken from, and cut, by way of 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Rows = TypeVar("Rows", pa.Table, pa.ChunkedArray)

PIECE_BYTES = 256 << 20
"""How much text the pieces hold, about; each at least a row."""
_JOINED_MAX = (1 << 31) - 1
_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def take(values: Rows, rows: Any, most: int = _JOINED_MAX) -> Rows:
    """`values.take(rows)`, however much there is."""
    if isinstance(values, pa.Table):
        columns = [take(column, rows, most) for column in values.columns]
        return pa.table(columns, schema=values.schema) if columns else values.take(rows)
    if values.type not in _WIDE or values.nbytes <= most:
        return values.take(rows)
    wide, rows = values.cast(_WIDE[values.type]).combine_chunks(), pa.array(rows)
    lengths = _lengths(wide)[rows.fill_null(0).to_numpy()]
    parts = [wide.take(rows[low:high]).cast(values.type) for low, high in _cuts(lengths, PIECE_BYTES)]
    return pa.chunked_array(parts, values.type)


def wide(rows: pa.Table, most: int = _JOINED_MAX) -> pa.Table:
    """The rows, addressed by 64 bits in columns that hold more than `most` bytes."""
    fields = [f.with_type(_WIDE.get(f.type, f.type)) if rows[f.name].nbytes > most else f for f in rows.schema]
    return rows.cast(pa.schema(fields))


def pieces(batch: pa.RecordBatch, size: int = PIECE_BYTES) -> Iterator[pa.RecordBatch]:
    """A batch in parts of about `size` bytes of text."""
    if batch.get_total_buffer_size() <= size:
        yield batch
        return
    lengths = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        lengths += _lengths(column)
    for low, high in _cuts(lengths, size):
        yield batch.slice(low, high - low)


def _cuts(lengths: Ints, size: int) -> list[tuple[int, int]]:
    """Ranges of rows without a gap; each begins where another `size` bytes do."""
    if not len(lengths):
        return []
    before = np.cumsum(lengths) - lengths
    starts = np.flatnonzero(np.diff(before // size, prepend=-1))
    return [(int(low), int(high)) for low, high in zip(starts, [*starts[1:], len(lengths)], strict=True)]


def _lengths(column: pa.Array) -> Ints:
    """Of each value in bytes; zero in columns of other types."""
    kind, t = column.type, pa.types
    if t.is_string_view(kind) or t.is_binary_view(kind):
        views = np.frombuffer(column.buffers()[1], np.int32)  # four numbers by value, its length is the first
        return views[4 * column.offset : 4 * (column.offset + len(column)) : 4].astype(np.int64)
    if not (t.is_string(kind) or t.is_binary(kind) or t.is_large_string(kind) or t.is_large_binary(kind)):
        return np.zeros(len(column), np.int64)
    width = np.int64 if t.is_large_string(kind) or t.is_large_binary(kind) else np.int32
    offsets = np.frombuffer(column.buffers()[1], width)[column.offset : column.offset + len(column) + 1]
    return np.diff(offsets).astype(np.int64)
