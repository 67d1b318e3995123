"""Rows that were read from a table, in Debezium's envelope.

Law: a row reads byte for byte as the stream tells it. The texts of its columns come from the same output functions as
the log's, and go through the same rules and renderings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelog.connectors.postgres import envelope, position, rules
from tidelog.connectors.postgres.faults import op_texts, read_letters, settle
from tidelog.connectors.postgres.strings import Bytes, Mask, plain
from tidelog.connectors.postgres.tuples import TEXT
from tidelog.contracts import ENVELOPE, RECORDS, Decoded
from tidelog.model.record import Op
from tidelog.model.schema import Table
from tidelog.model.selection import Selection


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


def build(rows: pa.Table | pa.RecordBatch, table: Table, selection: Selection, moment: Moment, now_us: int) -> Decoded:
    """`rows` have a column of texts for each of the table's, by name; others do not count."""
    count = rows.num_rows
    image = Texts(tuple(_texts(rows, column.name) for column in table.columns), count)
    records, everything = _records(count, moment), np.ones(count, np.bool_)
    objects, keys = envelope.Objects(selection, count), rules.keys(table, selection)
    columns: dict[str, pa.Array] = {
        "key": objects.of(image, keys, everything) if keys else pa.nulls(count, pa.string()),
        "before": pa.nulls(count, pa.string()),
        "after": objects.of(image, rules.delivered(table, selection), everything),
        "source": envelope.sources(records, table, selection, moment.snapshot),
        "op": op_texts(records),
        "transaction": pa.nulls(count, ENVELOPE.field("transaction").type),
    }
    good, failures = settle(objects.faults, records, table, selection)
    if failures is not None:
        failures = read_letters(objects.faults, _shown(image, table, selection), table, moment.position)
        columns = {name: column.filter(pa.array(good)) for name, column in columns.items()}
    return Decoded(envelope.events(columns, f"{selection.topic_prefix}.{table.qualified}", now_us), failures)


def _shown(image: Texts, table: Table, selection: Selection) -> dict[str, pa.Array]:
    """What a dead letter may tell."""
    shown = rules.delivered(table, selection)
    return {one.column.name: one.ruled(image.columns[one.index])[0] for one in shown}


def _texts(rows: pa.Table | pa.RecordBatch, name: str) -> pa.StringArray:
    column = rows.column(name)
    return plain(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)


def _records(count: int, moment: Moment) -> pa.RecordBatch:
    """The rows as the log would tell them, without a transaction and without bytes."""
    same = {
        "position": moment.position,
        "committed": moment.ts_us,
        "lsn": position.resume(moment.position),
        "op": ord(Op.READ),
    }
    columns = {name: pa.repeat(pa.scalar(value, RECORDS.field(name).type), count) for name, value in same.items()}
    columns["ordinal"] = pa.array(np.arange(count))
    arrays = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in RECORDS]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)
