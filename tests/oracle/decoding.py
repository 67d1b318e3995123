"""From a plan to events, as executors would decode it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.oracle.model import UNAVAILABLE, Event, Wrong, filled
from tidelog.connectors.oracle import position
from tidelog.connectors.oracle.decode import OracleDecoder
from tidelog.connectors.oracle.redo.values import is_large
from tidelog.core import metadata
from tidelog.engine.batch_plan import Plan
from tidelog.journal import segment
from tidelog.journal.files import Files
from tidelog.model.record import Op
from tidelog.model.schema import Table


def decoded(plan: Plan) -> list[Event]:
    """The events of a plan in the order of the log."""
    files, decoder = Files(plan.journal), OracleDecoder()
    blocks: dict[Table, list[pa.RecordBatch]] = {}
    for piece in plan.slices:
        if piece.table is not None:
            blocks.setdefault(piece.table, []).append(segment.load(files, piece))
    found = []
    for table, batches in blocks.items():
        result = decoder.typed(pa.concat_batches(batches), table, plan.selection)
        if result.failures is not None and result.failures.num_rows:
            raise Wrong(f"a record could not be decoded: {result.failures.to_pylist()[0]}")
        rows = result.rows.to_pylist()
        found += [
            ((row[metadata.POSITION], row[metadata.ORDINAL]), _event(row, table))
            for row in rows
            if row[metadata.OP] in "cud"
        ]
    return [event for _, event in sorted(found, key=lambda pair: pair[0])]


def _event(row: dict[str, Any], table: Table) -> Event:
    # A column that is younger than the change is not told by it either; that is no value that we miss.
    unknown = {name: UNAVAILABLE for name in row[metadata.UNCHANGED] or () if is_large(table.column(name))}
    values = {name: value for name, value in row.items() if not name.startswith("_")} | unknown
    op, before = row[metadata.OP], row[metadata.BEFORE]
    if before is not None:
        before |= {c.name: UNAVAILABLE for c in table.columns if is_large(c)}
    return Event(
        commit_scn=position.scn_of(row[metadata.POSITION]),
        xid=position.xid_text(row[metadata.XID]),
        table=table.qualified,
        op=op,
        before=filled(before),
        after=None if op == Op.DELETE else filled(values),
    )
