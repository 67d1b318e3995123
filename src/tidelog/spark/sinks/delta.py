"""A Delta table per source table that equals it: merged by key, following its schema, exactly once.

Law: a batch is known by query and id, written into each table's own log with the rows. Every step before that
commit can be done again: evolving compares the table as it is with the version it should follow (`backfill`), and moves
are in the book of places.

While a table's snapshot is under way, the target lacks rows that exist: an update that does not tell all of such a row
takes the rest from the source (`snapshotting`). When a snapshot is complete, rows that it has not seen end (`keep`).

A column that the source drops stays in the target. With `delete.mode` `soft` rows stay too, with `_deleted` and
`_deleted_at`; a truncate then marks every row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.contracts import FAILURES, Batch, Keys, Sink, Source, TableChanges
from tidelog.core import evolve
from tidelog.core.evolve import Step
from tidelog.core.fold import (
    ROW,
    Folded,
    Ints,
    Run,
    answer,
    carry,
    encode,
    fold,
    gaps,
    give_up,
    match,
    require_keys,
)
from tidelog.core.metadata import COMMIT_TS, DELETED, OP, STAMPS, shown
from tidelog.core.requirements import Requirements
from tidelog.errors import TableRefused, UnsupportedChange
from tidelog.model.schema import Table
from tidelog.model.selection import Selection
from tidelog.spark.sinks import backfill, delta_jars, delta_spark
from tidelog.spark.sinks.anew import read_anew
from tidelog.spark.sinks.asking import ASKED, OPEN, Asking
from tidelog.spark.sinks.delta_options import Options
from tidelog.spark.sinks.delta_rust import RustEngine
from tidelog.spark.sinks.places import BOOK, MISSING, NOWHERE, QUERY, Place, Places
from tidelog.spark.sinks.target import DELETE, KEEP, Beginnings, Engine, Mark, Merge, Target, own_uri, uri
from tidelog.spark.sinks.turns import rounds

Shape = Callable[[Table, Selection], pa.Schema]
"""`Decoder.schema`: the typed columns of a table version."""

LOG = logging.getLogger("tidelog.sinks.delta")


@dataclass(frozen=True)
class _Job:
    """One table's part of a batch."""

    batch: Batch
    changes: TableChanges
    key: tuple[str, ...]
    target: Target
    mark: Mark

    @property
    def table(self) -> Table:
        return self.changes.table

    @property
    def selection(self) -> Selection:
        return self.batch.selection


@dataclass
class DeltaSink:
    options: Options
    engine: Engine
    shape: Shape
    parse: evolve.Parse
    source: Source | None = None
    _targets: dict[str, Target] = field(default_factory=dict, init=False)
    _book: Places | None = field(default=None, init=False)
    _beginnings: Beginnings = field(default_factory=Beginnings, init=False)

    def apply(self, batch: Batch) -> None:
        is_first = self._beginnings.has(batch)
        marks = {c.table.id: _mark(batch, c.table, is_first=is_first) for c in batch.tables}
        todo = rounds(
            batch.tables,
            lambda c: self._uri(c.table),
            lambda c: marks[c.table.id].is_on(self._target(c.table)),
        )
        for turn in todo:
            for changes in turn:
                self._require(changes.table, batch.selection)
        keys = {c.table.id: batch.selection.key_of(c.table) for turn in todo for c in turn}
        for turn in todo:
            # every place is written down before any is taken: tables that swap names need both old contents
            places = [self._places.settle(batch.query, c.table, self._uri(c.table)) for c in turn]
            targets = [self._occupy(batch, c.table, place) for c, place in zip(turn, places, strict=True)]
            jobs = [
                _Job(batch, c, keys[c.table.id], target, marks[c.table.id])
                for c, target in zip(turn, targets, strict=True)
            ]
            _each(self._apply_or_refuse, jobs, self.options.parallel)
        self._bury(batch)

    def _occupy(self, batch: Batch, table: Table, place: Place) -> Target:
        target = self._target(table)
        have, properties = target.schema(), target.properties()
        if have is not None and place.identity.items() <= properties.items():
            return target
        wanted = {**place.identity, **self._missing(table, place)}
        if place.origin is not None and place.origin_version is not None and MISSING not in wanted:
            properties = {**self.options.properties, **wanted, ASKED: OPEN, MISSING: ""}
            target.become(self._at(place.origin), place.origin_version, properties)
        elif have is None:
            target.create(self._wanted(table, batch.selection), {**self.options.properties, **wanted})
        else:
            # the source dropped the table and made another of its name, or this one's rows are gone
            if properties.get(QUERY) == batch.query or MISSING in wanted:
                self._empty(target, have, self._wanted(table, batch.selection))
            target.describe({MISSING: "", **wanted} if properties.get(MISSING) else wanted)
        return target

    @staticmethod
    def _empty(target: Target, have: pa.Schema, wanted: pa.Schema) -> None:
        """No rows, in the shape of the table that comes: it has nothing to do with the columns of the other."""
        target.replace(have.empty_table(), None)
        if not have.equals(wanted, check_metadata=True):
            target.rewrite([Step(f, None) for f in wanted])

    def _missing(self, table: Table, place: Place) -> dict[str, str]:
        """The rows that a table starts with may be gone: while another had its place, the retention of old versions
        ended. Then the source tells them anew."""
        origin, version = place.origin, place.origin_version
        if origin is None or version is None or (version != NOWHERE and self._at(origin).holds(version)):
            return {}
        LOG.warning(
            "%s: its rows were left in %s when another table took that name, and are no longer kept there: "
            "they are read from the source",
            table.qualified,
            place.origin,
        )
        return {MISSING: "true", ASKED: OPEN}

    def _apply_or_refuse(self, job: _Job) -> None:
        """What cannot be done for one table is no reason to leave the others."""
        try:
            self._apply(job)
        except UnsupportedChange as exc:
            raise TableRefused.of(job.table.id, exc.message, hint=exc.hint) from exc

    def _apply(self, job: _Job) -> None:
        properties = job.target.properties()
        self._follow(job)
        if properties.get(MISSING):
            names = [c.name for c in job.selection.columns_of(job.table) if c.name not in job.key]
            read_anew(self._asking(job), names, self.options, job.changes.told[0])
        runs = [self._conform(job, version, rows) for version, rows in job.changes.rows if rows.num_rows]
        folded = self._folded(job, runs) if runs else None
        if job.changes.keep is not None:
            self._sweep(job, job.changes.keep, folded)
        if folded is not None:
            self._commit(job.target, folded, job.key, job.mark)
            job.target.tidy()

    def _folded(self, job: _Job, runs: Sequence[Run]) -> Folded:
        """Rows that were read come last: each is what its row is when the batch ends, or later still."""
        return self._complete(job, fold(runs, job.key, soft=self.options.soft, reads_last=True), runs)

    def _conform(self, job: _Job, version: Table, rows: pa.Table) -> Run:
        shape = self.shape(job.table, job.selection)
        run = evolve.conform(version, job.table, rows, job.selection, shape, self.parse)
        if job.selection.key_of(version) != job.key:
            require_keys(run.rows, job.key, job.table.qualified)
        return run

    def _follow(self, job: _Job) -> None:
        """Bring the target's columns to the newest version; idempotent, also when it broke half-way."""
        target, present = job.target, job.target.schema()
        assert present is not None
        plan = evolve.plan(present, self._wanted(job.table, job.selection), job.table, job.key, self.parse)
        for note in plan.notes:
            LOG.info("%s: %s", job.table.qualified, note)
        for name in plan.unproven:
            LOG.warning(
                "%s: ALTER COLUMN ... USING may have changed values of the key column %s; if it did, move or delete "
                "the target table and start again: the table is then read anew",
                job.table.qualified,
                name,
            )
        noted = backfill.pending(target)
        if noted or plan.asked:
            delivered = {c.name for c in job.selection.columns_of(job.table)} - set(job.key)
            backfill.follow(self._asking(job), plan, (noted | set(plan.asked)) & delivered)
        elif plan.added is None:
            target.rewrite(plan.steps)
        elif plan.added:
            target.extend(plan.added)

    def _complete(self, job: _Job, folded: Folded, runs: Sequence[Run]) -> Folded:
        """Fetch what the changes do not tell: from the target's row of the old key, or from the source."""
        if folded.keeps and (job.changes.snapshotting or self.source is not None):
            folded = self._find(job, folded, doubted=self._asking(job).is_doubted(runs))
        if folded.origins.num_rows:
            found = job.target.lookup(folded.origins.select(list(job.key)), sorted(folded.keeps))
            folded = carry(folded, job.key, found)
        unknown = sorted(set().union(*(run.unknown for run in runs)))
        if asked := [c for c in unknown if c in folded.keeps]:
            keys = folded.upserts.select(list(job.key)).filter(pa.array(gaps(folded)))
            folded = answer(folded, job.key, asked, self._ask(job, asked, keys))
        return folded

    def _ask(self, job: _Job, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """What the source answers; what it can't answer yet stays pending."""
        found = self._asking(job).some(columns, keys)
        if unanswered := set(columns) - set(found.column_names):
            backfill.note_pending(job.target, backfill.pending(job.target) | unanswered)
        return found

    def _asking(self, job: _Job) -> Asking:
        shape = self.shape(job.table, job.selection)
        return Asking(self.source, job.table, job.key, shape, job.target, job.changes.snapshotting)

    def _find(self, job: _Job, folded: Folded, *, doubted: bool) -> Folded:
        """Rows that the snapshot has not brought yet are not in the target, so their values cannot stay what
        they are there: the source tells them, by key. What it has no more is left out; a later event tells why, which
        may come after the snapshot: so a row that is not there is asked for at any time. A row that moved is asked for
        as long as what the target has under its old key may be of a later time, another's; and what is answered is of
        a later time again."""
        rows, key = np.flatnonzero(gaps(folded)), list(job.key)
        moved = np.isin(rows, folded.origins[ROW].to_numpy())
        places = folded.upserts.select(key).take(pa.array(rows))
        if not doubted:
            places = _from_origins(places, rows, folded.origins, key)
        absent = match(places, job.target.lookup(places, []), key) < 0
        missing = rows[absent | moved] if doubted else rows[absent]
        if not len(missing):
            return folded
        keys = folded.upserts.select(key).take(pa.array(missing))
        found = self._ask(job, sorted(folded.keeps), keys)
        dead = folded.upserts[DELETED].to_numpy()[missing] if self.options.soft else False
        gone = missing[(match(keys, found, key) < 0) | dead]
        return give_up(answer(folded, key, sorted(folded.keeps), found), gone)

    def _sweep(self, job: _Job, keep: Keys, folded: Folded | None) -> None:
        """Rows that a finished snapshot has not seen end. It comes before the batch's own commit, and so again
        if that fails; a second time there is nothing left to do."""
        key, soft = list(job.key), self.options.soft

        def known() -> Iterator[pa.Table]:
            yield folded.upserts.select(key) if folded is not None else keep.schema.empty_table()
            yield from keep.portions()

        found = job.target.strangers(key, known, self.options.deleted if soft else None)
        ghosts = found.take(np.unique(encode(found), return_index=True)[1])  # rows from before a new key have none
        if ghosts.num_rows:
            LOG.info("%s: %d rows are gone since the last snapshot", job.table.qualified, ghosts.num_rows)
            job.target.merge(_ending(ghosts, job.key, self.options), None)

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
        kept = shown(rows.drop_columns(drop), self.options.names)
        if not self.options.soft:
            return kept
        ended = pc.if_else(rows[DELETED], rows[COMMIT_TS], pa.scalar(None, rows[COMMIT_TS].type))
        marked = kept.append_column(self.options.deleted, rows[DELETED])
        return marked.append_column(self.options.deleted_at, ended)

    def _merge(self, folded: Folded, rows: pa.Table, key: tuple[str, ...]) -> Merge:
        columns = tuple(rows.column_names)
        reads = pc.equal(folded.upserts[OP], "r").to_numpy() & ~gaps(folded)
        flags = {name: f"{KEEP}{i}" for i, name in enumerate(folded.keeps)}
        for name, flag in flags.items():
            rows = rows.append_column(flag, pa.array(folded.keeps[name]))
        if gone := folded.deletes.num_rows:
            rows = rows.append_column(DELETE, pa.repeat(False, rows.num_rows))
            ends = folded.deletes.select(list(key)).append_column(DELETE, pa.repeat(True, gone))
            rows = pa.concat_tables([rows, ends], promote_options="default")
            reads = np.concatenate([reads, np.zeros(gone, np.bool_)])
        return Merge(rows, key, columns, flags, gone > 0, _ghosts(folded.truncated_at, self.options), reads=reads)

    def _wanted(self, table: Table, selection: Selection) -> pa.Schema:
        shape = self.shape(table, selection)
        own = [shape.field(name).with_name(self.options.names[name]) for name in self.options.stamps]
        if self.options.soft:
            moment = shape.field(COMMIT_TS).type
            own += [pa.field(self.options.deleted, pa.bool_()), pa.field(self.options.deleted_at, moment)]
        columns = selection.columns_of(table)
        return pa.schema([*evolve.describe(shape, columns), *own])

    def _require(self, table: Table, selection: Selection) -> None:
        if obstacle := self.options.requirements.obstacle(table, selection):
            raise TableRefused.of(table.id, obstacle.reason, hint=obstacle.cure)

    def _bury(self, batch: Batch) -> None:
        """Dead letters, once."""
        if batch.failures is None or not batch.failures.num_rows:
            return
        target = self._at(own_uri(self.options.path, "_dead_letters"))
        mark = Mark(f"{batch.query}:_dead_letters", batch.id)
        if target.applied(mark.app) >= batch.id:
            return
        if target.schema() is None:
            target.create(FAILURES, self.options.properties)
        target.append(batch.failures, mark)

    @property
    def _places(self) -> Places:
        if self._book is None:
            self._book = Places(self._at(own_uri(self.options.path, BOOK)), self._at)
        return self._book

    def _uri(self, table: Table) -> str:
        return uri(self.options.path, table.schema, table.name)

    def _target(self, table: Table) -> Target:
        return self._at(self._uri(table))

    def _at(self, where: str) -> Target:
        if where not in self._targets:
            self._targets[where] = self.engine.target(where)
        return self._targets[where]


def _mark(batch: Batch, table: Table, *, is_first: bool) -> Mark:
    """By id: two tables of a batch may have one name. A former mark says nothing of which of them was meant."""
    alone = sum(c.table.qualified == table.qualified for c in batch.tables) == 1
    former = f"{batch.query}:{table.qualified}" if alone and is_first else ""
    return Mark(f"{batch.query}:{table.id}:{table.qualified}", batch.id, former)


def _ending(keys: pa.Table, key: tuple[str, ...], options: Options) -> Merge:
    """Rows that end, without a change of the log that says when."""
    if not options.soft:
        return Merge(keys.append_column(DELETE, pa.repeat(True, keys.num_rows)), key, key, deletes=True, inserts=False)
    now = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
    rows = keys.append_column(options.deleted, pa.repeat(True, keys.num_rows))
    rows = rows.append_column(options.deleted_at, pa.repeat(now, keys.num_rows))
    return Merge(rows, key, tuple(rows.column_names), inserts=False)


def _ghosts(truncated_at: pa.Scalar | None, options: Options) -> dict[str, str]:
    """A truncate of a soft target: every row that the batch does not bring back is deleted."""
    if truncated_at is None:
        return {}
    moment = truncated_at.as_py().isoformat()
    marked_at = options.deleted_at
    return {options.deleted: "true", marked_at: f"COALESCE(t.{marked_at}, CAST('{moment}' AS TIMESTAMP))"}


def _each(work: Callable[[_Job], None], jobs: Sequence[_Job], parallel: int) -> None:
    """All jobs, side by side; the first failure is raised once all have ended."""
    if len(jobs) < 2 or parallel < 2:
        for job in jobs:
            work(job)
        return
    with ThreadPoolExecutor(min(parallel, len(jobs)), thread_name_prefix="tidelog-sink") as pool:
        list(pool.map(work, jobs))


def requirements(options: Mapping[str, str]) -> Requirements:
    return Options.of(options).requirements


def create(options: Mapping[str, str], *, spark: Any, source: Source | None, parse: evolve.Parse, shape: Shape) -> Sink:
    chosen = Options.of(options)
    return DeltaSink(chosen, engine(chosen, spark), shape, parse, source)


def engine(options: Options, spark: Any) -> Engine:
    """delta-rs, unless Spark was started with Delta: then the user has a cluster to do the work."""
    kind = options.engine
    if kind == "auto":
        kind = "spark" if spark is not None and delta_jars.is_available(spark) else "rust"
    if kind == "spark":
        return delta_spark.SparkEngine(spark, options.stage, options.optimize_every)
    return RustEngine(options.storage, options.optimize_every, options.retention_hours)


def read(options: Mapping[str, str], table: Table, columns: Sequence[str], predicate: str | None = None) -> pa.Table:
    """Columns of a target table, whichever engine wrote it; `predicate` is SQL with \"quoted\" names."""
    chosen = Options.of(options)
    where = uri(chosen.path, table.schema, table.name)
    return RustEngine(chosen.storage).target(where).scan(columns, predicate)


def _from_origins(keys: pa.Table, rows: Ints, origins: pa.Table, key: Sequence[str]) -> pa.Table:
    """The keys under which the target has the upserts `rows`: of those that moved, the old ones."""
    moved = origins[ROW].to_numpy()
    at = np.searchsorted(rows, moved)
    known = at < len(rows)
    known[known] = rows[at[known]] == moved[known]
    chosen = np.arange(len(rows))
    chosen[at[known]] = len(rows) + np.flatnonzero(known)
    return pa.concat_tables([keys, origins.select(list(key)).cast(keys.schema)]).take(pa.array(chosen))
