"""Events that belong to no table: logical messages (`pg_logical_emit_message`) and heartbeats, in the envelope."""

from __future__ import annotations

import json
import struct

import numpy as np
import pyarrow as pa

from tidelog.connectors.postgres import bytea, envelope
from tidelog.contracts import Decoded
from tidelog.core import envelope as core_envelope
from tidelog.core import jsontext
from tidelog.core.faults import Fault, op_texts, settle
from tidelog.core.strings import Mask
from tidelog.model.record import Op
from tidelog.model.selection import Selection

_HEAD = 10  # message type, flags, LSN


def build(records: pa.RecordBatch, selection: Selection, now_us: int) -> Decoded:
    """Row by row: such records are few."""
    ops = records.column("op").to_numpy(zero_copy_only=False)
    is_message, is_heartbeat = ops == ord(Op.MESSAGE), ops == ord(Op.HEARTBEAT)
    found = [_read(p.as_py()) if m else None for p, m in zip(records.column("payload"), is_message, strict=True)]
    damaged = is_message & np.array([message is None for message in found], np.bool_)
    faults = [
        Fault(damaged, "the logical message is damaged or its prefix is not UTF-8"),
        Fault(~is_message & ~is_heartbeat & (ops != ord(Op.SCHEMA)), "the operation is unknown"),
    ]
    good, failures = settle(faults, records, None, selection)
    good &= is_message | is_heartbeat
    rows = _events(records, found, is_message, selection, now_us)
    return Decoded(rows.filter(pa.array(good)), failures)


def _read(payload: bytes | None) -> tuple[str, bytes] | None:
    """Prefix and content of a message; None if it is damaged."""
    payload = payload or b""
    end = payload.find(b"\0", _HEAD)
    content = payload[end + 5 :]
    if payload[:1] != b"M" or end < 0 or payload[end + 1 : end + 5] != struct.pack(">I", len(content)):
        return None
    try:
        return payload[_HEAD:end].decode(), content
    except UnicodeDecodeError:
        return None


def _events(
    records: pa.RecordBatch, found: list[tuple[str, bytes] | None], is_message: Mask, selection: Selection, now_us: int
) -> pa.RecordBatch:
    prefix = selection.topic_prefix
    server, beat = json.dumps({"serverName": prefix}), json.dumps({"ts_ms": now_us // 1000})
    keys = [server if message is None else json.dumps({"prefix": message[0]}) for message in found]
    messages = pa.array(is_message)
    contents = pa.array([m[1] if m else b"" for m in found], pa.binary())
    coded = jsontext.string(bytea.coded(contents, selection.binaries))
    prefixes = jsontext.string(pa.array([m[0] if m else "" for m in found], pa.string()))
    after = jsontext.objects(["prefix", "content"], [prefixes, coded], records.num_rows)
    columns = {
        "key": pa.array(keys, pa.string()),
        "before": pa.nulls(records.num_rows, pa.string()),
        "after": core_envelope.where(messages, after, beat),
        "source": core_envelope.where(messages, envelope.sources(records, None, selection), None),
        "op": core_envelope.where(messages, op_texts(records), None),
        "transaction": core_envelope.where(messages, core_envelope.transactions(records, selection), None),
    }
    topics = core_envelope.where(
        messages, pa.repeat(f"{prefix}.message", records.num_rows), f"__debezium-heartbeat.{prefix}"
    )
    return core_envelope.events(columns, topics, now_us)
