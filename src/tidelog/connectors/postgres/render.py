"""PostgreSQL text as JSON, column by column.

Numbers pass through unparsed, so no digit is lost. A column becomes a `Fragment`: JSON texts, or texts that still
want their quotes, because an object can bring the quotes with its own punctuation for free.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.connectors.postgres import bytea, literals, times
from tidelog.connectors.postgres.strings import Mask, as_mask, checked, flat, valid_rows
from tidelog.model.schema import Column
from tidelog.model.selection import Selection

INTEGERS = frozenset(["int2", "int4", "int8", "oid"])
FLOATS = frozenset(["float4", "float8"])
_IN_NUMBERS = np.isin(np.arange(256), np.frombuffer(b"0123456789+-.eE", np.uint8))
_NUMBER = r"^-?\d+(\.\d+)?([eE][+-]?\d+)?$"
NO_NUMBERS = pa.array(["NaN", "Infinity", "-Infinity"])
_TRUTHS = pa.array(["t", "true", "f", "false"])
_ESCAPES = {i: f"\\u{i:04x}" for i in range(0x20)} | {
    ord(char): "\\" + letter for char, letter in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)
}


@dataclass(frozen=True)
class Fragment:
    """A column's values for a JSON object; null is null."""

    texts: pa.StringArray
    quoted: bool
    """The values are contents of JSON strings: quotes are still to come."""
    failed: Mask

    def json(self) -> pa.StringArray:
        return pc.binary_join_element_wise('"', self.texts, '"', "") if self.quoted else self.texts

    def instead(self, rows: Mask, text: str) -> Fragment:
        """The same with the JSON string `text` at `rows`."""
        return replace(self, texts=pc.if_else(pa.array(rows), quote(text), self.json()), quoted=False)


def quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def objects(names: Sequence[str], fragments: Sequence[Fragment], rows: int) -> pa.StringArray:
    """A JSON object for each row."""
    parts: list[str | pa.StringArray] = []
    literal = "{"
    for i, (name, fragment) in enumerate(zip(names, fragments, strict=True)):
        literal += ("," if i else "") + quote(name) + ":"
        bare = fragment.quoted and not fragment.texts.null_count
        parts += [literal + '"', fragment.texts] if bare else [literal, fragment.json()]
        literal = '"' if bare else ""
    if not parts:
        return pa.repeat("{}", rows)
    return concat(*parts, literal + "}")


def concat(*parts: str | pa.StringArray) -> pa.StringArray:
    """The parts of each row one after another; a null is JSON's."""
    return pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="null")


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


def number(texts: pa.StringArray) -> Fragment:
    """The number as PostgreSQL wrote it; NaN and the infinities are strings, for JSON has no such numbers."""
    data, _ = flat(texts)
    if _IN_NUMBERS[data].all():
        return _ready(texts)
    special = pc.is_in(texts, value_set=NO_NUMBERS)
    failed = valid_rows(texts) & ~as_mask(special) & ~as_mask(pc.match_substring_regex(texts, _NUMBER))
    return _ready(pc.if_else(special, pc.binary_join_element_wise('"', texts, '"', ""), texts), failed)


def boolean(texts: pa.StringArray) -> Fragment:
    true, failed = truth(texts)
    return _ready(pc.if_else(true, "true", "false"), failed)


def truth(texts: pa.StringArray) -> tuple[pa.BooleanArray, Mask]:
    """`t` and `f`, or `true` and `false`, as a cast to text writes them."""
    code = pc.index_in(texts, value_set=_TRUTHS)
    failed = valid_rows(texts) & ~as_mask(code.is_valid())
    return pc.less(code, 2), failed


def string(texts: pa.StringArray) -> Fragment:
    sound, failed = checked(texts)
    return Fragment(escape(sound), True, failed)


def hstore(texts: pa.StringArray) -> Fragment:
    """A JSON string that holds the text of a JSON object."""
    sound, failed = checked(texts)
    found, broken = literals.hstores(sound)
    return Fragment(escape(escape(found, only_control=True)), True, failed | broken)


def escape(texts: pa.StringArray, only_control: bool = False) -> pa.StringArray:
    """The contents of JSON strings: one pass over the bytes finds which characters need an escape, mostly none."""
    data, _ = flat(texts)
    special = data < 0x20
    if not only_control:
        special |= (data == literals.QUOTE) | (data == literals.BACKSLASH)
    if not special.any():
        return texts
    found = set(np.unique(data[special]).tolist())
    for code in sorted(found, key=lambda code: code != literals.BACKSLASH):
        texts = pc.replace_substring(texts, chr(code), _ESCAPES[code])
    return texts


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
            return _ready(days.view(pa.int32()).cast(pa.string()), failed)
        case "time":
            micros, failed = times.micros(texts)
        case _:
            micros, failed = times.instants(texts, times.LOCAL)
    return _ready(_scaled(micros.view(pa.int64()), style).cast(pa.string()), failed)


def _scaled(micros: pa.Int64Array, style: str) -> pa.Int64Array:
    """Milliseconds for Kafka Connect's own types, rounded down; an infinity stays what it is."""
    if style != "connect":
        return micros
    numbers, limits = micros.fill_null(0).to_numpy(), np.iinfo(np.int64)
    infinite = (numbers == limits.max) | (numbers == limits.min)
    return pa.array(np.where(infinite, numbers, numbers // 1000), mask=~valid_rows(micros))


def _ready(texts: pa.StringArray, failed: Mask | None = None) -> Fragment:
    return Fragment(texts, False, np.zeros(len(texts), np.bool_) if failed is None else failed)
