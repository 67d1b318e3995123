"""Arrow's text columns as bytes and offsets, and back: what lets numpy look at a whole column at once.

Nothing here looks at single values. A mask of trouble (`Mask`) says by row which values did not make it; a value
that is null is never in trouble.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Places = NDArray[np.int32]
"""Offsets in a buffer, as narrow as Arrow's own."""
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]


def gather(data: pa.Buffer, starts: Ints | Places, ends: Ints | Places, valid: Mask) -> pa.StringArray:
    """The slices [start, end) of `data`, which must not go backwards; UTF-8 is not checked here.

    Values and the gaps between them are one array without copying; Arrow then takes every second element.
    """
    n = len(starts)
    offsets = np.empty(2 * n + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    offsets[-1] = ends[-1] if n else 0
    both = pa.Array.from_buffers(pa.string(), 2 * n, [None, pa.py_buffer(offsets), data])
    return both.take(pa.array(np.arange(0, 2 * n, 2), mask=None if valid.all() else ~valid))


def flat(texts: pa.Array) -> tuple[Bytes, Ints]:
    """The bytes of all values, and where each begins and ends in them."""
    _, offsets, data = texts.buffers()
    if offsets is None or not len(texts):
        return np.empty(0, np.uint8), np.zeros(len(texts) + 1, np.int64)
    places = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return content[places[0] : places[-1]], places - places[0]


def inner(texts: pa.Array, head: int, tail: int = 0) -> pa.StringArray:
    """Each value without its first `head` and last `tail` bytes. (Arrow's binary_slice fails over nulls.)"""
    data, offsets = flat(texts)
    valid = valid_rows(texts)
    starts, ends = offsets[:-1] + head * valid, offsets[1:] - tail * valid
    return gather(pa.py_buffer(data), starts, np.maximum(starts, ends), valid)


def build(data: Bytes, offsets: Ints, like: pa.Array | None = None, kind: pa.DataType | None = None) -> pa.Array:
    """Bytes and offsets as an Arrow column, with the nulls of `like`."""
    nulls = like.is_valid().buffers()[1] if like is not None and like.null_count else None
    buffers = [nulls, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(kind or pa.string(), len(offsets) - 1, buffers)


def plain(texts: pa.Array) -> pa.StringArray:
    """As Arrow strings, whatever they came as; UTF-8 is not checked here."""
    if pa.types.is_string(texts.type):
        return texts
    if pa.types.is_binary(texts.type):
        return texts.view(pa.string())
    return texts.cast(pa.binary()).view(pa.string())


def spread(values: pa.Array, valid: Mask) -> pa.Array:
    """The values at the valid rows, null at the others."""
    return values if valid.all() else values.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def valid_rows(array: pa.Array) -> Mask:
    return as_mask(array.is_valid())


def as_mask(flags: pa.Array) -> Mask:
    mask: Mask = flags.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def only(texts: pa.Array, rows: Mask) -> pa.Array:
    """The values at `rows`; null elsewhere, with no bytes left behind (Arrow's if_else would keep them)."""
    return texts.take(pa.array(np.arange(len(rows)), mask=~rows))


def values(texts: pa.StringArray) -> list[str | None]:
    """One by one, for the rare cases; bytes that are not UTF-8 are replaced, so that looking at them is safe."""
    return [None if v is None else v.decode(errors="replace") for v in texts.view(pa.binary()).to_pylist()]


def cast(texts: pa.StringArray, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Arrow's own parser; the values it refuses become null and are marked, found by halving."""
    try:
        return texts.cast(kind), np.zeros(len(texts), np.bool_)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind), np.ones(1, np.bool_)
    half = len(texts) // 2
    parts = [cast(texts[:half], kind), cast(texts[half:], kind)]
    return pa.concat_arrays([values for values, _ in parts]), np.concatenate([failed for _, failed in parts])


def checked(texts: pa.StringArray) -> tuple[pa.StringArray, Mask]:
    """The texts, with those that are not UTF-8 marked and null."""
    return cast(texts.view(pa.binary()), pa.string())
