"""Rows that were read from a table, in Debezium's envelope: their texts come from the same output functions as the
log's."""

from __future__ import annotations

import pyarrow as pa

from tidelog.connectors.postgres import envelope, position
from tidelog.contracts import Decoded
from tidelog.core import reads
from tidelog.core.reads import Moment
from tidelog.model.schema import Table
from tidelog.model.selection import Selection


def build(rows: pa.Table | pa.RecordBatch, table: Table, selection: Selection, moment: Moment, now_us: int) -> Decoded:
    image = reads.texts_of(rows, table)
    records = reads.records_of(image.rows, moment, position.resume(moment.position))
    objects = envelope.objects(selection, image.rows)
    sources = envelope.sources(records, table, selection, moment.snapshot)
    return reads.build(image, records, objects, table, sources, selection, now_us)
