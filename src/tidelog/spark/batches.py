"""Batches for a sink, out of the files that the executors staged.

The query's rows describe files: one run of changes of one table version each, or a delivered chunk, or the keys that a
finished snapshot has seen (`keep`). A sink gets the files' rows, table by table, in the order of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
from pyspark.sql import Row

from tidelog.contracts import Batch, Connector, TableChanges
from tidelog.errors import CorruptState
from tidelog.journal.files import Files
from tidelog.model.schema import Table
from tidelog.model.selection import Selection
from tidelog.spark import arrow_files


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
        for text, group in groupby((row for row in rows if not row.keep), key=lambda row: row.table):
            table = Table.from_json(text)
            parts = [self._read(row) for row in group if row.path]
            empty = self.connector.decoder().schema(table, selection).empty_table()
            runs.append((table, pa.concat_tables(parts) if parts else empty))
        newest_first = dict.fromkeys(table for table, _ in reversed(runs))
        versions = tuple(newest_first)[::-1] or (Table.from_json(rows[-1].table),)
        snapshotting = any(row.snapshotting for row in rows)
        keys = self._keys(versions[-1], rows, selection) if any(row.keep for row in rows) else None
        told = max((row.position, row.ordinal) for row in rows)
        return TableChanges(versions, runs, snapshotting, keys, told)

    def _keys(self, table: Table, rows: Sequence[Row], selection: Selection) -> StagedKeys:
        """All keys that the target may keep; none at all is an answer too."""
        shape = self.connector.decoder().schema(table, selection)
        files = tuple((self._place(row), row.path) for row in rows if row.keep and row.path)
        return StagedKeys(pa.schema([shape.field(name) for name in table.key]), files)

    def _failures(self, staged: Sequence[Row]) -> pa.Table | None:
        """Records that could not be decoded."""
        found = [_load(self.stage, row.failures) for row in staged if row.failures]
        return pa.concat_tables(found) if found else None

    def _read(self, row: Row) -> pa.Table:
        return _load(self._place(row), row.path)

    def _place(self, row: Row) -> Files:
        return self.chunks if row.chunk else self.stage


@dataclass(frozen=True)
class StagedKeys:
    """Keys in files, of which a batch at a time is held."""

    schema: pa.Schema
    files: tuple[tuple[Files, str], ...]

    def portions(self) -> Iterator[pa.Table]:
        for files, name in self.files:
            try:
                for batch in arrow_files.draw(files, name):
                    yield pa.Table.from_batches([batch]).select(self.schema.names).cast(self.schema)
            except FileNotFoundError as exc:
                raise _gone(name) from exc


def _load(files: Files, name: str) -> pa.Table:
    found = arrow_files.load(files, name)
    if found is None:
        raise _gone(name)
    return found


def _gone(name: str) -> CorruptState:
    return CorruptState(f"The staged file {name} is gone.", hint="The batch is tried again.")
