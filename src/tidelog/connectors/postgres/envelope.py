"""Debezium's envelope of PostgreSQL's changes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.connectors.postgres import position, render, tuples, types
from tidelog.contracts import Decoded
from tidelog.core import envelope, jsontext
from tidelog.core.envelope import digits
from tidelog.core.faults import Fault
from tidelog.core.jsontext import concat, quote
from tidelog.model.schema import Table
from tidelog.model.selection import Selection
from tidelog.model.version import __version__


def build(records: pa.RecordBatch, table: Table, selection: Selection, now_us: int) -> Decoded:
    messages = tuples.read(records, len(table.columns))
    damage = Fault(messages.damaged, "the message is damaged or does not match the table's columns")
    told = objects(selection, records.num_rows)
    source = sources(records, table, selection)
    return envelope.build(messages, [damage], told, records, table, source, selection, now_us)


def objects(selection: Selection, rows: int) -> envelope.Objects:
    return envelope.Objects(selection, rows, render.fragment, types.hint)


def sources(
    records: pa.RecordBatch, table: Table | None, selection: Selection, snapshot: str = "false"
) -> pa.StringArray:
    """Where each event comes from, with the fields of Debezium's PostgreSQL connector.

    `sequence` is the commit's LSN and the record's: sorted by both, events stand in the order of delivery.
    """
    us = records.column("committed").to_numpy(zero_copy_only=False)
    commit = records.column("position").to_numpy(zero_copy_only=False) & -position.SLOTS
    lsn = records.column("lsn").cast(pa.string())
    head = f'{{"version":{quote(__version__)},"connector":{quote(selection.connector or "postgresql")}'
    place = f'"schema":{quote(table.schema if table else "")},"table":{quote(table.name if table else "")}'
    return concat(
        f'{head},"name":{quote(selection.topic_prefix)},"ts_ms":',
        digits(us // 1000),
        ',"ts_us":',
        digits(us),
        ',"ts_ns":',
        digits(us * 1000),
        f',"snapshot":{quote(snapshot)},"db":{quote(selection.database)},"sequence":"[\\"',
        digits(commit),
        '\\",\\"',
        lsn,
        f'\\"]",{place},"txId":',
        records.column("xid").cast(pa.string()),
        ',"lsn":',
        lsn,
        ',"xmin":null',
        _origin(records.column("origin")),
        "}",
    )


def _origin(origins: pa.StringArray) -> str | pa.StringArray:
    """The replication origin, where there is one."""
    if origins.null_count == len(origins):
        return ""
    told = pc.binary_join_element_wise(',"origin":', jsontext.string(origins).json(), "")
    return told.fill_null("")
