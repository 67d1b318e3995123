"""Rows that were read from a table, in Debezium's envelope.

Law: a row reads byte for byte as the stream tells it. The texts of its columns are those of the log, and go through
the same rules and renderings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelog.contracts import ENVELOPE, RECORDS, Decoded
from tidelog.core import rules
from tidelog.core.envelope import Objects, events
from tidelog.core.faults import op_texts, read_letters, settle
from tidelog.core.strings import Bytes, Mask, plain
from tidelog.model.record import Op
from tidelog.model.schema import Table
from tidelog.model.selection import Selection

TEXT = ord("t")
"""The kind of a value that is told."""


@dataclass(frozen=True)
class Moment:
    """When the rows were read, and what for."""

    snapshot: str
    position: int
    ts_us: int


@dataclass(frozen=True)
class Texts:
    """Columns of texts as the envelope reads them; every value is known."""

    columns: tuple[pa.StringArray, ...]
    rows: int

    @property
    def kinds(self) -> Bytes:
        return np.broadcast_to(np.uint8(TEXT), (len(self.columns), self.rows))

    def texts(self, column: int) -> pa.StringArray:
        return self.columns[column]

    def at(self, rows: Mask) -> Texts:
        if rows.all():
            return self
        return Texts(tuple(column.filter(pa.array(rows)) for column in self.columns), int(rows.sum()))


def texts_of(rows: pa.Table | pa.RecordBatch, table: Table) -> Texts:
    """`rows` have a column of texts for each of the table's, by name; others do not count."""
    return Texts(tuple(_texts(rows, column.name) for column in table.columns), rows.num_rows)


def _texts(rows: pa.Table | pa.RecordBatch, name: str) -> pa.StringArray:
    column = rows.column(name)
    return plain(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)


def records_of(count: int, moment: Moment, lsn: int) -> pa.RecordBatch:
    """The rows as the log would tell them, without a transaction and without bytes."""
    same = {"position": moment.position, "committed": moment.ts_us, "lsn": lsn, "op": ord(Op.READ)}
    columns = {name: pa.repeat(pa.scalar(value, RECORDS.field(name).type), count) for name, value in same.items()}
    columns["ordinal"] = pa.array(np.arange(count))
    arrays = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in RECORDS]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


def build(
    image: Texts,
    records: pa.RecordBatch,
    objects: Objects,
    table: Table,
    sources: pa.StringArray,
    selection: Selection,
    now_us: int,
) -> Decoded:
    everything, keys = np.ones(image.rows, np.bool_), rules.keys(table, selection)
    columns: dict[str, pa.Array] = {
        "key": objects.of(image, keys, everything) if keys else pa.nulls(image.rows, pa.string()),
        "before": pa.nulls(image.rows, pa.string()),
        "after": objects.of(image, rules.delivered(table, selection), everything),
        "source": sources,
        "op": op_texts(records),
        "transaction": pa.nulls(image.rows, ENVELOPE.field("transaction").type),
    }
    good, failures = settle(objects.faults, records, table, selection)
    if failures is not None:
        place = records.column("position")[0].as_py()
        failures = read_letters(objects.faults, _shown(image, table, selection), table, place)
        columns = {name: column.filter(pa.array(good)) for name, column in columns.items()}
    return Decoded(events(columns, f"{selection.topic_prefix}.{table.qualified}", now_us), failures)


def _shown(image: Texts, table: Table, selection: Selection) -> dict[str, pa.Array]:
    """What a dead letter may tell."""
    shown = rules.delivered(table, selection)
    return {one.column.name: one.ruled(image.columns[one.index])[0] for one in shown}
