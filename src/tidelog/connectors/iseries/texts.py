"""Rows of a table by SQL, as columns of texts or typed as the stream decodes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.connectors.iseries import decode, types
from tidelog.connectors.iseries.client import Session
from tidelog.connectors.iseries.walk import STEADY, quoted, selected
from tidelog.contracts import FAILURES, Decoded
from tidelog.core.faults import Fault, read_error, read_letters
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

ROWS_PER_BATCH = 10_000


def read(session: Session, table: Table, columns: Sequence[Column], where: str = "") -> Iterator[pa.RecordBatch]:
    """The texts of these columns; at least one batch, also of no rows."""
    sql = f"SELECT {selected(columns)} FROM {quoted(table)}{where}{STEADY}"
    empty = True
    for rows in session.batches(sql, rows=ROWS_PER_BATCH):
        empty = False
        yield batch(rows, columns)
    if empty:
        yield batch([], columns)


def batch(rows: Sequence[Sequence[Any]], columns: Sequence[Column]) -> pa.RecordBatch:
    arrays = [types.canonical(_array([row[i] for row in rows]), column) for i, column in enumerate(columns)]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _array(values: Sequence[Any]) -> pa.StringArray:
    return pa.array([None if v is None else str(v) for v in values], pa.string())


def typed(texts: pa.RecordBatch, table: Table, selection: Selection) -> Decoded:
    """The rows that fit their types; the others are dead letters, unless the selection wants to stop there."""
    columns = [table.column(name) for name in texts.schema.names]
    found = [decode.values(texts.column(i), table, column, selection) for i, column in enumerate(columns)]
    rows = pa.RecordBatch.from_arrays([array for array, _ in found], names=texts.schema.names)
    faults = [
        Fault(failed, f"column {column.name}: {types.reason(column, selection)}", types.hint(column), column.name)
        for (_, failed), column in zip(found, columns, strict=True)
        if failed.any()
    ]
    if not faults:
        return Decoded(rows)
    # A column that a rule hides is told as it is delivered.
    told = {c.name: (rows if selection.rules_for(table, c) else texts).column(c.name) for c in columns}
    if selection.failures == "fail":
        raise read_error(faults, told, table)
    bad = np.logical_or.reduce([fault.rows for fault in faults])
    return Decoded(rows.filter(pa.array(~bad)), read_letters(faults, told, table))


def letters(found: Sequence[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(found, FAILURES)
