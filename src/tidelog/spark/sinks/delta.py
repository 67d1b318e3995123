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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.contracts import FAILURES, Batch, FilledTarget, Keys, Sink, Source, TableChanges
from tidelog.core import evolve
from tidelog.core.evolve import Step
from tidelog.core.fold import (
    Folded,
    Run,
    encode,
    fold,
    require_keys,
)
from tidelog.core.metadata import COMMIT_TS
from tidelog.core.requirements import Requirements
from tidelog.engine.filled_targets import FilledTargets
from tidelog.errors import ConfigError, TableRefused, UnsupportedChange
from tidelog.model.schema import Table
from tidelog.model.selection import Selection
from tidelog.spark.sinks import backfill, delta_jars, delta_spark, merges, presence
from tidelog.spark.sinks.anew import read_anew
from tidelog.spark.sinks.asking import ASKED, OPEN, Asking
from tidelog.spark.sinks.completion import complete
from tidelog.spark.sinks.delta_options import Options
from tidelog.spark.sinks.delta_rust import RustEngine
from tidelog.spark.sinks.places import BOOK, MISSING, NOWHERE, QUERY, Place, Places
from tidelog.spark.sinks.side_by_side import run_all
from tidelog.spark.sinks.target import Beginnings, Engine, Mark, Target, own_uri, place_of, uri
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
    filled: FilledTargets = field(default_factory=FilledTargets)
    former_writers: Collection[str] | None = None
    """The queries whose tables may be taken over; None for any."""
    _targets: dict[str, Target] = field(default_factory=dict, init=False)
    _book: Places | None = field(default=None, init=False)
    _beginnings: Beginnings = field(default_factory=Beginnings, init=False)

    def find_lost(self, query: str) -> list[FilledTarget]:
        lost = presence.missing(self.filled.all(query), lambda filled: self._at(self._place_uri(filled)).exists())
        if lost and self._book is not None and not self._book.book.exists():
            self._book = None
        for filled in lost:
            self._places.forget_origin(query, filled.table)
        for filled in self.filled.all(query):
            if filled.deleted not in ("", self._marks) and filled not in lost:
                message, cure = presence.other_marks(filled.name, filled.deleted, self._marks)
                raise ConfigError(message, hint=cure)
        return lost

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
                self._require_filled(batch.query, changes.table)
                self._require_own(batch.query, changes.table)
                self._require_same_marks(changes.table)
        keys = {c.table.id: batch.selection.key_of(c.table) for turn in todo for c in turn}
        for turn in todo:
            # every place is written down before any is taken: tables that swap names need both old contents
            places = [self._places.settle(batch.query, c.table, self._uri(c.table)) for c in turn]
            targets = [self._occupy(batch, c.table, place) for c, place in zip(turn, places, strict=True)]
            self.filled.add(batch.query, map(self._filled, (c.table for c in turn), targets))
            jobs = [
                _Job(batch, c, keys[c.table.id], target, marks[c.table.id])
                for c, target in zip(turn, targets, strict=True)
            ]
            run_all(self._apply_or_refuse, jobs, self.options.parallel)
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
        folded = fold(runs, job.key, soft=self.options.soft, reads_last=True)
        return complete(self._asking(job), folded, runs, soft=self.options.soft)

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

    def _asking(self, job: _Job) -> Asking:
        shape = self.shape(job.table, job.selection)
        return Asking(self.source, job.table, job.key, shape, job.target, job.changes.snapshotting)

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
            job.target.merge(merges.ending(ghosts, job.key, self.options), None)

    def _commit(self, target: Target, folded: Folded, key: tuple[str, ...], mark: Mark) -> None:
        if folded.empty:
            return
        rows = merges.stamped_rows(folded, self.options)
        if folded.truncate and not self.options.soft:
            target.replace(rows, mark)
        else:
            target.merge(merges.merge_of(folded, rows, key, self.options), mark)

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

    def _require_filled(self, query: str, table: Table) -> None:
        """Refuse a table whose target was filled and is not there any more."""
        filled = self.filled.of(query, table.id)
        if filled is None:
            return
        if self._place_uri(filled) == self._uri(table):
            presence.require_same(filled, self._target(table))
        elif self._places.last(query, table.id) is None:  # the book is gone, which knows where a renamed table was
            raise presence.lost(filled)

    def _require_own(self, query: str, table: Table) -> None:
        """Refuse a table that another pipeline writes: the rows of both would mix."""
        filled, target = self.filled.of(query, table.id), self._target(table)
        writer = target.properties().get(QUERY, query)
        has_filled = filled is not None and self._place_uri(filled) == self._uri(table)
        is_foreign = self.former_writers is not None and writer not in self.former_writers
        if writer != query and (has_filled or is_foreign):
            message, cure = presence.foreign(table.qualified, self._uri(table))
            raise TableRefused.of(table.id, message, hint=cure)

    def _require_same_marks(self, table: Table) -> None:
        schema = self._target(table).schema()
        marked = presence.marks_of(schema, [c.name for c in table.columns]) if schema is not None else ""
        if marked not in ("", self._marks):
            message, cure = presence.other_marks(table.qualified, marked, self._marks)
            raise TableRefused.of(table.id, message, hint=cure)

    @property
    def _marks(self) -> str:
        """The column that marks deleted rows; empty where they are deleted."""
        return self.options.deleted if self.options.soft else ""

    def _filled(self, table: Table, target: Target) -> FilledTarget:
        place = place_of(table.schema, table.name)
        return FilledTarget(table.id, table.qualified, place, target.identity(), self._marks)

    def _place_uri(self, filled: FilledTarget) -> str:
        return own_uri(self.options.path, filled.place)

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
            self._book = Places(self.options.path, self._at(own_uri(self.options.path, BOOK)), self._at)
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


def requirements(options: Mapping[str, str]) -> Requirements:
    return Options.of(options).requirements


def create(
    options: Mapping[str, str],
    *,
    spark: Any,
    source: Source | None,
    parse: evolve.Parse,
    shape: Shape,
    filled: FilledTargets,
    former_writers: Collection[str] | None,
) -> Sink:
    chosen = Options.of(options)
    return DeltaSink(chosen, engine(chosen, spark), shape, parse, source, filled, former_writers)


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
