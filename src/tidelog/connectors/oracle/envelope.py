"""Debezium's envelope of Oracle's changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.connectors.oracle import position, told, types
from tidelog.connectors.oracle.payload import SHOWN, Payloads
from tidelog.contracts import Decoded
from tidelog.core import envelope, jsontext, reads, rules
from tidelog.core.envelope import digits
from tidelog.core.jsontext import concat, quote
from tidelog.core.reads import Moment
from tidelog.core.strings import Ints, Mask
from tidelog.core.strings import build as text_column
from tidelog.model.schema import Table
from tidelog.model.selection import Selection
from tidelog.model.version import __version__

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def build(records: pa.RecordBatch, table: Table, selection: Selection, now_us: int) -> Decoded:
    shown, keys = rules.delivered(table, selection), rules.keys(table, selection)
    found = told.read(records, table, sorted({one.index for one in (*shown, *keys)}))
    source = sources(records, found.payloads, table, selection)
    ids = xids(records)
    return envelope.build(
        found, found.faults, _objects(selection, records.num_rows), records, table, source, selection, now_us, ids
    )


def read(rows: pa.Table | pa.RecordBatch, table: Table, selection: Selection, moment: Moment, now_us: int) -> Decoded:
    """Rows of a chunk: their texts become those of the log."""
    raw = reads.texts_of(rows, table)
    columns = zip(raw.columns, table.columns, strict=True)
    image = reads.Texts(tuple(types.canonical(texts, column) for texts, column in columns), raw.rows)
    records = reads.records_of(image.rows, moment, position.scn_of(moment.position))
    source = _read_sources(records, table, selection, moment)
    return reads.build(image, records, _objects(selection, image.rows), table, source, selection, now_us)


def _objects(selection: Selection, rows: int) -> envelope.Objects:
    return envelope.Objects(selection, rows, types.fragment, types.hint)


def sources(records: pa.RecordBatch, payloads: Payloads, table: Table, selection: Selection) -> pa.StringArray:
    """Where each event comes from, with the fields of Debezium's Oracle connector."""
    head, committed = payloads.head, records.column("committed").to_numpy(zero_copy_only=False)
    commit = records.column("position").to_numpy(zero_copy_only=False) // position.SLOTS
    return concat(
        *_common(head["time_us"], table, selection, "false"),
        ',"txId":"',
        xids(records),
        '","txSeq":',
        digits(head["sequence"]),
        ',"scn":"',
        records.column("lsn").cast(pa.string()),
        '","commit_scn":"',
        digits(commit),
        '","commit_ts_ms":',
        digits(committed // 1000),
        ',"lcr_position":null,"rs_id":',
        _quoted(payloads.texts("rs_id")),
        ',"ssn":',
        digits(head["ssn"]),
        ',"redo_thread":',
        digits(head["thread"]),
        ',"user_name":',
        _quoted(payloads.user),
        ',"row_id":',
        _quoted(payloads.texts("rowid")),
        ',"redo_sql":',
        _statements(payloads),
        ',"start_scn":',
        _quoted(_known(head["start_scn"])),
        ',"start_ts_ms":',
        _known(head["start_us"] // 1000),
        "}",
    )


def _read_sources(records: pa.RecordBatch, table: Table, selection: Selection, moment: Moment) -> pa.StringArray:
    """Rows that were read have a place in the log, but no transaction."""
    us = np.full(records.num_rows, moment.ts_us, np.int64)
    nothing = ("commit_scn", "commit_ts_ms", "lcr_position", "rs_id")
    others = ("ssn", "redo_thread", "user_name", "row_id", "redo_sql", "start_scn", "start_ts_ms")
    nulls = "".join(f',"{name}":null' for name in (*nothing, *others))
    scn = position.scn_of(moment.position)
    return concat(*_common(us, table, selection, moment.snapshot), f',"txId":null,"txSeq":null,"scn":"{scn}"{nulls}}}')


def _common(us: Ints, table: Table, selection: Selection, snapshot: str) -> list[str | pa.StringArray]:
    head = f'{{"version":{quote(__version__)},"connector":{quote(selection.connector or "oracle")}'
    tail = f'"db":{quote(selection.database)},"sequence":null'
    return [
        f'{head},"name":{quote(selection.topic_prefix)},"ts_ms":',
        digits(us // 1000),
        ',"ts_us":',
        digits(us),
        ',"ts_ns":',
        digits(us * 1000),
        f',"snapshot":{quote(snapshot)},{tail},"schema":{quote(table.schema)},"table":{quote(table.name)}',
    ]


def xids(records: pa.RecordBatch) -> pa.StringArray:
    """The transactions' ids as 16 hexadecimal digits."""
    numbers = records.column("xid").fill_null(0).to_numpy(zero_copy_only=False)
    data = np.frombuffer(numbers.astype(">i8").tobytes(), np.uint8)
    text = np.stack([_HEX[data >> 4], _HEX[data & 15]], axis=1).reshape(-1)
    return text_column(text, np.arange(len(numbers) + 1) * 16)


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    """As JSON strings; null where there is none, or it is not UTF-8."""
    return jsontext.string(texts).json()


def _known(numbers: Ints) -> pa.StringArray:
    return pa.array(numbers, mask=numbers == 0).cast(pa.string())


def _statements(payloads: Payloads) -> pa.StringArray:
    """The redo SQL where it is to be shown; a merged record has none."""
    shown: Mask = payloads.flagged(SHOWN) & ~payloads.merged
    if not shown.any():
        return pa.nulls(len(shown), pa.string())
    return pc.if_else(pa.array(shown), _quoted(payloads.sql.view(pa.string())), pa.scalar(None, pa.string()))
