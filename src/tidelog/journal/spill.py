"""What is on disk of transactions that are still open.

A spill is an Arrow IPC file of `RECORDS`: one block for each table version, its rows ordered by transaction, so that
every transaction has one range in it. The file's description lists the ranges, each with a checksum. There are two
kinds: one has records for good, and stays as long as somebody needs them; the other, the *state*, has all that is known
of the open transactions at that moment, with the records that are still in memory, and gives way to the next one. So a
restart knows all from the spills alone. Until their commit comes, records say the key by which they can be undone where
a committed record says its position.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from tidelog.contracts import RECORDS, Block, Extent
from tidelog.errors import CorruptState
from tidelog.journal.files import Files
from tidelog.model.schema import Table

FORMAT = 2
FOLDER = "open"
_GIVEN_UP = f"{FOLDER}/given-up.json"
_RECORDS, _STATE = ".arrow", ".state.arrow"
_KEY = b"tidelog"
_SUM = b"tidelog.checksum"
UNREADABLE = (pa.ArrowException, OSError, LookupError, ValueError, TypeError, MemoryError)
"""What Arrow and JSON have to say of damaged bytes."""


@dataclass(slots=True)
class Piece:
    """A range of a spill's block, of one transaction; `undo`: not records, but what takes records back. There are many
    of them: freezing them would cost more than making them."""

    path: str
    index: int
    first: int
    last: int
    ordinal: int
    bytes: int
    checksum: int
    table: str | None
    """Fingerprint of the table version."""
    undo: bool = False

    def extent(self, table: Table | None) -> Extent:
        return Extent(table, self.path, self.index, self.first, self.last, self.ordinal, self.bytes, self.checksum)


@dataclass(slots=True)
class OpenState:
    """What is known of an open transaction beside its records."""

    begin: int
    since_us: int
    events: int
    bytes: int
    by_table: Mapping[int, int] = field(default_factory=dict)
    merged: tuple[str, ...] = ()
    undos: int = 0
    """How many marks take records of it back."""
    unwatched_us: int = 0
    """How long nobody read the log since then: that is no age of its own."""
    pieces: tuple[Piece, ...] = ()
    """What a spill has of it for good."""
    carried: tuple[Piece, ...] = ()
    """What a spill repeats of it, although it stays in memory."""

    def is_whole(self) -> bool:
        counts = {undo: sum(p.last - p.first for p in self.everything if p.undo is undo) for undo in (False, True)}
        return counts == {False: self.events, True: self.undos}

    @property
    def everything(self) -> tuple[Piece, ...]:
        return (*self.pieces, *self.carried)

    @property
    def life(self) -> tuple[int, int]:
        """Ids come again: this tells whether it is the same transaction."""
        return self.begin, self.since_us


@dataclass(frozen=True)
class State:
    resume: int
    end: int
    """How far the journal was: if it is not any more, what committed between the two has to be read again."""
    open: Mapping[int, OpenState]
    tables: Mapping[str, Table]
    versions: tuple[str, ...] = ()
    """Fingerprints of the tables as the log had last told them."""
    scope: str = ""
    """What was captured: under other filters, an open transaction would lack records."""
    saved_us: int = 0


def name(epoch: int, number: int, *, state: bool = False) -> str:
    return f"{FOLDER}/{epoch:08d}-{number:010d}{_STATE if state else _RECORDS}"


def free_number(paths: Iterable[str], epoch: int) -> int:
    """The first one that no file of this epoch has."""
    mine = [path.partition("-")[2] for path in paths if path.startswith(f"{FOLDER}/{epoch:08d}-")]
    return max((int(rest.partition(".")[0]) + 1 for rest in mine), default=0)


def is_state(path: str) -> bool:
    return path.endswith(_STATE)


def write(files: Files, path: str, blocks: Sequence[Block], state: State, *, durable: bool) -> None:
    text = _to_json(state)
    schema = RECORDS.with_metadata({_KEY: text, _SUM: str(zlib.crc32(text)).encode()})
    with files.create(path, durable=durable) as out, pa.ipc.new_file(out, schema) as writer:
        for block in blocks:
            writer.write_batch(block.records)


def paths(files: Files) -> list[str]:
    """All spills, in the order of their writing."""
    return [f"{FOLDER}/{name}" for name in files.names(FOLDER) if name.endswith(".arrow")]


def restore(files: Files) -> State | None:
    """What was open when the last spill was written; None unless all that it speaks of is there, and intact."""
    states = [path for path in paths(files) if is_state(path)]
    last = _describe(files, states[-1]) if states else None
    if last is None:
        return None
    found = [_describe(files, path) for path in paths(files) if path < states[-1] and not is_state(path)]
    pieces: dict[int, list[Piece]] = {}
    for spilled in filter(None, found):
        for xid, one in spilled.open.items():
            if xid in last.open and one.life == last.open[xid].life:
                pieces.setdefault(xid, []).extend(one.pieces)
    whole = {xid: replace(one, pieces=tuple(pieces.get(xid, ()))) for xid, one in last.open.items()}
    if not all(one.is_whole() for one in whole.values()) or not _intact(files, whole.values()):
        return None
    tables = {k: t for spilled in (*found, last) if spilled is not None for k, t in spilled.tables.items()}
    return replace(last, open=whole, tables=tables)


def _intact(files: Files, transactions: Iterable[OpenState]) -> bool:
    reader = Reader(files)
    try:
        for piece in (piece for one in transactions for piece in one.everything):
            reader.read(piece)
    except CorruptState:
        return False
    return True


def given_up(files: Files) -> dict[int, int]:
    """The transactions that were given up, with the position of their commit; 0 while their end has not come."""
    text = files.read(_GIVEN_UP)
    return {int(xid): int(position) for xid, position in json.loads(text or b"{}").items()}


def write_given_up(files: Files, xids: Mapping[int, int]) -> None:
    with files.create(_GIVEN_UP, durable=True) as out:
        out.write(json.dumps(dict(xids)).encode())
    files.sync(FOLDER)


def _describe(files: Files, path: str) -> State | None:
    try:
        with files.open(path) as source:
            metadata = pa.ipc.open_file(source).schema.metadata or {}
        return _from_json(metadata[_KEY], int(metadata[_SUM]))
    except UNREADABLE:
        return None  # torn: the reader goes back to where the log has to be read from anyway


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
    """Reads many ranges: a file that was opened stays open, until the reader goes."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._opened: dict[str, Any] = {}

    def read(self, extent: Range) -> pa.RecordBatch:
        """The rows of a range, checked."""
        try:
            if extent.path not in self._opened:
                self._opened[extent.path] = pa.ipc.open_file(self._files.open(extent.path))
            batch = self._opened[extent.path].get_batch(extent.index)
            rows = batch.slice(extent.first, extent.last - extent.first)
            intact = len(rows) == extent.last - extent.first and checksum(rows) == extent.checksum
        except UNREADABLE as exc:
            raise CorruptState(f"The journal's file {extent.path} can't be read: {exc}.", hint=_HEALS) from exc
        if not intact:
            raise CorruptState(f"The journal's file {extent.path} is damaged.", hint=_HEALS)
        return rows


def read(files: Files, extent: Range) -> pa.RecordBatch:
    return Reader(files).read(extent)


def stamped(rows: pa.RecordBatch, position: int, committed: int) -> pa.RecordBatch:
    """Records as their commit makes them."""
    n = rows.num_rows
    columns = list(rows.columns)
    columns[0] = pa.array(np.full(n, position, np.int64))
    columns[4] = pa.array(np.full(n, committed, np.int64))
    return pa.record_batch(columns, schema=RECORDS)


def ranges(rows: pa.RecordBatch, edges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """For each row range its first ordinal, its bytes and its checksum."""
    ends, data = _payload(rows)
    names = ("ordinal", "position", "table_ordinal", "xid", "lsn", "op")
    numbers = np.stack([*(rows.column(name).to_numpy() for name in names), np.diff(ends)], axis=1, dtype=np.int64)
    origins = rows.column("origin")
    named = origins.null_count < len(origins)
    for first, last in edges:
        low, high, value = int(ends[first]), int(ends[last]), zlib.crc32(numbers[first:last].data)
        if named and any(own := origins.slice(first, last - first).to_pylist()):
            value = zlib.crc32(json.dumps(own).encode(), value)
        yield int(numbers[first, 0]), high - low, zlib.crc32(data[low:high], value)


def checksum(rows: pa.RecordBatch) -> int:
    return next(ranges(rows, [(0, len(rows))]))[2]


def _payload(rows: pa.RecordBatch) -> tuple[Any, memoryview]:
    column = rows.column("payload")
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return ends, memoryview(data) if data is not None else memoryview(b"")


_HEALS = "Start again: the journal drops what is damaged and reads it from the database once more."


def _to_json(state: State) -> bytes:
    tables = {k: t.to_json() for k, t in state.tables.items()}
    transactions = {xid: _packed(one) for xid, one in state.open.items()}
    places = {"format": FORMAT, "resume": state.resume, "end": state.end, "scope": state.scope, "us": state.saved_us}
    return json.dumps({**places, "open": transactions, "tables": tables, "versions": state.versions}).encode()


def _packed(one: OpenState) -> list[Any]:
    counts = [one.events, one.bytes, one.by_table, one.undos, one.unwatched_us]
    pieces = [[_listed(p) for p in group] for group in (one.pieces, one.carried)]
    return [one.begin, one.since_us, *counts, one.merged, *pieces]


def _listed(p: Piece) -> list[Any]:
    return [p.path, p.index, p.first, p.last, p.ordinal, p.bytes, p.checksum, p.table, p.undo]


def _unpacked(raw: list[Any]) -> OpenState:
    begin, since_us, events, size, by_table, undos, unwatched_us, merged, pieces, carried = raw
    counts = {int(k): int(v) for k, v in by_table.items()}
    kept, repeated = (tuple(Piece(*p) for p in group) for group in (pieces, carried))
    return OpenState(begin, since_us, events, size, counts, tuple(merged), undos, unwatched_us, kept, repeated)


def _from_json(text: bytes, total: int) -> State:
    if zlib.crc32(text) != total:
        raise ValueError("its description is damaged")
    raw: dict[str, Any] = json.loads(text)
    if raw["format"] != FORMAT:
        raise ValueError("written by another version of tidelog")
    return State(
        resume=int(raw["resume"]),
        end=int(raw["end"]),
        open={int(xid): _unpacked(one) for xid, one in raw["open"].items()},
        tables={k: Table.from_json(t) for k, t in raw["tables"].items()},
        versions=tuple(raw["versions"]),
        scope=raw["scope"],
        saved_us=int(raw["us"]),
    )
