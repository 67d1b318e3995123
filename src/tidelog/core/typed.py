"""Changes as typed columns of one table, with the metadata columns behind them; the same for every database.

A connector brings the changes' texts and a module of types, by which a text becomes a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidelog.contracts import Decoded
from tidelog.core import metadata
from tidelog.core.envelope import UNCHANGED, Rows, Told
from tidelog.core.faults import Fault, op_texts, settle
from tidelog.core.metadata import BEFORE, COMMIT_TS, OP, ORDINAL, POSITION, XID
from tidelog.core.rules import Shown
from tidelog.core.strings import Mask, spread
from tidelog.model.record import Op
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

ROWLESS = (Op.SCHEMA, Op.MESSAGE, Op.HEARTBEAT)
"""What a table's block may hold that is no change of its rows."""


class Types(Protocol):
    """A connector's module of types."""

    def field_of(self, column: Column, selection: Selection) -> pa.Field: ...

    def parse(self, texts: pa.Array, column: Column, selection: Selection) -> tuple[pa.Array, Mask]:
        """The values, and which of them have no place in the column's Arrow type: those are null."""

    def reason(self, column: Column, selection: Selection) -> str: ...

    def hint(self, column: Column) -> str: ...


def schema(fields: Sequence[pa.Field]) -> pa.Schema:
    return pa.schema(
        [
            *fields,
            (OP, pa.string()),
            (POSITION, pa.int64()),
            (COMMIT_TS, pa.timestamp("us", "UTC")),
            (XID, pa.int64()),
            (ORDINAL, pa.int64()),
            (BEFORE, pa.struct(fields)),
            (metadata.UNCHANGED, pa.list_(pa.string())),
        ]
    )


def without(records: pa.RecordBatch, ops: Iterable[str]) -> pa.RecordBatch:
    """The records but for some operations; `none` names no operation."""
    codes = [ord(op) for op in ops if op != "none"]
    dropped = np.isin(records.column("op").to_numpy(zero_copy_only=False), codes)
    return records.filter(pa.array(~dropped)) if dropped.any() else records


def build(
    told: Told,
    faults: Sequence[Fault],
    records: pa.RecordBatch,
    table: Table,
    shown: list[Shown],
    selection: Selection,
    types: Types,
) -> Decoded:
    """The rows of a block; `faults` are those of reading it."""
    fields = [types.field_of(one.column, selection) for one in shown]
    columns, new_faults = _columns(told.after, shown, selection, types)
    before, old_faults = _before(told, shown, fields, selection, types)
    good, failures = settle([*faults, *new_faults, *old_faults], records, table, selection)
    arrays = [*columns, *_change(records), before, _unchanged(told.after, shown)]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema(fields))
    return Decoded(rows if failures is None else rows.filter(pa.array(good)), failures)


def values(texts: pa.StringArray, shown: Shown, selection: Selection, types: Types) -> tuple[pa.Array, Mask]:
    """What becomes of a column's texts, and which have no place in it."""
    ruled, unreadable = shown.ruled(texts)
    found, failed = types.parse(ruled, shown.column, selection)
    return found, unreadable | failed


def _columns(image: Rows, shown: list[Shown], selection: Selection, types: Types) -> tuple[list[pa.Array], list[Fault]]:
    found = [values(image.texts(one.index), one, selection, types) for one in shown]
    faults = [_fault(failed, one.column, selection, types) for (_, failed), one in zip(found, shown, strict=True)]
    return [arrays for arrays, _ in found], faults


def _fault(rows: Mask, column: Column, selection: Selection, types: Types) -> Fault:
    return Fault(rows, f"column {column.name}: {types.reason(column, selection)}", types.hint(column))


def _before(
    told: Told, shown: list[Shown], fields: list[pa.Field], selection: Selection, types: Types
) -> tuple[pa.Array, list[Fault]]:
    """The old rows as structs; only the rows that have one are parsed."""
    rows = told.has_before
    if not rows.any() or not fields:
        return pa.nulls(len(rows), pa.struct(fields)), []
    columns, faults = _columns(told.before.at(rows), shown, selection, types)
    arrays = [spread(column, rows) for column in columns]
    structs = pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(~rows))
    return structs, [Fault(_widened(fault.rows, rows), fault.reason, fault.hint) for fault in faults]


def _widened(some: Mask, rows: Mask) -> Mask:
    whole = np.zeros(len(rows), np.bool_)
    whole[rows] = some
    return whole


def _change(records: pa.RecordBatch) -> list[pa.Array]:
    """The columns from `OP` to `ORDINAL`."""
    committed = records.column("committed").view(pa.timestamp("us", "UTC"))
    return [op_texts(records), records.column("position"), committed, records.column("xid"), records.column("ordinal")]


def _unchanged(image: Rows, shown: list[Shown]) -> pa.ListArray:
    """Each row's columns whose value the log left out; mostly none, then the list is empty."""
    flags = image.kinds[[one.index for one in shown]] == UNCHANGED
    offsets = np.concatenate(([0], np.cumsum(flags.sum(axis=0)))).astype(np.int32)
    names = pa.array([one.column.name for one in shown], pa.string())
    return pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(np.nonzero(flags.T)[1])))
