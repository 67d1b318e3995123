"""Debezium's envelope: who knows Debezium's messages knows these.

Key, before, after and source are JSON texts, put together by Arrow from the columns' fragments. An update that
changes the key is two events, the old key's delete and the new key's create, as a keyed log needs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.contracts import ENVELOPE, Decoded
from tidelog.core import jsontext, rules
from tidelog.core.faults import Fault, op_texts, settle
from tidelog.core.jsontext import Fragment
from tidelog.core.rules import Shown
from tidelog.core.strings import Bytes, Mask, as_mask, spread
from tidelog.model.record import Op
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

UNCHANGED = ord("u")
"""The kind of a value that the log left out."""

Renderer = Callable[[pa.StringArray, Column, Selection], Fragment]
"""A database's texts of a column as JSON."""


class Rows(Protocol):
    """Texts by column, with their kinds: tuples of messages, or columns that were read from the table."""

    @property
    def kinds(self) -> Bytes: ...

    def texts(self, column: int) -> pa.StringArray: ...

    def at(self, rows: Mask) -> Self: ...


class Told(Protocol):
    """The changes of a block."""

    @property
    def before(self) -> Rows: ...

    @property
    def after(self) -> Rows:
        """The row as the change leaves it; for a delete, the old row."""

    @property
    def has_before(self) -> Mask: ...

    @property
    def known_before(self) -> Mask:
        """By column and row: the old value is told."""

    def old_or_new(self) -> Rows:
        """The old value where it is told, else the new one."""


def build(
    told: Told,
    faults: Sequence[Fault],
    objects: Objects,
    records: pa.RecordBatch,
    table: Table,
    sources: pa.StringArray,
    selection: Selection,
    now_us: int,
    ids: pa.StringArray | None = None,
) -> Decoded:
    """The events of a block; `faults` are those of reading it, `ids` the transactions' as the database writes them."""
    ops = records.column("op").to_numpy(zero_copy_only=False)
    shown, keys = rules.delivered(table, selection), rules.keys(table, selection)
    changed = _key_changed(told, keys) & (ops == ord(Op.UPDATE))
    columns: dict[str, pa.Array] = {
        "key": objects.of(told.after, keys, ops != ord(Op.TRUNCATE)) if keys else pa.nulls(len(ops), pa.string()),
        "before": objects.of(told.before, shown, told.has_before),
        "after": objects.of(told.after, shown, np.isin(ops, [ord(Op.CREATE), ord(Op.UPDATE)])),
        "source": sources,
        "op": op_texts(records),
        "transaction": transactions(records, selection, ids),
    }
    old_key = objects.of(told.old_or_new(), keys, changed) if changed.any() else None
    good, failures = settle([*faults, *objects.faults], records, table, selection)
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


class Objects:
    """Makes JSON objects of images' rows, and gathers what could not be rendered."""

    def __init__(self, selection: Selection, rows: int, render: Renderer, hint: Callable[[Column], str]) -> None:
        self._selection, self._rows, self._render, self._hint = selection, rows, render, hint
        self.faults: list[Fault] = []

    def of(self, image: Rows, shown: list[Shown], rows: Mask) -> pa.StringArray:
        """An object for each of `rows`, null for the others."""
        if not rows.any():
            return pa.nulls(self._rows, pa.string())
        some = image.at(rows)
        fragments = [self._fragment(some, one, rows) for one in shown]
        return spread(jsontext.objects([one.column.name for one in shown], fragments, int(rows.sum())), rows)

    def _fragment(self, image: Rows, shown: Shown, rows: Mask) -> Fragment:
        texts, unreadable = shown.ruled(image.texts(shown.index))
        found = self._render(texts, shown.column, self._selection)
        self._note(shown, rows, unreadable | found.failed)
        unchanged = image.kinds[shown.index] == UNCHANGED
        return found.instead(unchanged, self._selection.placeholder) if unchanged.any() else found

    def _note(self, shown: Shown, rows: Mask, failed: Mask) -> None:
        if failed.any():
            whole = np.zeros(self._rows, np.bool_)
            whole[rows] = failed
            reason = f"column {shown.column.name}: a {shown.column.type} value has no JSON form or is not valid UTF-8"
            self.faults.append(Fault(whole, reason, self._hint(shown.column)))


def _key_changed(told: Told, keys: list[Shown]) -> Mask:
    """Rows whose old key is told and differs from the new one."""
    changed = np.zeros(len(told.has_before), np.bool_)
    if not told.has_before.any():
        return changed
    for key in keys:
        i = key.index
        same_kind = told.before.kinds[i] == told.after.kinds[i]
        same_text = as_mask(pc.equal(told.before.texts(i), told.after.texts(i)).fill_null(True))
        changed |= told.known_before[i] & ~(same_kind & same_text)
    return changed & told.has_before


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
    no_text = pa.scalar(None, pa.string())
    rows["before"] = pc.if_else(second, no_text, rows["before"])
    rows["after"] = pc.if_else(first, no_text, rows["after"])
    rows["op"] = pc.if_else(first, "d", pc.if_else(second, "c", rows["op"]))
    return rows


def digits(numbers: np.ndarray[Any, Any]) -> pa.StringArray:
    return pa.array(numbers).cast(pa.string())


def transactions(records: pa.RecordBatch, selection: Selection, ids: pa.StringArray | None = None) -> pa.Array:
    """Without `ids`, a transaction's is its number and its place: numbers come again."""
    kind = ENVELOPE.field("transaction").type
    if not selection.transactions:
        return pa.nulls(records.num_rows, kind)
    if ids is None:
        xid, place = records.column("xid").cast(pa.string()), records.column("position").cast(pa.string())
        ids = pc.binary_join_element_wise(xid, place, ":")
    orders = [pc.add(records.column(name), 1) for name in ("ordinal", "table_ordinal")]
    return pa.StructArray.from_arrays([ids, *orders], fields=list(kind))


def heartbeats(records: pa.RecordBatch, prefix: str, now_us: int) -> pa.RecordBatch:
    """An event for each record, so that who listens knows how far the log has come."""
    count = records.num_rows
    columns = {
        "key": pa.repeat(json.dumps({"serverName": prefix}), count),
        "after": pa.repeat(json.dumps({"ts_ms": now_us // 1000}), count),
    }
    nothing = {name: pa.nulls(count, ENVELOPE.field(name).type) for name in ("before", "source", "op", "transaction")}
    return events({**columns, **nothing}, f"__debezium-heartbeat.{prefix}", now_us)
