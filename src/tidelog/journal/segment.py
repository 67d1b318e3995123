"""One file of the journal: an Arrow IPC file whose batches are blocks, each of one table version.

The first block holds the commits (in the shape of records: `ordinal` counts the events, `table_ordinal` the bytes,
`lsn` is where the log goes on, `origin` has the note). Records of a large transaction may lie in other files, written
before its commit was known; then the segment refers to them. The schema's metadata describes every block with a
checksum, and has one itself, so a segment explains itself and vouches for every byte that matters: the ledger can be
rebuilt from segments alone.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from tidelog.contracts import RECORDS, Block, Portion, Slice
from tidelog.errors import CorruptState
from tidelog.journal import spill
from tidelog.journal.files import Files
from tidelog.model.schema import Table

FORMAT = 2
FOLDER = "segments"
_KEY = b"tidelog"
_SUM = b"tidelog.checksum"
_UNREADABLE = (pa.ArrowException, OSError, LookupError, ValueError, TypeError, MemoryError)
"""What Arrow and JSON have to say of damaged bytes."""
_COMMIT = ord("x")


@dataclass(frozen=True)
class BlockInfo:
    table: str | None
    """Fingerprint of the table version."""
    rows: int
    bytes: int
    low: int
    high: int
    """First and last position."""
    checksum: int
    index: int = 0
    """Which batch of the file it is."""
    path: str = ""
    """Another file that has the records, laid down there before their commit; empty for the segment itself."""
    first: int = 0
    committed: int = 0
    """Of records in another file: the first of their rows, and their commit time."""

    @property
    def last(self) -> int:
        return self.first + self.rows


@dataclass(frozen=True)
class Place:
    """Where a segment stands among the others."""

    epoch: int
    """Which reader session wrote it; a later session's word on the same positions wins."""
    number: int
    epoch_start: int
    begin: int
    """How far the journal was complete when the segment was written: it holds everything that came after."""


@dataclass(frozen=True)
class SegmentInfo:
    epoch: int
    number: int
    epoch_start: int
    begin: int
    end: int
    """Everything before it is complete; 0 when no transaction ended in this segment."""
    floor: int
    """What this segment and those after it can serve without the ones before: past a transaction begun earlier."""
    events: int
    bytes: int
    """Of the transactions that end in this segment."""
    blocks: tuple[BlockInfo, ...]
    tables: dict[str, Table]
    size: int = 0

    @property
    def name(self) -> str:
        return segment_name(self.epoch, self.number)

    @property
    def low(self) -> int:
        return min((b.low for b in self.blocks if b.rows), default=self.end)

    @property
    def high(self) -> int:
        return max((b.high for b in self.blocks if b.rows), default=self.end)


def segment_name(epoch: int, number: int) -> str:
    return f"{FOLDER}/{epoch:08d}-{number:010d}.arrow"


def parse_name(base: str) -> tuple[int, int]:
    epoch, _, number = base.removesuffix(".arrow").partition("-")
    return int(epoch), int(number)


def encode(
    portion: Portion, place: Place, compression: str | None, *, begun: bool = False
) -> tuple[SegmentInfo, pa.Buffer]:
    """`begun`: the portion goes on with a transaction of which an earlier segment has the first part."""
    commits = _as_records(portion.transactions)
    blocks = [Block(None, commits), *portion.blocks]
    described = [_describe(block, index) for index, block in enumerate(blocks)]
    found = [*(b.table for b in blocks), *(e.table for e in portion.extents)]
    info = SegmentInfo(
        **asdict(place),
        end=portion.end,
        floor=_floor(portion, place.begin, begun),
        events=_total(portion.transactions, "events"),
        bytes=_total(portion.transactions, "bytes"),
        blocks=(described[0], *_extents(portion), *described[1:]),
        tables={table.fingerprint: table for table in found if table is not None},
    )
    text = _to_json(info)
    schema = RECORDS.with_metadata({_KEY: text, _SUM: str(zlib.crc32(text)).encode()})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        for block in blocks:
            writer.write_batch(block.records)
    buffer = sink.getvalue()
    return _sized(info, buffer.size), buffer


def describe(files: Files, base: str) -> SegmentInfo:
    """What a segment says of itself, without reading its blocks."""
    try:
        with files.open(f"{FOLDER}/{base}") as source:
            metadata = pa.ipc.open_file(source).schema.metadata or {}
            size = source.size()
        info = _from_json(metadata[_KEY], int(metadata[_SUM]))
    except _UNREADABLE as exc:
        raise CorruptState(f"The journal's segment {base} can't be read: {exc}.") from exc
    if (info.epoch, info.number) != parse_name(base):
        raise CorruptState(f"The journal's segment {base} holds the content of another.")
    return _sized(info, size)


def read(files: Files, name: str, index: int, checksum: int) -> pa.RecordBatch:
    """One block, checked."""
    try:
        with files.open(name) as source:
            batch = pa.ipc.open_file(source).get_batch(index)
        intact = batch.schema.equals(RECORDS) and compute(batch) == checksum
    except _UNREADABLE as exc:
        raise CorruptState(f"The journal's segment {name} can't be read: {exc}.", hint=_HEALS) from exc
    if not intact:
        raise CorruptState(f"A block of the journal's segment {name} is damaged.", hint=_HEALS)
    return batch


def load(files: Files, piece: Slice) -> pa.RecordBatch:
    """The rows of a slice that lie within its positions."""
    if piece.position:
        return spill.stamped(spill.read(files, piece), piece.position, piece.committed)
    rows = read(files, piece.path, piece.index, piece.checksum).slice(piece.first, piece.last - piece.first)
    first, last = np.searchsorted(rows.column("position").to_numpy(), [piece.low, piece.high]).tolist()
    return rows.slice(first, last - first)


_HEALS = "Start again: the journal drops what is damaged and reads it from the database once more."


def verify(files: Files, info: SegmentInfo) -> bool:
    try:
        for block in info.blocks:
            if block.path:
                spill.read(files, block)
            else:
                read(files, info.name, block.index, block.checksum)
    except CorruptState:
        return False
    return True


def compute(batch: pa.RecordBatch) -> int:
    """A checksum of what the rows say, independent of how buffers are padded."""
    value = 0
    for name in ("position", "ordinal", "table_ordinal", "xid", "committed", "lsn", "op"):
        value = zlib.crc32(batch.column(name).to_numpy(zero_copy_only=False), value)
    value = _add(batch.column("origin"), value)
    return _add(batch.column("payload"), value)


def _add(texts: pa.StringArray | pa.BinaryArray, value: int) -> int:
    """Add which of the texts are there, how long they are and what they say."""
    if not len(texts):
        return value
    value = zlib.crc32(texts.is_valid().to_numpy(zero_copy_only=False), value)
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    value = zlib.crc32(np.diff(ends).tobytes(), value)
    return zlib.crc32(memoryview(data)[ends[0] : ends[-1]], value) if data is not None else value


def _extents(portion: Portion) -> list[BlockInfo]:
    """What the transaction of a portion has in other files."""
    if not portion.extents:
        return []
    position, committed = (portion.transactions.column(c)[0].as_py() for c in ("position", "committed"))
    return [
        BlockInfo(
            table=extent.table.fingerprint if extent.table is not None else None,
            rows=extent.last - extent.first,
            bytes=extent.bytes,
            low=position,
            high=position,
            checksum=extent.checksum,
            index=extent.index,
            path=extent.path,
            first=extent.first,
            committed=committed,
        )
        for extent in portion.extents
    ]


def _describe(block: Block, index: int) -> BlockInfo:
    rows = block.records.num_rows
    at = block.records.column("position")
    return BlockInfo(
        table=block.table.fingerprint if block.table is not None else None,
        rows=rows,
        bytes=block.records.nbytes,
        low=at[0].as_py() if rows else 0,
        high=at[rows - 1].as_py() if rows else 0,
        checksum=compute(block.records),
        index=index,
    )


def _floor(portion: Portion, begin: int, begun: bool) -> int:
    """`begin`, unless the first transaction has begun in an earlier segment."""
    heads = [b.records.column("position").slice(0, 1).to_pylist() for b in portion.blocks]
    committed: list[int] = portion.transactions.column("position").slice(0, 1).to_pylist()
    low = min([*(at for head in heads for at in head), *committed], default=None)
    return low + 1 if begun and low is not None else begin


def _as_records(transactions: pa.RecordBatch) -> pa.RecordBatch:
    n = transactions.num_rows
    column = transactions.column
    return pa.record_batch(
        [
            column("position"),
            column("events"),
            column("bytes"),
            column("xid"),
            column("committed"),
            column("end"),
            pa.array([_COMMIT] * n, pa.uint8()),
            column("note"),
            column("collections").cast(pa.binary()).fill_null(b""),
        ],
        schema=RECORDS,
    )


def _total(transactions: pa.RecordBatch, name: str) -> int:
    return int(transactions.column(name).to_numpy().sum())


def _to_json(info: SegmentInfo) -> bytes:
    raw = {k: v for k, v in asdict(info).items() if k not in ("tables", "size")}
    tables = {k: t.to_json() for k, t in info.tables.items()}
    return json.dumps({**raw, "format": FORMAT, "tables": tables}).encode()


def _from_json(text: bytes, checksum: int) -> SegmentInfo:
    if zlib.crc32(text) != checksum:
        raise ValueError("its description is damaged")
    raw: dict[str, Any] = json.loads(text)
    if raw.pop("format") != FORMAT:
        raise ValueError("written by another version of tidelog")
    blocks = tuple(BlockInfo(**b) for b in raw.pop("blocks"))
    tables = {k: Table.from_json(t) for k, t in raw.pop("tables").items()}
    return SegmentInfo(blocks=blocks, tables=tables, **raw)


def _sized(info: SegmentInfo, size: int) -> SegmentInfo:
    """With what it takes of the disk: also in other files."""
    return replace(info, size=size + sum(block.bytes for block in info.blocks if block.path))
