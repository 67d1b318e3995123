"""Debezium's envelope of the journal's changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidelog.connectors.iseries import images, payload, position, types
from tidelog.contracts import Decoded
from tidelog.core import envelope, reads, rules
from tidelog.core.envelope import digits
from tidelog.core.jsontext import concat, quote, string
from tidelog.core.reads import Moment
from tidelog.model.schema import Table
from tidelog.model.selection import Selection
from tidelog.model.version import __version__

Heads = np.ndarray[tuple[int], np.dtype[np.void]]


def build(records: pa.RecordBatch, table: Table, selection: Selection, now_us: int) -> Decoded:
    shown, keys = rules.delivered(table, selection), rules.keys(table, selection)
    found = images.read(records, table, sorted({one.index for one in (*shown, *keys)}))
    faults = images.trouble(found, table, selection)
    source = sources(records, found.heads, table, selection)
    objects = _objects(selection, records.num_rows)
    return envelope.build(found, faults, objects, records, table, source, selection, now_us)


def read(rows: pa.Table | pa.RecordBatch, table: Table, selection: Selection, moment: Moment, now_us: int) -> Decoded:
    """Rows of a chunk; their texts are those of the journal already."""
    image = reads.texts_of(rows, table)
    records = reads.records_of(image.rows, moment, moment.position)
    source = sources(records, np.zeros(image.rows, payload.HEADER), table, selection, moment.snapshot)
    return reads.build(image, records, _objects(selection, image.rows), table, source, selection, now_us)


def _objects(selection: Selection, rows: int) -> envelope.Objects:
    return envelope.Objects(selection, rows, types.fragment, types.hint)


def sources(
    records: pa.RecordBatch, heads: Heads, table: Table, selection: Selection, snapshot: str = "false"
) -> pa.StringArray:
    """Where each event comes from. `sequence` is the commit's place and the entry's: sorted by both, events stand in
    the order of delivery. A change outside commitment control has no transaction."""
    us = records.column("committed").to_numpy(zero_copy_only=False)
    lsn = records.column("lsn").to_numpy(zero_copy_only=False)
    xids = records.column("xid").fill_null(0).to_numpy(zero_copy_only=False)
    head = f'{{"version":{quote(__version__)},"connector":{quote(selection.connector)}'
    place = f'"schema":{quote(table.schema)},"table":{quote(table.name)}'
    return concat(
        f'{head},"name":{quote(selection.topic_prefix)},"ts_ms":',
        digits(us // 1000),
        ',"ts_us":',
        digits(us),
        ',"ts_ns":',
        digits(us * 1000),
        f',"snapshot":{quote(snapshot)},"db":{quote(selection.database)},"sequence":"[\\"',
        records.column("position").cast(pa.string()),
        '\\",\\"',
        digits(lsn),
        f'\\"]",{place},"txId":',
        pa.array(xids, mask=xids <= 0).cast(pa.string()),
        ',"receiver":',
        _name(heads, "receiver"),
        ',"receiver_library":',
        _name(heads, "library"),
        ',"event_sequence":',
        digits(lsn & position.SEQUENCE_MAX),
        ',"member":',
        _name(heads, "member"),
        ',"rrn":',
        digits(heads["rrn"]),
        "}",
    )


def _name(heads: Heads, field: str) -> pa.StringArray:
    """A name in quotes; null where there is none."""
    names = heads[field]
    return string(pa.array(np.char.decode(names, "ascii"), pa.string(), mask=names == b"")).json()
