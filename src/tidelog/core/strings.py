"""Arrow's text columns as bytes and offsets, and back: what lets numpy look at a whole column at once.

Nothing here looks at single values. A mask of trouble (`Mask`) says by row which values did not make it; a value
that is null is never in trouble.
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Places = NDArray[np.int32]
"""Offsets in a buffer, as narrow as Arrow's own."""
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]

_DIGITS_MAX = {32: 9, 64: 18, 128: 38, 256: 76}
"""Of decimals, by the bits of their type."""
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?", re.A)
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


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
    """Arrow's own parser; the values it refuses become null and are marked, found by halving.

    Of decimals it takes some that have too many digits, and makes other numbers of them: long ones are left out."""
    long = _long(texts, kind) if pa.types.is_decimal(kind) else None
    if long is None or not long.any():
        return _halved(texts, kind)
    found, failed = _halved(only(texts, ~long), kind)
    exact = [_decimal(text, kind) if is_long else None for text, is_long in zip(values(texts), long, strict=True)]
    failed |= long & np.array([value is None for value in exact], np.bool_)
    return pc.if_else(pa.array(long), pa.array(exact, kind), found), failed


def _halved(texts: pa.StringArray, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    try:
        return texts.cast(kind), np.zeros(len(texts), np.bool_)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind), np.ones(1, np.bool_)
    half = len(texts) // 2
    parts = [_halved(texts[:half], kind), _halved(texts[half:], kind)]
    return pa.concat_arrays([values for values, _ in parts]), np.concatenate([failed for _, failed in parts])


def _long(texts: pa.StringArray, kind: pa.Decimal128Type) -> Mask:
    """Numbers that might not fit: with too many digits in all, or before the point once they have their scale, or with
    an exponent."""
    most, (data, offsets) = _DIGITS_MAX[kind.bit_width], flat(texts)
    lengths = np.diff(offsets)
    powers = bool(((data | 32) == ord("e")).any())
    if not powers and lengths.max(initial=0) <= most - kind.scale:
        return np.zeros(len(texts), np.bool_)
    raw = texts.view(pa.binary())
    point = pc.find_substring(raw, b".").fill_null(0).to_numpy()
    found: Mask = (lengths > most) | (np.where(point < 0, lengths, point) > most - kind.scale)
    return found | as_mask(pc.match_substring(raw, b"e", ignore_case=True)) if powers else found


def _decimal(text: str | None, kind: pa.Decimal128Type) -> Decimal | None:
    """The number, if it has at most as many digits as its type."""
    if text is None or not _NUMBER.fullmatch(text):
        return None
    number = _EXACT.create_decimal(text).normalize(_EXACT)
    whole = number.adjusted() + 1 + kind.scale
    fits = -int(number.as_tuple().exponent) <= kind.scale and whole <= kind.precision
    return number if fits or not number else None


def checked(texts: pa.StringArray) -> tuple[pa.StringArray, Mask]:
    """The texts, with those that are not UTF-8 marked and null."""
    return cast(texts.view(pa.binary()), pa.string())
