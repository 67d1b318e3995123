"""Texts as JSON, column by column.

Numbers pass through unparsed, so no digit is lost. A column becomes a `Fragment`: JSON texts, or texts that still
want their quotes, because an object can bring the quotes with its own punctuation for free.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.core.strings import Mask, as_mask, checked, flat, valid_rows

NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
_IN_NUMBERS = np.isin(np.arange(256), np.frombuffer(b"0123456789+-.eE", np.uint8))
_NUMBER = r"^-?\d+(\.\d+)?([eE][+-]?\d+)?$"
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
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


def number(texts: pa.StringArray) -> Fragment:
    """The number as the database wrote it; NaN and the infinities are strings, for JSON has no such numbers."""
    data, _ = flat(texts)
    if _IN_NUMBERS[data].all():
        return ready(texts)
    special = pc.is_in(texts, value_set=pa.array(NO_NUMBERS))
    failed = valid_rows(texts) & ~as_mask(special) & ~as_mask(pc.match_substring_regex(texts, _NUMBER))
    return ready(pc.if_else(special, pc.binary_join_element_wise('"', texts, '"', ""), texts), failed)


def string(texts: pa.StringArray) -> Fragment:
    sound, failed = checked(texts)
    return Fragment(escape(sound), True, failed)


def escape(texts: pa.StringArray, only_control: bool = False) -> pa.StringArray:
    """The contents of JSON strings: one pass over the bytes finds which characters need an escape, mostly none."""
    data, _ = flat(texts)
    special = data < 0x20
    if not only_control:
        special |= (data == _QUOTE) | (data == _BACKSLASH)
    if not special.any():
        return texts
    found = set(np.unique(data[special]).tolist())
    for code in sorted(found, key=lambda code: code != _BACKSLASH):
        texts = pc.replace_substring(texts, chr(code), _ESCAPES[code])
    return texts


def ready(texts: pa.StringArray, failed: Mask | None = None) -> Fragment:
    return Fragment(texts, False, np.zeros(len(texts), np.bool_) if failed is None else failed)
