"""The bytes of the replication protocol: where messages stand in a joined buffer, and what a relation message says."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

HEADER = 25
"""Kind, LSN, end of log and server clock before each pgoutput message."""
EPOCH_US = 946_684_800_000_000  # 2000-01-01, where PostgreSQL's clock starts

Ints = NDArray[np.int64]

_START, _STOP = ord("S"), ord("E")
_XID = 4
_MARKED = np.zeros(256, np.bool_)
_MARKED[[ord(kind) for kind in "RYIUDTM"]] = True
"""The kinds that carry an id while a transaction is streamed."""


@dataclass(frozen=True)
class RelationColumn:
    name: str
    type_oid: int
    modifier: int
    in_identity: bool


@dataclass(frozen=True)
class Relation:
    """What a relation message says of a table."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Log:
    """The joined buffer of some messages and where each of them stands in it."""

    def __init__(self, messages: Sequence[memoryview | bytes], *, buffer: bytes | bytearray = b"") -> None:
        lengths = np.fromiter(map(len, messages), np.int64, len(messages))
        self.ends = np.cumsum(lengths)
        self.starts = self.ends - lengths
        self.lengths = lengths
        self.buffer = buffer.join(messages)
        self.bytes = np.frombuffer(self.buffer, np.uint8)
        self.bodies = self.starts + HEADER
        """Where the pgoutput messages begin."""
        self.kinds = self.bytes[self.bodies] if len(messages) else np.empty(0, np.uint8)

    def be32(self, at: Ints) -> Ints:
        window = self.bytes[at[:, None] + np.arange(4)]
        return np.ascontiguousarray(window).view(">u4").reshape(-1).astype(np.int64)

    def be64(self, at: Ints) -> Ints:
        window = self.bytes[at[:, None] + np.arange(8)]
        return np.ascontiguousarray(window).view(">i8").reshape(-1).astype(np.int64)

    def lsns(self, indices: Ints) -> Ints:
        return self.be64(self.starts[indices] + 1)

    def clocks(self, indices: Ints) -> Ints:
        """The server's clock when it sent the messages."""
        return self.be64(self.starts[indices] + 17) + EPOCH_US

    def body(self, index: int) -> bytes:
        return bytes(self.buffer[int(self.bodies[index]) : int(self.ends[index])])

    def payloads(self, indices: Ints) -> pa.BinaryArray:
        """The pgoutput messages at `indices`, copied by Arrow: values and the gaps between them as one array."""
        n = len(self.starts)
        offsets = np.empty(2 * n + 1, np.int32)
        offsets[0:-1:2] = self.starts
        offsets[1::2] = self.bodies
        offsets[-1] = len(self.buffer)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.buffer)]
        both = pa.Array.from_buffers(pa.binary(), 2 * n, buffers)
        return both.take(pa.array(2 * indices + 1))


class StreamedLog(Log):
    """A log with pieces of transactions that are still open. Within such a piece most messages carry the id of their
    sub-transaction behind the first byte; it is cut out here, so that a message looks the same wherever it stands."""

    def __init__(self, messages: Sequence[memoryview | bytes], *, inside: bool) -> None:
        """`inside`: the log begins in the middle of a piece."""
        super().__init__(messages, buffer=bytearray())
        depth = inside + np.cumsum((self.kinds == _START).astype(np.int64) - (self.kinds == _STOP))
        self.inside = bool(depth[-1]) if len(depth) else inside
        self.streamed = (depth > 0) & _MARKED[self.kinds]
        self.subs = np.zeros(len(self.kinds), np.int64)
        at = self.bodies[self.streamed]
        self.subs[self.streamed] = self.be32(at + 1)
        self.bytes[at + _XID] = self.kinds[self.streamed]
        self.bodies[self.streamed] += _XID


def parse_relation(body: bytes) -> Relation:
    (oid,) = struct.unpack_from(">I", body, 1)
    schema, at = _text(body, 5)
    name, at = _text(body, at)
    identity, count = chr(body[at]), struct.unpack_from(">h", body, at + 1)[0]
    at += 3
    columns = []
    for _ in range(count):
        flags = body[at]
        column, at = _text(body, at + 1)
        type_oid, modifier = struct.unpack_from(">Ii", body, at)
        columns.append(RelationColumn(column, type_oid, modifier, bool(flags & 1)))
        at += 8
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _text(body: bytes, at: int) -> tuple[str, int]:
    end = body.index(0, at)
    return body[at:end].decode(), end + 1
