"""What only the source can tell of a table's rows.

Law: its answers are of a later time than the log's events; before any of them is written, the target says that it may
hold such rows (`tidelog.asked`). A whole table is told portion by portion: each may be written before the next comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.contracts import Source
from tidelog.core.fold import Run, match
from tidelog.core.metadata import POSITION, XID
from tidelog.core.snapshot import watermark
from tidelog.errors import UnsupportedChange
from tidelog.model.schema import Column, Table
from tidelog.spark.sinks.target import Target, portions

ASKED, OPEN = "tidelog.asked", "open"
"""What the source had to show when it was last asked for rows, as a watermark; `open`: nobody has looked yet."""
ROWS, BYTES = 1_000_000, 128 << 20
"""How much of an answer is held at a time: each portion is a merge, which may touch every file of the target."""


@dataclass(frozen=True)
class Asking:
    source: Source | None
    table: Table
    key: tuple[str, ...]
    shape: pa.Schema
    """The typed columns of the table."""
    target: Target
    snapshotting: bool

    def all(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Key and columns of every row that there is now; at least one portion, be it empty."""
        known, wanted = self._known(columns), self._wanted(columns)
        if self.target.properties().get(ASKED) != OPEN:
            self.target.describe({ASKED: OPEN})
        parts = _parts(known.read(self.table, wanted.names), wanted)
        yield from portions(chain([wanted.empty_table()], parts), ROWS, BYTES)
        self.note()

    def some(self, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """Of the rows under `keys` those that exist now, with those of the columns that the source has as the log
        tells of them: it answers null in the others."""
        known, wanted, key = self._known(columns), self._wanted(columns), list(self.key)
        before = self.current(columns)
        parts = portions(_parts(known.read_keys(self.table, wanted.names, keys), wanted), ROWS, BYTES)
        found = [part.filter(pa.array(match(part, keys, key) >= 0)) for part in parts]
        after = self.current(columns)
        self.note()
        answered = [*key, *(name for name in before if name in after)]
        return pa.concat_tables([wanted.empty_table(), *found]).select(answered)

    def is_current(self, columns: Sequence[str]) -> bool:
        """Whether the source has key and columns still, or already, as the log tells of them: else it leaves rows or
        values out."""
        return self.current([*self.key, *columns]) == [*self.key, *columns]

    def current(self, columns: Sequence[str]) -> list[str]:
        """Those of the columns that the source has as the log tells of them; none where it has another key."""
        for now in self._known(columns).present([self.table.id]):
            if all(_has(now, self.table.column(name)) for name in self.key):
                return [name for name in columns if _has(now, self.table.column(name))]
        return []

    def note(self) -> str:
        """It stands before anything that was asked for is written. While the snapshot runs, that it was is enough."""
        assert self.source is not None
        noted = OPEN if self.snapshotting else self.source.horizon().to_json()
        if noted != OPEN or self.target.properties().get(ASKED) != OPEN:
            self.target.describe({ASKED: noted})
        return noted

    def is_doubted(self, runs: Sequence[Run]) -> bool:
        """Whether the target may have rows of a later time than these events: of its snapshot, or because the source
        was asked for them when it had seen these events already."""
        if self.snapshotting:
            return True
        asked = self.target.properties().get(ASKED)
        if asked == OPEN:
            asked = self.note()
        if not asked:
            return False
        seen, told = watermark.from_json(asked), [run.rows.filter(pc.is_valid(run.rows[XID])) for run in runs]
        return any(seen.covers(rows[POSITION].to_numpy(), rows[XID].to_numpy()).any() for rows in told)

    def _known(self, columns: Sequence[str]) -> Source:
        if self.source is None:
            raise UnsupportedChange(
                f"Only the source knows the values of {', '.join(columns)} in the old rows of {self.table.qualified}.",
                hint="Give the sink a source to read from.",
            )
        return self.source

    def _wanted(self, columns: Sequence[str]) -> pa.Schema:
        return pa.schema([self.shape.field(name) for name in (*self.key, *columns)])


def _has(now: Table, column: Column) -> bool:
    """Whether a table has the column, under whatever name; one without a number is known by its name."""
    return any(
        (other.number == column.number if column.number > 0 else other.name == column.name)
        and (other.type, other.modifier) == (column.type, column.modifier)
        for other in now.columns
    )


def _parts(batches: Iterable[pa.RecordBatch], wanted: pa.Schema) -> Iterator[pa.Table]:
    return (pa.Table.from_batches([batch]).select(wanted.names).cast(wanted) for batch in batches)
