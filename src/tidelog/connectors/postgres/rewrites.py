"""Which columns may hold other values since a change of their definition that the log tells nothing of.

`ALTER COLUMN … TYPE … USING` computes the values of all rows anew and writes no event of it, maybe without changing
the type. Two traces stay in the catalog: the row of the column in `pg_attribute` is another one (`definition`), and the
rows of the table lie in another file (`storage`). Either alone is harmless: other changes of a column leave the file as
it is, and VACUUM FULL, CLUSTER and TRUNCATE leave the columns as they are, but for a default that was not in the rows
yet (`ADD COLUMN … DEFAULT`): VACUUM FULL writes it into them, and its column is read without need. Both together may be
a rewrite.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tidelog.model.schema import Column, Table


class Rewrites:
    """Compares what the catalog shows with the version that is known. Remembers the file of each table for as long as
    the definitions of its columns stay the same, so that a VACUUM FULL is not mistaken for part of a later change."""

    def __init__(self) -> None:
        self._storage: dict[int, str] = {}

    def trace(self, present: Table, known: Table | None) -> Table:
        """The table with traces that differ from those of `known` only where a column was defined anew, and in
        `storage` only where its values may have been rewritten, too."""
        before = {column.number: column for column in known.columns if column.definition} if known else {}
        files = {column.storage for column in before.values()} | {self._storage.get(present.id, "")}
        columns = tuple(
            self._trace(present.id, column, before[column.number])
            if column.number in before
            else _trace_new(column, files if before else set())
            for column in present.columns
        )
        pairs = [(column, before[column.number]) for column in columns if column.number in before]
        if present.columns and all(column.definition == old.definition for column, old in pairs):
            self._storage[present.id] = present.columns[0].storage  # the table's, as each of its columns has it
        return replace(present, columns=columns)

    def _trace(self, table: int, column: Column, before: Column) -> Column:
        if not column.definition:
            return column
        is_same = column.definition == before.definition
        if is_same or column.storage in (before.storage, self._storage.get(table)):
            return replace(column, storage=before.storage)
        return column


def _trace_new(column: Column, files: Collection[str]) -> Column:
    """A column that is new since the rows lay in one of `files`. If they lie in another one now, its default may have
    been written into all of them, also where the column has no default any more."""
    is_rewritten = bool(files) and column.fill is None and column.storage not in files
    return replace(column, rewritten=column.rewritten or is_rewritten)


def keep_traces(described: Table, known: Table | None) -> Table:
    """The version of a message of the log, with the traces of `known` in columns that have their type still: the
    catalog may show a change that the log has not come to, and changes before that place would be taken for later
    ones."""
    before = {column.number: column for column in known.columns if column.definition} if known else {}
    return replace(described, columns=tuple(_keep(column, before.get(column.number)) for column in described.columns))


def _keep(column: Column, before: Column | None) -> Column:
    if before is None or (before.type, before.modifier) != (column.type, column.modifier):
        return column
    return replace(column, storage=before.storage, definition=before.definition)


def differ(known: Table, present: Table) -> bool:
    """Whether a column was defined anew, as far as traces tell."""
    before = {column.number: column.definition for column in known.columns}
    return any(c.definition and before.get(c.number, c.definition) != c.definition for c in present.columns)
