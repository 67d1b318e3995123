"""What a server sends on a replication connection, by hand: a 25-byte header, then one pgoutput message."""

from __future__ import annotations

import struct
from collections.abc import Sequence

EPOCH_US = 946_684_800_000_000


def record(lsn: int, body: bytes, *, clock: int = 0) -> bytes:
    """One message as it arrives; `clock` is microseconds since 1970."""
    return b"w" + struct.pack(">QQq", lsn, lsn, clock - EPOCH_US) + body


def begin(commit_lsn: int, committed: int, xid: int) -> bytes:
    return b"B" + struct.pack(">QqI", commit_lsn, committed - EPOCH_US, xid & 0xFFFFFFFF)


def commit(commit_lsn: int, end_lsn: int, committed: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, commit_lsn, end_lsn, committed - EPOCH_US)


def origin(name: str) -> bytes:
    return b"O" + struct.pack(">Q", 0x99) + name.encode() + b"\0"


def type_of(oid: int, name: str) -> bytes:
    return b"Y" + struct.pack(">I", oid) + b"public\0" + name.encode() + b"\0"


def relation(oid: int, name: str, columns: Sequence[str], *, schema: str = "public", identity: str = "d") -> bytes:
    """The first column is the identity; all are int4."""
    described = [
        struct.pack(">B", i == 0) + column.encode() + b"\0" + struct.pack(">Ii", 23, -1)
        for i, column in enumerate(columns)
    ]
    head = b"R" + struct.pack(">I", oid) + schema.encode() + b"\0" + name.encode() + b"\0" + identity.encode()
    return head + struct.pack(">h", len(columns)) + b"".join(described)


def change(kind: str, oid: int, text: str) -> bytes:
    """An insert, update or delete (I, U, D) of one value."""
    mark = b"K" if kind == "D" else b"N"
    value = text.encode()
    return kind.encode() + struct.pack(">I", oid) + mark + struct.pack(">hcI", 1, b"t", len(value)) + value


def truncate(*oids: int) -> bytes:
    return b"T" + struct.pack(f">IB{len(oids)}I", len(oids), 0, *oids)


def message(lsn: int, content: bytes, *, transactional: bool) -> bytes:
    return b"M" + struct.pack(">BQ", transactional, lsn) + b"prefix\0" + struct.pack(">I", len(content)) + content


def stream_start(xid: int, first: bool) -> bytes:
    return b"S" + struct.pack(">IB", xid & 0xFFFFFFFF, first)


def stream_stop() -> bytes:
    return b"E"


def stream_commit(xid: int, commit_lsn: int, end_lsn: int, committed: int) -> bytes:
    return b"c" + struct.pack(">IBQQq", xid & 0xFFFFFFFF, 0, commit_lsn, end_lsn, committed - EPOCH_US)


def stream_abort(xid: int, sub: int) -> bytes:
    return b"A" + struct.pack(">II", xid & 0xFFFFFFFF, sub & 0xFFFFFFFF)
