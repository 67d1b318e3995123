"""Delta by delta-rs: no JVM, no jars; the engine for one machine.

Table objects stay open between batches and follow the log incrementally. Short cuts, all exact: a batch whose keys lie
outside the key range of every file is appended, since nothing can match; a merge names its key range, so files without
these keys are not read; and rows of a snapshot that are all new are appended before the rest is merged, so that a few
changes of other keys do not make a merge over the whole table of them. A merge rewrites each file it touches whole, so
files are kept small: about a sixty-fourth of the table. Every so many commits the ones that are too small are joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.core.evolve import Step, plain, transform
from tidelog.core.fold import match
from tidelog.errors import NotInstalled, TransientError
from tidelog.spark.sinks.target import DELETE, Mark, Merge, Target, pad

FILE_BYTES = (8 << 20, 128 << 20)
"""How large a file may be, in small and in large tables: a merge rewrites every file that it touches."""
FILES = 64
FEW_FILES = 8
MANY_READS = 5000
"""From how many rows of a snapshot on it pays to write the new ones apart from what has to be merged."""
SIZE = "delta.targetFileSize"
_COARSE = pa.scalar(1000, pa.duration("us"))
"""Statistics tell moments in milliseconds, cut off."""


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def driver() -> Any:
    try:
        import deltalake
    except ImportError as exc:
        raise NotInstalled(
            "The Delta sink needs the package deltalake.", hint="Run: pip install 'tidelog[delta]'"
        ) from exc
    return deltalake


@dataclass
class RustTarget:
    uri: str
    storage: Mapping[str, str] = field(default_factory=dict)
    every: int = 50
    """After how many commits to look for small files; 0 for never."""
    retention_hours: int = 24
    _table: Any = None
    _tidied: int = 0

    def schema(self) -> pa.Schema | None:
        table = self._open()
        if table is None:
            return None
        fields = pa.schema(table.schema().to_arrow())
        return pa.schema([f.with_type(plain(f.type)) for f in fields])

    def properties(self) -> Mapping[str, str]:
        table = self._open()
        return {} if table is None else dict(table.metadata().configuration)

    def version(self) -> int:
        return int(self._existing().version())

    def applied(self, app: str) -> int:
        table = self._open(refresh=True)
        version = None if table is None else table.transaction_version(app)
        return -1 if version is None else int(version)

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> None:
        with self._commit():
            self._table = driver().DeltaTable.create(
                self.uri,
                schema,
                mode="ignore",
                configuration={SIZE: str(FILE_BYTES[0]), **properties},
                storage_options=dict(self.storage),
                raise_if_key_not_exists=False,
            )

    def describe(self, properties: Mapping[str, str]) -> None:
        with self._commit():
            self._existing().alter.set_table_properties(dict(properties), raise_if_not_exists=False)

    def extend(self, fields: Sequence[pa.Field]) -> None:
        with self._commit():
            self._existing().alter.add_columns([driver().Field.from_arrow(f) for f in fields])

    def rewrite(self, steps: Sequence[Step]) -> None:
        old = self._existing().scan()
        shape = pa.schema([s.field for s in steps])
        batches = (b for part in _read(old) for b in transform(steps, pa.Table.from_batches([part])).to_batches())
        self._overwrite(pa.RecordBatchReader.from_batches(shape, batches), None, schema_mode="overwrite")

    def become(self, origin: Target, version: int, properties: Mapping[str, str]) -> None:
        source = driver().DeltaTable(origin.uri, version=version, storage_options=dict(self.storage))
        shape = pa.schema([f.with_type(plain(f.type)) for f in pa.schema(source.schema().to_arrow())])
        if self._open() is None:
            self.create(shape, {k: v for k, v in properties.items() if not k.startswith("tidelog.")})
        batches = (b for part in _read(source.scan()) for b in pa.Table.from_batches([part]).cast(shape).to_batches())
        self._overwrite(pa.RecordBatchReader.from_batches(shape, batches), None, schema_mode="overwrite")
        self.describe(properties)

    def merge(self, merge: Merge, mark: Mark | None) -> None:
        if merge.inserts and not merge.others:
            if self._apart(merge):
                self.append(merge.alive(), mark)
                return
            if self._all_new(merge):
                self._append_first(merge, mark)
                return
        with self._commit():
            work = self._existing().merge(
                _strict(merge.rows),
                predicate=merge.condition(quote),
                source_alias="s",
                target_alias="t",
                streamed_exec=False,
                commit_properties=_properties(mark),
            )
            gone = f"s.{quote(DELETE)}"
            if merge.deletes:
                work = work.when_matched_delete(gone)
            if updates := merge.updates(quote):
                work = work.when_matched_update(updates)
            if merge.inserts:
                work = work.when_not_matched_insert(
                    merge.insertions(quote), predicate=f"NOT {gone}" if merge.deletes else None
                )
            if merge.others:
                work = work.when_not_matched_by_source_update({quote(c): v for c, v in merge.others.items()})
            work.execute()

    def _append_first(self, merge: Merge, mark: Mark | None) -> None:
        """Append what a snapshot read, then merge the rest. Interrupted between, it is new no more, and merged."""
        assert merge.reads is not None
        rest = merge.some(~merge.reads)
        self.append(merge.some(merge.reads).alive(), None if rest.rows.num_rows else mark)
        if rest.rows.num_rows:
            self.merge(rest, mark)

    def _all_new(self, merge: Merge) -> bool:
        """Whether the target has none of the rows that a snapshot read, where it is cheap to know and they are many.
        If it has one, a merge among their keys has to be done anyway."""
        if merge.reads is None or merge.reads.sum() < MANY_READS:
            return False
        part = merge.some(merge.reads)
        if self._apart(part):
            return True
        keys = part.rows.select(list(merge.key))
        return bool(part.span("")) and not self.lookup(keys, []).num_rows

    def replace(self, rows: pa.Table, mark: Mark | None) -> None:
        self._overwrite(pad(rows, self._shape()), mark)

    def append(self, rows: pa.Table, mark: Mark | None) -> None:
        with self._commit():
            driver().write_deltalake(
                self._existing(), pad(rows, self._shape()), mode="append", commit_properties=_properties(mark)
            )

    def lookup(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        key = keys.column_names
        predicate = " AND ".join(Merge(keys, tuple(key), tuple(key)).span(quote(key[0]))) or None
        names = [*key, *(c for c in columns if c not in key)]
        return self.scan(names, predicate, lambda part: match(part, keys, key) >= 0)

    def read(self, columns: Sequence[str]) -> pa.Table:
        return self.scan(columns, None)

    def scan(self, columns: Sequence[str] | None, predicate: str | None, where: Any = None) -> pa.Table:
        schema = self._shape()
        shape = pa.schema([schema.field(c) for c in columns]) if columns is not None else schema
        parts = []
        for batch in _read(self._existing().scan(columns=shape.names, predicate=predicate)):
            part = pa.Table.from_batches([batch]).cast(shape)
            parts.append(part if where is None else part.filter(pa.array(where(part))))
        return pa.concat_tables(parts) if parts else shape.empty_table()

    def tidy(self) -> None:
        table = self._existing()
        if not self.every or table.version() - self._tidied < self.every:
            return
        sizes = pa.table(table.get_add_actions())["size_bytes"]
        best = file_bytes(pc.sum(sizes).as_py() or 0)
        if self.properties().get(SIZE) != str(best):
            self.describe({SIZE: str(best)})
        if (pc.sum(pc.less(sizes, best // 2)).as_py() or 0) >= FEW_FILES:
            with self._commit():
                table.optimize.compact(target_size=best)
        table.vacuum(retention_hours=self.retention_hours, dry_run=False, enforce_retention_duration=False)
        self._tidied = table.version()

    def _apart(self, merge: Merge) -> bool:
        """Whether no row of the target can have one of the merge's keys, by the statistics of all its files."""
        files = pa.table(self._existing().get_add_actions(flatten=True))
        if not files.num_rows:
            return True
        name, known = merge.key[0], set(files.column_names)
        if merge.edges is None or not {f"min.{name}", f"max.{name}"} <= known:
            return False
        least, most = files[f"min.{name}"], files[f"max.{name}"]
        if least.null_count or most.null_count:  # a file without statistics may hold anything
            return False
        least, most = least.cast(merge.edges[0].type), most.cast(merge.edges[0].type)
        if pa.types.is_timestamp(least.type):
            least, most = pc.subtract(least, _COARSE), pc.add(most, _COARSE)
        touching = pc.and_(pc.less_equal(least, merge.edges[1]), pc.greater_equal(most, merge.edges[0]))
        return not pc.any(touching).as_py()

    def _shape(self) -> pa.Schema:
        schema = self.schema()
        assert schema is not None
        return schema

    def _existing(self) -> Any:
        table = self._open()
        assert table is not None, self.uri
        return table

    def _open(self, refresh: bool = False) -> Any:
        if self._table is None:
            found = driver().DeltaTable.is_deltatable(self.uri, storage_options=dict(self.storage))
            self._table = driver().DeltaTable(self.uri, storage_options=dict(self.storage)) if found else None
            self._tidied = self._table.version() // max(self.every, 1) * self.every if found else 0
        elif refresh:
            self._table.update_incremental()
        return self._table

    def _overwrite(self, rows: Any, mark: Mark | None, schema_mode: str | None = None) -> None:
        with self._commit():
            driver().write_deltalake(
                self._existing(), rows, mode="overwrite", schema_mode=schema_mode, commit_properties=_properties(mark)
            )

    @contextmanager
    def _commit(self) -> Iterator[None]:
        """A commit that another writer got in the way of is tried again with the batch, on the table as it is then."""
        try:
            yield
        except driver().exceptions.CommitFailedError as exc:
            self._table = None
            raise TransientError(f"Another writer changed {self.uri} during a commit: {exc}") from exc
        except BaseException:
            self._table = None  # its state may be half-way: read it anew
            raise


@dataclass(frozen=True)
class RustEngine:
    storage: Mapping[str, str] = field(default_factory=dict)
    every: int = 50
    retention_hours: int = 24

    def __post_init__(self) -> None:
        driver()

    def target(self, uri: str) -> RustTarget:
        return RustTarget(uri, self.storage, self.every, self.retention_hours)


def file_bytes(total: int) -> int:
    """The size of a file in a table of `total` bytes, in powers of two so that it rarely changes."""
    least, most = FILE_BYTES
    return min(most, max(least, 1 << (total // FILES).bit_length()))


def _properties(mark: Mark | None) -> Any:
    if mark is None:
        return None
    return driver().CommitProperties(app_transactions=[driver().Transaction(mark.app, mark.version)])


def _read(reader: Any) -> Iterator[pa.RecordBatch]:
    yield from pa.RecordBatchReader.from_stream(reader)


def _strict(rows: pa.Table) -> pa.Table:
    """Without field metadata: a merge would compare it."""
    return rows.cast(pa.schema([f.remove_metadata() for f in rows.schema]))
