"""Fields of records to texts, a whole column at a time: integers, packed and zoned decimals, characters, times, bytes.

A field is a slice of the same bytes of every record, so a column is a matrix with a row for each record. What comes out
is the value's one text, and which of the values are damaged. A row that is NULL is not looked at: its bytes are of no
meaning.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.connectors.iseries import ccsid as character_sets
from tidelog.connectors.iseries import decfloat
from tidelog.connectors.iseries.types import pair
from tidelog.core.strings import Bytes, Ints, Mask, build
from tidelog.model.schema import Column

_KINDS = {"SMALLINT": ">i2", "INTEGER": ">i4", "BIGINT": ">i8", "REAL": ">f4", "DOUBLE": ">f8"}
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_ZERO, _POINT, _MINUS = ord("0"), ord("."), ord("-")
_FALSE = 0xF0
_EBCDIC = np.frombuffer(bytes(range(256)).decode("cp037").encode("latin-1"), np.uint8)
_DIGITS = {"DATE": (4, 2, 2), "TIME": (2, 2, 2), "TIMESTAMP": (4, 2, 2, 2, 2, 2)}
_BETWEEN = {"DATE": b"--", "TIME": b"::", "TIMESTAMP": b"-- ::"}


def texts(field: Bytes, column: Column, valid: Mask) -> tuple[pa.StringArray, Mask]:
    """`field` has a row for each record; texts where `valid`, null elsewhere, and which rows are damaged."""
    match column.type:
        case "SMALLINT" | "INTEGER" | "BIGINT" | "REAL" | "DOUBLE":
            return _number(field, _KINDS[column.type], valid)
        case "DECIMAL":
            return _packed(field, column, valid)
        case "NUMERIC":
            return _zoned(field, column, valid)
        case "DATE" | "TIME" | "TIMESTAMP":
            return _moment(field, column, valid)
        case "BINARY" | "VARBINARY":
            return _bytes(field, column, valid)
        case "BOOLEAN":
            return _truth(field, valid)
        case "DECFLOAT":
            found = [decfloat.text(raw.tobytes()) if good else None for raw, good in zip(field, valid, strict=True)]
            return pa.array(found, pa.string()), np.zeros(len(valid), np.bool_)
    return _characters(field, column, valid)


def _number(field: Bytes, kind: str, valid: Mask) -> tuple[pa.StringArray, Mask]:
    values = np.ascontiguousarray(field).view(kind)[:, 0].astype(kind.replace(">", "<"))
    return _arrow(values, valid).cast(pa.string()), np.zeros(len(valid), np.bool_)


def _truth(field: Bytes, valid: Mask) -> tuple[pa.StringArray, Mask]:
    """A digit, 0 or 1, in the letters of the system."""
    failed = valid & ((field[:, 0] < _FALSE) | (field[:, 0] > _FALSE + 1))
    letters = np.where(field == _FALSE, np.uint8(ord("f")), np.uint8(ord("t")))
    good = valid & ~failed
    return _kept(letters, good[:, None], good), failed


def _arrow(values: NDArray[np.generic], valid: Mask) -> pa.Array:
    return pa.array(values, mask=None if valid.all() else ~valid)


# -- decimals ------------------------------------------------------------------------------------------------------


def _packed(field: Bytes, column: Column, valid: Mask) -> tuple[pa.StringArray, Mask]:
    """Two digits in a byte; the last half is the sign."""
    precision, scale = pair(column)
    halves = np.empty((len(field), field.shape[1] * 2), np.uint8)
    halves[:, 0::2], halves[:, 1::2] = field >> 4, field & 15
    # An even number of digits leaves the first half unused.
    return _decimal(halves[:, -1 - precision : -1], halves[:, -1], scale, valid)


def _zoned(field: Bytes, column: Column, valid: Mask) -> tuple[pa.StringArray, Mask]:
    """A digit in each byte; the first half of the last one is the sign."""
    half = np.uint8(15)
    return _decimal(field & half, field[:, -1] >> np.uint8(4), pair(column)[1], valid)


def _decimal(digits: Bytes, sign: Bytes, scale: int, valid: Mask) -> tuple[pa.StringArray, Mask]:
    """Digits as a number: without leading zeros, one before the point, and all that stand behind it."""
    failed = valid & ((digits > 9).any(axis=1) | (sign < 10))
    good = valid & ~failed
    whole = digits.shape[1] - scale
    lead = np.zeros((len(digits), 1), np.uint8) if whole < 1 else digits[:, :0]
    ahead = np.concatenate((lead, digits[:, : max(whole, 0)]), axis=1)
    behind = digits[:, max(whole, 0) :] if scale else digits[:, :0]
    shown = np.maximum.accumulate(ahead > 0, axis=1)
    shown[:, -1] = True
    negative = np.isin(sign, (11, 13)) & (digits > 0).any(axis=1)
    parts = [np.full((len(digits), 1), _MINUS, np.uint8), ahead + _ZERO]
    keep = [negative[:, None], shown]
    if scale:
        parts += [np.full((len(digits), 1), _POINT, np.uint8), behind + _ZERO]
        keep += [np.ones((len(digits), 1 + scale), np.bool_)]
    return _kept(np.concatenate(parts, axis=1), np.concatenate(keep, axis=1) & good[:, None], good), failed


def _kept(letters: Bytes, keep: Mask, good: Mask) -> pa.StringArray:
    """The letters of each row that are kept, as its text."""
    offsets: Ints = np.concatenate(([0], np.cumsum(keep.sum(axis=1), dtype=np.int64)))
    return build(letters[keep], offsets, None if good.all() else pa.array(good, mask=~good))


# -- characters and bytes ------------------------------------------------------------------------------------------


def _characters(field: Bytes, column: Column, valid: Mask) -> tuple[pa.StringArray, Mask]:
    """Those of a set that nobody knows stay bytes: only columns that are left out have them."""
    step = 2 if "GRAPHIC" in column.type else 1
    if not character_sets.known(pair(column)[1]):
        return _bytes(field, column, valid, step)
    content, keep, failed = _content(field, column.type.startswith("VAR"), step, valid)
    offsets = np.concatenate(([0], np.cumsum(keep.sum(axis=1), dtype=np.int64)))
    found, foreign = character_sets.texts(content[keep], offsets, pair(column)[1], valid & ~failed)
    return found, failed | foreign


def _content(field: Bytes, varies: bool, step: int, valid: Mask) -> tuple[Bytes, Mask, Mask]:
    """The bytes, which of them belong to the value, and which rows tell an impossible length."""
    if not varies:
        return field, np.broadcast_to(valid[:, None], field.shape), np.zeros(len(valid), np.bool_)
    content = field[:, 2:]
    length = (field[:, 0].astype(np.int64) << 8 | field[:, 1]) * step
    failed = valid & (length > content.shape[1])
    length = np.where(valid & ~failed, length, 0)
    return content, np.arange(content.shape[1]) < length[:, None], failed


def _bytes(field: Bytes, column: Column, valid: Mask, step: int = 1) -> tuple[pa.StringArray, Mask]:
    """Hexadecimal digits behind `\\x`."""
    content, keep, failed = _content(field, column.type.startswith("VAR"), step, valid)
    good = valid & ~failed
    letters = np.empty((len(field), content.shape[1] * 2 + 2), np.uint8)
    letters[:, 0], letters[:, 1] = ord("\\"), ord("x")
    letters[:, 2::2], letters[:, 3::2] = _HEX[content >> 4], _HEX[content & 15]
    shown = np.concatenate((np.ones((len(field), 2), np.bool_), np.repeat(keep, 2, axis=1)), axis=1)
    return _kept(letters, shown & good[:, None], good), failed


# -- dates and times -----------------------------------------------------------------------------------------------


def _moment(field: Bytes, column: Column, valid: Mask) -> tuple[pa.StringArray, Mask]:
    """`2026-01-31-10.20.30.123456` in the letters of the system: only what stands between the digits is ours."""
    letters, place, digits = _EBCDIC[field].copy(), 0, np.ones(field.shape[1], np.bool_)
    groups = _DIGITS[column.type]
    for count, between in zip(groups, (*_BETWEEN[column.type], _POINT), strict=True):
        place += count
        if place < field.shape[1]:
            letters[:, place], digits[place] = between, False
        place += 1
    failed = valid & ((letters[:, digits] < _ZERO) | (letters[:, digits] > _ZERO + 9)).any(axis=1)
    good = valid & ~failed
    return _kept(letters, np.broadcast_to(good[:, None], letters.shape), good), failed
