"""PostgreSQL text to Arrow: the one way a value gets a type, for the stream and for table reads alike.

The input is what the type's output function writes, under the session settings that the connector makes (TimeZone
UTC, DateStyle ISO, IntervalStyle iso_8601, bytea_output hex). A type that Spark and Delta have no exact match for
stays PostgreSQL's exact text: times of day, intervals, uuid, json, enums, composites, ranges and all the rest.

Arrays are JSON text. PostgreSQL's `int4[]` holds values of any number of dimensions, so no Spark array type holds
every value of the column; JSON does, nested, and `from_json` makes an array of it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.connectors.postgres import bytea, render, times
from tidelog.core.jsontext import NO_NUMBERS
from tidelog.core.strings import Mask, as_mask, cast, checked, only, plain
from tidelog.model.schema import Column
from tidelog.model.selection import Selection

DIGITS_MAX = 38
_SIMPLE = {
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "oid": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "bool": pa.bool_(),
    "bytea": pa.binary(),
    "date": times.DATE,
    "timestamp": times.LOCAL,
    "timestamptz": times.UTC,
}


def field_of(column: Column, selection: Selection) -> pa.Field:
    """The column in the typed shape. A column with a rule is text: ask for that of `rules.shown(…)`."""
    return pa.field(column.name, arrow_type(column, selection))


def arrow_type(column: Column, selection: Selection) -> pa.DataType:
    if column.type == "numeric":
        return _numeric(column.modifier, selection.decimals)
    return _SIMPLE.get(column.type, pa.string())


def _numeric(modifier: int, style: str) -> pa.DataType:
    """A decimal when the declaration says how many digits there can be on both sides, and they fit."""
    if style == "double":
        return pa.float64()
    if style == "string" or modifier < 4:
        return pa.string()
    precision, scale = digits(modifier)
    # A scale beyond the precision, or below zero, still has a decimal that holds each of its values.
    precision = max(precision, scale) if scale > 0 else precision - scale
    return pa.decimal128(precision, max(scale, 0)) if precision <= DIGITS_MAX else pa.string()


def digits(modifier: int) -> tuple[int, int]:
    """Precision and scale of a numeric; the scale is a signed number of 11 bits."""
    packed = modifier - 4
    return packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 0x400) - 0x400


def parse(texts: pa.Array, column: Column, selection: Selection) -> tuple[pa.Array, Mask]:
    """The values, and which of them have no place in the column's Arrow type: those are null."""
    texts, kind = plain(texts), arrow_type(column, selection)
    if column.type.endswith("[]"):
        found = render.fragment(texts, column, replace(selection, times="isostring"))
        return found.json(), found.failed
    if column.type == "bool":
        return render.truth(texts)
    if pa.types.is_string(kind):
        return checked(texts)
    if pa.types.is_binary(kind):
        return bytea.unhex(texts)
    if pa.types.is_temporal(kind):
        return times.instants(texts, kind)
    return _number(texts, kind)


def _number(texts: pa.StringArray, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    try:
        return texts.cast(kind), np.zeros(len(texts), np.bool_)
    except pa.ArrowInvalid:
        # NaN and the infinities may be many: they are found at once, and only what is left by halving.
        special = as_mask(pc.is_in(texts, value_set=pa.array(NO_NUMBERS)))
    if pa.types.is_floating(kind):
        return cast(texts, kind)
    found, failed = cast(only(texts, ~special), kind)
    return found, failed | special


def reason(column: Column, selection: Selection) -> str:
    """Why a value of this column may fail, without showing it."""
    kind = arrow_type(column, selection)
    if column.type.endswith("[]"):
        return f"an element of a {column.type} value cannot be read"
    if pa.types.is_string(kind):
        return f"a {column.type} value is not valid UTF-8"
    return f"a {column.type} value does not fit {kind}"


def hint(column: Column) -> str:
    """The setting that helps."""
    aside = "event.processing.failure.handling.mode to dead-letter to set such rows aside"
    if column.type == "numeric":
        return f"Set decimal.handling.mode to double or string, or {aside}."
    return f"Set {aside}, or leave the column out with column.exclude.list."
