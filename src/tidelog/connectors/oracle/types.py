"""Oracle types to Arrow: the one way a value gets a type, for the stream and for table reads alike.

A `Column` of an Oracle table has as `type` the type's plain name, without what stands in its brackets: `NUMBER`,
`VARCHAR2`, `TIMESTAMP WITH TIME ZONE`, `INTERVAL DAY TO SECOND`, `XMLTYPE`, … and as `modifier`

    NUMBER, FLOAT                   precision and scale, see `packed`; -1 for NUMBER without any
    CHAR, VARCHAR2, NVARCHAR2, RAW  the length in bytes
    TIMESTAMP…, INTERVAL…           digits of the second's fraction

Every value passes through one form of text (`canonical`), the same whether it comes from the log or from the table,
and from there takes the way to Arrow and to JSON that PostgreSQL's texts take: `plain` says a type in PostgreSQL's
name for it. A NUMBER without fraction is an integer where its digits fit one; a DATE has a time of day. What Spark
has no exact match for stays text: NUMBER without precision, FLOAT, intervals, timestamps finer than microseconds.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.connectors.oracle import moments
from tidelog.connectors.postgres import render
from tidelog.connectors.postgres import types as plain_types
from tidelog.core.jsontext import Fragment, ready, string
from tidelog.core.strings import Mask, cast, flat
from tidelog.model.schema import Column
from tidelog.model.selection import Selection

_BRACKETS = re.compile(r"\s*\([^)]*\)")
_LENGTHS = frozenset(["CHAR", "NCHAR", "VARCHAR", "VARCHAR2", "NVARCHAR2", "RAW", "UROWID"])
NUMBERS = frozenset(["NUMBER", "FLOAT"])
FLOATS = frozenset(["BINARY_FLOAT", "BINARY_DOUBLE"])
BYTES = frozenset(["RAW", "LONG RAW", "BLOB"])
LOCAL = frozenset(["DATE", "TIMESTAMP"])
ZONED = frozenset(["TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE"])
INTERVALS = frozenset(["INTERVAL DAY TO SECOND", "INTERVAL YEAR TO MONTH"])
_MICROS, _MILLIS = 6, 3
"""Digits of a fraction."""


def column(
    name: str,
    data_type: str,
    *,
    length: int | None = None,
    precision: int | None = None,
    scale: int | None = None,
    nullable: bool = True,
    number: int = 0,
) -> Column:
    """A column as ALL_TAB_COLUMNS describes it: DATA_TYPE, DATA_LENGTH, DATA_PRECISION, DATA_SCALE."""
    return Column(name, plain_name(data_type), _modifier(data_type, length, precision, scale), nullable, number)


def plain_name(data_type: str) -> str:
    """`TIMESTAMP(6) WITH TIME ZONE` without its digits; the owner of a type of Oracle's own does not count."""
    plain = _BRACKETS.sub("", data_type).strip()
    return "XMLTYPE" if plain.upper().rpartition(".")[2] == "XMLTYPE" else plain


def _modifier(data_type: str, length: int | None, precision: int | None, scale: int | None) -> int:
    plain = plain_name(data_type)
    if plain in ("NUMBER", "FLOAT"):
        return packed(precision, scale)
    if plain in _LENGTHS:
        return -1 if length is None else length
    if plain.startswith(("TIMESTAMP", "INTERVAL")):
        return -1 if scale is None else scale
    return -1


def packed(precision: int | None, scale: int | None) -> int:
    """Precision and scale as a modifier. `NUMBER(*, s)`, which has a scale alone, has 38 digits."""
    if precision is None and scale is None:
        return -1
    return (38 if precision is None else precision) << 16 | ((scale or 0) & 0xFFFF)


def digits(modifier: int) -> tuple[int, int]:
    """Precision and scale of a modifier; the scale may be negative."""
    scale = modifier & 0xFFFF
    return modifier >> 16, scale - 0x10000 if scale & 0x8000 else scale


def plain(column: Column) -> Column:
    """The column in the terms of PostgreSQL's types, by which its canonical text is read."""
    kind, modifier = _plain(column)
    return replace(column, type=kind, modifier=modifier)


def _plain(column: Column) -> tuple[str, int]:
    if column.type == "NUMBER" and column.modifier >= 0:
        precision, scale = digits(column.modifier)
        whole = precision - scale
        if scale <= 0 and whole < 19:
            return "int2" if whole < 5 else "int4" if whole < 10 else "int8", -1
        return "numeric", (precision << 16 | (scale & 0x7FF)) + 4
    if column.type in NUMBERS:
        return "numeric", -1
    if column.type in LOCAL or column.type in ZONED:
        zone = "timestamptz" if column.type in ZONED else "timestamp"
        return (zone if column.modifier <= _MICROS else "text"), -1
    simple = {"BINARY_FLOAT": "float4", "BINARY_DOUBLE": "float8", "BOOLEAN": "bool"}
    return "bytea" if column.type in BYTES else simple.get(column.type, "text"), -1


def field_of(column: Column, selection: Selection) -> pa.Field:
    """The column in the typed shape."""
    return plain_types.field_of(plain(column), selection)


def arrow_type(column: Column, selection: Selection) -> pa.DataType:
    return plain_types.arrow_type(plain(column), selection)


def parse(texts: pa.Array, column: Column, selection: Selection) -> tuple[pa.Array, Mask]:
    """Values of canonical texts, and which of them have no place in the column's Arrow type: those are null."""
    return plain_types.parse(texts, plain(column), selection)


def fragment(texts: pa.StringArray, column: Column, selection: Selection) -> Fragment:
    """The column's JSON values, of canonical texts. Dates and times are numbers as fine as the column is: milliseconds,
    microseconds or nanoseconds; those with a time zone are ISO 8601."""
    fine = 0 if column.type == "DATE" else column.modifier
    if column.type in ZONED:
        return string(_iso(texts))
    if column.type not in LOCAL or selection.times == "isostring":
        return render.fragment(
            texts, replace(plain(column), type="timestamp") if column.type in LOCAL else plain(column), selection
        )
    if fine > _MICROS and selection.times != "connect":
        return _nanos(texts)
    return render.moment(texts, "timestamp", "connect" if 0 <= fine <= _MILLIS else selection.times)


def _iso(texts: pa.StringArray) -> pa.StringArray:
    sound = pc.replace_substring(texts, " ", "T", max_replacements=1)
    return pc.replace_substring_regex(sound, r"\+00:00$", "Z")


def _nanos(texts: pa.StringArray) -> Fragment:
    """Nanoseconds since 1970: the digits behind those of the microseconds are put behind the number."""
    whole = pc.replace_substring_regex(texts, r"(\.\d{6})\d+$", r"\1")
    found = render.moment(whole, "timestamp", "adaptive")
    rest = pc.replace_substring_regex(
        pc.binary_join_element_wise(texts, "000", ""), r"^[^.]*(\.\d{6}(\d{3}).*|.*)$", r"\2"
    )
    micros, extra = found.texts.cast(pa.int64()), pc.if_else(pc.equal(rest, ""), "0", rest).cast(pa.int64())
    numbers = [
        None if m is None else str(m * 1000 + e) for m, e in zip(micros.to_pylist(), extra.to_pylist(), strict=True)
    ]
    return ready(pa.array(numbers, pa.string()), found.failed)


def canonical(texts: pa.StringArray, column: Column) -> pa.StringArray:
    """Oracle's text of a value, as redo SQL or a query writes it, in the one form that the decoder reads; a text that
    has it already stays."""
    if not len(texts) - texts.null_count:
        return texts
    if column.type in LOCAL:
        return moments.local(texts)
    if column.type in ZONED:
        return moments.zoned(texts)
    if column.type in INTERVALS:
        return moments.intervals(texts)
    if column.type in NUMBERS:
        return _numbers(texts)
    if column.type in FLOATS:
        return _floats(texts, pa.float32() if column.type == "BINARY_FLOAT" else pa.float64())
    if column.type in BYTES:
        marked = pc.starts_with(texts, "\\x")
        return pc.if_else(marked, texts, pc.binary_join_element_wise("\\x", pc.ascii_lower(texts), ""))
    if column.type == "BOOLEAN":
        return pc.replace_substring(pc.replace_substring(pc.ascii_lower(texts), "1", "true"), "0", "false")
    return texts


def _numbers(texts: pa.StringArray) -> pa.StringArray:
    """`.5` is 0.5."""
    data, offsets = flat(texts)
    starts = offsets[:-1]
    first, second = (data[np.minimum(starts + i, len(data) - 1)] for i in (0, 1))
    bare = (first == ord(".")) | ((first == ord("-")) & (second == ord(".")))
    return pc.replace_substring_regex(texts, r"^(-?)\.", r"\10.") if bare.any() else texts


def _floats(texts: pa.StringArray, kind: pa.DataType) -> pa.StringArray:
    """The shortest text of the same number; what is none stays, to be found out later."""
    lower = pc.ascii_lower(texts)
    numbers, failed = cast(lower, kind)
    found = pc.if_else(pa.array(failed), texts, numbers.cast(pa.string()))
    names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    for name, told in names.items():
        found = pc.if_else(pc.equal(found, name), told, found)
    return found


def reason(column: Column, selection: Selection) -> str:
    """Why a value of this column may fail, without showing it."""
    kind = arrow_type(column, selection)
    if pa.types.is_string(kind):
        return f"a {column.type} value is not valid UTF-8"
    return f"a {column.type} value does not fit {kind}"


def hint(column: Column) -> str:
    """The setting that helps."""
    aside = "event.processing.failure.handling.mode to dead-letter to set such rows aside"
    if column.type in NUMBERS:
        return f"Set decimal.handling.mode to double or string, or {aside}."
    return f"Set {aside}, or leave the column out with column.exclude.list."
