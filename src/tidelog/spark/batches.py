"""Batches for a sink, out of the files that the executors staged.

The query's rows describe files: one run of changes of one table version each, or a delivered chunk, or the keys that a
finished snapshot has seen (`keep`). A sink gets the files' rows, table by table, in the order of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
from pyspark.sql import Row

from tidelog.contracts import Batch, Connector, TableChanges
from tidelog.errors import CorruptState
from tidelog.journal.files import Files
from tidelog.model.schema import Table
from tidelog.model.selection import Selection
from tidelog.spark import chunks


@dataclass(frozen=True)
class Batches:
    connector: Connector
    stage: Files
    """What lives for one batch."""
    chunks: Files
    """What was read of tables; it goes when its offset is committed."""

    def of(self, query: str, id: int, staged: Sequence[Row]) -> Batch:
        selection = Selection.from_json(staged[0].selection) if staged else self.connector.selection()
        return Batch(query, id, selection, self._changes(staged, selection), self._failures(staged))

    def clear(self, staged: Sequence[Row]) -> None:
        for row in staged:
            for name in filter(None, (None if row.chunk else row.path, row.failures)):
                self.stage.delete(name)

    def clear_all(self) -> None:
        """Also of attempts that died: a batch that is repeated stages anew."""
        for name in self.stage.names(""):
            self.stage.delete(name)
        self.stage.discard_drafts("")

    def _changes(self, staged: Sequence[Row], selection: Selection) -> list[TableChanges]:
        by_table: dict[int, list[Row]] = {}
        for row in staged:
            by_table.setdefault(Table.from_json(row.table).id, []).append(row)
        return [self._of_table(rows, selection) for rows in by_table.values()]

    def _of_table(self, rows: Sequence[Row], selection: Selection) -> TableChanges:
        runs = []
        kept = [self._read(row) for row in rows if row.keep and row.path]
        keep = any(row.keep for row in rows)
        for text, group in groupby((row for row in rows if not row.keep), key=lambda row: row.table):
            table = Table.from_json(text)
            parts = [self._read(row) for row in group if row.path]
            empty = self.connector.decoder().schema(table, selection).empty_table()
            runs.append((table, pa.concat_tables(parts) if parts else empty))
        newest_first = dict.fromkeys(table for table, _ in reversed(runs))
        versions = tuple(newest_first)[::-1] or (Table.from_json(rows[-1].table),)
        snapshotting = any(row.snapshotting for row in rows)
        keys = self._keys(versions[-1], kept, selection) if keep else None
        told = max((row.position, row.ordinal) for row in rows)
        return TableChanges(versions, runs, snapshotting, keys, told)

    def _keys(self, table: Table, kept: Sequence[pa.Table], selection: Selection) -> pa.Table:
        """All keys that the target may keep; none at all is an answer too."""
        shape = self.connector.decoder().schema(table, selection)
        empty = pa.schema([shape.field(name) for name in table.key]).empty_table()
        return pa.concat_tables([empty, *(keys.cast(empty.schema) for keys in kept)])

    def _failures(self, staged: Sequence[Row]) -> pa.Table | None:
        """Records that could not be decoded."""
        found = [_load(self.stage, row.failures) for row in staged if row.failures]
        return pa.concat_tables(found) if found else None

    def _read(self, row: Row) -> pa.Table:
        return _load(self.chunks if row.chunk else self.stage, row.path)


def _load(files: Files, name: str) -> pa.Table:
    found = chunks.load(files, name)
    if found is None:
        raise CorruptState(f"The staged file {name} is gone.", hint="The batch is tried again.")
    return found
