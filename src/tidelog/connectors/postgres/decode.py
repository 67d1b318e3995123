"""Blocks of pgoutput messages to rows: typed columns of one table, or Debezium's envelope.

A block is decoded column by column with numpy and Arrow; no row is looked at alone. Rows come out in the block's
order. A record that cannot be decoded never becomes a wrong row: it stops the pipeline or is set aside.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from tidelog.connectors.postgres import envelope, notices, reads, tuples, types
from tidelog.contracts import Decoded
from tidelog.core import rules, typed
from tidelog.core.faults import Fault
from tidelog.core.reads import Moment
from tidelog.core.strings import Mask, plain
from tidelog.core.typed import ROWLESS, without
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection


def _wall_us() -> int:
    return time.time_ns() // 1000


def create() -> PostgresDecoder:
    return PostgresDecoder()


class PostgresDecoder:
    def __init__(self, now_us: Callable[[], int] = _wall_us) -> None:
        self._now_us = now_us

    def schema(self, table: Table, selection: Selection) -> pa.Schema:
        return typed.schema([types.field_of(shown.column, selection) for shown in rules.delivered(table, selection)])

    def typed(self, records: pa.RecordBatch, table: Table, selection: Selection) -> Decoded:
        records = without(records, (*ROWLESS, *selection.skipped))
        messages = tuples.read(records, len(table.columns))
        damage = Fault(messages.damaged, "the message is damaged or does not match the table's columns")
        shown = rules.delivered(table, selection)
        return typed.build(messages, [damage], records, table, shown, selection, types)

    def envelope(self, records: pa.RecordBatch, table: Table | None, selection: Selection) -> Decoded:
        if table is None:
            return notices.build(without(records, selection.skipped), selection, self._now_us())
        records = without(records, (*ROWLESS, *selection.skipped))
        return envelope.build(records, table, selection, self._now_us())

    def texts(self, records: pa.RecordBatch, table: Table, selection: Selection) -> Decoded:
        columns = tuple(replace(column, type="text", modifier=-1) for column in table.columns)
        return self.typed(records, replace(table, columns=columns), Selection(failures=selection.failures))

    def read_envelope(
        self,
        rows: pa.Table | pa.RecordBatch,
        table: Table,
        selection: Selection,
        *,
        snapshot: str,
        position: int,
        ts_us: int,
    ) -> Decoded:
        moment = Moment(snapshot, position, ts_us)
        return reads.build(rows, table, selection, moment, self._now_us())


def values(texts: pa.StringArray, table: Table, column: Column, selection: Selection) -> tuple[pa.Array, Mask]:
    """What `typed` makes of a column's texts, and which have no place in it: for reads of the table itself."""
    return typed.values(plain(texts), rules.show(table, column, selection), selection, types)
