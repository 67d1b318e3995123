"""Delta by delta-rs: no JVM, no jars; the engine for one machine.

Table objects stay open between batches and follow the log incrementally. Short cuts, all exact: a batch whose keys lie
outside the key range of every file is appended, since nothing can match; a merge names its key range, so files without
these keys are not read; and what a snapshot read comes first, apart from the rest: appended, or in the place of its
range of keys. A merge rewrites each file it touches whole, so files are kept small: about a sixty-fourth of the table.
Every so many commits the ones that are too small are joined.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.core.evolve import Step, transform
from tidelog.core.fold import match
from tidelog.core.large import pieces, wide
from tidelog.core.moments import distant
from tidelog.spark.sinks.delta_counting import COUNTED, counted_of, joined, relisted
from tidelog.spark.sinks.delta_properties import commit_properties
from tidelog.spark.sinks.delta_ranges import Ranges
from tidelog.spark.sinks.delta_rs import DeltaRsTable, driver, shape_of
from tidelog.spark.sinks.staged_answers import StagedAnswers, staged
from tidelog.spark.sinks.stretches import stretches
from tidelog.spark.sinks.target import DELETE, Answers, Known, Mark, Merge, Target, pad, portions

FILE_BYTES = (8 << 20, 128 << 20)
"""How large a file may be, in small and in large tables: a merge rewrites every file that it touches."""
FILES = 64
"""Into how many files a table is divided."""
FEW_FILES = 8
"""So many that are too small may stay."""
MANY_READS = 5000
"""From how many rows of a snapshot on it pays to write the new ones apart from what has to be merged."""
STRETCH_BYTES = 256 << 20
"""How much of a table is held in memory at most so that its files stay neighbours."""
PORTION_ROWS, PORTION_BYTES = 200_000, 64 << 20
"""How much of a table is looked through at a time."""
FILL_ROWS, FILL_BYTES = 1_000_000, 128 << 20
"""How much of a table is given the answers of the source at a time."""
SIZE = "delta.targetFileSize"


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_STREAMED_OVERWRITE = threading.Lock()
"""delta-rs blocks one of its threads while it writes rows that are read meanwhile, and reading them needs another: two
such writes beside each other, or one beside other commits, can wait for each other for ever."""


@dataclass
class RustTarget(DeltaRsTable):
    every: int = 50
    """After how many commits to look for small files; 0 for never."""
    retention_hours: int = 24
    _tidied: int = field(default=0, init=False)

    def _load(self) -> None:
        super()._load()
        if self._table is not None:
            self._tidied = self._table.version() // max(self.every, 1) * self.every

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> None:
        with self._guard():
            self._table = driver().DeltaTable.create(
                self.uri,
                schema,
                mode="ignore",
                configuration={SIZE: str(FILE_BYTES[0]), **properties},
                storage_options=dict(self.storage),
                raise_if_key_not_exists=False,
            )
        self._newest_commit = self._find_newest_commit()

    def describe(self, properties: Mapping[str, str]) -> None:
        with self._guard():
            if not commit_properties(self._existing(), properties):
                self._existing().alter.set_table_properties(dict(properties), raise_if_not_exists=False)

    def extend(self, fields: Sequence[pa.Field]) -> None:
        with self._guard():
            self._existing().alter.add_columns([driver().Field.from_arrow(f) for f in fields])

    def rewrite(self, steps: Sequence[Step], answers: Answers | None = None) -> None:
        if answers is None:
            self._rewrite(steps, None)
            return
        with staged(answers) as on_disk:
            self._rewrite(steps, on_disk)

    def _rewrite(self, steps: Sequence[Step], answers: StagedAnswers | None) -> None:
        distant_names = answers.distant_names if answers is not None else set()
        listed = relisted(self.properties().get(COUNTED), self._shape().names, steps, distant_names)
        if listed is not None:
            self.describe({COUNTED: joined(listed)})
        shape = pa.schema([s.field for s in steps])
        with self._guard():
            found = _read(self._existing().scan())
        parts = (pa.Table.from_batches([batch]) for batch in found)
        parts = (transform(steps, part) for part in parts)
        if answers is not None:  # each portion looks through the answers of its range of keys
            parts = (answers.fill(part) for part in portions(parts, FILL_ROWS, FILL_BYTES))
        batches = (batch for part in parts for batch in part.to_batches())
        with _STREAMED_OVERWRITE:
            self._overwrite(pa.RecordBatchReader.from_batches(shape, batches), None, schema_mode="overwrite")

    def become(self, origin: Target, version: int, properties: Mapping[str, str]) -> None:
        with self._guard():
            source = driver().DeltaTable(origin.uri, version=version, storage_options=dict(self.storage))
        shape = shape_of(source)
        counted = {k: v for k, v in source.metadata().configuration.items() if k == COUNTED}
        if self._open() is None:
            self.create(shape, {k: v for k, v in properties.items() if not k.startswith("tidelog.")} | counted)
        elif counted:
            self.describe(counted)
        with self._guard():
            parts = _read(source.scan())
        batches = (b for part in parts for b in pa.Table.from_batches([part]).cast(shape).to_batches())
        with _STREAMED_OVERWRITE:
            self._overwrite(pa.RecordBatchReader.from_batches(shape, batches), None, schema_mode="overwrite")
        self.describe(properties)

    def merge(self, merge: Merge, mark: Mark | None) -> None:
        if merge.inserts and not merge.others:
            if self._apart(merge):
                self.append(merge.alive(), mark)
                return
            if self._put_reads(merge, mark):
                return
        self._admit(merge.rows)
        with self._guard():
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

    def _put_reads(self, merge: Merge, mark: Mark | None) -> bool:
        """What a snapshot read in a commit of its own, and then the rest, where that spares a merge of many rows.
        Interrupted between, it comes again and changes nothing."""
        if merge.reads is None or merge.reads.sum() < MANY_READS:
            return False
        part, rest = merge.some(merge.reads), merge.some(~merge.reads)
        if not self._put(part, None if rest.rows.num_rows else mark):
            return False
        if rest.rows.num_rows:
            self.merge(rest, mark)
        return True

    def _put(self, part: Merge, mark: Mark | None) -> bool:
        """Append rows that are new, or let them take the place of their range of keys, if it has few others."""
        if self._apart(part):
            self.append(part.alive(), mark)
            return True
        if not part.numbered:
            return False
        known, others = self._count_keys(part)
        if not known:
            self.append(part.alive(), mark)
            return True
        whole = others <= part.rows.num_rows and set(self._shape().names) <= set(part.columns)
        return whole and not self._is_followed() and self._rewrite_range(part, mark)

    def _is_followed(self) -> bool:
        """Whether somebody reads the table's own changes: rows that only move from file to file are none."""
        return self.properties().get("delta.enableChangeDataFeed", "").lower() == "true"

    def _count_keys(self, part: Merge) -> tuple[int, int]:
        """How many rows of the target have a key of the part, and how many others lie among these."""
        key, known, others = list(part.key), 0, 0
        keys = part.rows.select(key)
        for there in self._portions(key, " AND ".join(part.span(quote(key[0])))):
            found = int((match(keys, there, key) >= 0).sum())
            known, others = known + found, others + there.num_rows - found
        return known, others

    def _rewrite_range(self, part: Merge, mark: Mark | None) -> bool:
        """A merge mixes the rows of all files that it touches: each then has keys of the whole stretch, and the next
        chunk touches one file more. Written in the order of keys, files that follow one another stay neighbours.
        False where that would be too much to hold."""
        stretch = self._stretch(part)
        kept = None if stretch is None else self._beside(part, stretch)
        if kept is None:
            return False
        rows = pa.concat_tables([pad(part.alive(), self._shape()), *kept])
        self._admit(rows)
        self._overwrite(rows.sort_by(part.key[0]), mark, predicate=stretch)
        return True

    def _stretch(self, part: Merge) -> str | None:
        """The range of the part, widened until it cuts through no file, as SQL that is never unknown; None where this
        takes in too much, if its rows are like those of the part."""
        ranges = self._ranges(part)
        if ranges is None:
            return None
        assert part.edges is not None
        low, high = ranges.widened(*(edge.as_py() for edge in part.edges))
        rows = ranges.rows(low, high)
        if rows is None or rows * part.rows.nbytes / part.rows.num_rows > STRETCH_BYTES:
            return None
        name = quote(part.key[0])
        return f"{name} >= {low} AND {name} <= {high} AND {name} IS NOT NULL"

    def _ranges(self, merge: Merge) -> Ranges | None:
        with self._guard():
            return Ranges.of(self._existing(), merge)

    def _beside(self, part: Merge, stretch: str) -> list[pa.Table] | None:
        """The other rows of a stretch; None as soon as they are too many to be held."""
        key, shape = list(part.key), self._shape()
        keys, found, held = part.rows.select(key), [], 0
        for portion in self._portions(shape.names, stretch):
            there = portion.cast(shape)
            found.append(there.filter(pa.array(match(there, keys, key) < 0)))
            held += found[-1].nbytes
            if held > STRETCH_BYTES:
                return None
        return found

    def replace(self, rows: pa.Table, mark: Mark | None) -> None:
        self._admit(rows)
        self._overwrite(pad(rows, self._shape()), mark)

    def append(self, rows: pa.Table, mark: Mark | None) -> None:
        self._admit(rows)
        with self._guard():
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

    def strangers(self, key: Sequence[str], known: Known, dead: str | None) -> pa.Table:
        names, kinds = list(key), self._shape(key)

        def keys() -> Iterator[pa.Table]:
            return (portion.select(names).cast(kinds) for portion in known())

        found = [kinds.empty_table()]
        for stretch in stretches(keys()):
            there = pa.concat_tables([stretch.of(portion) for portion in keys()])
            rows = (stretch.of(part.cast(kinds)) for part in self._alive(names, stretch.sql(quote), dead))
            for part in portions(rows, max(PORTION_ROWS, there.num_rows // 2), PORTION_BYTES):
                found.append(part.filter(pa.array(match(part, there, names) < 0)))
        return pa.concat_tables(found)

    def _alive(self, columns: Sequence[str], predicate: str | None, dead: str | None) -> Iterator[pa.Table]:
        """Without the rows that a column marks as dead."""
        for batch in self._batches([*columns, dead] if dead else columns, predicate):
            part = pa.Table.from_batches([batch])
            if dead:
                part = part.filter(pc.invert(pc.fill_null(part[dead], False)))
            yield part.select(list(columns))

    def scan(self, columns: Sequence[str] | None, predicate: str | None, where: Any = None) -> pa.Table:
        shape, parts = self._shape(columns), []
        for found in self._portions(shape.names, predicate):
            part = found.cast(shape)
            parts.append(part if where is None else part.filter(pa.array(where(part))))
        return pa.concat_tables(parts) if parts else shape.empty_table()

    def _portions(self, columns: Sequence[str], predicate: str | None) -> Iterator[pa.Table]:
        """Several batches at a time: what compares them with many keys does so less often."""
        parts = (pa.Table.from_batches([batch]) for batch in self._batches(columns, predicate))
        return portions(parts, PORTION_ROWS, PORTION_BYTES)

    def _batches(self, columns: Sequence[str], predicate: str | None) -> Iterator[pa.RecordBatch]:
        with self._guard():
            found = _read(self._existing().scan(columns=list(columns), predicate=predicate))
        while True:
            with self._guard():
                batch = next(found, None)
            if batch is None:
                return
            yield batch

    def tidy(self) -> None:
        if self.every and self.version() - self._tidied >= self.every:
            with self._guard():
                self._compact(self._existing())

    def _compact(self, table: Any) -> None:
        """Join small files, and delete those that no readable version needs."""
        sizes = pa.table(table.get_add_actions())["size_bytes"]
        best = file_bytes(pc.sum(sizes).as_py() or 0)
        if self.properties().get(SIZE) != str(best):
            self.describe({SIZE: str(best)})
        if (pc.sum(pc.less(sizes, best // 2)).as_py() or 0) >= FEW_FILES:
            table.optimize.compact(target_size=best)
        table.vacuum(retention_hours=self.retention_hours, dry_run=False, enforce_retention_duration=False)
        self._tidied = table.version()

    def _apart(self, merge: Merge) -> bool:
        """Whether no row of the target can have one of the merge's keys, by the statistics of all its files."""
        ranges = self._ranges(merge)
        if ranges is None or not ranges.files.num_rows:
            return ranges is not None
        assert merge.edges is not None
        return not ranges.touched(*merge.edges).any()

    def _admit(self, rows: pa.Table) -> None:
        """Rows that are about to be written."""
        self._leave_uncounted(f.name for f in rows.schema if pa.types.is_date(f.type) and distant(rows[f.name]))

    def _leave_uncounted(self, names: Iterable[str]) -> None:
        """Columns with days that no calendar has go without statistics: delta-rs can't write these down. From then on
        the counted ones are named: a column may come to stand among the first."""
        if not (without := set(names)):
            return
        counted = self._counted()
        if COUNTED not in self.properties() or without & set(counted):
            self.describe({COUNTED: joined(c for c in counted if c not in without)})

    def _counted(self) -> list[str]:
        return counted_of(self.properties().get(COUNTED), self._shape().names)

    def _overwrite(
        self, rows: Any, mark: Mark | None, *, schema_mode: str | None = None, predicate: str | None = None
    ) -> None:
        with self._guard():
            driver().write_deltalake(
                self._existing(),
                rows,
                mode="overwrite",
                schema_mode=schema_mode,
                predicate=predicate,
                commit_properties=_properties(mark),
            )


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
    """Batches as they come: thousands of rows each, so they are cut where these are large."""
    for batch in pa.RecordBatchReader.from_stream(reader):
        yield from pieces(batch)


def _strict(rows: pa.Table) -> pa.Table:
    """Without field metadata, because a merge would compare it; the engine joins all arrays of a column, so what is too
    large for 32 bits comes with 64."""
    rows = wide(rows)
    return rows.cast(pa.schema([f.remove_metadata() for f in rows.schema]))
