"""What is on disk of transactions that are still open.

A spill is an Arrow IPC file of `RECORDS`: blocks of one table version each, their rows ordered by transaction, so that
every transaction has one range in a block, or a few. The last block is empty: it carries the *directory*, which lists
the ranges of all others, each with a checksum. There are two kinds of spills: one has records for good, and stays as
long as somebody needs them; the other is the `State`. Until their commit comes, records say the key by which they can
be undone where a committed record says its position.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from tidelog.contracts import RECORDS, Extent
from tidelog.errors import CorruptState
from tidelog.journal.files import Files
from tidelog.model.schema import Table

FORMAT = 4
FOLDER = "open"
_RECORDS, _STATE = ".arrow", ".state.arrow"
_KEY, _RANGES, _SUM = b"tidelog", b"tidelog.ranges", b"tidelog.checksum"
_FILES_OPEN = 64
UNREADABLE = (pa.ArrowException, OSError, LookupError, ValueError, TypeError, MemoryError)
"""What Arrow and JSON have to say of damaged bytes."""

Life = tuple[int, int, int]
"""Of a transaction its id, where it begins and since when it is known: ids come again."""


class Owner(Protocol):
    xid: int
    begin: int
    since_us: int


RANGES = pa.schema(
    [(name, pa.int64()) for name in ("xid", "begin", "since_us", "first", "last", "ordinal", "bytes", "checksum")]
)
"""What blocks have of whom; the first three columns are the transaction's `Life`."""


@dataclass(slots=True)
class Piece:
    """A range of a spill's block, of one transaction; `undo`: not records, but what takes records back."""

    path: str
    index: int
    first: int
    last: int
    ordinal: int
    bytes: int
    checksum: int
    table: Table | None
    undo: bool

    def extent(self) -> Extent:
        return Extent(self.table, self.path, self.index, self.first, self.last, self.ordinal, self.bytes, self.checksum)


@dataclass(slots=True, eq=False)
class Ranges:
    """The ranges of a spill's block, as columns: there are many, and few of them are looked at before they are gone."""

    path: str
    index: int
    table: Table | None
    undo: bool
    firsts: Sequence[int]
    lasts: Sequence[int]
    ordinals: Sequence[int]
    sizes: Sequence[int]
    checksums: Sequence[int]
    alive: int = 0
    """How many of them somebody needs."""

    def alone(self, k: int) -> Ranges:
        first, last, ordinal, size, checksum = (column[k : k + 1] for column in self._columns())
        return Ranges(self.path, self.index, self.table, self.undo, first, last, ordinal, size, checksum)

    def _columns(self) -> Sequence[Sequence[int]]:
        return self.firsts, self.lasts, self.ordinals, self.sizes, self.checksums

    def piece(self, k: int) -> Piece:
        first, last, ordinal, size, checksum = (column[k] for column in self._columns())
        return Piece(self.path, self.index, first, last, ordinal, size, checksum, self.table, self.undo)


Spilled = tuple[Ranges, int]
"""A range, by its number."""


def in_order(pieces: Iterable[Spilled]) -> list[Piece]:
    """As the log told them."""
    return sorted((ranges.piece(k) for ranges, k in pieces), key=lambda piece: piece.ordinal)


def name(epoch: int, number: int, *, state: bool = False) -> str:
    return f"{FOLDER}/{epoch:08d}-{number:010d}{_STATE if state else _RECORDS}"


def free_number(paths: Iterable[str], epoch: int) -> int:
    """The first one that no file of this epoch has."""
    mine = [path.partition("-")[2] for path in paths if path.startswith(f"{FOLDER}/{epoch:08d}-")]
    return max((int(rest.partition(".")[0]) + 1 for rest in mine), default=0)


def is_state(path: str) -> bool:
    return path.endswith(_STATE)


def paths(files: Files) -> list[str]:
    """All spills, in the order of their writing."""
    return [f"{FOLDER}/{name}" for name in files.names(FOLDER) if name.endswith(".arrow")]


def directory(blocks: Sequence[tuple[Ranges, Sequence[Owner]]]) -> dict[bytes, bytes]:
    """What the last block carries: the others, and whose their ranges are."""
    told = [
        {"table": r.table.to_json() if r.table is not None else None, "undo": r.undo, "ranges": len(r.firsts)}
        for r, _ in blocks
    ]
    listed = pa.concat_batches([pa.RecordBatch.from_pylist([], RANGES), *(_columns(*block) for block in blocks)])
    return signed({_KEY: json.dumps(told).encode(), _RANGES: packed(listed)})


def _columns(ranges: Ranges, owners: Sequence[Owner]) -> pa.RecordBatch:
    lives = [one.xid for one in owners], [one.begin for one in owners], [one.since_us for one in owners]
    columns = [*lives, ranges.firsts, ranges.lasts, ranges.ordinals, ranges.sizes, ranges.checksums]
    return pa.record_batch([pa.array(column, pa.int64()) for column in columns], schema=RANGES)


def describe(files: Files, path: str) -> list[tuple[Ranges, list[Life]]]:
    """What a spill has of whom, as its directory tells it."""
    with files.open(path) as source:
        reader = pa.ipc.open_file(source)
        told = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1).custom_metadata
    metadata = verified(dict(told.items()) if told is not None else {})
    listed = pa.ipc.read_record_batch(pa.py_buffer(metadata[_RANGES]), RANGES)
    found: list[tuple[Ranges, list[Life]]] = []
    at = 0
    for index, raw in enumerate(json.loads(metadata[_KEY])):
        table = _table(raw["table"]) if raw["table"] else None
        columns = [column.to_pylist() for column in listed.slice(at, raw["ranges"]).columns]
        found.append((Ranges(path, index, table, raw["undo"], *columns[3:]), list(zip(*columns[:3], strict=True))))
        at += raw["ranges"]
    return found


@lru_cache(maxsize=1000)
def _table(text: str) -> Table:
    """Many blocks speak of few versions."""
    return Table.from_json(text)


def packed(batch: pa.RecordBatch) -> bytes:
    return batch.serialize().to_pybytes()  # type: ignore[no-any-return]


def signed(metadata: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """With a checksum over all of it, and over the format."""
    return {**metadata, _SUM: _sum(metadata)}


def verified(metadata: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    if metadata[_SUM] != _sum({key: text for key, text in metadata.items() if key != _SUM}):
        raise ValueError("its description is damaged, or of another version of tidelog")
    return metadata


def _sum(metadata: Mapping[bytes, bytes]) -> bytes:
    total = FORMAT
    for key in sorted(metadata):
        total = zlib.crc32(metadata[key], zlib.crc32(key, total))
    return b"%d" % total


class Range(Protocol):
    """Rows [first, last) of a block, wherever they are described."""

    @property
    def path(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def checksum(self) -> int: ...


class Reader:
    """Reads many ranges: files stay open, unless they are too many. Blocks stay, too: on a local disk they take no
    memory; of an object store, one."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._opened: OrderedDict[str, tuple[Any, dict[int, pa.RecordBatch]]] = OrderedDict()

    def read(self, extent: Range) -> pa.RecordBatch:
        """The rows of a range, checked."""
        try:
            rows = self._block(extent).slice(extent.first, extent.last - extent.first)
            there = len(rows) == extent.last - extent.first and not rows.column("payload").null_count
            intact = there and checksum(rows) == extent.checksum
        except UNREADABLE as exc:
            raise CorruptState(f"The journal's file {extent.path} can't be read: {exc}.", hint=_HEALS) from exc
        if not intact:
            raise CorruptState(f"The journal's file {extent.path} is damaged.", hint=_HEALS)
        return rows

    def _block(self, extent: Range) -> pa.RecordBatch:
        reader, blocks = self._file(extent.path)
        if extent.index not in blocks:
            if not self._files.local:
                self._forget_blocks()
            blocks[extent.index] = reader.get_batch(extent.index)
        return blocks[extent.index]

    def _file(self, path: str) -> tuple[Any, dict[int, pa.RecordBatch]]:
        if path not in self._opened:
            reader = pa.ipc.open_file(self._files.open(path))
            if not reader.schema.equals(RECORDS):
                raise ValueError("its columns are not those of records")
            self._opened[path] = reader, {}
            if len(self._opened) > _FILES_OPEN:
                self._opened.popitem(last=False)
        self._opened.move_to_end(path)
        return self._opened[path]

    def _forget_blocks(self) -> None:
        for _, blocks in self._opened.values():
            blocks.clear()


def read(files: Files, extent: Range) -> pa.RecordBatch:
    return Reader(files).read(extent)


def stamped(rows: pa.RecordBatch, position: int, committed: int) -> pa.RecordBatch:
    """Records as their commit makes them."""
    n = rows.num_rows
    columns = list(rows.columns)
    columns[0] = pa.array(np.full(n, position, np.int64))
    columns[4] = pa.array(np.full(n, committed, np.int64))
    return pa.record_batch(columns, schema=RECORDS)


def checksum(rows: pa.RecordBatch) -> int:
    return next(checksums(rows, [0], [len(rows)]))


def checksums(rows: pa.RecordBatch, firsts: Sequence[int], lasts: Sequence[int]) -> Iterator[int]:
    """Of each row range."""
    ends, data = _payload(rows)
    names = ("ordinal", "position", "table_ordinal", "xid", "lsn", "op")
    numbers = np.stack([*(rows.column(name).to_numpy() for name in names), np.diff(ends)], axis=1, dtype=np.int64)
    flat, wide = numbers.data.cast("B"), numbers.shape[1] * 8
    origins = rows.column("origin")
    named = origins.null_count < len(origins)
    for first, last, low, high in zip(firsts, lasts, ends[firsts].tolist(), ends[lasts].tolist(), strict=True):
        value = zlib.crc32(flat[first * wide : last * wide])
        if named and any(own := origins.slice(first, last - first).to_pylist()):
            value = zlib.crc32(json.dumps(own).encode(), value)
        yield zlib.crc32(data[low:high], value)


def _payload(rows: pa.RecordBatch) -> tuple[Any, memoryview]:
    column = rows.column("payload")
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return ends, memoryview(data) if data is not None else memoryview(b"")


_HEALS = "Start again: the journal drops what is damaged and reads it from the database once more."
