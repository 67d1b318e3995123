"""PostgreSQL's values as JSON, column by column, by their types."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.connectors.postgres import bytea, literals, times
from tidelog.core.jsontext import Fragment, escape, number, ready, string
from tidelog.core.strings import Mask, as_mask, checked, valid_rows
from tidelog.model.schema import Column
from tidelog.model.selection import Selection

INTEGERS = frozenset(["int2", "int4", "int8", "oid"])
FLOATS = frozenset(["float4", "float8"])
_TRUTHS = ("t", "true", "f", "false")


def fragment(texts: pa.StringArray, column: Column, selection: Selection) -> Fragment:
    """The column's JSON values by its type and the selection's renderings."""
    if column.type.endswith("[]"):
        return _array(texts, column, selection)
    return _scalar(column.type, selection)(texts)


def _array(texts: pa.StringArray, column: Column, selection: Selection) -> Fragment:
    scalar = _scalar(column.type.removesuffix("[]"), selection)

    def element(values: pa.StringArray) -> tuple[pa.StringArray, Mask]:
        found = scalar(values)
        return found.json(), found.failed

    def quoted(values: pa.StringArray) -> tuple[pa.StringArray, Mask]:
        return string(values).json(), np.zeros(len(values), np.bool_)

    sound, failed = checked(texts)
    found, broken = literals.arrays(sound, element, quoted, ";" if column.type == "box[]" else ",")
    return Fragment(found, False, failed | broken)


def _scalar(name: str, selection: Selection) -> Callable[[pa.StringArray], Fragment]:
    if name in INTEGERS or name in FLOATS or (name == "numeric" and selection.decimals != "string"):
        return number
    match name:
        case "bool":
            return boolean
        case "bytea":
            return lambda texts: binary(texts, selection.binaries)
        case "hstore":
            return hstore
        case "date" | "time" | "timetz" | "timestamp" | "timestamptz":
            return lambda texts: moment(texts, name, selection.times)
    return string


def boolean(texts: pa.StringArray) -> Fragment:
    true, failed = truth(texts)
    return ready(pc.if_else(true, "true", "false"), failed)


def truth(texts: pa.StringArray) -> tuple[pa.BooleanArray, Mask]:
    """`t` and `f`, or `true` and `false`, as a cast to text writes them."""
    code = pc.index_in(texts, value_set=pa.array(_TRUTHS))
    failed = valid_rows(texts) & ~as_mask(code.is_valid())
    return pc.less(code, 2), failed


def hstore(texts: pa.StringArray) -> Fragment:
    """A JSON string that holds the text of a JSON object."""
    sound, failed = checked(texts)
    found, broken = literals.hstores(sound)
    return Fragment(escape(escape(found, only_control=True)), True, failed | broken)


def binary(texts: pa.StringArray, style: str) -> Fragment:
    found, failed = bytea.unhex(texts)
    return Fragment(bytea.coded(found, style), True, failed)


def moment(texts: pa.StringArray, name: str, style: str) -> Fragment:
    """Dates and times. Zoned ones are ISO texts; the others are numbers, or texts with `isostring`."""
    match name:
        case "timestamptz":
            return string(times.iso(texts))
        case "timetz":
            return string(times.iso_zoned_time(texts))
        case "time" if style == "isostring":
            return string(texts)
        case _ if style == "isostring":
            return string(times.iso_local(texts))
        case "date":
            days, failed = times.instants(texts, times.DATE)
            return ready(days.view(pa.int32()).cast(pa.string()), failed)
        case "time":
            micros, failed = times.micros(texts)
        case _:
            micros, failed = times.instants(texts, times.LOCAL)
    return ready(_scaled(micros.view(pa.int64()), style).cast(pa.string()), failed)


def _scaled(micros: pa.Int64Array, style: str) -> pa.Int64Array:
    """Milliseconds for Kafka Connect's own types, rounded down; an infinity stays what it is."""
    if style != "connect":
        return micros
    numbers, limits = micros.fill_null(0).to_numpy(), np.iinfo(np.int64)
    infinite = (numbers == limits.max) | (numbers == limits.min)
    return pa.array(np.where(infinite, numbers, numbers // 1000), mask=~valid_rows(micros))
