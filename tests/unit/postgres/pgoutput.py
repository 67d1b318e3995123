"""pgoutput messages by hand, and blocks of them: None is null, `UNCHANGED` an unchanged TOAST value."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa

from tidelog.contracts import RECORDS
from tidelog.model.schema import Column, Table

RELATION = 16_385


class Unchanged:
    """A value that the log leaves out."""


UNCHANGED = Unchanged()
Value = str | bytes | None | Unchanged
Change = tuple[str, bytes | None]


def row(values: Sequence[Value]) -> bytes:
    return struct.pack(">h", len(values)) + b"".join(_value(v) for v in values)


def _value(value: Value) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, Unchanged):
        return b"u"
    text = value.encode() if isinstance(value, str) else value
    return b"t" + struct.pack(">I", len(text)) + text


def insert(*values: Value) -> Change:
    return "c", b"I" + struct.pack(">I", RELATION) + b"N" + row(values)


def update(*values: Value, key: Sequence[Value] | None = None, old: Sequence[Value] | None = None) -> Change:
    image = b"K" + row(key) if key is not None else b"O" + row(old) if old is not None else b""
    return "u", b"U" + struct.pack(">I", RELATION) + image + b"N" + row(values)


def delete(*, key: Sequence[Value] | None = None, old: Sequence[Value] | None = None) -> Change:
    image = b"K" + row(key) if key is not None else b"O" + row(old or ())
    return "d", b"D" + struct.pack(">I", RELATION) + image


def truncate() -> Change:
    return "t", b"T" + struct.pack(">IBI", 1, 0, RELATION)


def schema() -> Change:
    return "s", b""


def heartbeat() -> Change:
    return "h", b""


def message(prefix: str, content: bytes) -> Change:
    return "m", b"M" + struct.pack(">BQ", 1, 0x16B3748) + prefix.encode() + b"\0" + struct.pack(
        ">I", len(content)
    ) + content


def block(*changes: Change, position: int = 0x1007, xid: int = 700, origin: str | None = None) -> pa.RecordBatch:
    """The changes as one transaction of one table."""
    n = len(changes)
    columns = {
        "position": [position] * n,
        "ordinal": list(range(n)),
        "table_ordinal": list(range(n)),
        "xid": [xid] * n,
        "committed": [1_704_164_645_123_456] * n,
        "lsn": [0x800 + 8 * i for i in range(n)],
        "op": [ord(op) for op, _ in changes],
        "origin": [origin] * n,
        "payload": [payload for _, payload in changes],
    }
    return pa.RecordBatch.from_pydict(columns, schema=RECORDS)


def table(*columns: str | Column, key: Sequence[str] = ("id",), old_image: str = "key") -> Table:
    """A table from `name type` texts."""
    made = tuple(c if isinstance(c, Column) else Column(*c.split(" ", 1)) for c in columns)
    return Table(RELATION, "public", "orders", made, key=tuple(key), old_image=old_image)
