"""What is delivered, and in which form: filters, masks and renderings as one value.

A batch is decoded under the selection it was planned with, also when it is replayed after the settings changed:
offsets carry the `fingerprint`, and the journal keeps each selection it has seen.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any

from tidelog.model.pattern import compiled
from tidelog.model.schema import Column, Table


@dataclass(frozen=True)
class ColumnRule:
    """What happens to the text of some columns: `mask`, `truncate` or `hash`."""

    kind: str
    columns: str
    """A regular expression over `schema.table.column`."""
    length: int = 0
    algorithm: str = ""
    salt: str = ""


@dataclass(frozen=True)
class Selection:
    include_schemas: str = ""
    exclude_schemas: str = ""
    include_tables: str = ""
    exclude_tables: str = ""
    include_columns: str = ""
    exclude_columns: str = ""
    """Regular expressions separated by commas, matched whole; empty means no restriction."""
    message_keys: str = ""
    """`schema.table:column,column;…`: keys that the user names instead of the primary key."""
    rules: tuple[ColumnRule, ...] = ()
    decimals: str = "precise"
    times: str = "adaptive"
    binaries: str = "base64"
    placeholder: str = "__debezium_unavailable_value"
    skipped: tuple[str, ...] = ()
    failures: str = "fail"
    """`fail`, `warn` or `dead-letter`: what becomes of a record that cannot be decoded."""
    transactions: bool = False
    topic_prefix: str = ""
    connector: str = ""
    database: str = ""

    def has_table(self, schema: str, name: str) -> bool:
        qualified = f"{schema}.{name}"
        if self.include_schemas and not matches(self.include_schemas, schema):
            return False
        if self.exclude_schemas and matches(self.exclude_schemas, schema):
            return False
        if self.include_tables:
            return matches(self.include_tables, qualified)
        return not (self.exclude_tables and matches(self.exclude_tables, qualified))

    def has_column(self, table: Table, column: Column) -> bool:
        """A key column is always delivered: without it a row has no identity."""
        if column.name in self.key_of(table):
            return True
        qualified = f"{table.qualified}.{column.name}"
        if self.include_columns:
            return matches(self.include_columns, qualified)
        return not (self.exclude_columns and matches(self.exclude_columns, qualified))

    def columns_of(self, table: Table) -> tuple[Column, ...]:
        return tuple(c for c in table.columns if self.has_column(table, c))

    def rules_for(self, table: Table, column: Column) -> tuple[ColumnRule, ...]:
        qualified = f"{table.qualified}.{column.name}"
        return tuple(rule for rule in self.rules if matches(rule.columns, qualified))

    def key_of(self, table: Table) -> tuple[str, ...]:
        for entry in filter(None, self.message_keys.split(";")):
            pattern, _, names = entry.rpartition(":")
            if matches(pattern.strip(), table.qualified):
                return tuple(n.strip() for n in names.split(","))
        return table.key

    def excluded_keys(self, table: Table) -> list[str]:
        """The columns of the key that `exclude_columns` names: they are delivered all the same."""
        listed = self.exclude_columns
        return [name for name in self.key_of(table) if listed and matches(listed, f"{table.qualified}.{name}")]

    def blurred_keys(self, table: Table) -> list[str]:
        """The delivered columns of a key, the target's or the log's, of which a rule leaves too little to tell rows
        apart: a hash keeps them apart, a mask and a cut do not."""
        delivered = {c.name: c for c in self.columns_of(table)}
        told = table.key if set(table.key) <= delivered.keys() else ()
        names = dict.fromkeys((*self.key_of(table), *told))
        rules = {n: self.rules_for(table, delivered[n]) for n in names if n in delivered}
        return [name for name, found in rules.items() if any(rule.kind != "hash" for rule in found)]

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Selection:
        raw: dict[str, Any] = json.loads(text)
        rules = tuple(ColumnRule(**r) for r in raw.pop("rules"))
        return Selection(rules=rules, skipped=tuple(raw.pop("skipped")), **raw)


def matches(patterns: str, name: str) -> bool:
    """Whether one of the comma-separated regular expressions matches the whole name."""
    return any(p.fullmatch(name) for p in _compiled(patterns))


@lru_cache(maxsize=256)
def _compiled(patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(compiled(p) for p in split_patterns(patterns))


def split_patterns(patterns: str) -> list[str]:
    """Split at commas outside brackets and braces, so that `a{1,2}` stays whole; `\\,` is a comma."""
    parts, depth, current, escaped = [], 0, "", False
    for char in patterns:
        if escaped:
            current, escaped = current + ("," if char == "," else "\\" + char), False
        elif char == "\\":
            escaped = True
        elif char == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            depth += (char in "([{") - (char in ")]}")
            current += char
    return [p for p in [*parts, (current + ("\\" if escaped else "")).strip()] if p]
