"""Records that cannot be decoded: the pipeline stops, or they are set aside, as the selection says.

A reason names place, column and type, never the value: reasons end up in logs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.contracts import FAILURES
from tidelog.core.strings import Ints, Mask, build
from tidelog.errors import UnsupportedChange
from tidelog.model.record import Op
from tidelog.model.schema import Table
from tidelog.model.selection import Selection

ASIDE = "Set event.processing.failure.handling.mode to dead-letter to set such records aside."


@dataclass(frozen=True)
class Fault:
    """The rows that share a trouble."""

    rows: Mask
    reason: str
    hint: str = ASIDE
    column: str = ""
    """The column whose values cannot be read; empty where the whole record cannot."""


def settle(
    faults: Sequence[Fault], records: pa.RecordBatch, table: Table | None, selection: Selection
) -> tuple[Mask, pa.RecordBatch | None]:
    """Which rows are good, and the others as dead letters; raises if the selection wants to stop at the first."""
    faults = [fault for fault in faults if fault.rows.any()]
    bad = np.zeros(records.num_rows, np.bool_)
    if not faults:
        return ~bad, None
    for fault in faults:
        bad |= fault.rows
    if selection.failures == "fail":
        raise _error(faults, int(np.argmax(bad)), records, table)
    return ~bad, _letters(faults, np.flatnonzero(bad), records, table)


def _first(faults: Sequence[Fault], row: int) -> Fault:
    return next(fault for fault in faults if fault.rows[row])


def _error(faults: Sequence[Fault], row: int, records: pa.RecordBatch, table: Table | None) -> UnsupportedChange:
    fault = _first(faults, row)
    position, ordinal, xid = (records.column(name)[row].as_py() for name in ("position", "ordinal", "xid"))
    where = f"at position {position}, change {ordinal} of transaction {xid}"
    return UnsupportedChange(f"{table.qualified if table else 'A message'}, {fault.reason} ({where}).", hint=fault.hint)


def _letters(
    faults: Sequence[Fault],
    rows: Ints,
    records: pa.RecordBatch,
    table: Table | None,
) -> pa.RecordBatch:
    some = records.take(pa.array(rows))
    names = pa.array([table.qualified if table else None] * len(rows), pa.string())
    reasons = pa.array([_first(faults, row).reason for row in rows.tolist()], pa.string())
    place = [some.column(name) for name in ("position", "ordinal", "xid")]
    return pa.RecordBatch.from_arrays([names, *place, op_texts(some), reasons, some.column("payload")], schema=FAILURES)


def read_error(faults: Sequence[Fault], columns: Mapping[str, pa.Array], table: Table) -> UnsupportedChange:
    """The first row that was read from a table and does not fit its types. The row is named by its key, by the texts of
    `columns`, which are those that may be shown; a key column that cannot be read itself is left out."""
    fault = faults[0]
    row = int(np.argmax(fault.rows))
    unreadable = {other.column for other in faults if other.rows[row]}
    key = [name for name in table.key if name in columns and name not in unreadable]
    values = [f"{name} = {plain_texts(columns[name].slice(row, 1))[0]}" for name in key]
    where = f"in the row with {', '.join(values)}" if values else "in a row that was read"
    return UnsupportedChange(f"{table.qualified}, {fault.reason}, {where}.", hint=fault.hint)


def read_letters(
    faults: Sequence[Fault], columns: Mapping[str, pa.Array], table: Table, position: int = 0
) -> pa.RecordBatch | None:
    """Rows that were read from a table, as dead letters. The log has no bytes of them: the payload is JSON, the texts
    of `columns`, which are those that may be shown."""
    rows = np.flatnonzero(np.logical_or.reduce([fault.rows for fault in faults])) if faults else np.empty(0, np.int64)
    if not len(rows):
        return None
    values = [plain_texts(column.take(pa.array(rows))) for column in columns.values()]
    letters = [
        {
            "table": table.qualified,
            "position": position,
            "ordinal": row,
            "op": Op.READ,
            "reason": _first(faults, row).reason,
            "payload": json.dumps(dict(zip(columns, texts, strict=True)), ensure_ascii=False).encode(),
        }
        for row, texts in zip(rows.tolist(), zip(*values, strict=True), strict=True)
    ]
    return pa.RecordBatch.from_pylist(letters, schema=FAILURES)


def plain_texts(column: pa.Array) -> list[str | None]:
    """Values as texts; bytes in hexadecimal."""
    if pa.types.is_binary(column.type):
        return [None if value is None else value.hex() for value in column.to_pylist()]
    values = pc.cast(column, pa.string()).cast(pa.binary()).to_pylist()
    return [None if value is None else value.decode("utf-8", "replace") for value in values]


def op_texts(records: pa.RecordBatch) -> pa.StringArray:
    """The operations as letters: their codes are the letters' bytes already."""
    codes = records.column("op").to_numpy(zero_copy_only=False)
    return build(codes, np.arange(len(codes) + 1))
