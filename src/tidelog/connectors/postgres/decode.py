"""Blocks of pgoutput messages to rows: typed columns of one table, or Debezium's envelope.

A block is decoded column by column with numpy and Arrow; no row is looked at alone. Rows come out in the block's
order. A record that cannot be decoded never becomes a wrong row: it stops the pipeline or is set aside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tidelog.connectors.postgres import envelope, notices, reads, rules, tuples, types
from tidelog.connectors.postgres.faults import Fault, op_texts, settle
from tidelog.connectors.postgres.rules import Shown
from tidelog.connectors.postgres.strings import Mask, plain, spread
from tidelog.connectors.postgres.tuples import UNCHANGED, Image, Messages
from tidelog.contracts import Decoded
from tidelog.model.record import Op
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

ROWLESS = (Op.SCHEMA, Op.MESSAGE, Op.HEARTBEAT)
"""What a table's block may hold that is no change of its rows."""


def _wall_us() -> int:
    return time.time_ns() // 1000


class PostgresDecoder:
    def __init__(self, now_us: Callable[[], int] = _wall_us) -> None:
        self._now_us = now_us

    def schema(self, table: Table, selection: Selection) -> pa.Schema:
        fields = [types.field_of(shown.column, selection) for shown in rules.delivered(table, selection)]
        return pa.schema(
            [
                *fields,
                ("_op", pa.string()),
                ("_position", pa.int64()),
                ("_commit_ts", pa.timestamp("us", "UTC")),
                ("_xid", pa.int64()),
                ("_ordinal", pa.int64()),
                ("_before", pa.struct(fields)),
                ("_unchanged", pa.list_(pa.string())),
            ]
        )

    def typed(self, records: pa.RecordBatch, table: Table, selection: Selection) -> Decoded:
        records = without(records, (*ROWLESS, *selection.skipped))
        messages = tuples.read(records, len(table.columns))
        shown = rules.delivered(table, selection)
        columns, faults = _columns(messages.after, shown, selection)
        before, old_faults = _before(messages, shown, selection)
        damage = Fault(messages.damaged, "the message is damaged or does not match the table's columns")
        good, failures = settle([damage, *faults, *old_faults], records, table, selection)
        arrays = [*columns, *_change(records), before, _unchanged(messages.after, shown)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema(table, selection))
        return Decoded(rows if failures is None else rows.filter(pa.array(good)), failures)

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
        moment = reads.Moment(snapshot, position, ts_us)
        return reads.build(rows, table, selection, moment, self._now_us())


def without(records: pa.RecordBatch, ops: Iterable[str]) -> pa.RecordBatch:
    """The records but for some operations; `none` names no operation."""
    codes = [ord(op) for op in ops if op != "none"]
    dropped = np.isin(records.column("op").to_numpy(zero_copy_only=False), codes)
    return records.filter(pa.array(~dropped)) if dropped.any() else records


def values(texts: pa.StringArray, table: Table, column: Column, selection: Selection) -> tuple[pa.Array, Mask]:
    """What `typed` makes of a column's texts, and which have no place in it: for reads of the table itself."""
    return _values(plain(texts), rules.show(table, column, selection), selection)


def _columns(image: Image, shown: list[Shown], selection: Selection) -> tuple[list[pa.Array], list[Fault]]:
    found = [_values(image.texts(one.index), one, selection) for one in shown]
    faults = [_fault(failed, one.column, selection) for (_, failed), one in zip(found, shown, strict=True)]
    return [arrays for arrays, _ in found], faults


def _values(texts: pa.StringArray, shown: Shown, selection: Selection) -> tuple[pa.Array, Mask]:
    ruled, unreadable = shown.ruled(texts)
    found, failed = types.parse(ruled, shown.column, selection)
    return found, unreadable | failed


def _fault(rows: Mask, column: Column, selection: Selection) -> Fault:
    return Fault(rows, f"column {column.name}: {types.reason(column, selection)}", types.hint(column))


def _before(messages: Messages, shown: list[Shown], selection: Selection) -> tuple[pa.Array, list[Fault]]:
    """The old rows as structs; only the rows that have one are parsed."""
    rows, fields = messages.has_before, [types.field_of(one.column, selection) for one in shown]
    if not rows.any() or not fields:
        return pa.nulls(len(rows), pa.struct(fields)), []
    columns, faults = _columns(messages.before.at(rows), shown, selection)
    arrays = [spread(column, rows) for column in columns]
    structs = pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(~rows))
    return structs, [Fault(_widened(fault.rows, rows), fault.reason, fault.hint) for fault in faults]


def _widened(some: Mask, rows: Mask) -> Mask:
    whole = np.zeros(len(rows), np.bool_)
    whole[rows] = some
    return whole


def _change(records: pa.RecordBatch) -> list[pa.Array]:
    """`_op` to `_ordinal`."""
    committed = records.column("committed").view(pa.timestamp("us", "UTC"))
    return [op_texts(records), records.column("position"), committed, records.column("xid"), records.column("ordinal")]


def _unchanged(image: Image, shown: list[Shown]) -> pa.ListArray:
    """Each row's columns whose value the log left out; mostly none, then the list is empty."""
    flags = image.kinds[[one.index for one in shown]] == UNCHANGED
    offsets = np.concatenate(([0], np.cumsum(flags.sum(axis=0)))).astype(np.int32)
    names = pa.array([one.column.name for one in shown], pa.string())
    return pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(np.nonzero(flags.T)[1])))
