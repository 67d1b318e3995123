"""Chunks on the executors: read a span of a table and stage it; later, reconcile it with its window and hand it over.

What was staged is never changed. A chunk whose stage is gone is read again in place, and reconciled with the
same stretch of the log under its new watermark: its rows may be newer than the batch then, and the events that follow
lead to them or past them; but what was delivered and is not visible yet must not be undone by them.
"""

from __future__ import annotations

import time
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.ipc

from tidelog import connectors
from tidelog.contracts import FAILURES, ChunkReader, Decoded, Decoder, Key, Scan, Slice, Span
from tidelog.core.fold import META, Run
from tidelog.core.snapshot import watermark, window
from tidelog.core.snapshot.plan import Manifest
from tidelog.engine.stage import Note, Stage
from tidelog.errors import ConfigError, TransientError
from tidelog.journal import segment
from tidelog.journal.files import Files
from tidelog.model.schema import Table
from tidelog.model.selection import Selection


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
    try:
        found = _read(task, attempt, texts=texts)
    except TransientError as exc:
        note = Note(Manifest(attempt, failed=exc.message))
    except ConfigError as exc:
        note = Note(Manifest(attempt, refused=str(exc)))
    else:
        size, checksum = _write(stage.files, stage.rows(task.chunk, attempt), found.rows)
        letters, letters_checksum = found.letters.num_rows, None
        if letters:
            _, letters_checksum = _write(stage.files, stage.letters(task.chunk, attempt), found.letters)
        ms = int((time.monotonic() - began) * 1000)
        manifest = Manifest(attempt, found.rows.num_rows, size, ms, found.position, found.table.shape)
        seen = found.table.to_json(), found.watermark, found.read_us
        note = Note(manifest, *seen, letters, checksum, letters_checksum)
    stage.put(task.chunk, note)
    return note


@dataclass(frozen=True)
class Found(Chunk):
    """With what it has seen of the log."""

    watermark: str = ""


def _read(task: Read, attempt: str, *, texts: bool) -> Found:
    reader: ChunkReader = connectors.chunk_reader(task.connector, task.options, task.pipeline)
    span = Span(task.low, task.high)
    opened = reader.open(task.scan, span, attempt=attempt, asked_by=task.asked_by, texts=texts)
    try:
        batches, letters = list(opened.rows()), opened.letters()
        position, read_us = opened.end(), time.time_ns() // 1000
    finally:
        opened.close()
    rows = window.stamp(pa.Table.from_batches(batches), position=position, ts_us=read_us)
    told = letters[:0] if task.sweep else _placed(letters, position)
    return Found(opened.table, rows, position, read_us, letters=told, watermark=opened.watermark.to_json())


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
    if task.read.sweep:
        return replace(staged, rows=_kept(staged.rows, runs, staged.table.key), file=None)
    key, exact = _key(staged.table, selection, staged.rows), watermark.from_json(staged.watermark).exact
    left = window.reconcile(staged.rows, runs, key, exact=exact)
    return staged if left.num_rows == staged.rows.num_rows and not runs else replace(staged, rows=left, file=None)


def _kept(rows: pa.Table, runs: Sequence[Run], key: Sequence[str]) -> pa.Table:
    """The keys that were there, and those that changed since: no other row of the target is one of the source."""
    keys = rows.select(list(key))
    return pa.concat_tables([keys, *(run.rows.select(list(key)).cast(keys.schema) for run in runs)])


def _staged(journal: str, task: Emit) -> Found | None:
    if not task.note:
        return None
    note, stage = Note.from_json(task.note), Stage(journal, task.read.reader)
    file = stage.rows(task.read.chunk, note.manifest.attempt)
    rows = load(stage.files, file, note.checksum)
    letters = _letters(stage, task.read.chunk, note)
    if rows is None or letters is None:
        return None
    return Found(note.version, rows, note.manifest.passed, note.read_us, file, letters, note.watermark)


def _letters(stage: Stage, chunk: str, note: Note) -> pa.Table | None:
    if not note.letters:
        return FAILURES.empty_table()
    return load(stage.files, stage.letters(chunk, note.manifest.attempt), note.letters_checksum)


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
    if field.name != "_before" or column.type == field.type:
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


def envelopes(task: Emit, chunk: Chunk, decoder: Decoder, selection: Selection) -> list[Decoded]:
    """The rows, read as texts, in the envelope; the very last row of an initial snapshot says so."""
    texts = chunk.rows.drop_columns([n for n in META if n in chunk.rows.column_names])
    cut = max(0, texts.num_rows - 1) if task.last else texts.num_rows
    parts = [(texts.slice(0, cut), task.snapshot), (texts.slice(cut), "last")]
    return [
        decoder.read_envelope(part, chunk.table, selection, snapshot=word, position=chunk.position, ts_us=chunk.read_us)
        for part, word in parts
        if part.num_rows
    ]


# -- files -------------------------------------------------------------------------------------------------------


def _write(files: Files, name: str, rows: pa.Table) -> tuple[int, int]:
    """The file's size and checksum."""
    content = dump(rows)
    files.write(name, content)
    return int(content.size), zlib.crc32(content)


def dump(rows: pa.Table) -> pa.Buffer:
    """A table as an Arrow file: written fast, and mapped into memory when it is read."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def load(files: Files, name: str, checksum: int | None = None) -> pa.Table | None:
    """None when the file is gone, or torn: cut, or with holes that only the checksum tells."""
    try:
        with files.open(name) as source:
            content = source.read_buffer()
    except FileNotFoundError:
        return None
    if checksum is not None and zlib.crc32(content) != checksum:
        return None
    try:
        return pa.ipc.open_file(content).read_all()
    except (pa.ArrowInvalid, OSError):
        return None
