"""Values of redo SQL as canonical texts, column by column: `TO_DATE('2024-02-29 …', '…')` is 2024-02-29 ….

The forms that LogMiner writes all day lose what stands around their literal for a whole column at once. Others go one
by one, each distinct one once: formats of their own, joined literals, bytes of a block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.connectors.oracle import internal, moments, types
from tidelog.connectors.oracle.redo import unicode
from tidelog.connectors.oracle.redo.images import NULL, SQL, TEXT, UNCHANGED, Image
from tidelog.connectors.oracle.redo.literals import hex_digits, is_empty, text_of
from tidelog.core.strings import Bytes, Mask, flat, inner, only, spread, values
from tidelog.errors import UnsupportedChange
from tidelog.model.schema import Column

_USUAL = {
    "DATE": ("TO_DATE('", "', 'YYYY-MM-DD HH24:MI:SS')"),
    "TIMESTAMP": ("TO_TIMESTAMP('", "')"),
    "TIMESTAMP WITH TIME ZONE": ("TO_TIMESTAMP_TZ('", "')"),
    "TIMESTAMP WITH LOCAL TIME ZONE": ("TO_TIMESTAMP('", "')"),
    "INTERVAL DAY TO SECOND": ("TO_DSINTERVAL('", "')"),
    "INTERVAL YEAR TO MONTH": ("TO_YMINTERVAL('", "')"),
    "RAW": ("HEXTORAW('", "')"),
    "BLOB": ("HEXTORAW('", "')"),
}
_UNISTR = ("UNISTR('", "')")
_QUOTE = ord("'")
_CALL = re.compile(r"(?:/\*.*?\*/\s*)?\w+\(\s*'([^']*)'\s*(?:,\s*'([^']*)'\s*)*\)", re.S)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(E[+-]?\d+)?[FDfd]?", re.I)


@dataclass(frozen=True)
class Plain:
    """A column of canonical texts. `kinds` are NULL, TEXT and UNCHANGED; `failed` are those that could not be read."""

    texts: pa.StringArray
    kinds: Bytes
    failed: Mask

    def at(self, rows: Mask) -> Plain:
        return Plain(self.texts.filter(pa.array(rows)), self.kinds[rows], self.failed[rows])

    def across(self, rows: Mask) -> Plain:
        """As those `rows` of a whole in which the others are null."""
        if rows.all():
            return self
        kinds, failed = np.full(len(rows), NULL, np.uint8), np.zeros(len(rows), np.bool_)
        kinds[rows], failed[rows] = self.kinds, self.failed
        return Plain(spread(self.texts, rows), kinds, failed)


def read(image: Image, index: int, column: Column, whole: Mask) -> Plain:
    """`whole`: rows whose large objects are complete; elsewhere an empty one is only about to be written."""
    texts, kinds = image.texts(index), image.kind(index)
    sql, failed = kinds == SQL, np.zeros(len(kinds), np.bool_)
    if sql.any():
        texts, kinds, failed = _unwrapped(texts, kinds, sql, column, whole)
    return Plain(types.canonical(texts, column), kinds, failed)


def _unwrapped(
    texts: pa.StringArray, kinds: Bytes, sql: Mask, column: Column, whole: Mask
) -> tuple[pa.StringArray, Bytes, Mask]:
    some = texts if sql.all() else texts.filter(pa.array(sql))
    found, untold, failed = _usual(some, column) or _each(some, column)
    kinds = kinds.copy()
    kinds[sql] = np.where(untold & ~whole[sql], UNCHANGED, np.where(failed, NULL, TEXT))
    if not sql.all():
        found = pc.replace_with_mask(texts, pa.array(sql), found)
    wrong = np.zeros(len(sql), np.bool_)
    wrong[sql] = failed
    return (found if (kinds == TEXT).all() else only(found, kinds == TEXT)), kinds, wrong


def _usual(some: pa.StringArray, column: Column) -> tuple[pa.StringArray, Mask, Mask] | None:
    """If all are of the usual form: what is inside."""
    text = column.type not in _USUAL
    head, tail = _USUAL.get(column.type, _UNISTR)
    if not pc.all(pc.and_(pc.starts_with(some, head), pc.ends_with(some, tail))).as_py():
        return None
    found = inner(some, len(head), len(tail))
    if (flat(found)[0] == _QUOTE).any():
        return None
    none = np.zeros(len(some), np.bool_)
    if not text:
        return found, none, none
    decoded, failed = unicode.unescaped(found)
    return decoded, none, failed


def _each(some: pa.StringArray, column: Column) -> tuple[pa.StringArray, Mask, Mask]:
    coded = some.dictionary_encode()
    distinct = [text or "" for text in values(coded.dictionary)]
    empty = np.array([is_empty(text) for text in distinct], np.bool_)
    found = [("" if gone else _value(text, column)) for text, gone in zip(distinct, empty.tolist(), strict=True)]
    failed = np.array([text is None for text in found], np.bool_)
    which = coded.indices.to_numpy()
    return pa.array(found, pa.string()).take(coded.indices), empty[which], failed[which]


def _value(sql: str, column: Column) -> str | None:
    """An expression's value as Oracle would write it; None if it is not known."""
    try:
        digits = hex_digits(sql)
        return _told(sql, column) if digits is None else _bytes(digits, column)
    except (UnsupportedChange, ValueError, IndexError, ArithmeticError):
        return None


def _told(sql: str, column: Column) -> str | None:
    if column.type in types.NUMBERS or column.type in types.FLOATS:
        return sql.rstrip("FDfd") if _NUMBER.fullmatch(sql) else _argument(sql)
    if column.type in types.LOCAL or column.type in types.ZONED:
        call = _CALL.fullmatch(sql)
        return None if call is None else moments.parse(call[1], call[2])
    if column.type in types.INTERVALS:
        return _argument(sql)
    return text_of(sql)


def _argument(sql: str) -> str | None:
    call = _CALL.fullmatch(sql)
    return call and call[1]


def _bytes(digits: str, column: Column) -> str | None:
    """Of a column of bytes the digits themselves; of others the bytes of the block."""
    if column.type in types.BYTES:
        return digits
    data = bytes.fromhex(digits)
    if column.type in types.NUMBERS:
        return internal.number(data)
    if column.type in types.FLOATS:
        return internal.binary(data)
    if column.type in types.LOCAL or column.type in types.ZONED:
        return internal.moment(data)
    if column.type in ("NCHAR", "NVARCHAR2", "NCLOB"):
        return data.decode("utf-16-be")
    return None if column.type in ("JSON", *types.INTERVALS) else data.decode()
