"""Row ids: 18 characters of 6 bits each, for data object, file, block and row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelog.core.strings import Ints
from tidelog.errors import UnsupportedChange

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
NONE = "A" * 18
"""No row id."""
_WIDTHS = (6, 3, 6, 3)
_DIGITS = np.full(256, 255, np.uint8)
_DIGITS[np.frombuffer(ALPHABET.encode(), np.uint8)] = np.arange(64)


@dataclass(frozen=True)
class RowId:
    object: int
    file: int
    block: int
    row: int

    def __str__(self) -> str:
        parts = zip((self.object, self.file, self.block, self.row), _WIDTHS, strict=True)
        return "".join(_text(number, width) for number, width in parts)


def _text(number: int, width: int) -> str:
    return "".join(ALPHABET[number >> 6 * i & 63] for i in reversed(range(width)))


def parse(text: str | None) -> RowId:
    if text is None or len(text) != len(NONE) or not set(text) <= set(ALPHABET):
        raise UnsupportedChange(f"{text!r} is no row id.", hint="A row id has 18 letters, digits, + or /.")
    ends = np.cumsum(_WIDTHS).tolist()
    return RowId(*(_number(text[end - width : end]) for end, width in zip(ends, _WIDTHS, strict=True)))


def _number(text: str) -> int:
    number = 0
    for char in text:
        number = number << 6 | ALPHABET.index(char)
    return number


def keys(rowids: pa.Array) -> Ints:
    """What identifies the rows inside one transaction: file, block and row in 48 bits, below them 16 bits of the data
    object; 0 for no row id. In a file of a large tablespace the block needs the file's bits, too."""
    n = len(rowids)
    texts = rowids.fill_null(NONE).cast(pa.binary()).to_numpy(zero_copy_only=False).astype("S18")
    digits = _DIGITS[np.frombuffer(texts.tobytes(), np.uint8).reshape(n, 18)].astype(np.int64)
    known = (digits < 64).all(axis=1)
    ends = np.cumsum(_WIDTHS)
    parts = [_folded(digits[:, end - width : end]) for end, width in zip(ends, _WIDTHS, strict=True)]
    data_object, file, block, row = parts
    place = ((file << 22) ^ block) & 0xFFFFFFFF
    found: Ints = (place << 32) | ((row & 0xFFFF) << 16) | (data_object & 0xFFFF)
    return np.where(known, found, 0)


def _folded(digits: Ints) -> Ints:
    number = np.zeros(len(digits), np.int64)
    for i in range(digits.shape[1]):
        number = number << 6 | digits[:, i]
    return number
