"""Prints changes, one line each: what one looks at first.

It is no target: a batch that comes again is printed again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from tidelog.contracts import Batch, FilledTarget, Sink, Source, TableChanges
from tidelog.core.evolve import Parse
from tidelog.core.fold import in_order
from tidelog.core.metadata import BEFORE, META, OP, UNCHANGED
from tidelog.core.moments import legible
from tidelog.core.requirements import Requirements
from tidelog.core.settings import Setting, parse
from tidelog.engine.filled_targets import FilledTargets
from tidelog.model.selection import Selection

SETTINGS = (Setting("limit", "How many changes of a batch are printed.", "20", kind=int),)

_WORDS = {"c": "create", "u": "update", "d": "delete", "t": "truncate", "r": "read"}


@dataclass(frozen=True)
class ConsoleSink:
    limit: int = 20
    out: TextIO | None = None

    def find_lost(self, query: str) -> list[FilledTarget]:  # noqa: ARG002
        return []

    def apply(self, batch: Batch) -> None:
        out, total = self.out or sys.stdout, sum(rows.num_rows for c in batch.tables for _, rows in c.rows)
        for _, line in zip(range(self.limit), self._lines(batch), strict=False):
            print(line, file=out)
        if total > self.limit:
            print(f"… and {total - self.limit} more in batch {batch.id}", file=out)

    def _lines(self, batch: Batch) -> Iterator[str]:
        for changes in batch.tables:
            yield from _lines(changes, batch.selection, self.limit)


def _lines(changes: TableChanges, selection: Selection, limit: int) -> Iterator[str]:
    for version, rows in in_order(changes.rows):
        key = selection.key_of(version)
        for row in legible(rows.slice(0, limit)):
            yield _line(version.qualified, row, key)


def _line(table: str, row: Mapping[str, Any], key: Sequence[str]) -> str:
    op, unchanged = row[OP], set(row[UNCHANGED] or ())
    if op == "t":
        return f"{table}  truncate"
    names = [n for n in row if n not in META and n not in unchanged]
    shown = (key or names) if op == "d" else names
    before = {k: row[BEFORE][k] for k in key} if row[BEFORE] else {}
    moved = f"  was {render(before)}" if any(before[k] not in (None, row[k]) for k in before) else ""
    kept = f"  unchanged {', '.join(sorted(unchanged))}" if unchanged else ""
    return f"{table}  {_WORDS.get(op, op)}  {render({n: row[n] for n in shown})}{moved}{kept}"


def render(values: Mapping[str, Any]) -> str:
    """JSON with what JSON lacks as text; bytes in hexadecimal."""
    return json.dumps(dict(values), ensure_ascii=False, default=lambda v: v.hex() if isinstance(v, bytes) else str(v))


def requirements(options: Mapping[str, str]) -> Requirements:  # noqa: ARG001
    return Requirements()


def create(
    options: Mapping[str, str],
    *,
    spark: Any,  # noqa: ARG001
    source: Source | None,  # noqa: ARG001
    parse: Parse,  # noqa: ARG001
    shape: Any,  # noqa: ARG001
    filled: FilledTargets,  # noqa: ARG001
    former_writers: Collection[str] | None,  # noqa: ARG001
) -> Sink:
    return ConsoleSink(_options(options)["limit"])


def _options(options: Mapping[str, str]) -> dict[str, Any]:
    return parse(SETTINGS, options, subject="The sink console")
