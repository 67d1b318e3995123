"""Masks, truncations and hashes of columns.

A column with a rule is text, whatever it was: the database's text of it, changed. Null stays null and an unchanged
value stays unchanged. The old row is treated as the new one, so that nothing leaks through it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.core.strings import Mask, checked
from tidelog.errors import ConfigError
from tidelog.model.schema import Column, Table
from tidelog.model.selection import ColumnRule, Selection


@dataclass(frozen=True)
class Shown:
    """A delivered column: which of the tuple's it is, what it is delivered as, and what is done to its text."""

    index: int
    column: Column
    rules: tuple[ColumnRule, ...]

    def ruled(self, texts: pa.StringArray) -> tuple[pa.StringArray, Mask]:
        """The texts under the column's rules, and which are not UTF-8, where that had to be known."""
        if not self.rules:
            return texts, np.zeros(len(texts), np.bool_)
        sound, failed = checked(texts)
        return apply(sound, self.rules), failed


def delivered(table: Table, selection: Selection) -> list[Shown]:
    return [show(table, column, selection) for column in selection.columns_of(table)]


def keys(table: Table, selection: Selection) -> list[Shown]:
    """The key's columns, in key order."""
    names = {column.name: column for column in table.columns}
    return [show(table, names[name], selection) for name in selection.key_of(table) if name in names]


def show(table: Table, column: Column, selection: Selection) -> Shown:
    """The column as it is delivered: a rule makes it text."""
    rules = selection.rules_for(table, column)
    shape = replace(column, type="text", modifier=-1) if rules else column
    return Shown(table.columns.index(column), shape, rules)


def shown(table: Table, column: Column, selection: Selection) -> Column:
    """The column as it is delivered, alone."""
    return show(table, column, selection).column


def apply(texts: pa.StringArray, rules: Sequence[ColumnRule]) -> pa.StringArray:
    """The texts after all rules, in their order; they must be valid UTF-8."""
    for rule in rules:
        texts = _apply(texts, rule)
    return texts


def _apply(texts: pa.StringArray, rule: ColumnRule) -> pa.StringArray:
    match rule.kind:
        case "mask":
            return pc.if_else(texts.is_valid(), "*" * rule.length, pa.scalar(None, pa.string()))
        case "truncate":
            return pc.utf8_slice_codeunits(texts, 0, rule.length)
        case "hash":
            return _hashed(texts, rule)
    raise ConfigError(f"There is no column rule {rule.kind!r}.", hint="Use mask, truncate or hash.")


def _hashed(texts: pa.StringArray, rule: ColumnRule) -> pa.StringArray:
    """Each distinct value is hashed once: hashing goes value by value."""
    name, salt = algorithm(rule.algorithm), rule.salt.encode()
    coded = texts.dictionary_encode()
    values = coded.dictionary.view(pa.binary()).to_pylist()
    digests = [hashlib.new(name, salt + value, usedforsecurity=False).hexdigest() for value in values]
    return pa.array(digests, pa.string()).take(coded.indices)


def algorithm(name: str) -> str:
    """Java's name of a hash as Python has it: SHA-256 is sha256, SHA3-256 is sha3_256, SHA-512/256 is sha512_256."""
    lower = name.lower()
    python = lower.replace("-", "_") if lower.startswith("sha3-") else lower.replace("-", "").replace("/", "_")
    if python not in hashlib.algorithms_available or python.startswith("shake"):
        raise ConfigError(f"There is no hash algorithm {name!r}.", hint="Use SHA-256, SHA-512, SHA3-256 or MD5.")
    return python
