"""Chunks on the executors: read a span of a table and stage it; later, reconcile it with its window and hand it over.

What was staged is never changed. A chunk whose stage is gone is read again in place, and reconciled with the
same stretch of the log under its new watermark: its rows may be newer than the batch then, and the events that follow
lead to them or past them; but what was delivered and is not visible yet must not be undone by them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa

from tidelog import connectors
from tidelog.contracts import FAILURES, ChunkReader, Decoded, Decoder, Key, OpenChunk, Scan, Slice, Span
from tidelog.core.fold import Run
from tidelog.core.large import PIECE_BYTES, pieces
from tidelog.core.metadata import BEFORE, META
from tidelog.core.snapshot import watermark, window
from tidelog.core.snapshot.world import Manifest
from tidelog.engine.stage import Note, Stage
from tidelog.errors import ConfigError, TransientError
from tidelog.journal import segment
from tidelog.journal.files import Files
from tidelog.model.schema import Table
from tidelog.model.selection import Selection
from tidelog.spark import arrow_files
from tidelog.spark.arrow_files import Written


@dataclass(frozen=True)
class Read:
    """A span of a table to be read and staged."""

    chunk: str
    table: str
    key: tuple[str, ...]
    low: Key | None
    high: Key | None
    condition: str
    asked_by: str
    reader: str
    connector: str
    pipeline: str
    options: dict[str, str] = field(repr=False)
    """The connector's settings, the password among them."""
    export: str = ""
    sweep: bool = False
    """Only the keys, and all of them."""

    @property
    def scan(self) -> Scan:
        table = Table.from_json(self.table)
        return Scan(table, self.key, self.condition, table.key if self.sweep else (), self.export)


@dataclass(frozen=True)
class Emit:
    """A staged chunk to be delivered."""

    read: Read
    note: str
    """What the attempt that counts has left; empty when that is gone."""
    window: tuple[Slice, ...]
    snapshot: str
    """What the events' source says of it."""
    last: bool = False


@dataclass(frozen=True)
class Chunk:
    """Rows of a table as `r` events, in the typed shape or as texts."""

    table: Table
    rows: pa.Table
    position: int
    read_us: int
    file: str | None = None
    """Where exactly these rows lie already."""
    letters: pa.Table = field(default_factory=FAILURES.empty_table)
    """Rows that do not fit their types. They are told of as they were read, whatever the window says."""


def read(journal: str, task: Read, *, texts: bool) -> Note:
    """Stage one attempt to read a chunk. What cannot be read is told to the planner: the stream goes on."""
    stage, attempt, began = Stage(journal, task.reader), uuid.uuid4().hex, time.monotonic()
    file = stage.rows(task.chunk, attempt)
    try:
        if task.sweep:
            found, written = _pour(task, attempt, stage.files, file, texts=texts)
        else:
            found = _read(task, attempt, texts=texts)
            written = arrow_files.write(stage.files, file, found.rows)
    except TransientError as exc:
        note = Note(Manifest(attempt, failed=exc.message))
    except ConfigError as exc:
        note = Note(Manifest(attempt, refused=str(exc)))
    else:
        letters, letters_checksum = found.letters.num_rows, None
        if letters:
            letters_checksum = arrow_files.write(
                stage.files, stage.letters(task.chunk, attempt), found.letters
            ).checksum
        ms = int((time.monotonic() - began) * 1000)
        manifest = Manifest(attempt, written.rows, written.size, ms, found.position, found.table.shape)
        seen = found.table.to_json(), found.watermark, found.read_us
        note = Note(manifest, *seen, letters, written.checksum, letters_checksum)
    stage.put(task.chunk, note)
    return note


@dataclass(frozen=True)
class Found(Chunk):
    """With what it has seen of the log."""

    watermark: str = ""


@contextmanager
def _opened(task: Read, attempt: str, *, texts: bool) -> Iterator[OpenChunk]:
    reader: ChunkReader = connectors.chunk_reader(task.connector, task.options, task.pipeline)
    span = Span(task.low, task.high)
    opened = reader.open(task.scan, span, attempt=attempt, asked_by=task.asked_by, texts=texts)
    try:
        yield opened
    finally:
        opened.close()


def _read(task: Read, attempt: str, *, texts: bool) -> Found:
    with _opened(task, attempt, texts=texts) as opened:
        batches, letters = list(opened.rows()), opened.letters()
        position, read_us = opened.end(), time.time_ns() // 1000
    rows = window.stamp(pa.Table.from_batches(batches), position=position, ts_us=read_us)
    told = _placed(letters, position)
    return Found(opened.table, rows, position, read_us, letters=told, watermark=opened.watermark.to_json())


def _pour(task: Read, attempt: str, files: Files, name: str, *, texts: bool) -> tuple[Found, Written]:
    """All keys of a table, straight into a file: only their columns stay here."""
    with _opened(task, attempt, texts=texts) as opened:
        batches = opened.rows()
        first = next(batches)
        written = arrow_files.pour(files, name, first.schema, chain([first], batches))
        position, read_us = opened.end(), time.time_ns() // 1000
    none = first.schema.empty_table()
    return Found(opened.table, none, position, read_us, name, watermark=opened.watermark.to_json()), written


def _placed(letters: pa.Table, position: int) -> pa.Table:
    places = {"position": pa.repeat(pa.scalar(position, pa.int64()), letters.num_rows)}
    places["ordinal"] = pa.array(range(letters.num_rows), pa.int64())
    return pa.table([places.get(f.name, letters[f.name]) for f in FAILURES], schema=FAILURES)


def deliver(journal: str, task: Emit, decoder: Decoder, selection: Selection, *, texts: bool) -> Chunk:
    """What is left of a chunk at the end of the batch that delivers it."""
    staged = _staged(journal, task) or _read(task.read, uuid.uuid4().hex, texts=texts)
    runs = _window(journal, task, staged, decoder, selection, texts=texts)
    if runs is None:  # the table was changed too much meanwhile to compare; as it is now, it can be
        staged = _read(task.read, uuid.uuid4().hex, texts=texts)
        runs = _window(journal, task, staged, decoder, selection, texts=texts) or []
    key, exact = _key(staged.table, selection, staged.rows), watermark.from_json(staged.watermark).exact
    left = window.reconcile(staged.rows, runs, key, exact=exact)
    return staged if left.num_rows == staged.rows.num_rows and not runs else replace(staged, rows=left, file=None)


def deliver_keys(journal: str, task: Emit, decoder: Decoder, selection: Selection, files: Files, name: str) -> Found:
    """The keys that were there, by their file, and as rows those that changed since: no other row of the target is one
    of the source. Where the file is gone, another one of this name is written."""
    staged = _staged_keys(journal, task) or _pour(task.read, uuid.uuid4().hex, files, name, texts=False)[0]
    runs = _window(journal, task, staged, decoder, selection, texts=False)
    if runs is None:
        staged, _ = _pour(task.read, uuid.uuid4().hex, files, name, texts=False)
        runs = _window(journal, task, staged, decoder, selection, texts=False) or []
    return replace(staged, rows=pa.concat_tables([staged.rows, *(run.rows for run in runs)]))


def _staged_keys(journal: str, task: Emit) -> Found | None:
    if not task.note:
        return None
    note, stage = Note.from_json(task.note), Stage(journal, task.read.reader)
    file, table = stage.rows(task.read.chunk, note.manifest.attempt), note.version
    schema = arrow_files.schema_of(stage.files, file, note.checksum)
    if schema is None or not set(table.key) <= set(schema.names):  # it has another key since this was planned
        return None
    none = pa.schema([schema.field(name) for name in table.key]).empty_table()
    return Found(table, none, note.manifest.passed, note.read_us, file, watermark=note.watermark)


def _staged(journal: str, task: Emit) -> Found | None:
    if not task.note:
        return None
    note, stage = Note.from_json(task.note), Stage(journal, task.read.reader)
    file = stage.rows(task.read.chunk, note.manifest.attempt)
    rows = arrow_files.load(stage.files, file, note.checksum)
    letters = _letters(stage, task.read.chunk, note)
    if (
        rows is None or letters is None or not set(META) <= set(rows.column_names)
    ):  # an older release named these otherwise
        return None
    return Found(note.version, rows, note.manifest.passed, note.read_us, file, letters, note.watermark)


def _letters(stage: Stage, chunk: str, note: Note) -> pa.Table | None:
    if not note.letters:
        return FAILURES.empty_table()
    return arrow_files.load(stage.files, stage.letters(chunk, note.manifest.attempt), note.letters_checksum)


def _window(
    journal: str, task: Emit, found: Found, decoder: Decoder, selection: Selection, *, texts: bool
) -> list[Run] | None:
    """The events that the chunk has not seen, in its shape; None when they cannot be brought into it."""
    everything, seen = replace(selection, skipped=()), watermark.from_json(found.watermark)
    runs: list[Run] = []
    for piece in task.window:
        assert piece.table is not None
        decode = decoder.texts if texts else decoder.typed
        events = decode(segment.load(Files(journal), piece), piece.table, everything).rows
        unseen = window.uncovered(pa.Table.from_batches([events]), seen)
        run = _aligned(unseen, found.rows.schema, piece.table, found.table)
        if run is None:
            return None
        if run.rows.num_rows:
            runs.append(run)
    return runs


def _aligned(events: pa.Table, schema: pa.Schema, version: Table, wanted: Table) -> Run | None:
    """Events of another version of the table in the chunk's shape; what they do not tell is unknown."""
    whole = version.old_image == "full"
    if events.schema.equals(schema) or not events.num_rows:
        return Run(events, whole=whole)
    if version.key != wanted.key:
        return None
    unknown = [f.name for f in schema if f.name not in events.column_names]
    try:
        columns = [_column(events, f) for f in schema]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return Run(pa.table(columns, schema=schema), frozenset(unknown), whole=whole)


def _column(events: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    if field.name not in events.column_names:
        return pa.nulls(events.num_rows, field.type)
    column = events[field.name]
    if field.name != BEFORE or column.type == field.type:
        return column.cast(field.type)
    olds = column.combine_chunks()
    names = [f.name for f in olds.type]
    parts = [
        olds.field(names.index(f.name)).cast(f.type) if f.name in names else pa.nulls(len(olds), f.type)
        for f in field.type
    ]
    return pa.StructArray.from_arrays(parts, fields=list(field.type), mask=olds.is_null())


def _key(table: Table, selection: Selection, rows: pa.Table) -> Sequence[str]:
    """The replica identity's columns, as far as they are delivered."""
    return table.key if set(table.key) <= set(rows.column_names) else selection.key_of(table)


def _small(rows: pa.Table) -> list[pa.Table]:
    """In parts, where the rows are large: JSON texts are larger still, and a column of them is one array."""
    if rows.nbytes <= PIECE_BYTES:
        return [rows]
    return [pa.Table.from_batches([piece]) for batch in rows.to_batches() for piece in pieces(batch)]


def envelopes(task: Emit, chunk: Chunk, decoder: Decoder, selection: Selection) -> list[Decoded]:
    """The rows, read as texts, in the envelope; the very last row of an initial snapshot says so."""
    texts = chunk.rows.drop_columns([n for n in META if n in chunk.rows.column_names])
    cut = max(0, texts.num_rows - 1) if task.last else texts.num_rows
    parts = [(part, task.snapshot) for part in _small(texts.slice(0, cut))] + [(texts.slice(cut), "last")]
    return [
        decoder.read_envelope(part, chunk.table, selection, snapshot=word, position=chunk.position, ts_us=chunk.read_us)
        for part, word in parts
        if part.num_rows
    ]
