"""What runs on the executors: read slices of the journal, decode them, and hand Arrow to Spark.

Three shapes of the same thing: `envelope` (the Debezium envelope over many tables), `typed` (the columns of one table
with change metadata), and `staged`, which the pipeline uses: rows are decoded and laid down as Arrow files, one per
table version, and Spark carries only a small row that describes each file. So the rows of many tables, each
with its own types, cross one stream without passing through JSON or the JVM.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from tidelog import connectors
from tidelog.contracts import ENVELOPE, Decoded, Decoder, Slice
from tidelog.core.metadata import PREFIX, visible
from tidelog.core.transactions import Transaction
from tidelog.errors import UnsupportedChange
from tidelog.journal import segment
from tidelog.journal.files import Files
from tidelog.model.schema import Table
from tidelog.model.selection import Selection
from tidelog.spark import arrow_files, chunks

_LOG = logging.getLogger("tidelog")
_BATCH_ROWS = 10_000
"""As many as Spark itself takes at a time: they fit into the caches, of which its loop over rows lives."""
STAGED = pa.schema(
    [
        ("sequence", pa.int64()),  # order of the pieces of a batch
        ("table", pa.string()),  # the table version as JSON
        ("path", pa.string()),  # file with the rows; null when there are none
        ("chunk", pa.bool_()),  # it lies among the staged chunks, and stays there
        ("keep", pa.bool_()),  # its rows are keys: all that the target may keep
        ("snapshotting", pa.bool_()),  # the table's snapshot is not complete
        ("failures", pa.string()),  # file with the dead letters
        ("selection", pa.string()),  # what the batch was planned with
        ("rows", pa.int64()),
        ("position", pa.int64()),  # where the log speaks last in this piece, with or without a row
        ("ordinal", pa.int64()),  # and which record of that transaction it is
    ]
)


@dataclass(frozen=True)
class Task:
    """A partition: slices in log order and all that is needed to decode them, or a chunk to be read or delivered."""

    sequence: int
    journal: str
    connector: str
    selection: str
    shape: str
    slices: tuple[Slice, ...]
    commits: tuple[Slice, ...] = ()
    stage: str = ""
    read: chunks.Read | None = None
    emit: chunks.Emit | None = None
    snapshotting: frozenset[int] = frozenset()
    """Tables whose snapshot is not complete."""
    prefix: str = PREFIX
    """What the names of the metadata columns begin with, in the typed shape."""


def run(task: Task, schema: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
    decoder = connectors.decoder(task.connector)
    selection = Selection.from_json(task.selection)
    if task.read is not None:
        chunks.read(task.journal, task.read, texts=task.shape == "envelope")
    elif task.emit is not None:
        yield from _delivered(task, task.emit, decoder, selection, schema)
    elif task.shape == "staged":
        yield from _staged(task, decoder, selection)
    elif task.shape == "envelope":
        yield from _enveloped(task, decoder, selection)
    else:
        assert schema is not None
        yield from _typed(task, decoder, selection, schema)


def _delivered(
    task: Task, emit: chunks.Emit, decoder: Decoder, selection: Selection, schema: pa.Schema | None
) -> Iterator[pa.RecordBatch]:
    if emit.read.sweep:
        yield _swept(task, emit, decoder, selection)
        return
    chunk = chunks.deliver(task.journal, emit, decoder, selection, texts=task.shape == "envelope")
    if task.shape == "envelope":
        for decoded in chunks.envelopes(emit, chunk, decoder, selection):
            yield from _with_letters(decoded, selection)
    elif task.shape == "typed":
        assert schema is not None
        _warn(chunk.letters)
        for batch in chunk.rows.to_batches(max_chunksize=_BATCH_ROWS):
            yield fit(batch, schema, chunk.table, task.prefix)
    else:
        files, name = Files(task.stage), f"{task.sequence:06d}-{uuid.uuid4().hex[:12]}"
        path = chunk.file or _write(files, f"{name}.arrow", chunk.rows)
        row = _described(task, chunk.table, chunk.rows, path) | {"sequence": task.sequence * 10_000}
        row |= {"chunk": chunk.file is not None}
        row |= {"failures": _write(files, f"{name}-failures.arrow", chunk.letters)}
        row |= {"position": chunk.position, "ordinal": -1}
        yield pa.RecordBatch.from_pylist([row], schema=STAGED)


def _swept(task: Task, emit: chunks.Emit, decoder: Decoder, selection: Selection) -> pa.RecordBatch:
    """Two files of keys: those that were there, and those that changed since."""
    files, name = Files(task.stage), f"{task.sequence:06d}-{uuid.uuid4().hex[:12]}"
    found = chunks.deliver_keys(task.journal, emit, decoder, selection, files, f"{name}.arrow")
    row = _described(task, found.table, found.rows, found.file) | {"sequence": task.sequence * 10_000, "keep": True}
    row |= {"chunk": found.file != f"{name}.arrow", "position": found.position, "ordinal": -1}
    changed = {"path": _write(files, f"{name}-changed.arrow", found.rows), "chunk": False}
    return pa.RecordBatch.from_pylist([row, row | changed], schema=STAGED)


def _load(task: Task, piece: Slice) -> pa.RecordBatch:
    return segment.load(Files(task.journal), piece)


# -- envelope ----------------------------------------------------------------------------------------------------


def _enveloped(task: Task, decoder: Decoder, selection: Selection) -> Iterator[pa.RecordBatch]:
    for piece in task.slices:
        decoded = decoder.envelope(_load(task, piece), piece.table, selection)
        yield from _with_letters(decoded, selection)
    for piece in task.commits:
        yield _transactions(_load(task, piece), selection)


def _with_letters(decoded: Decoded, selection: Selection) -> Iterator[pa.RecordBatch]:
    yield decoded.rows
    if decoded.failures is not None and selection.failures == "dead-letter":
        yield _dead_letters(decoded.failures, selection)
    else:
        _warn(decoded.failures)


def _warn(failures: pa.RecordBatch | pa.Table | None) -> None:
    """Into the executor's log: a plain query has no other place for it."""
    if failures is not None and failures.num_rows:
        first = failures.slice(0, 1).to_pylist()[0]
        _LOG.warning(
            "%d records could not be decoded and were left out; %s at %d: %s",
            failures.num_rows,
            first["table"],
            first["position"],
            first["reason"],
        )


def _dead_letters(failures: pa.RecordBatch, selection: Selection) -> pa.RecordBatch:
    """Set aside on a topic of their own: position and reason; the raw record in hexadecimal."""
    rows = [
        {
            "topic": f"{selection.topic_prefix}.dead-letter",
            "after": json.dumps({**row, "payload": row["payload"].hex()}),
        }
        for row in failures.to_pylist()
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ENVELOPE)


def _transactions(commits: pa.RecordBatch, selection: Selection) -> pa.RecordBatch:
    rows = []
    topic = f"{selection.topic_prefix}.transaction"
    for commit in commits.to_pylist():
        counts = json.loads(commit["payload"] or b"{}")
        transaction = Transaction(f"{commit['xid']}:{commit['position']}", counts)
        ts_ms = commit["committed"] // 1000
        for told in (transaction.begin(), transaction.end()):
            key = json.dumps({"id": transaction.id})
            rows.append({"topic": topic, "key": key, "after": json.dumps({**told, "ts_ms": ts_ms}), "ts_ms": ts_ms})
    return pa.RecordBatch.from_pylist(rows, schema=ENVELOPE)


# -- typed -------------------------------------------------------------------------------------------------------


def _typed(task: Task, decoder: Decoder, selection: Selection, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for piece in task.slices:
        if piece.table is not None:
            decoded = decoder.typed(_load(task, piece), piece.table, selection)
            _warn(decoded.failures)
            yield fit(decoded.rows, schema, piece.table, task.prefix)


def fit(rows: pa.RecordBatch, schema: pa.Schema, table: Table, prefix: str = PREFIX) -> pa.RecordBatch:
    """Rows of any version in the shape the query was started with: new columns wait for its next start, also one that
    is called like a metadata column."""
    own = {shown: hidden for hidden, shown in visible(prefix).items()}
    columns = [_fit_column(rows, own.get(field.name, field.name), field, table) for field in schema]
    return pa.record_batch(columns, schema=schema)


def _fit_column(rows: pa.RecordBatch, name: str, field: pa.Field, table: Table) -> pa.Array:
    index = rows.schema.get_field_index(name)
    if index < 0:
        return pa.nulls(rows.num_rows, field.type)
    column = rows.column(index)
    if column.type == field.type:
        return column
    if pa.types.is_struct(field.type):
        parts = [_fit_column(_unpacked(column), f.name, f, table) for f in field.type]
        return pa.StructArray.from_arrays(parts, fields=list(field.type), mask=column.is_null())
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as exc:
        raise UnsupportedChange(
            f"{table.qualified}.{field.name} changed its type, and a value no longer fits the type that the query "
            f"was started with ({field.type}).",
            hint="Start the query again.",
        ) from exc


def _unpacked(column: pa.StructArray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(column.flatten(), names=[f.name for f in column.type])


# -- staged ------------------------------------------------------------------------------------------------------


def _staged(task: Task, decoder: Decoder, selection: Selection) -> Iterator[pa.RecordBatch]:
    """One row per run of slices of one table version. A file's name is unique to the attempt; the driver reads the
    names that came through."""
    attempt = uuid.uuid4().hex[:12]
    rows = []
    for number, (_, run) in enumerate(groupby(task.slices, key=_version)):
        pieces = list(run)
        if pieces[0].table is not None:
            name = f"{task.sequence:06d}-{number:04d}-{attempt}"
            rows.append(_stage(task, decoder, selection, pieces, name) | {"sequence": task.sequence * 10_000 + number})
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=STAGED)


def _version(piece: Slice) -> str:
    return piece.table.fingerprint if piece.table is not None else ""


def _stage(task: Task, decoder: Decoder, selection: Selection, pieces: Sequence[Slice], name: str) -> dict[str, object]:
    table = pieces[0].table
    assert table is not None
    records = [_load(task, piece) for piece in pieces]
    decoded = [decoder.typed(part, table, selection) for part in records]
    rows = pa.Table.from_batches([d.rows for d in decoded], decoder.schema(table, selection))
    files = Files(task.stage)
    path = _write(files, f"{name}.arrow", rows)
    position, ordinal = max(map(_last, records))
    return _described(task, table, rows, path) | {
        "failures": _write(files, f"{name}-failures.arrow", _failures(decoded)),
        "position": position,
        "ordinal": ordinal,
    }


def _last(records: pa.RecordBatch) -> tuple[int, int]:
    """Position and ordinal of the last of these, which are in log order."""
    if not records.num_rows:
        return -1, -1
    return records["position"][-1].as_py(), records["ordinal"][-1].as_py()


def _described(task: Task, table: Table, rows: pa.Table, path: str | None) -> dict[str, object]:
    return {
        "table": table.to_json(),
        "path": path,
        "chunk": False,
        "keep": False,
        "snapshotting": table.id in task.snapshotting,
        "selection": task.selection,
        "rows": rows.num_rows,
    }


def _failures(decoded: Sequence[Decoded]) -> pa.Table | None:
    found = [d.failures for d in decoded if d.failures is not None and d.failures.num_rows]
    return pa.Table.from_batches(found) if found else None


def _write(files: Files, name: str, rows: pa.Table | None) -> str | None:
    if rows is None or not rows.num_rows:
        return None
    files.write(name, arrow_files.dump(rows))
    return name


def bundle(slices: Sequence[Slice], rows: int, size: int) -> list[tuple[Slice, ...]]:
    """Neighbouring slices together in partitions of about `rows` rows or `size` bytes."""
    bundles: list[list[Slice]] = []
    taken_rows = taken_bytes = 0
    for piece in slices:
        n = piece.last - piece.first
        if not bundles or taken_rows + n > rows or taken_bytes + piece.bytes > size:
            bundles.append([])
            taken_rows = taken_bytes = 0
        bundles[-1].append(piece)
        taken_rows, taken_bytes = taken_rows + n, taken_bytes + piece.bytes
    return [tuple(b) for b in bundles]
