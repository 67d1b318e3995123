"""How a stream flows: batches of a size, and heartbeats that move the slot on where nothing captured is written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import tidelog
from tests.patience import Patience
from tests.servers import Database
from tests.spark.conftest import Build, source_of
from tests.spark.prepared import prepare_source
from tidelog.connectors import create
from tidelog.engine.home import Home
from tidelog.engine.reading import Reading
from tidelog.spark.pipeline import Pipeline, Run

_HISTORY = {"type": "history", "format": "delta"}
_CONFIRMED = "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE database = current_database()"
_FLUSHED = "SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn"


def until(done: Callable[[], object], check: Callable[[], None], what: str) -> None:
    patience = Patience()
    while not done():
        check()
        assert not patience.is_over(), f"{what} did not happen"
        time.sleep(0.05)


def number(database: Database, sql: str) -> int:
    return int(database.execute(sql)[0][0])


def reached(run: Run) -> int:
    """Where the last batch ended."""
    told = run.query.lastProgress
    assert told is not None
    return int(json.loads(told.sources[0].endOffset)["tidelog_position"])


def ids(folder: Path) -> list[int]:
    table = str(folder / "public/t")
    if not DeltaTable.is_deltatable(table):
        return []
    return sorted(DeltaTable(table).to_pyarrow_table(columns=["id"]).column("id").to_pylist())


def capture_all(pipeline: Pipeline) -> None:
    """Let the journal hold the whole log, and deliver nothing: the next batch is limited by nothing else."""
    reading = Reading(pipeline.definition, Home.open(pipeline.definition.name))
    reading.latest(reading.initial(), None, None)
    assert reading._log is not None
    assert reading._log.caught_up(reading.connector.log_end(), 240)
    reading.close()


def test_bytes_limit_a_batch(spark: SparkSession, database: Database, build: Build, tmp_path: Path) -> None:
    """A backlog of transactions of 100 kB comes in batches of two, a transaction larger than the limit alone."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, body text)")
    lake = tmp_path / "lake"
    pipeline = build({**_HISTORY, "path": str(lake)}, stream={"maxBytesPerTrigger": "250kb", "maxEventsPerTrigger": 0})
    prepare_source(pipeline.definition)
    with database.connect() as connection:
        for first, last in ((0, 9), (10, 19), (20, 29), (30, 69), (70, 79)):
            connection.execute(f"INSERT INTO t SELECT i, repeat('x', 10000) FROM generate_series({first}, {last}) i")
    capture_all(pipeline)
    pipeline.run(spark, once=True)
    assert ids(lake) == list(range(80))
    files = pa.table(DeltaTable(str(lake / "public/t")).get_add_actions(flatten=True)).to_pylist()
    batches = sorted((file["min.id"], file["num_records"]) for file in files)
    assert batches == [(0, 20), (20, 10), (30, 40), (70, 10)]


def test_heartbeats_move_the_slot_on_and_harm_nothing(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE noise (id int)")
    lake = tmp_path / "lake"
    source = {"heartbeat.interval.ms": "100", "table.include.list": r"public\.t"}
    pipeline = build({**_HISTORY, "path": str(lake)}, source=source)
    prepare_source(pipeline.definition)
    with pipeline.start(spark) as run:
        database.execute("INSERT INTO t VALUES (1)")
        until(lambda: len(ids(lake)) == 1, run.raise_failure, "the first row")
        for _ in range(2):
            database.execute("INSERT INTO noise SELECT generate_series(1, 1000)")
            busy = number(database, _FLUSHED)
            until(lambda busy=busy: number(database, _CONFIRMED) >= busy, run.raise_failure, "the acknowledgement")
            # Delivered, not only noted as empty.
            until(lambda busy=busy: reached(run) >= busy, run.raise_failure, "the delivery")
        database.execute("INSERT INTO t VALUES (2)")
        until(lambda: run.progress().events_total >= 2, run.raise_failure, "the second row")
        assert ids(lake) == [1, 2]
        assert run.progress().warnings == ()
        assert run.progress().events_total == 2
    database.execute("INSERT INTO t VALUES (3)")
    pipeline.run(spark, once=True)
    assert ids(lake) == [1, 2, 3]


def test_heartbeats_have_a_topic_of_their_own(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    tidelog.register(spark)
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE noise (id int)")
    plain = {k: v for k, v in source_of(database).items() if k != "connector"}
    plain |= {"heartbeat.interval.ms": "100", "table.include.list": r"public\.t"}
    create("postgres", plain, pipeline="query").prepare()
    (tmp_path / "home").mkdir()
    query = (
        spark.readStream.format("tidelog")
        .options(**plain, name="query", home=str(tmp_path / "home"))
        .load()
        .writeStream.format("memory")
        .queryName("beats")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )

    def check() -> None:
        assert query.exception() is None

    beat = f"__debezium-heartbeat.{database.dbname}"
    try:
        database.execute("INSERT INTO t VALUES (1)")
        database.execute("INSERT INTO noise SELECT generate_series(1, 1000)")
        busy = number(database, _FLUSHED)
        until(lambda: number(database, _CONFIRMED) >= busy, check, "the acknowledgement")
        until(lambda: spark.sql(f"SELECT * FROM beats WHERE topic = '{beat}'").count() > 1, check, "two heartbeats")
    finally:
        query.stop()
    rows = spark.sql("SELECT * FROM beats").collect()
    assert [json.loads(r.after) for r in rows if r.topic != beat] == [{"id": 1}]
    beats = [r for r in rows if r.topic == beat]
    assert {r.key for r in beats} == {json.dumps({"serverName": database.dbname})}
    assert all(json.loads(r.after)["ts_ms"] > 0 for r in beats)
