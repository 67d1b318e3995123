"""Blocks of journal entries to rows: typed columns of one table, or Debezium's envelope.

A block is decoded column by column with numpy and Arrow; no row is looked at alone. Rows come out in the block's
order. A record that cannot be decoded never becomes a wrong row: it stops the pipeline or is set aside.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from tidelog.connectors.iseries import envelope, images, types
from tidelog.contracts import Decoded
from tidelog.core import rules, typed
from tidelog.core.envelope import heartbeats
from tidelog.core.reads import Moment
from tidelog.core.rules import Shown
from tidelog.core.strings import Mask, plain
from tidelog.core.typed import ROWLESS, without
from tidelog.model.record import Op
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection


def _wall_us() -> int:
    return time.time_ns() // 1000


def create() -> IseriesDecoder:
    return IseriesDecoder()


class IseriesDecoder:
    def __init__(self, now_us: Callable[[], int] = _wall_us) -> None:
        self._now_us = now_us

    def schema(self, table: Table, selection: Selection) -> pa.Schema:
        return typed.schema([types.field_of(one.column, selection) for one in rules.delivered(table, selection)])

    def typed(self, records: pa.RecordBatch, table: Table, selection: Selection) -> Decoded:
        records = without(records, (*ROWLESS, *selection.skipped))
        return _rows(records, table, rules.delivered(table, selection), selection)

    def envelope(self, records: pa.RecordBatch, table: Table | None, selection: Selection) -> Decoded:
        records = without(records, selection.skipped)
        if table is None:
            beats = without(records, [op for op in Op if op is not Op.HEARTBEAT])
            return Decoded(heartbeats(beats, selection.topic_prefix, self._now_us()))
        return envelope.build(without(records, ROWLESS), table, selection, self._now_us())

    def texts(self, records: pa.RecordBatch, table: Table, selection: Selection) -> Decoded:
        shown = [Shown(i, replace(c, type="text", modifier=-1), ()) for i, c in enumerate(table.columns)]
        return _rows(without(records, ROWLESS), table, shown, Selection(failures=selection.failures))

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
        return envelope.read(rows, table, selection, Moment(snapshot, position, ts_us), self._now_us())


def values(texts: pa.StringArray, table: Table, column: Column, selection: Selection) -> tuple[pa.Array, Mask]:
    """What `typed` makes of a column's texts, and which have no place in it: for reads of the table itself."""
    return typed.values(plain(texts), rules.show(table, column, selection), selection, types)


def _rows(records: pa.RecordBatch, table: Table, shown: list[Shown], selection: Selection) -> Decoded:
    found = images.read(records, table, [one.index for one in shown])
    return typed.build(found, images.trouble(found, table, selection), records, table, shown, selection, types)
