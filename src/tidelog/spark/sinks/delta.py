"""A Delta table per source table that equals it: merged by key, following its schema, exactly once.

Law 14: a batch is known by query and id, written into each table's own log with the rows. Every step before that
commit can be done again: evolving compares the table as it is with the version it should follow, what the source
must answer stays noted as `tidelog.pending` until it is answered, and moves are in the book of places.

A column that the source drops stays in the target. With `delete.mode` `soft` rows stay too, with `_deleted` and
`_deleted_at`; a truncate then marks every row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.contracts import FAILURES, Batch, Source, TableChanges
from tidelog.core import evolve
from tidelog.core.fold import DELETED, STAMPS, Folded, answer, carry, fold, require_keys
from tidelog.core.settings import Setting, parse
from tidelog.errors import ConfigError, UnsupportedChange
from tidelog.model.schema import Table
from tidelog.model.selection import Selection
from tidelog.spark.sinks.places import QUERY, Place, Places
from tidelog.spark.sinks.target import DELETE, KEEP, Engine, Mark, Merge, Target, uri

Shape = Callable[[Table, Selection], pa.Schema]
"""`Decoder.schema`: the typed columns of a table version."""

DELETED_AT = "_deleted_at"
PENDING = "tidelog.pending"
PROPERTIES = {"delta.checkpointInterval": "50", "delta.logRetentionDuration": "interval 7 days"}

SETTINGS = (
    Setting("path", "Where the tables go: a directory or any URI that Delta understands.", None),
    Setting("engine", "What writes Delta.", "auto", choices=("auto", "rust", "spark")),
    Setting("delete.mode", "`hard` deletes rows, `soft` marks them.", "hard", choices=("hard", "soft")),
    Setting("metadata.columns", f"Which of {', '.join(STAMPS)} each row keeps of its last change."),
    Setting("tables.parallel", "How many tables of a batch are written at the same time.", "4", kind=int),
    Setting("optimize.every", "After how many commits small files are joined; 0 for never.", "50", kind=int),
    Setting("retention.hours", "How long files that a merge replaced are kept for readers.", "168", kind=int),
    Setting("stage", "A directory that Spark's executors read too, for the engine `spark`."),
    Setting("storage", "What the storage needs to know, such as storage.aws_region.", pattern=r"storage\.(.+)"),
)


@dataclass(frozen=True)
class Options:
    path: str
    engine: str = "auto"
    soft: bool = False
    stamps: tuple[str, ...] = ()
    parallel: int = 4
    optimize_every: int = 50
    retention_hours: int = 168
    stage: str = ""
    storage: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(options: Mapping[str, str]) -> Options:
        raw = parse(SETTINGS, options, subject="The sink delta")
        return Options(
            path=raw["path"],
            engine=raw["engine"],
            soft=raw["delete.mode"] == "soft",
            stamps=_stamps(raw["metadata.columns"]),
            parallel=max(1, raw["tables.parallel"]),
            optimize_every=raw["optimize.every"],
            retention_hours=raw["retention.hours"],
            stage=raw["stage"],
            storage={name.removeprefix("storage."): text for name, text in raw["storage"].items()},
        )


def _stamps(text: str) -> tuple[str, ...]:
    names = tuple(n.strip() for n in text.split(",") if n.strip())
    if wrong := [n for n in names if n not in STAMPS]:
        raise ConfigError(f"metadata.columns: {wrong[0]!r} is unknown.", hint=f"Choose among {', '.join(STAMPS)}.")
    return names


@dataclass
class DeltaSink:
    options: Options
    engine: Engine
    shape: Shape
    parse: evolve.Parse
    source: Source | None = None
    _targets: dict[str, Target] = field(default_factory=dict, init=False)
    _book: Places | None = field(default=None, init=False)

    def apply(self, batch: Batch) -> None:
        todo = [c for c in batch.tables if self._target(c.table).applied(_app(batch, c.table)) < batch.id]
        jobs = [(self._open(batch, place), c) for place, c in self._settle(batch, todo)]
        _each(lambda job: self._apply(batch, *job), jobs, self.options.parallel)
        self._bury(batch)

    def _settle(self, batch: Batch, todo: Sequence[TableChanges]) -> list[tuple[Callable[[], Target], TableChanges]]:
        """Give every table its place before anything is written: a swap of names needs both old contents."""
        for changes in todo:
            _key(batch, changes.table)
        return [(self._occupier(batch, c.table), c) for c in todo]

    def _occupier(self, batch: Batch, table: Table) -> Callable[[], Target]:
        place = self._places.settle(batch.query, table, self._uri(table))
        return lambda: self._occupy(batch, table, place)

    @staticmethod
    def _open(batch: Batch, occupy: Callable[[], Target]) -> Target:
        return occupy()

    def _occupy(self, batch: Batch, table: Table, place: Place) -> Target:
        target = self._target(table)
        have, properties = target.schema(), target.properties()
        if have is not None and place.identity.items() <= properties.items():
            return target
        if place.origin is not None and place.origin_version is not None:
            target.become(self._at(place.origin), place.origin_version, {**PROPERTIES, **place.identity})
        elif have is None:
            target.create(self._wanted(table, batch.selection), {**PROPERTIES, **place.identity})
        else:
            if properties.get(QUERY) == batch.query:  # the source dropped the table and made another of its name
                target.replace(have.empty_table(), None)
            target.describe(place.identity)
        return target

    def _apply(self, batch: Batch, target: Target, changes: TableChanges) -> None:
        table, key = changes.table, _key(batch, changes.table)
        self._follow(target, table, key, batch.selection)
        shape = self.shape(table, batch.selection)
        runs = [
            evolve.conform(version, table, rows, batch.selection, shape, self.parse)
            for version, rows in changes.rows
            if rows.num_rows
        ]
        if not runs:
            return
        for run in runs:
            require_keys(run.rows, key, table.qualified)
        unknown = sorted(set().union(*(run.unknown for run in runs)))
        folded = self._complete(target, table, key, fold(runs, key, soft=self.options.soft), unknown)
        self._commit(target, folded, key, Mark(_app(batch, table), batch.id))
        target.tidy()

    def _follow(self, target: Target, table: Table, key: tuple[str, ...], selection: Selection) -> None:
        """Bring the target's columns to the newest version; idempotent, also when it broke half-way."""
        present = target.schema()
        assert present is not None
        plan = evolve.plan(present, self._wanted(table, selection), table, key, self.parse)
        noted = json.loads(target.properties().get(PENDING) or "[]")
        if plan.asked:
            target.describe({PENDING: json.dumps([*noted, *plan.asked])})
        if plan.added is None:
            target.rewrite(plan.steps)
        elif plan.added:
            target.extend(plan.added)
        names = {c.name for c in selection.columns_of(table)} - set(key)
        if pending := sorted({*noted, *plan.asked} & names):
            target.merge(Merge(self._ask(table, key, pending), key, (*key, *pending), inserts=False), None)
        if noted or plan.asked:
            target.describe({PENDING: ""})

    def _complete(
        self, target: Target, table: Table, key: tuple[str, ...], folded: Folded, unknown: Sequence[str]
    ) -> Folded:
        """Fetch what the batch does not tell: from the target's row of the old key, or from the source."""
        if folded.origins.num_rows:
            found = target.lookup(folded.origins.select(list(key)), sorted(folded.keeps))
            folded = carry(folded, key, found)
        if asked := [c for c in unknown if c in folded.keeps]:
            folded = answer(folded, key, asked, self._ask(table, key, asked))
        return folded

    def _ask(self, table: Table, key: tuple[str, ...], columns: Sequence[str]) -> pa.Table:
        if self.source is None:
            raise UnsupportedChange(
                f"Only the source knows the values of {', '.join(columns)} in the old rows of {table.qualified}.",
                hint="Give the sink a source to read from.",
            )
        names = [*key, *columns]
        parts = [pa.Table.from_batches([b]).select(names) for b in self.source.read(table, names)]
        shape = self.shape(table, Selection())
        return pa.concat_tables(parts) if parts else pa.schema([shape.field(n) for n in names]).empty_table()

    def _commit(self, target: Target, folded: Folded, key: tuple[str, ...], mark: Mark) -> None:
        if folded.empty:
            return
        rows = self._stamped(folded)
        if folded.truncate and not self.options.soft:
            target.replace(rows, mark)
        else:
            target.merge(self._merge(folded, rows, key), mark)

    def _stamped(self, folded: Folded) -> pa.Table:
        rows = folded.upserts
        drop = [c for c in (*STAMPS, DELETED) if c not in self.options.stamps and c in rows.column_names]
        kept = rows.drop_columns(drop)
        if not self.options.soft:
            return kept
        ended = pc.if_else(rows[DELETED], rows["_commit_ts"], pa.scalar(None, rows["_commit_ts"].type))
        return kept.append_column(DELETED, rows[DELETED]).append_column(DELETED_AT, ended)

    def _merge(self, folded: Folded, rows: pa.Table, key: tuple[str, ...]) -> Merge:
        columns = tuple(rows.column_names)
        flags = {name: f"{KEEP}{i}" for i, name in enumerate(folded.keeps)}
        for name, flag in flags.items():
            rows = rows.append_column(flag, pa.array(folded.keeps[name]))
        if gone := folded.deletes.num_rows:
            rows = rows.append_column(DELETE, pa.repeat(False, rows.num_rows))
            ends = folded.deletes.select(list(key)).append_column(DELETE, pa.repeat(True, gone))
            rows = pa.concat_tables([rows, ends], promote_options="default")
        return Merge(rows, key, columns, flags, gone > 0, _ghosts(folded.truncated_at))

    def _wanted(self, table: Table, selection: Selection) -> pa.Schema:
        shape = self.shape(table, selection)
        own = [shape.field(n) for n in self.options.stamps]
        if self.options.soft:
            own += [pa.field(DELETED, pa.bool_()), pa.field(DELETED_AT, shape.field("_commit_ts").type)]
        columns = selection.columns_of(table)
        if clash := {f.name for f in own} & {c.name for c in columns}:
            raise ConfigError(
                f"{table.qualified} has a column {clash.pop()}, a name that the sink needs.",
                hint="Rename it, or leave it out with column.exclude.list.",
            )
        return pa.schema([*evolve.describe(shape, columns), *own])

    def _bury(self, batch: Batch) -> None:
        """Dead letters, once."""
        if batch.failures is None or not batch.failures.num_rows:
            return
        target, mark = self._at(uri(self.options.path, "_dead_letters")), Mark(f"{batch.query}:_dead_letters", batch.id)
        if target.applied(mark.app) >= batch.id:
            return
        if target.schema() is None:
            target.create(FAILURES, PROPERTIES)
        target.append(batch.failures, mark)

    @property
    def _places(self) -> Places:
        if self._book is None:
            self._book = Places(self._at(uri(self.options.path, "_tables")), self._at)
        return self._book

    def _uri(self, table: Table) -> str:
        return uri(self.options.path, table.schema, table.name)

    def _target(self, table: Table) -> Target:
        return self._at(self._uri(table))

    def _at(self, where: str) -> Target:
        if where not in self._targets:
            self._targets[where] = self.engine.target(where)
        return self._targets[where]


def _app(batch: Batch, table: Table) -> str:
    return f"{batch.query}:{table.qualified}"


def _key(batch: Batch, table: Table) -> tuple[str, ...]:
    key = batch.selection.key_of(table)
    if not key:
        raise ConfigError(
            f"{table.qualified} has no key, so its rows cannot be merged.",
            hint="Give it a primary key, or REPLICA IDENTITY FULL and message.key.columns, or use the sink `history`.",
        )
    return key


def _ghosts(truncated_at: pa.Scalar | None) -> dict[str, str]:
    """A truncate of a soft target: every row that the batch does not bring back is deleted."""
    if truncated_at is None:
        return {}
    moment = truncated_at.as_py().isoformat()
    return {DELETED: "true", DELETED_AT: f"COALESCE(t.{DELETED_AT}, CAST('{moment}' AS TIMESTAMP))"}


def _each(work: Callable[[Any], None], jobs: Sequence[Any], parallel: int) -> None:
    """All jobs, side by side; the first failure is raised once all have ended."""
    if len(jobs) < 2 or parallel < 2:
        for job in jobs:
            work(job)
        return
    with ThreadPoolExecutor(min(parallel, len(jobs)), thread_name_prefix="tidelog-sink") as pool:
        _settled(pool.map(work, jobs))


def _settled(results: Iterable[None]) -> None:
    for _ in results:
        pass
