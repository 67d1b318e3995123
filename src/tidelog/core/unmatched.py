"""Entries of the lists of tables and columns that match nothing: most likely they are misspelt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidelog.core.settings import nearest
from tidelog.model.schema import Table
from tidelog.model.selection import ColumnRule, Selection, matches, split_patterns


@dataclass(frozen=True)
class Unmatched:
    setting: str
    entry: str
    nearest: str | None

    @property
    def meaning(self) -> str:
        kind = "schema" if self.setting.startswith("schema.") else "column"
        kind = "table" if self.setting.startswith(("table.", "message.")) else kind
        return f"No {kind} matches {self.entry}."

    @property
    def cure(self) -> str:
        if self.nearest:
            return f"{self.setting}: did you mean {self.nearest}?"
        return f"Correct {self.setting}, or leave the entry out."


def find_unmatched(selection: Selection, tables: Sequence[Table]) -> Iterator[Unmatched]:
    """`tables` are all tables of the database with their columns, captured or not."""
    schemas = sorted({table.schema for table in tables})
    names = [table.qualified for table in tables]
    columns = [f"{table.qualified}.{column.name}" for table in tables for column in table.columns]
    yield from _of_list("schema.include.list", selection.include_schemas, schemas)
    yield from _of_list("schema.exclude.list", selection.exclude_schemas, schemas)
    yield from _of_list("table.include.list", selection.include_tables, names)
    yield from _of_list("table.exclude.list", selection.exclude_tables, names)
    yield from _of_list("column.include.list", selection.include_columns, columns)
    yield from _of_list("column.exclude.list", selection.exclude_columns, columns)
    for entry in filter(None, selection.message_keys.split(";")):
        yield from _of_list("message.key.columns", entry.rpartition(":")[0].strip(), names)
    for rule in selection.rules:
        yield from _of_list(_setting_of(rule), rule.columns, columns)


def _of_list(setting: str, patterns: str, names: Sequence[str]) -> Iterator[Unmatched]:
    for entry in split_patterns(patterns):
        pattern = entry.replace(",", "\\,")  # a comma in one entry is part of it
        if not any(matches(pattern, name) for name in names):
            without_escapes = re.sub(r"\\(.)", r"\1", entry)
            yield Unmatched(setting, entry, nearest(without_escapes, names))


def _setting_of(rule: ColumnRule) -> str:
    """The name of the rule's setting; a salt is a secret."""
    if rule.kind == "hash":
        return f"column.mask.hash.{rule.algorithm}.with.salt.…"
    if rule.kind == "mask":
        return f"column.mask.with.{rule.length}.chars"
    return f"column.truncate.to.{rule.length}.chars"
