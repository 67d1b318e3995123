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

    def __init__(self, messages: Sequence[memoryview | bytes]) -> None:
        lengths = np.fromiter(map(len, messages), np.int64, len(messages))
        self.ends = np.cumsum(lengths)
        self.starts = self.ends - lengths
        self.lengths = lengths
        self.buffer = b"".join(messages)
        self.bytes = np.frombuffer(self.buffer, np.uint8)
        self.kinds = self.bytes[self.starts + HEADER] if len(messages) else np.empty(0, np.uint8)

    def be32(self, at: Ints) -> Ints:
        window = self.bytes[at[:, None] + np.arange(4)]
        return np.ascontiguousarray(window).view(">u4").reshape(-1).astype(np.int64)

    def be64(self, at: Ints) -> Ints:
        window = self.bytes[at[:, None] + np.arange(8)]
        return np.ascontiguousarray(window).view(">i8").reshape(-1).astype(np.int64)

    def body(self, index: int) -> bytes:
        return self.buffer[int(self.starts[index]) + HEADER : int(self.ends[index])]

    def payloads(self, indices: Ints) -> pa.BinaryArray:
        """The pgoutput messages at `indices`, copied by Arrow: values and the gaps between them as one array."""
        n = len(self.starts)
        offsets = np.empty(2 * n + 1, np.int32)
        offsets[0:-1:2] = self.starts
        offsets[1::2] = self.starts + HEADER
        offsets[-1] = len(self.buffer)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.buffer)]
        both = pa.Array.from_buffers(pa.binary(), 2 * n, buffers)
        return both.take(pa.array(2 * indices + 1))


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
