"""Do source and target hold the same rows? Asked table by table, range of keys by range of keys, row by row.

Memory is bounded by the range, not by the table. The source reads a range as the stream would decode it, so masks
and renderings count; the target reads the same range of the first key column, low < key <= high. While a pipeline
runs, a change may be on its way: a range that differs is looked at again before it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.contracts import Connector
from tidelog.core.compare import Comparison, compare
from tidelog.core.fold import match
from tidelog.core.metadata import UNDECODABLE
from tidelog.core.moments import legible
from tidelog.core.settings import counted
from tidelog.errors import TidelogError
from tidelog.model.schema import Column, Table

ROWS_PER_RANGE = 200_000


ReadTarget = Callable[[Table, Sequence[str], pa.Scalar | None, pa.Scalar | None], pa.Table | None]
"""(table, columns, low, high) to the target's rows with low < first key column <= high, values as the stream delivers
them; None for no end. The answer is None when the target has no such table; columns that it lacks are left out."""

Again = Callable[[int], bool]
"""Told how often a range was looked at; waits and says True to look again."""


@dataclass(frozen=True)
class TableReport:
    table: str
    result: Comparison
    absent: bool = False
    """The target has no such table."""
    lacking: tuple[str, ...] = ()
    """Columns that the target does not have."""
    set_aside: int = 0
    """Rows of the source that do not fit their types: they are dead letters, and not expected in the target."""
    set_aside_keys: tuple[tuple[tuple[str, Any], ...], ...] = ()
    """Of some of these rows."""
    failure: TidelogError | None = None
    """Why the table could not be compared to its end; None when it was."""

    @property
    def in_sync(self) -> bool:
        return not (self.failure or self.result.differences or self.lacking or (self.absent and self.result.rows))


@dataclass(frozen=True)
class Report:
    tables: tuple[TableReport, ...] = field(default=())

    @property
    def rows(self) -> int:
        return sum(t.result.rows for t in self.tables)

    @property
    def differences(self) -> int:
        return sum(t.result.differences + len(t.lacking) for t in self.tables)

    @property
    def set_aside(self) -> int:
        return sum(t.set_aside for t in self.tables)

    @property
    def in_sync(self) -> bool:
        return all(t.in_sync for t in self.tables)

    @property
    def failures(self) -> int:
        """How many tables could not be compared."""
        return sum(t.failure is not None for t in self.tables)

    def __str__(self) -> str:
        verdict = "in sync" if self.in_sync else "not in sync"
        failures = f", {counted(self.failures, 'table')} not compared" if self.failures else ""
        set_aside = f", {counted(self.set_aside, 'row')} set aside" if self.set_aside else ""
        tables, rows = counted(len(self.tables), "table"), counted(self.rows, "row")
        differences = counted(self.differences, "difference")
        return f"{verdict}: {tables}, {rows}, {differences}{set_aside}{failures}"


def verify(
    source: Connector,
    tables: Sequence[Table],
    read_target: ReadTarget,
    *,
    examples_max: int = 10,
    rows_per_range: int = ROWS_PER_RANGE,
    again: Again = lambda _: False,
    watch: Callable[[TableReport], None] = lambda _: None,
) -> Report:
    """Compare these tables; `watch` hears of each as soon as it is done. A table that cannot be read is reported as
    failed, and the others are compared all the same."""
    reports = []
    for table in tables:
        try:
            report = _table(source, table, read_target, examples_max, rows_per_range, again)
        except TidelogError as exc:
            report = TableReport(table.qualified, Comparison(), failure=exc)
        except pa.ArrowException as exc:
            failure = TidelogError(
                f"Its rows could not be read or compared: {exc}.",
                hint="Leave its widest columns out (column.exclude.list) in a copy of the definition, and try again.",
            )
            report = TableReport(table.qualified, Comparison(), failure=failure)
        reports.append(report)
        watch(report)
    return Report(tuple(reports))


def _table(
    source: Connector, table: Table, read_target: ReadTarget, examples_max: int, rows: int, again: Again
) -> TableReport:
    selection = source.selection()
    table = replace(table, key=selection.key_of(table))
    total = TableReport(table.qualified, Comparison())
    for low, high in _ranges(source, table, rows):
        part = _range(source, table, read_target, low, high, examples_max, again)
        total = replace(
            part,
            result=total.result.plus(part.result, examples_max),
            absent=total.absent or part.absent,
            set_aside=total.set_aside + part.set_aside,
            set_aside_keys=(*total.set_aside_keys, *part.set_aside_keys)[:examples_max],
        )
    return total


def _ranges(source: Connector, table: Table, rows: int) -> Iterator[tuple[str | None, str | None]]:
    """Ranges without a gap; one over all when rows may have no first key value to be ranged by, or when a rule hides
    from the target what the source is ranged by."""
    first = _first(table)
    ranged = first is not None and not first.nullable and not source.selection().rules_for(table, first)
    ends = source.bounds(table, rows) if ranged else []
    return zip([None, *ends], [*ends, None], strict=True)


def _first(table: Table) -> Column | None:
    return next((c for c in table.columns if c.name in table.key[:1]), None)


def _range(
    source: Connector,
    table: Table,
    read_target: ReadTarget,
    low: str | None,
    high: str | None,
    examples_max: int,
    again: Again,
) -> TableReport:
    looks = 0
    while True:
        report = _look(source, table, read_target, low, high, examples_max)
        looks += 1
        if report.in_sync or not again(looks):
            return report


def _look(
    source: Connector, table: Table, read_target: ReadTarget, low: str | None, high: str | None, examples_max: int
) -> TableReport:
    columns = [c.name for c in source.selection().columns_of(table)]
    ours, undecodable = _gathered(source.read_range(table, columns, low, high))
    theirs = read_target(table, columns, *(_end(source, table, text) for text in (low, high)))
    absent = theirs is None
    if ours is None and theirs is None:
        return TableReport(table.qualified, Comparison(), absent)
    ours = theirs.slice(0, 0) if ours is None and theirs is not None else ours
    theirs = ours.slice(0, 0) if theirs is None and ours is not None else theirs
    assert ours is not None
    assert theirs is not None
    lacking = tuple(c for c in columns if c not in theirs.column_names)
    shared = [c for c in columns if c in theirs.column_names and c in ours.column_names]
    key = _usable(table.key, shared)
    if undecodable is not None and key:  # whatever the target has of such a row is older, and known to be
        theirs = theirs.filter(pa.array(match(theirs.select(key), undecodable, key) < 0))
    result = compare(ours.select(shared), theirs.select(shared), key, examples_max=examples_max)
    if undecodable is None:
        return TableReport(table.qualified, result, absent, lacking)
    some = undecodable.slice(0, examples_max).select(list(key))
    keys = tuple(tuple(row.items()) for row in legible(some))
    result = replace(result, rows=result.rows + undecodable.num_rows)
    return TableReport(table.qualified, result, absent, lacking, undecodable.num_rows, keys)


def _end(source: Connector, table: Table, text: str | None) -> pa.Scalar | None:
    first = _first(table)
    return None if text is None or first is None else source.parse(text, table, first)


def _usable(key: Sequence[str], shared: Sequence[str]) -> Sequence[str]:
    return key if set(key) <= set(shared) else ()


def _gathered(batches: Iterator[pa.RecordBatch]) -> tuple[pa.Table | None, pa.Table | None]:
    """The rows, and those that do not fit their types; None where the source has none here."""
    found = [pa.Table.from_batches([batch]) for batch in batches if batch.num_rows]
    good = [_where(rows, undecodable=False) for rows in found]
    bad = [_where(rows, undecodable=True) for rows in found if UNDECODABLE in rows.column_names]
    return pa.concat_tables(good) if good else None, pa.concat_tables(bad) if bad else None


def _where(rows: pa.Table, *, undecodable: bool) -> pa.Table:
    if UNDECODABLE not in rows.column_names:
        return rows
    marked = rows[UNDECODABLE]
    return rows.filter(marked if undecodable else pc.invert(marked)).drop_columns([UNDECODABLE])
