"""Debezium's envelope: who knows Debezium's messages knows these.

Key, before, after and source are JSON texts, put together by Arrow from the columns' fragments. An update that
changes the key is two events, the old key's delete and the new key's create, as a keyed log needs it.
"""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.connectors.postgres import position, render, rules, tuples, types
from tidelog.connectors.postgres.faults import Fault, op_texts, settle
from tidelog.connectors.postgres.render import Fragment, concat, quote
from tidelog.connectors.postgres.rules import Shown
from tidelog.connectors.postgres.strings import Bytes, Mask, as_mask, spread
from tidelog.connectors.postgres.tuples import UNCHANGED, Messages
from tidelog.contracts import ENVELOPE, Decoded
from tidelog.model.record import Op
from tidelog.model.schema import Table
from tidelog.model.selection import Selection
from tidelog.model.version import __version__

_NO_TEXT = pa.scalar(None, pa.string())


def build(records: pa.RecordBatch, table: Table, selection: Selection, now_us: int) -> Decoded:
    messages = tuples.read(records, len(table.columns))
    ops = records.column("op").to_numpy(zero_copy_only=False)
    objects = Objects(selection, len(ops))
    shown, keys = rules.delivered(table, selection), rules.keys(table, selection)
    changed = _key_changed(messages, keys) & (ops == ord(Op.UPDATE))
    columns: dict[str, pa.Array] = {
        "key": objects.of(messages.after, keys, ops != ord(Op.TRUNCATE)) if keys else pa.nulls(len(ops), pa.string()),
        "before": objects.of(messages.before, shown, messages.has_before),
        "after": objects.of(messages.after, shown, np.isin(ops, [ord(Op.CREATE), ord(Op.UPDATE)])),
        "source": sources(records, table, selection),
        "op": op_texts(records),
        "transaction": transactions(records, selection),
    }
    old_key = objects.of(messages.old_or_new(), keys, changed) if changed.any() else None
    damage = Fault(messages.damaged, "the message is damaged or does not match the table's columns")
    good, failures = settle([damage, *objects.faults], records, table, selection)
    columns = _split(columns, old_key, good, changed)
    return Decoded(events(columns, f"{selection.topic_prefix}.{table.qualified}", now_us), failures)


def events(columns: dict[str, pa.Array], topic: str | pa.StringArray, now_us: int) -> pa.RecordBatch:
    """The envelope from its own columns, with the topic and the time of processing."""
    n = len(columns["op"])
    times = {"ts_ms": now_us // 1000, "ts_us": now_us, "ts_ns": now_us * 1000}
    whole = {
        "topic": pa.repeat(topic, n) if isinstance(topic, str) else topic,
        **columns,
        **{name: pa.repeat(pa.scalar(value, pa.int64()), n) for name, value in times.items()},
    }
    return pa.RecordBatch.from_arrays([whole[name] for name in ENVELOPE.names], schema=ENVELOPE)


def where(rows: pa.BooleanArray, values: pa.Array, other: str | None) -> pa.Array:
    return pc.if_else(rows, values, pa.scalar(other, values.type))


class Rows(Protocol):
    """Texts by column, with their kinds: tuples of messages, or columns that were read from the table."""

    @property
    def kinds(self) -> Bytes: ...

    def texts(self, column: int) -> pa.StringArray: ...

    def at(self, rows: Mask) -> Self: ...


class Objects:
    """Makes JSON objects of images' rows, and gathers what could not be rendered."""

    def __init__(self, selection: Selection, rows: int) -> None:
        self._selection, self._rows = selection, rows
        self.faults: list[Fault] = []

    def of(self, image: Rows, shown: list[Shown], rows: Mask) -> pa.StringArray:
        """An object for each of `rows`, null for the others."""
        if not rows.any():
            return pa.nulls(self._rows, pa.string())
        some = image.at(rows)
        fragments = [self._fragment(some, one, rows) for one in shown]
        return spread(render.objects([one.column.name for one in shown], fragments, int(rows.sum())), rows)

    def _fragment(self, image: Rows, shown: Shown, rows: Mask) -> Fragment:
        texts, unreadable = shown.ruled(image.texts(shown.index))
        found = render.fragment(texts, shown.column, self._selection)
        self._note(shown, rows, unreadable | found.failed)
        unchanged = image.kinds[shown.index] == UNCHANGED
        return found.instead(unchanged, self._selection.placeholder) if unchanged.any() else found

    def _note(self, shown: Shown, rows: Mask, failed: Mask) -> None:
        if failed.any():
            whole = np.zeros(self._rows, np.bool_)
            whole[rows] = failed
            reason = f"column {shown.column.name}: a {shown.column.type} value has no JSON form or is not valid UTF-8"
            self.faults.append(Fault(whole, reason, types.hint(shown.column)))


def _key_changed(messages: Messages, keys: list[Shown]) -> Mask:
    """Rows whose old key is told and differs from the new one."""
    changed = np.zeros(len(messages.has_before), np.bool_)
    if not messages.has_before.any():
        return changed
    for key in keys:
        i = key.index
        same_kind = messages.before.kinds[i] == messages.after.kinds[i]
        same_text = as_mask(pc.equal(messages.before.texts(i), messages.after.texts(i)).fill_null(True))
        changed |= messages.known_before[i] & ~(same_kind & same_text)
    return changed & messages.has_before


def _split(
    columns: dict[str, pa.Array], old_key: pa.StringArray | None, good: Mask, changed: Mask
) -> dict[str, pa.Array]:
    """The good rows; one that changed its key becomes a delete and a create."""
    if old_key is None:
        return columns if good.all() else {name: column.filter(pa.array(good)) for name, column in columns.items()}
    index = np.repeat(np.flatnonzero(good), 1 + changed[good])
    second = np.diff(index, prepend=-1) == 0
    first = pa.array(changed[index] & ~second)
    second = pa.array(second)
    rows = {name: column.take(pa.array(index)) for name, column in columns.items()}
    rows["key"] = pc.if_else(first, old_key.take(pa.array(index)), rows["key"])
    rows["before"] = pc.if_else(second, _NO_TEXT, rows["before"])
    rows["after"] = pc.if_else(first, _NO_TEXT, rows["after"])
    rows["op"] = pc.if_else(first, "d", pc.if_else(second, "c", rows["op"]))
    return rows


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
        _digits(us // 1000),
        ',"ts_us":',
        _digits(us),
        ',"ts_ns":',
        _digits(us * 1000),
        f',"snapshot":{quote(snapshot)},"db":{quote(selection.database)},"sequence":"[\\"',
        _digits(commit),
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


def _digits(numbers: np.ndarray[Any, Any]) -> pa.StringArray:
    return pa.array(numbers).cast(pa.string())


def _origin(origins: pa.StringArray) -> str | pa.StringArray:
    """The replication origin, where there is one."""
    if origins.null_count == len(origins):
        return ""
    told = pc.binary_join_element_wise(',"origin":', render.string(origins).json(), "")
    return told.fill_null("")


def transactions(records: pa.RecordBatch, selection: Selection) -> pa.Array:
    kind = ENVELOPE.field("transaction").type
    if not selection.transactions:
        return pa.nulls(records.num_rows, kind)
    xid, place = records.column("xid").cast(pa.string()), records.column("position").cast(pa.string())
    return pa.StructArray.from_arrays(
        [
            pc.binary_join_element_wise(xid, place, ":"),
            pc.add(records.column("ordinal"), 1),
            pc.add(records.column("table_ordinal"), 1),
        ],
        fields=list(kind),
    )
