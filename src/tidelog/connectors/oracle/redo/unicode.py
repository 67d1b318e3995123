"""The inside of `UNISTR('…')` for a whole column: `\\0412` is a character of UTF-16, `\\\\` a backslash.

An escape of five bytes becomes at most three of UTF-8, and two that make one character together become four: all is
written over the escapes themselves, and what is left over goes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidelog.core.strings import Bytes, Ints, Mask, build, flat

_BACKSLASH = ord("\\")
_NIBBLES = np.full(256, 255, np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = [*range(16), *range(10, 16)]


def unescaped(texts: pa.StringArray) -> tuple[pa.StringArray, Mask]:
    """The texts, and which of them have an escape that is none."""
    data, offsets = flat(texts)
    places = np.flatnonzero(data == _BACKSLASH)
    failed = np.zeros(len(texts), np.bool_)
    if not len(places):
        return texts, failed
    rows = np.searchsorted(offsets, places, "right") - 1
    begins, doubled = _escapes(places, rows)
    codes, sound = _codes(data, places[begins], offsets[rows[begins] + 1])
    failed[rows[begins][~sound]] = True
    written, kept = data.copy(), np.ones(len(data), np.bool_)
    kept[places[doubled] + 1] = False
    _write(written, kept, places[begins][sound], codes[sound])
    lengths = np.concatenate(([0], np.cumsum(kept)))
    return build(written[kept], lengths[offsets], texts), failed


def _escapes(places: Ints, rows: Ints) -> tuple[Mask, Mask]:
    """Of the backslashes those that begin a number, and those that are followed by their own double."""
    apart = (np.diff(places, prepend=-2) != 1) | (np.diff(rows, prepend=-1) != 0)
    first = np.flatnonzero(apart)
    runs = np.diff(first, append=len(places))
    inside = np.arange(len(places)) - np.repeat(first, runs)
    left, opens = np.repeat(runs, runs) - inside, inside % 2 == 0
    return opens & (left == 1), opens & (left > 1)


def _codes(data: Bytes, escapes: Ints, ends: Ints) -> tuple[Ints, Mask]:
    """The four digits behind each backslash as a number, and whether they are four digits of the same value."""
    at = np.minimum(escapes[:, None] + np.arange(1, 5), len(data) - 1)
    nibbles = _NIBBLES[data[at]].astype(np.int64)
    sound = (nibbles < 16).all(axis=1) & (escapes + 5 <= ends)
    return nibbles @ np.array([4096, 256, 16, 1]), sound


def _write(data: Bytes, kept: Mask, escapes: Ints, codes: Ints) -> None:
    """UTF-8 over the escapes. Half of a pair that stands alone becomes the replacement character."""
    high = (codes & 0xFC00) == 0xD800
    low = (codes & 0xFC00) == 0xDC00
    paired = np.zeros(len(codes), np.bool_)
    paired[:-1] = high[:-1] & low[1:] & (np.diff(escapes) == 5)
    second = np.zeros(len(codes), np.bool_)
    second[1:] = paired[:-1]
    codes = np.where((high & ~paired) | (low & ~second), 0xFFFD, codes)
    pairs = escapes[paired]
    points = 0x10000 + ((codes[paired] & 0x3FF) << 10) + (codes[second] & 0x3FF)
    _bytes(data, kept, pairs, points, 4, 10)
    single = ~paired & ~second
    for width, low_code, high_code in ((1, 0, 0x80), (2, 0x80, 0x800), (3, 0x800, 0x10000)):
        mine = single & (codes >= low_code) & (codes < high_code)
        _bytes(data, kept, escapes[mine], codes[mine], width, 5)


def _bytes(data: Bytes, kept: Mask, places: Ints, codes: Ints, width: int, room: int) -> None:
    lead = (0, 0, 0xC0, 0xE0, 0xF0)[width]
    for i in range(width):
        shifted = codes >> 6 * (width - 1 - i)
        data[places + i] = shifted | lead if i == 0 else (shifted & 0x3F) | 0x80
    for i in range(width, room):
        kept[places + i] = False
