"""A pipeline: a source, a sink, and the streaming query between them.

The query's stream carries descriptions of staged files, one small row each; the sink gets the files' rows, table by
table. Exactly once: Spark replays a batch with the same offsets and the same id, planning is deterministic, and the
sink does nothing twice for one (query, batch).
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelog import connectors, errors
from tidelog.contracts import ControlStore, Sink, Status
from tidelog.engine import checkpoint, requests
from tidelog.engine import definition as definitions
from tidelog.engine.admission import require_some
from tidelog.engine.capture import write_status
from tidelog.engine.definition import Definition
from tidelog.engine.home import Home
from tidelog.engine.jumps import Jump
from tidelog.engine.stage import Stage
from tidelog.engine.startup import start_when_reachable
from tidelog.engine.storage import files_of
from tidelog.engine.watching import Ended, Told, walks
from tidelog.errors import ConfigError, CorruptState, TidelogError, TransientError
from tidelog.journal.files import Files
from tidelog.model.schema import Table
from tidelog.spark import sinks
from tidelog.spark.batches import Batches
from tidelog.spark.delivery import Delivery
from tidelog.spark.present import Present
from tidelog.spark.progress import Progress, Tally, waiting
from tidelog.spark.session import is_local, register, session, warm
from tidelog.spark.source import JUMP, REQUIREMENTS, STAGE, TidelogSource, options_of
from tidelog.stores import open_store

_LOOK_S = 0.1
_TRIES = 3
_RETELL_S = 5.0
_LOCK_S = 3.0
"""Whoever edits the offsets holds the name for a moment."""
_CURABLE = (TransientError, CorruptState, PySparkException, Py4JError, OSError)
_ERROR = re.compile(r"tidelog\.errors\.(\w+): (.*)")


class Pipeline:
    """`Pipeline(source={…}, sink={…}).run(spark)` says the same as a YAML file and `tidelog run`."""

    def __init__(
        self,
        source: Mapping[str, Any],
        sink: Mapping[str, Any],
        *,
        name: str = "tidelog",
        stream: Mapping[str, Any] | None = None,
        journal: Mapping[str, Any] | None = None,
        offset_storage: str = "",
    ) -> None:
        raw = {"name": name, "source": source, "sink": sink, "stream": stream or {}, "journal": journal or {}}
        self.definition = definitions.from_mapping({**raw, "offset.storage": offset_storage})

    @staticmethod
    def of(definition: Definition) -> Pipeline:
        pipeline = Pipeline.__new__(Pipeline)
        pipeline.definition = definition
        return pipeline

    def run(
        self,
        spark: SparkSession | None = None,
        *,
        once: bool = False,
        watch: Callable[[Progress], None] | None = None,
    ) -> Progress:
        """Stream until interrupted, or with `once` until everything that the log holds now is delivered. A database
        that does not answer yet is waited for, unless `once` is set."""
        watch = watch or (lambda _: None)
        start, first = partial(self.start, spark, once=once), not Home.at(self.definition.name).has_begun
        with start() if once else start_when_reachable(start, waiting(watch), first=first) as run:
            return run.wait(watch)

    def start(self, spark: SparkSession | None = None, *, once: bool = False) -> Run:
        """Stream in the background; the run is a context manager that stops it."""
        return Run(self.definition, spark, once=once)

    # -- snapshots on demand: followed by the running pipeline, or by its next run -----------------------------------

    def snapshot(
        self,
        tables: str | Sequence[str],
        *,
        where: str = "",
        surrogate_key: str = "",
        blocking: bool = False,
        id: str = "",
    ) -> str:
        """Ask for the present rows of tables: names, or regular expressions over schema.table. Returns the id that
        its notifications carry."""
        names = [tables] if isinstance(tables, str) else list(tables)
        home = self._listening()
        return requests.snapshot(home, names, where=where, surrogate_key=surrogate_key, blocking=blocking, id=id)

    def pause(self) -> str:
        """Let the snapshots rest; the stream goes on."""
        return requests.pause(self._listening())

    def resume(self) -> str:
        """Let the snapshots go on where they were."""
        return requests.resume(self._listening())

    def stop_snapshot(self, tables: str | Sequence[str] = ()) -> str:
        """End the snapshots of these tables, or all of them."""
        return requests.stop(self._listening(), [tables] if isinstance(tables, str) else list(tables))

    def _listening(self) -> Home:
        requests.require_heard(definitions.connector_of(self.definition).snapshot_settings())
        return Home.open(self.definition.name)


class Run:
    """A pipeline that runs. Holds the pipeline's name: a second run is refused while this one lives."""

    def __init__(
        self, definition: Definition, spark: SparkSession | None, *, once: bool, store: ControlStore | None = None
    ) -> None:
        self._definition = definition
        self._home = Home.open(definition.name)
        self._lock = self._home.lock("run", patience_s=_LOCK_S)
        self._lock.__enter__()
        self._connector = definitions.connector_of(definition)
        self._source = Present(self._connector)
        self._once = once or self._connector.snapshot_settings().mode == "initial_only"
        self._failure: BaseException | None = None
        self._tally = Tally()
        self._warnings: tuple[str, ...] = ()
        self._told = Told(self._home)
        self._ended: tuple[Ended, ...] = ()
        self._mirrored = ""
        self._mirror_after_s = 0.0
        try:
            self._sink: Sink | None = None
            self._store = store or open_store(definition.store or None)
            self._tell()  # a run that died may not have told the store
            self._jump = self._waiting()
            # Before Spark takes its time to start.
            self._prepare(self._jump)
            self._requirements = sinks.requirements(definition.sink)
            self._require_deliverable()
            self._delivery = Delivery(self._home, self._requirements, self._source)
            self._spark = spark or session(definition.name, self._home)
            require_shared_journal(definition, self._spark.sparkContext.master or "")
            self._sink = self._create_sink()
            if not self._once:
                warm(self._spark, definition.connector)
            self._query = self._begin()
        except BaseException:
            self.stop()
            raise

    def _prepare(self, jump: Jump | None) -> None:
        """What is missing is created, or told. Where a lost place in the log is made good, that is the source's."""
        began = self._home.has_begun
        if jump is not None:
            self._connector.prepare(resuming=jump.offset is not None)
        elif not (began and self._connector.snapshot_settings().mode == "when_needed"):
            self._connector.prepare(resuming=began)

    def _require_deliverable(self) -> None:
        """A pipeline that could deliver nothing is refused before Spark starts; later, the planner asks again."""
        try:
            tables = self._connector.tables()
        except TransientError:  # the source is away: capture waits for it
            return
        require_some(self._requirements, tables, self._connector.selection())

    def _waiting(self) -> Jump | None:
        """The edit of the offsets that waits to be followed. Read once: nobody edits while we hold the name."""
        pending = self._store.pending(self._definition.name)
        mine = [change for change in pending if dict(change.partition) == self._partition]
        if pending and not mine:
            raise ConfigError(
                f"An edit of the offsets waits for {dict(pending[0].partition)}, and this source is {self._partition}.",
                hint="Was topic.prefix or the connector changed? Change it back, or undo the edit.",
            )
        return Jump(mine[0].id, mine[0].after) if mine else None

    # -- the life of a run ---------------------------------------------------------------------------------------

    def wait(self, watch: Callable[[Progress], None]) -> Progress:
        """Until the query ends. What time, a second reading of the log or a second try of Spark can cure is tried
        again: a batch that is repeated changes nothing."""
        tries = 0
        while True:
            reached = self._tally.batch_id
            try:
                self._look(watch)
            except _CURABLE as exc:
                tries = 1 if self._tally.batch_id > reached else tries + 1
                if tries > _TRIES:
                    raise
                self._warnings = (f"The query was started again after: {str(exc).splitlines()[0][:200]}",)
                time.sleep(tries)
                self._query = self._begin()
            else:
                return self.progress()

    def _look(self, watch: Callable[[Progress], None]) -> None:
        while self._query.isActive:
            time.sleep(_LOOK_S)
            self._mirror()
            watch(self.progress())
        self._mirror()
        watch(self.progress())
        self.raise_failure()

    def _mirror(self) -> None:
        """Repeat in the store what the checkpoint has committed. (A query that has nothing to do reports progress too,
        of a batch that is still to come: so the checkpoint is asked, and not the progress.)"""
        told = self._query.lastProgress
        if told is None or told.timestamp == self._mirrored or time.monotonic() < self._mirror_after_s:
            return
        if self._tell():
            self._mirrored = told.timestamp
        else:
            self._mirror_after_s = time.monotonic() + _RETELL_S

    def _tell(self) -> bool:
        """Whether the store knows what is committed. The checkpoint is the truth: a store that is away, or that knows
        of a later batch, is a warning."""
        found = checkpoint.committed(self._home)
        try:
            if found is not None:
                self._store.mirror(self._definition.name, self._partition, found)
        except TidelogError as exc:
            self._warnings = (f"The store does not take the offset: {exc.message}",)
            return False
        return True

    @cached_property
    def _partition(self) -> dict[str, str]:
        partition: dict[str, str] = connectors.offsets(self._definition.connector).DOCUMENT.partition.write(
            **self._connector.names()
        )
        return partition

    def raise_failure(self) -> None:
        """What the query died of, if it did."""
        error = None if self._query.isActive else self._query.exception()
        if error is not None or self._failure is not None:
            raise self._explain(error) from error

    def stop(self) -> None:
        query = getattr(self, "_query", None)
        if query is not None and query.isActive:
            query.stop()
            self._leave_status()
        self._connector.close()
        shutil.rmtree(self._home.stage, ignore_errors=True)
        self._lock.__exit__(None, None, None)

    def _leave_status(self) -> None:
        """The capture may have been ended before it could say so."""
        status = _status(self._home)
        if status.state != "failed":
            write_status(self._home.status)(replace(status, state="stopped"))

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def query(self) -> StreamingQuery:
        return self._query

    def progress(self) -> Progress:
        status = _status(self._home)
        warnings = self._warnings + ((status.warning,) if status.warning else ())
        self._ended += tuple(self._told.new())
        warnings += self._told.remarks
        warnings += self._delivery.warnings
        tally = self._tally
        return Progress(
            events_total=tally.events,
            events_per_s=tally.rate(),
            lag_ms=status.lag_ms,
            lag_bytes=status.lag_bytes,
            batch_id=tally.batch_id,
            batch_events=tally.batch_events,
            batch_ms=tally.batch_ms,
            tables=dict(tally.tables),
            state=status.state,
            warnings=warnings,
            snapshots=walks(self._home),
            ended=self._ended,
        )

    # -- the query -----------------------------------------------------------------------------------------------

    def _begin(self) -> StreamingQuery:
        self._failure = None
        self._home.stage.mkdir(parents=True, exist_ok=True)
        self._batches.clear_all()
        register(self._spark, TidelogSource)
        stream = (
            self._spark.readStream.format("tidelog")
            .options(**options_of(self._definition))
            .option("home", str(self._home.path))
            .option("shape", "staged")
            .option(STAGE, self._batches.stage.uri)
            .option("reader", self._definition.name)
            .option("parallelism", str(self._spark.sparkContext.defaultParallelism))
            .option(REQUIREMENTS, self._requirements.to_json())
            .option(JUMP, self._jump.to_json() if self._jump is not None else "")
            .load()
        )
        writer = (
            stream.writeStream.queryName(f"tidelog:{self._definition.name}")
            .option("checkpointLocation", str(self._home.checkpoint))
            .foreachBatch(self._apply)
        )
        trigger_s = self._definition.limits.trigger_s
        if self._once:
            return writer.trigger(availableNow=True).start()
        if trigger_s:
            return writer.trigger(processingTime=f"{int(trigger_s * 1000)} milliseconds").start()
        return writer.start()

    @cached_property
    def _batches(self) -> Batches:
        """They are staged beside the journal when that is shared, so that executors on other machines reach them."""
        journal = files_of(self._definition, self._home)
        name = self._definition.name
        stage = Files(str(self._home.stage)) if journal.local else journal.folder(f"stage/{name}")
        return Batches(self._connector, stage, Stage(journal.uri, name).files)

    def _apply(self, frame: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        try:
            staged = sorted(frame.collect(), key=lambda row: row.sequence)
            query = str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
            assert self._sink is not None
            self._delivery.deliver(self._batches.of(query, batch_id, staged), self._sink)
        except BaseException as exc:
            self._failure = exc
            raise
        self._count(batch_id, staged, began)
        self._batches.clear(staged)

    def _create_sink(self) -> Sink:
        return sinks.create(
            self._definition.sink,
            spark=self._spark,
            source=self._source,
            parse=self._connector.parse,
            shape=self._connector.decoder().schema,
        )

    # -- telling -------------------------------------------------------------------------------------------------

    def _count(self, batch_id: int, staged: Sequence[Row], began: float) -> None:
        tables: Counter[str] = Counter()
        for row in staged:
            tables[Table.from_json(row.table).qualified] += 0 if row.keep else row.rows
        self._tally.add(batch_id, tables, tables.total(), began)

    def _explain(self, error: PySparkException | None) -> BaseException:
        """Our own error behind Spark's, however many processes it came through."""
        if isinstance(self._failure, TidelogError):
            return self._failure
        text = str(error) if error is not None else ""
        found = _ERROR.search(text)
        if found:
            kind = getattr(errors, found[1], TidelogError)
            ours: TidelogError = kind(found[2].strip())
            return ours
        return self._failure or error or TidelogError("The query ended without saying why.")


def _status(home: Home) -> Status:
    try:
        return Status(**json.loads(home.status.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Status("starting")


def require_shared_journal(definition: Definition, master: str) -> None:
    """Executors on other machines must be able to open the journal."""
    if not is_local(master) and (not definition.storage.path or Files(definition.storage.path).local):
        raise ConfigError(
            f"Spark runs as {master}, but the journal lies in a local folder that its executors can't read.",
            hint="Set journal.path to storage that all machines reach, such as s3://bucket/prefix.",
        )
