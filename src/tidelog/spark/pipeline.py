"""A pipeline: a source, a sink, and the streaming query between them.

The query's stream carries descriptions of staged files, one small row each; the sink gets the files' rows, table by
table. Exactly once: Spark replays a batch with the same offsets and the same id, planning is deterministic, and the
sink does nothing twice for one (query, batch).
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelog import connectors
from tidelog.contracts import ControlStore, Sink, WatchWait, ignore_wait
from tidelog.engine import checkpoint, disk, requests
from tidelog.engine import definition as definitions
from tidelog.engine.admission import require_some
from tidelog.engine.definition import Definition
from tidelog.engine.first_start import CHOSEN_BY_MODE, starts_over
from tidelog.engine.former_writers import note_former_writers, read_former_writers
from tidelog.engine.home import Home
from tidelog.engine.jumps import OVER, Jump, waiting_jump
from tidelog.engine.stage import Stage
from tidelog.engine.startup import start_when_reachable
from tidelog.engine.storage import files_of
from tidelog.engine.watching import Ended, Told, walks
from tidelog.errors import TidelogError, TransientError
from tidelog.journal.files import Files
from tidelog.model.schema import Table
from tidelog.spark import open_files, query_start, sinks
from tidelog.spark.batches import Batches
from tidelog.spark.delivery import Delivery
from tidelog.spark.executors import require_executors
from tidelog.spark.failures import RETRYABLE, Retries, WorkerTimeout, find_cause, summary, translated
from tidelog.spark.liveness import is_alive, require_alive
from tidelog.spark.offset_mirror import OffsetMirror
from tidelog.spark.present import Present
from tidelog.spark.progress import Progress, Tally, mark_stopped, read_status, waiting
from tidelog.spark.session import is_local, local_uri, register, session
from tidelog.spark.sink_check import needs_delta_rs
from tidelog.spark.sinks import delta
from tidelog.spark.sinks.delta_options import Options
from tidelog.spark.sinks.written import find_writers, find_written
from tidelog.spark.source import JUMP, REQUIREMENTS, STAGE, TidelogSource, options_of
from tidelog.spark.spark_conf import require_as_wanted
from tidelog.stores import open_store

_LOG = logging.getLogger("tidelog")
_LOOK_S = 0.1
_LOCK_S = 3.0
"""Whoever edits the offsets holds the name for a moment."""


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
        spark: Mapping[str, Any] | None = None,
        offset_storage: str = "",
    ) -> None:
        raw = {"name": name, "source": source, "sink": sink, "stream": stream or {}, "journal": journal or {}}
        more = {"spark": spark or {}, "offset.storage": offset_storage}
        self.definition = definitions.from_mapping({**raw, **more})

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
        fresh: bool = False,
        watch: Callable[[Progress], None] | None = None,
    ) -> Progress:
        """Stream until interrupted, or with `once` until everything that the log holds now is delivered. A database
        that does not answer yet is waited for, unless `once` is set. `fresh` reads everything again where an earlier
        start left a slot or a target, but no checkpoint."""
        watch = watch or (lambda _: None)
        start, first = partial(self.start, spark, once=once, fresh=fresh), not Home.at(self.definition.name).has_begun
        with start() if once else start_when_reachable(start, waiting(watch), first=first) as run:
            return run.wait(watch)

    def start(self, spark: SparkSession | None = None, *, once: bool = False, fresh: bool = False) -> Run:
        """Stream in the background; the run is a context manager that stops it."""
        return Run(self.definition, spark, once=once, fresh=fresh)

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
        self,
        definition: Definition,
        spark: SparkSession | None,
        *,
        once: bool,
        fresh: bool = False,
        store: ControlStore | None = None,
        check: Callable[[], None] = lambda: None,
        watch_wait: WatchWait = ignore_wait,
    ) -> None:
        """`check` is called again and again while the run waits for other queries and for executors; it may raise to
        give up. So may `watch_wait`, while the run waits for other sessions of the database."""
        self._definition = definition
        self._home = Home.open(definition.name)
        self._holding = self._home.lock("run", patience_s=_LOCK_S)
        self._lock = self._holding.__enter__()
        self._closing = ExitStack()
        self._connector = definitions.connector_of(definition)
        self._source = Present(self._connector)
        self._once = once or self._connector.snapshot_settings().mode == "initial_only"
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        self._applying = threading.Lock()
        self._tally = Tally()
        self._warnings: tuple[str, ...] = ()
        self._told = Told(self._home)
        self._ended: tuple[Ended, ...] = ()
        try:
            self._sink: Sink | None = None
            self._store = store or self._closing.enter_context(closing(open_store(definition.store or None)))
            checkpoint.require_whole(self._home)
            checkpoint.discard_unused(self._home)
            self._checkpoint = self._closing.enter_context(closing(checkpoint.CheckpointWatch(self._home)))
            self._mirror = OffsetMirror(self._store, definition.name, self._partition, self._home)
            self._mirror.update()  # a run that died may not have told the store
            # Read once: nobody edits while we hold the name.
            jump = waiting_jump(self._store, definition.name, self._partition)
            self._note_former_writers(fresh, spark)
            self._jump = jump or self._start_over(fresh)
            if spark is None:
                open_files.require_enough()
            self._prepare(self._jump, watch_wait)  # before Spark takes its time to start
            self._requirements = sinks.requirements(definition.sink)
            self._delivery = Delivery(self._home, self._requirements, self._source)
            self._require_deliverable()
            self._spark = spark or session(definition.name, self._home, definition.spark_conf)
            if spark is not None:
                require_as_wanted(spark, definition.spark_conf)
            places = {"journal": files_of(definition, self._home), "stage": self._batches.stage}
            require_executors(self._spark, places, check)
            self._note_former_writers_by_spark()
            self._sink = self._create_sink()
            if not self._once:
                with query_start.take_turn(check):
                    query_start.warm_once(self._spark, definition.connector)
            self._begin(check)
        except WorkerTimeout as exc:
            self._failure = exc  # `wait` retries it
        except BaseException as exc:
            self.stop()
            if isinstance(exc, RETRYABLE) and hasattr(self, "_spark"):
                require_alive(self._spark)
            raise

    def _prepare(self, jump: Jump | None, watch: WatchWait) -> None:
        """What is missing is created, or told. Where a lost place in the log is made good, that is the source's."""
        began = self._home.has_begun
        if jump is not None:
            self._connector.prepare(resuming=jump.offset is not None, watch=watch)
        elif not (began and self._connector.snapshot_settings().mode == "when_needed"):
            self._connector.prepare(resuming=began, watch=watch)

    def _require_deliverable(self) -> None:
        """A pipeline that could deliver nothing is refused before Spark starts; later, the planner asks again."""
        try:
            tables = self._connector.tables()
        except TransientError:  # the source is away: capture waits for it
            return
        selection = self._connector.selection()
        require_some(self._requirements, tables, selection)
        self._delivery.expect_back(tables, selection)

    def _note_former_writers(self, fresh: bool, spark: SparkSession | None) -> None:
        """Also where an edit waits: which tables may be taken over is decided at the first start. A target that is away
        postpones it."""

        def find() -> frozenset[str] | None:
            tables = self._connector.tables()
            try:
                return find_writers(self._definition.sink, tables)
            except TidelogError as exc:
                if needs_delta_rs(self._definition, spark):
                    raise
                _LOG.info("Spark looks up what the target holds, because delta-rs cannot: %s", exc.message)
                return None

        note_former_writers(self._home, find, fresh=fresh or self._definition.limits.fresh)

    def _note_former_writers_by_spark(self) -> None:
        """Of a target that only Spark can read. A first start over what an earlier one left is somebody's choice, and
        takes over what is there; any other takes over nothing."""
        if self._definition.sink["type"] != "delta" or self._home.former_writers.exists():
            return
        is_chosen = self._jump is not None or self._connector.snapshot_settings().mode in CHOSEN_BY_MODE

        def find() -> frozenset[str] | None:
            if not is_chosen:
                return frozenset()
            options = {name: text for name, text in self._definition.sink.items() if name != "type"}
            engine = delta.engine(Options.of(options), self._spark)
            return find_writers(self._definition.sink, self._connector.tables(), engine)

        note_former_writers(self._home, find)

    def _start_over(self, fresh: bool) -> Jump | None:
        """Read everything again, where the checkpoint is gone and somebody has chosen so."""
        look = partial(find_written, self._definition.sink)
        over = starts_over(self._definition, self._home, self._connector, self._store, look, fresh=fresh)
        return OVER if over else None

    # -- the life of a run ---------------------------------------------------------------------------------------

    def wait(self, watch: Callable[[Progress], None]) -> Progress:
        """Until the query ends. An error that time, another reading of the log or another attempt of Spark may cure is
        retried with backoff: a batch that is repeated changes nothing."""
        retries = Retries(self._definition.name)
        while True:
            committed = self._tally.batch_id
            try:
                self._follow_query(watch)
            except RETRYABLE as exc:
                self._require_state_kept()
                require_alive(self._spark)
                self._warnings = (f"The query is started again after: {summary(exc)}",)
                progressed = self._tally.batch_id > committed
                retries.pause(exc, progressed=progressed, meanwhile=lambda: watch(self.progress()))
                self._query = self._failure = None
            else:
                if not self._once:  # nobody stopped it, so Spark did
                    require_alive(self._spark)
                return self.progress()

    def _follow_query(self, watch: Callable[[Progress], None]) -> None:
        if self._query is None and self._failure is None:
            self._begin(lambda: watch(self.progress()))
        while self._query is not None and self._query.isActive:
            time.sleep(_LOOK_S)
            self._require_state_kept()
            self._mirror.follow(self._query)
            watch(self.progress())
        self._mirror.follow(self._query)
        watch(self.progress())
        self.raise_failure()

    @cached_property
    def _partition(self) -> dict[str, str]:
        partition: dict[str, str] = connectors.offsets(self._definition.connector).DOCUMENT.partition.write(
            **self._connector.names()
        )
        return partition

    def raise_failure(self) -> None:
        """What the query died of, if it did."""
        error = None if self._query is None or self._query.isActive else self._query.exception()
        if error is not None or self._failure is not None:
            raise self._explain(error) from error

    def stop(self) -> None:
        if self._query is not None and not is_alive(self._spark):
            # The sink may still be writing the last batch: the name is ours until it has ended.
            with self._delivery.wait_announced(), self._applying:
                self._mark_stopped()
        elif self._query is not None and self._query.isActive:
            with self._delivery.wait_announced():
                self._query.stop()
            self._mark_stopped()
        self._connector.close()
        if self._lock.kept:
            shutil.rmtree(self._home.stage, ignore_errors=True)
        self._closing.close()
        self._holding.__exit__(None, None, None)

    def _mark_stopped(self) -> None:
        if self._lock.kept:
            with suppress(OSError):  # a full disk: the status is for people, and what ended the run is said anyway
                mark_stopped(self._home)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def query(self) -> StreamingQuery | None:
        """None if it did not start yet, and `wait` tries again."""
        return self._query

    def progress(self) -> Progress:
        status = read_status(self._home)
        warnings = self._warnings + tuple(filter(None, (self._mirror.warning, status.warning)))
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
            unreachable_since_us=status.unreachable_since_us,
            waits_for=status.waits_for,
            warnings=warnings,
            snapshots=walks(self._home),
            ended=self._ended,
            writing=self._delivery.writing,
        )

    # -- the query -----------------------------------------------------------------------------------------------

    def _begin(self, check: Callable[[], None]) -> None:
        self._failure = None
        self._home.stage.mkdir(parents=True, exist_ok=True)
        self._batches.clear_all()
        self._find_lost_targets()
        with query_start.take_turn(check), translated():
            self._require_state_kept()
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
                .option("checkpointLocation", local_uri(self._home.checkpoint))
                .foreachBatch(self._apply)
            )
            self._query = query_start.triggered(writer, self._definition.limits.trigger_s, once=self._once).start()
            query_start.wait_for_reader(self._query)

    def _require_state_kept(self) -> None:
        """`StateLost` where the state folder, or Spark's checkpoint in it, is not the one that the run began with."""
        self._lock.require_kept()
        self._checkpoint.require_kept()

    def _find_lost_targets(self) -> None:
        """Tables that were lost while no batch was written come back, also where nothing changes in them."""
        assert self._sink is not None
        try:
            self._delivery.set_aside_lost(checkpoint.query_id(self._home), self._sink)
        except TransientError as exc:  # the source or the storage is away: the first batch of a table looks again
            _LOG.info("Whether target tables are gone could not be looked up: %s", exc.message)

    @cached_property
    def _batches(self) -> Batches:
        """They are staged beside the journal when that is shared, so that executors on other machines reach them."""
        journal = files_of(self._definition, self._home)
        name = self._definition.name
        here = journal.local and is_local(self._spark.sparkContext.master or "")
        stage = Files(str(self._home.stage)) if here else journal.folder(f"stage/{name}")
        return Batches(self._connector, stage, Stage(journal.uri, name).files)

    def _apply(self, frame: DataFrame, batch_id: int) -> None:
        with self._applying:
            self._apply_batch(frame, batch_id)

    def _apply_batch(self, frame: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        try:
            staged = sorted(frame.collect(), key=lambda row: row.sequence)
            query = str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
            assert self._sink is not None
            self._require_state_kept()
            self._delivery.deliver(self._batches.of(query, batch_id, staged), self._sink)
        except BaseException as exc:
            self._failure = exc
            raise
        self._home.first_start.unlink(missing_ok=True)  # what was accepted has begun
        self._count(batch_id, staged, began)
        self._batches.clear(staged)

    def _create_sink(self) -> Sink:
        return sinks.create(
            self._definition.sink,
            spark=self._spark,
            source=self._source,
            parse=self._connector.parse,
            shape=self._connector.decoder().schema,
            filled=self._delivery.filled_targets,
            former_writers=read_former_writers(self._home),
        )

    # -- telling -------------------------------------------------------------------------------------------------

    def _count(self, batch_id: int, staged: Sequence[Row], began: float) -> None:
        tables: Counter[str] = Counter()
        for row in staged:
            tables[Table.from_json(row.table).qualified] += 0 if row.keep else row.rows
        self._tally.add(batch_id, tables, tables.total(), began)
        self._warnings = ()  # what was retried has come through

    def _local_folders(self) -> list[Path]:
        """Where a run writes on this machine."""
        journal = files_of(self._definition, self._home)
        lake = self._definition.sink.get("path", "")
        temporary = self._spark.sparkContext.getConf().get("spark.local.dir") or tempfile.gettempdir()
        folders = [self._home.path, *([Path(journal.path(""))] if journal.local else []), Path(temporary)]
        return folders + (
            [Path(lake.removeprefix("file://"))] if lake and "://" not in lake.removeprefix("file://") else []
        )

    def _explain(self, error: PySparkException | None) -> BaseException:
        self._require_state_kept()  # its loss is behind whatever Spark says
        if isinstance(self._failure, TidelogError):
            return self._failure
        if disk.is_full(self._failure) or disk.is_full(error):
            return disk.full_error(self._local_folders())
        cause = find_cause(str(error)) if error is not None else None
        return cause or self._failure or error or TidelogError("The query ended without saying why.")
