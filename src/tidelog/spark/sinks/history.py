"""Every change, appended: the log of a table as a table.

Law: each batch is there exactly once per query. `parquet` names its files by query, table and batch and puts them in
place whole, so a batch that comes again writes the same files again; `delta` marks the commit with these.

Rows keep the columns of their version, by name, and `_op` … `_unchanged`; truncates are rows too. `_before` is JSON
text: an old row belongs to an old shape, and text outlives every change of it. A column that changes its type:
`parquet` files stay as they were written (read them with the types you want); in `delta` the column is widened when
the new type can hold the old values, and becomes text when it cannot. A renamed column is a new column.

Of a batch, what was read comes before the log. What a snapshot did not find any more (`keep`) is no change of the log,
and leaves no trace here.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs
import pyarrow.parquet as pq

from tidelog.contracts import FAILURES, Batch, FilledTarget, Sink, Source, TableChanges
from tidelog.core import moments
from tidelog.core.evolve import Parse, Step, as_text, plain
from tidelog.core.fold import in_order
from tidelog.core.metadata import BEFORE, PREFIX, shown, visible
from tidelog.core.requirements import Requirements
from tidelog.core.settings import Setting, parse
from tidelog.engine.filled_targets import FilledTargets
from tidelog.errors import TableRefused
from tidelog.model.schema import Table
from tidelog.model.selection import Selection
from tidelog.spark.sinks import delta, delta_options, presence
from tidelog.spark.sinks.console import render
from tidelog.spark.sinks.storage_errors import explained
from tidelog.spark.sinks.target import Beginnings, Engine, Mark, Target, own_uri, place_of, uri

SETTINGS = (
    *(
        s
        for s in delta_options.SETTINGS
        if s.name in {"path", "engine", "metadata.prefix", "optimize.every", "retention.hours", "stage", "storage"}
    ),
    Setting("format", "Files or a Delta table.", "parquet", choices=("parquet", "delta")),
)


class Log(Protocol):
    """Where the changes of tables are appended, each table in a folder of its own."""

    def exists(self, where: str) -> bool: ...

    def require_same(self, where: str, filled: FilledTarget) -> None:
        """Refuse a folder that is gone, or that holds another table than the one that was filled."""

    def prepare(self, where: str, runs: Sequence[pa.Table]) -> str:
        """Create what is missing, and return the identity of the table."""

    def append(self, where: str, runs: Sequence[pa.Table], mark: Mark) -> None: ...


@dataclass
class HistorySink:
    """Appends each table's changes to its log."""

    path: str
    log: Log
    prefix: str = PREFIX
    requirements: Requirements = field(default_factory=Requirements)
    filled: FilledTargets = field(default_factory=FilledTargets)
    _beginnings: Beginnings = field(default_factory=Beginnings, init=False)

    def apply(self, batch: Batch) -> None:
        marks = _marks(batch, is_first=self._beginnings.has(batch))
        for changes, mark in zip(batch.tables, marks, strict=True):
            self._require(changes, batch.selection)
            runs = [shown(run, visible(self.prefix)) for run in _runs(changes)]
            if runs:
                self._append(batch.query, changes.table, runs, mark)
        if batch.failures is not None and batch.failures.num_rows:
            mark = Mark(f"{batch.query}:history:_dead_letters", batch.id)
            self.log.append(own_uri(self.path, "_dead_letters"), [batch.failures.cast(FAILURES)], mark)

    def find_lost(self, query: str) -> list[FilledTarget]:
        return presence.missing(
            self.filled.all(query), lambda filled: self.log.exists(own_uri(self.path, filled.place))
        )

    def _append(self, query: str, table: Table, runs: Sequence[pa.Table], mark: Mark) -> None:
        where = uri(self.path, table.schema, table.name)
        known = self.filled.of(query, table.id)
        if known is not None and own_uri(self.path, known.place) == where:
            self.log.require_same(where, known)
        identity = self.log.prepare(where, runs)
        self.filled.add(query, [FilledTarget(table.id, table.qualified, place_of(table.schema, table.name), identity)])
        self.log.append(where, runs, mark)

    def _require(self, changes: TableChanges, selection: Selection) -> None:
        for version, _ in changes.rows:
            if obstacle := self.requirements.obstacle(version, selection):
                raise TableRefused.of(changes.table.id, obstacle.reason, hint=obstacle.cure)


def _marks(batch: Batch, *, is_first: bool) -> Iterator[Mark]:
    """Per table, by id: two of a batch may have one name, of which former releases wrote the first."""
    met: set[str] = set()
    for changes in batch.tables:
        table = changes.table
        unnamed = table.qualified not in met and is_first
        former = f"{batch.query}:history:{table.qualified}" if unnamed else ""
        if any(rows.num_rows for _, rows in changes.rows):
            met.add(table.qualified)
        yield Mark(f"{batch.query}:history:{table.id}:{table.qualified}", batch.id, former)


def _runs(changes: TableChanges) -> Iterator[pa.Table]:
    """Neighbouring runs of one shape together, what was read first, with `_before` as text."""
    gathered: list[pa.Table] = []
    for _, rows in in_order(changes.rows):
        if not rows.num_rows:
            continue
        readable = rows.set_column(rows.column_names.index(BEFORE), BEFORE, _texts(rows[BEFORE]))
        if gathered and not gathered[0].schema.equals(readable.schema):
            yield pa.concat_tables(gathered)
            gathered = []
        gathered.append(readable)
    if gathered:
        yield pa.concat_tables(gathered)


def _texts(before: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if before.null_count == len(before):
        return pa.nulls(len(before), pa.string())
    return pa.chunked_array([_objects(chunk) for chunk in before.chunks], pa.string())


def _objects(rows: pa.StructArray) -> pa.Array:
    """Structs as JSON, column by column."""
    parts: list[Any] = []
    for f, column in zip(rows.type, rows.flatten(), strict=True):
        parts += [f"{', ' if parts else '{'}{json.dumps(f.name, ensure_ascii=False)}: ", _values(column)]
    texts = pc.binary_join_element_wise(*parts, "}", "")
    return pc.if_else(pc.is_valid(rows), texts, pa.scalar(None, pa.string()))


def _values(column: pa.Array) -> pa.Array:
    """Values as JSON; what JSON has no word for as text."""
    kind, t = column.type, pa.types
    if t.is_integer(kind) or t.is_boolean(kind):
        texts = column.cast(pa.string())
    elif t.is_floating(kind):
        texts = pc.if_else(pc.is_finite(column), column.cast(pa.string()), _quoted(column))
    elif t.is_decimal(kind) or t.is_temporal(kind):
        texts = _quoted(column)
    elif t.is_string(kind) and not pc.any(pc.match_substring_regex(column, r"[\x00-\x1f]")).as_py():
        slashed = pc.replace_substring(column, "\\", "\\\\")
        texts = _quoted(pc.replace_substring(slashed, '"', '\\"'))
    else:
        texts = pa.array([None if v is None else render({"": v})[5:-1] for v in column.to_pylist()], pa.string())
    return texts.fill_null("null")


def _quoted(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', moments.texts(column), '"', "")


@dataclass(frozen=True)
class ParquetFiles:
    storage: Mapping[str, str] = field(default_factory=dict)

    def exists(self, where: str) -> bool:
        """A folder that somebody has emptied is there still: files of a history may be moved on."""
        with explained(where):
            place, root = filesystem(where, self.storage)
            return bool(place.get_file_info(root).type == fs.FileType.Directory)

    def require_same(self, where: str, filled: FilledTarget) -> None:
        if not self.exists(where):
            raise presence.lost(filled)

    def prepare(self, where: str, runs: Sequence[pa.Table]) -> str:  # noqa: ARG002
        with explained(where):
            place, root = filesystem(where, self.storage)
            place.create_dir(root, recursive=True)
        return ""

    def append(self, where: str, runs: Sequence[pa.Table], mark: Mark) -> None:
        with explained(where):
            place, root = filesystem(where, self.storage)
            place.create_dir(root, recursive=True)
            self._put_all(place, root, runs, mark)

    def _put_all(self, place: fs.FileSystem, root: str, runs: Sequence[pa.Table], mark: Mark) -> None:
        self._drop(place, root, mark.app, mark.version, first=len(runs))
        for i, rows in enumerate(runs):
            self._put(place, root, _file(mark.app, mark.version, i), rows)
        if mark.former:
            self._drop(place, root, mark.former, mark.version)

    @staticmethod
    def _drop(place: fs.FileSystem, root: str, app: str, version: int, *, first: int = 0) -> None:
        """Files that an earlier attempt at the batch has left: it may have had more of them, under other settings, or
        other names for them. The first goes last: it tells of the others."""
        names = (f"{root}/{_file(app, version, i)}" for i in count(first))
        there = list(takewhile(lambda name: place.get_file_info(name).type != fs.FileType.NotFound, names))
        for name in reversed(there):
            place.delete_file(name)

    @staticmethod
    def _put(place: fs.FileSystem, root: str, name: str, rows: pa.Table) -> None:
        """Whole or not at all. Names that begin with a dot are invisible to Spark and pyarrow."""
        draft = f"{root}/.{name}.{uuid.uuid4().hex}"
        try:
            pq.write_table(rows, draft, filesystem=place)
            place.move(draft, f"{root}/{name}")
        except BaseException:
            if place.get_file_info(draft).type != fs.FileType.NotFound:
                place.delete_file(draft)
            raise


def _file(app: str, batch: int, i: int) -> str:
    return f"{hashlib.sha256(app.encode()).hexdigest()[:12]}-{batch:012d}-{i:04d}.parquet"


_S3 = {
    "aws_access_key_id": "access_key",
    "aws_secret_access_key": "secret_key",
    "aws_session_token": "session_token",
    "aws_region": "region",
    "aws_endpoint_url": "endpoint_override",
}


SCHEMES = frozenset({"file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs"})
"""What pyarrow can write."""


def filesystem(where: str, storage: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI; S3 takes the same storage options as Delta does."""
    if where.startswith("s3://") and storage:
        return fs.S3FileSystem(**{_S3[k]: v for k, v in storage.items() if k in _S3}), where.removeprefix("s3://")
    if "://" in where:
        found, path = fs.FileSystem.from_uri(where)
        return found, path
    return fs.LocalFileSystem(), where


@dataclass
class DeltaLog:
    engine: Engine
    properties: Mapping[str, str] = field(default_factory=dict)
    _targets: dict[str, Target] = field(default_factory=dict, init=False)

    def exists(self, where: str) -> bool:
        return self._target(where).exists()

    def require_same(self, where: str, filled: FilledTarget) -> None:
        self._target(where).applied("")  # look at the table as it is now
        presence.require_same(filled, self._target(where))

    def prepare(self, where: str, runs: Sequence[pa.Table]) -> str:
        target = self._target(where)
        if target.schema() is None:
            target.create(_union([r.schema for r in runs]), self.properties)
        return target.identity()

    def append(self, where: str, runs: Sequence[pa.Table], mark: Mark) -> None:
        target = self._target(where)
        if mark.is_on(target):
            return
        shape = _union([target.schema(), *(r.schema for r in runs)])
        self._follow(target, shape)
        rows = pa.concat_tables([_cast(r, shape) for r in runs], promote_options="default")
        target.append(rows, mark)
        target.tidy()

    def _target(self, where: str) -> Target:
        if where not in self._targets:
            self._targets[where] = self.engine.target(where)
        return self._targets[where]

    def _follow(self, target: Target, shape: pa.Schema) -> None:
        present = target.schema()
        if present is None:
            target.create(shape, self.properties)
        elif any(plain(f.type) != plain(shape.field(f.name).type) for f in present):
            target.rewrite([Step(f, f.name if f.name in present.names else None) for f in shape])
        elif new := [f for f in shape if f.name not in present.names]:
            target.extend(new)


def _union(schemas: Sequence[pa.Schema | None]) -> pa.Schema:
    """All columns by name; the metadata columns come last in the first schema and stay where they are."""
    fields: dict[str, pa.Field] = {}
    for schema in filter(None, schemas):
        for f in schema:
            known = fields.get(f.name)
            fields[f.name] = pa.field(f.name, _common(known.type, f.type) if known else plain(f.type))
    return pa.schema(list(fields.values()))


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that holds the values of both: a wider number, else text."""
    one, other = plain(one), plain(other)
    if one == other:
        return one
    numbers = all(pa.types.is_integer(t) or pa.types.is_floating(t) for t in (one, other))
    if numbers and pa.types.is_integer(one) == pa.types.is_integer(other):
        return one if one.bit_width >= other.bit_width else other
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        scale = max(one.scale, other.scale)
        digits = max(one.precision - one.scale, other.precision - other.scale) + scale
        return pa.decimal128(digits, scale) if digits <= 38 else pa.string()
    return pa.string()


def _cast(rows: pa.Table, shape: pa.Schema) -> pa.Table:
    text = {n for n in rows.column_names if pa.types.is_string(shape.field(n).type)}
    columns = {n: as_text(rows[n]) if n in text else rows[n].cast(shape.field(n).type) for n in rows.column_names}
    return pa.table(columns, schema=pa.schema([shape.field(n) for n in columns]))


def requirements(options: Mapping[str, str]) -> Requirements:
    raw = _options(options)
    names = tuple(visible(raw["metadata.prefix"]).values())
    return Requirements(folds_case=raw["format"] == "delta", reserved=names, every_version=True)


def create(
    options: Mapping[str, str],
    *,
    spark: Any,
    source: Source | None,  # noqa: ARG001
    parse: Parse,  # noqa: ARG001
    shape: Any,  # noqa: ARG001
    filled: FilledTargets,
    former_writers: Collection[str] | None,  # noqa: ARG001
) -> Sink:
    raw, required = _options(options), requirements(options)
    if raw["format"] == "parquet":
        files = ParquetFiles(delta_options.storage(raw["storage"]))
        return HistorySink(raw["path"], files, raw["metadata.prefix"], required, filled)
    rest = {name: text for name, text in options.items() if name != "format"}
    chosen = delta_options.Options.of(rest)
    log = DeltaLog(delta.engine(chosen, spark), chosen.properties)
    return HistorySink(chosen.path, log, chosen.prefix, required, filled)


def _options(options: Mapping[str, str]) -> dict[str, Any]:
    return parse(SETTINGS, options, subject="The sink history")
