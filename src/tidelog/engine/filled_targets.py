"""Which target tables the pipeline has filled: one that is gone must not pass for one that was never there.

Law: a table stands in this file before its first rows are committed to the target. So a target that is missing while it
stands here was lost, with all rows that earlier batches delivered.

The entries are those of one streaming query. Another query starts with a checkpoint of its own, and reads every table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tidelog.contracts import FilledTarget
from tidelog.errors import CorruptState


class FilledTargets:
    """Used by the pipeline's driver alone."""

    def __init__(self, path: Path | None = None) -> None:
        """Without a path, the entries last as long as this object."""
        self._path = path
        self._query, self._by_table = _read(path)

    def of(self, query: str, table: int) -> FilledTarget | None:
        return self._by_table.get(table) if query == self._query else None

    def all(self, query: str) -> list[FilledTarget]:
        return list(self._by_table.values()) if query == self._query else []

    def add(self, query: str, filled: Iterable[FilledTarget]) -> None:
        known = self._by_table if query == self._query else {}
        after = {**known, **{each.table: each for each in filled}}
        if (query, after) != (self._query, self._by_table):
            self._keep(query, after)

    def forget(self, table: int) -> None:
        if table in self._by_table:
            self._keep(self._query, {id: each for id, each in self._by_table.items() if id != table})

    def _keep(self, query: str, by_table: dict[int, FilledTarget]) -> None:
        if self._path is not None:
            text = json.dumps({"query": query, "tables": [asdict(each) for each in by_table.values()]})
            draft = self._path.with_suffix(".draft")
            with draft.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
        self._query, self._by_table = query, by_table


def _read(path: Path | None) -> tuple[str, dict[int, FilledTarget]]:
    if path is None or not path.exists():
        return "", {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return found["query"], {raw["table"]: FilledTarget(**raw) for raw in found["tables"]}
    except (ValueError, KeyError, TypeError) as exc:
        raise CorruptState(
            f"The file {path}, which names the target tables that have rows, is damaged.",
            hint="If no target table is missing, delete it: it is written again.",
        ) from exc
