"""A record as the journal of tidelog keeps it: a fixed head, then the images as the file lays them out.

    head | image | nulls | old image | old nulls

`image` is the row as the entry leaves it, and for a delete the row that went. `nulls` has a character for each column,
or none. Nothing is decoded here: executors do that.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelog.connectors.iseries.entries import Entry
from tidelog.core.strings import Bytes, Ints

HEADER = np.dtype(
    [
        ("type", "S2"),
        ("receiver", "S10"),
        ("library", "S10"),
        ("member", "S10"),
        ("rrn", "<i8"),
        ("time_us", "<i8"),
        ("image", "<u4"),
        ("nulls", "<u4"),
        ("old_image", "<u4"),
        ("old_nulls", "<u4"),
    ]
)
SIZE = HEADER.itemsize
_HEAD = struct.Struct("<2s10s10s10sqqIIII")
"""The same, for one record."""


def pack(entry: Entry, before: Entry | None = None) -> bytes:
    old_image, old_nulls = (before.image, before.nulls) if before is not None else (b"", b"")
    head = _HEAD.pack(
        entry.type.encode(),
        entry.receiver.encode("ascii", "replace"),
        entry.receiver_library.encode("ascii", "replace"),
        entry.member.encode("ascii", "replace"),
        entry.rrn,
        entry.time_us,
        len(entry.image),
        len(entry.nulls),
        len(old_image),
        len(old_nulls),
    )
    return b"".join((head, entry.image, entry.nulls, old_image, old_nulls))


@dataclass(frozen=True)
class Payloads:
    """All payloads of a block side by side."""

    data: Bytes
    starts: Ints
    heads: np.ndarray[tuple[int], np.dtype[np.void]]
    sound: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Whether the parts fill the payload exactly."""

    def part(self, index: int) -> tuple[Ints, Ints]:
        """Where a part begins, and its length: 0 image, 1 nulls, 2 old image, 3 old nulls."""
        names = ("image", "nulls", "old_image", "old_nulls")
        lengths = [np.where(self.sound, self.heads[name].astype(np.int64), 0) for name in names]
        return self.starts + SIZE + np.sum(lengths[:index], axis=0, dtype=np.int64), lengths[index]


def unpack(payloads: pa.BinaryArray) -> Payloads:
    count = len(payloads)
    _, offsets, content = payloads.buffers()
    places = np.zeros(count + 1, np.int64)
    if count:
        places = np.frombuffer(offsets, np.int32)[payloads.offset : payloads.offset + count + 1].astype(np.int64)
    data = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    starts, lengths = places[:-1], np.diff(places)
    whole = lengths >= SIZE
    heads = np.zeros(count, HEADER)
    if whole.any():
        heads[whole] = data[starts[whole, None] + np.arange(SIZE)].reshape(-1).view(HEADER)
    total = sum(heads[name].astype(np.int64) for name in ("image", "nulls", "old_image", "old_nulls"))
    return Payloads(data, starts, heads, whole & (SIZE + total == lengths))
