"""The whole path on real parts: PostgreSQL, the journal, Spark and Delta."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.patience import Patience
from tests.proxy import Proxy
from tests.servers import Database, drop_slots
from tests.spark.conftest import Build
from tests.spark.prepared import prepare_source
from tidelog import ConfigError, PositionLost, TransientError, UnsupportedChange
from tidelog.engine import checkpoint
from tidelog.engine.control import Control, alone
from tidelog.engine.home import Home
from tidelog.engine.reading import Reading
from tidelog.engine.startup import WAITING
from tidelog.spark.pipeline import Pipeline
from tidelog.spark.progress import Progress
from tidelog.stores import open_store


def prepare(pipeline: Pipeline) -> None:
    prepare_source(pipeline.definition)


def capture_only(pipeline: Pipeline, events: int) -> None:
    """Fill the journal, and deliver nothing."""
    reading = Reading(pipeline.definition, Home.open(pipeline.definition.name))
    start = reading.initial()
    reading.drain()
    end = reading.latest(start, None, None)
    assert sum(s.last - s.first for s in reading.plan(start, end).slices) == events
    reading.close()


def rows(folder: Path, table: str, *columns: str) -> list[tuple[object, ...]]:
    found = DeltaTable(str(folder / "lake" / "public" / table)).to_pyarrow_table(columns=list(columns))
    return sorted(zip(*(found.column(c).to_pylist() for c in columns), strict=True), key=repr)


def test_every_kind_of_change_reaches_delta(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, name text, body text)")
    database.execute("ALTER TABLE t ALTER COLUMN body SET STORAGE EXTERNAL")
    database.execute("CREATE TABLE wiped (id int PRIMARY KEY)")
    pipeline = build()
    prepare(pipeline)
    database.execute("INSERT INTO t SELECT i, 'n' || i, repeat('x', 5000) FROM generate_series(1, 5) i")
    database.execute("UPDATE t SET name = 'kept body' WHERE id = 1")
    database.execute("UPDATE t SET id = 20 WHERE id = 2")
    database.execute("DELETE FROM t WHERE id = 3")
    database.execute("INSERT INTO wiped VALUES (1), (2)")
    database.execute("TRUNCATE wiped")
    database.execute("INSERT INTO wiped VALUES (7)")
    pipeline.run(spark, once=True)
    body = "x" * 5000
    assert rows(tmp_path, "t", "id", "name", "body") == [
        (1, "kept body", body),
        (20, "n2", body),
        (4, "n4", body),
        (5, "n5", body),
    ]
    assert rows(tmp_path, "wiped", "id") == [(7,)]


def test_the_next_run_goes_on_where_the_last_one_ended(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, name text, body text)")
    database.execute("ALTER TABLE t ALTER COLUMN body SET STORAGE EXTERNAL")
    pipeline = build()
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES (1, 'a', repeat('x', 5000))")
    assert pipeline.run(spark, once=True).events_total == 1
    database.execute("UPDATE t SET name = 'b'")
    database.execute("ALTER TABLE t ADD COLUMN extra int DEFAULT 7")
    database.execute("UPDATE t SET id = 2")
    assert pipeline.run(spark, once=True).events_total == 2
    assert rows(tmp_path, "t", "id", "name", "body", "extra") == [(2, "b", "x" * 5000, 7)]
    assert pipeline.run(spark, once=True).events_total == 0


def test_a_column_added_without_any_row_event_fills_the_old_rows(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = build()
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES (1), (2)")
    with pipeline.start(spark) as run:
        wait(run, lambda: DeltaTable.is_deltatable(str(tmp_path / "lake/public/t")))
        database.execute("ALTER TABLE t ADD COLUMN price numeric(8, 2) DEFAULT 9.99, ADD COLUMN note text")
        wait(run, lambda: "price" in {f.name for f in DeltaTable(str(tmp_path / "lake/public/t")).schema().fields})
    prices = DeltaTable(str(tmp_path / "lake/public/t")).to_pyarrow_table(columns=["price", "note"]).to_pylist()
    assert [(str(p["price"]), p["note"]) for p in prices] == [("9.99", None)] * 2


def test_ddl_without_row_events_also_when_draining(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, old text)")
    pipeline = build(source={"schema.refresh.interval.ms": "60000"})
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES (1, 'a')")
    pipeline.run(spark, once=True)
    database.execute("ALTER TABLE t RENAME COLUMN old TO new")
    database.execute("ALTER TABLE t ADD COLUMN n int DEFAULT 3")
    pipeline.run(spark, once=True)
    assert rows(tmp_path, "t", "id", "new", "n") == [(1, "a", 3)]


def test_a_damaged_journal_is_read_again_from_the_database(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = build()
    prepare(pipeline)
    database.execute("INSERT INTO t SELECT generate_series(1, 5000)")
    capture_only(pipeline, events=5000)
    segment = max(Home.at("shop").journal.glob("segments/*.arrow"), key=lambda file: file.stat().st_size)
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    pipeline.run(spark, once=True)
    assert len(rows(tmp_path, "t", "id")) == 5000


def planners(spark: SparkSession) -> list[psutil.Process]:
    """The processes that Spark started for streaming queries."""
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
    alive = [p for p in jvm.children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    return [p for p in alive if any("streaming_source_runner" in word for word in p.cmdline())]


def test_the_planner_of_a_restart_loads_no_pandas(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    """It would take a third of its time. Changes are captured and planned, and the journal is read, without."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, name text)")
    pipeline = build()
    prepare(pipeline)
    for i in (1, 2):
        database.execute(f"INSERT INTO t VALUES ({i}, 'a')")
        with pipeline.start(spark) as run:
            wait(run, lambda: run.progress().events_total == 1)
            database.execute(f"UPDATE t SET name = 'b' WHERE id = {i}")
            wait(run, lambda: run.progress().events_total == 2)
            (planner,) = planners(spark)
            loaded = {part for file in planner.memory_maps() for part in Path(file.path).parts}
            assert "pyarrow" in loaded
            assert "pandas" not in loaded
    assert rows(tmp_path, "t", "id", "name") == [(1, "b"), (2, "b")]


def test_secrets_appear_nowhere(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = build()
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES (1)")
    pipeline.run(spark, once=True)
    with pipeline.start(spark) as run:
        database.execute("INSERT INTO t VALUES (2)")
        wait(run, lambda: run.progress().events_total == 1)
        run.query.explain(extended=True)
    assert repr(pipeline.definition)
    told = capfd.readouterr()
    assert "tidelog" in told.out
    files = [f for f in tmp_path.rglob("*") if f.is_file()]
    assert files
    for text in [told.out, told.err, repr(pipeline.definition), *(f.read_bytes().decode("latin-1") for f in files)]:
        assert database.password not in text


def test_what_runs_already_is_not_started_twice(spark: SparkSession, database: Database, build: Build) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with build().start(spark), pytest.raises(ConfigError, match="alive already"):
        build().start(spark)


def test_a_lost_slot_stops_the_pipeline_and_says_what_to_do(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    """Whoever does it goes on: the rows that the log no longer tells of come, or go."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = build(source={"snapshot.mode": "initial"})
    database.execute("INSERT INTO t VALUES (1), (3)")
    pipeline.run(spark, once=True)
    drop_slots(database)
    database.execute("INSERT INTO t VALUES (2)")
    database.execute("DELETE FROM t WHERE id = 3")
    with pytest.raises(PositionLost, match="goes on after `tidelog offsets delete`") as caught:
        pipeline.run(spark, once=True)
    assert database.password not in str(caught.value)
    Control(open_store(None), lambda name: alone(name, pipeline.definition)).delete("shop", who="test")
    pipeline.run(spark, once=True)
    assert rows(tmp_path, "t", "id") == [(1,), (2,)]


@pytest.mark.parametrize("mode", ["fail", "warn", "dead-letter"])
def test_a_record_that_cannot_be_decoded(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, mode: str
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, amount numeric(8, 2))")
    pipeline = build(source={"event.processing.failure.handling.mode": mode})
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES (1, 1.5), (2, 'NaN'), (3, 3.5)")
    if mode == "fail":
        with pytest.raises(UnsupportedChange, match=r"decimal\.handling\.mode"):
            pipeline.run(spark, once=True)
        return
    told: list[Progress] = []
    pipeline.run(spark, once=True, watch=told.append)
    assert rows(tmp_path, "t", "id") == [(1,), (3,)]
    fate = {"warn": "dropped", "dead-letter": "kept as dead letters"}[mode]
    assert any(f"Records of public.t could not be decoded: 1 {fate}." in w for w in told[-1].warnings)
    letters = tmp_path / "lake" / "_dead_letters"
    if mode == "dead-letter":
        (letter,) = DeltaTable(str(letters)).to_pyarrow_table().to_pylist()
        assert (letter["table"], letter["op"]) == ("public.t", "c")
        assert b"NaN" in letter["payload"]
    else:
        assert not letters.exists()


def test_progress_tells_events_and_lag(spark: SparkSession, database: Database, build: Build) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = build()
    prepare(pipeline)
    database.execute("INSERT INTO t SELECT generate_series(1, 1000)")
    seen: list[Progress] = []
    pipeline.run(spark, once=True, watch=seen.append)
    assert (seen[-1].events_total, seen[-1].batch_events) == (1000, 1000)
    assert Home.at("shop").status.exists()


def test_several_batches_when_the_limit_says_so(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = build(
        {"type": "history", "path": str(tmp_path / "lake"), "format": "delta"}, stream={"maxEventsPerTrigger": 100}
    )
    prepare(pipeline)
    for i in range(6):
        database.execute(f"INSERT INTO t SELECT generate_series({i * 60}, {i * 60 + 59})")
    pipeline.run(spark, once=True)
    found = DeltaTable(str(tmp_path / "lake/public/t")).to_pyarrow_table(columns=["id"])
    assert sorted(found.column("id").to_pylist()) == list(range(360))
    assert DeltaTable(str(tmp_path / "lake/public/t")).version() >= 5


def test_masked_columns_never_reach_the_target(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, card text, ssn text, secret text)")
    settings = {
        "column.mask.with.4.chars": r"public\.t\.card",
        "column.mask.hash.SHA-256.with.salt.CzQMA0cB5K": r"public\.t\.ssn",
        "column.exclude.list": r"public\.t\.secret",
    }
    pipeline = build(source=settings)
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES (1, '4111', '123', 'x')")
    pipeline.run(spark, once=True)
    table = DeltaTable(str(tmp_path / "lake/public/t")).to_pyarrow_table()
    assert "secret" not in table.column_names
    row = table.to_pylist()[0]
    assert row["card"] == "****"
    assert row["ssn"] == hashlib.sha256(b"CzQMA0cB5K123").hexdigest()


def wait(run: object, condition: object) -> None:
    import time

    patience = Patience()
    while not condition():  # type: ignore[operator]
        run.raise_failure()  # type: ignore[attr-defined]
        assert not patience.is_over(), "nothing happened in time"
        time.sleep(0.1)


def test_a_catalog_that_has_moved_on_does_not_mix_up_columns(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    """Columns are dropped, renamed and added again under old names before anything of it is read."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, a text, b int)")
    pipeline = build()
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES (1, 'one', 10)")
    database.execute("ALTER TABLE t RENAME COLUMN a TO c")
    database.execute("INSERT INTO t VALUES (2, 'two', 20)")
    database.execute("ALTER TABLE t RENAME COLUMN b TO a")
    database.execute("ALTER TABLE t ADD COLUMN b text DEFAULT 'new'")
    database.execute("INSERT INTO t VALUES (3, 'three', 30, 'set')")
    pipeline.run(spark, once=True)
    pipeline.run(spark, once=True)
    source = database.execute("SELECT id, c, a, b FROM t ORDER BY id")
    assert rows(tmp_path, "t", "id", "c", "a", "b") == [tuple(r) for r in source]


def test_two_pipelines_of_one_database_do_not_disturb_each_other(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("CREATE TABLE u (id int PRIMARY KEY)")
    one = build(name="one", source={"slot.name": "", "table.include.list": r"public\.t"})
    two = build(name="two", source={"slot.name": "", "table.include.list": r"public\.u"})
    prepare(one)
    prepare(two)
    database.execute("INSERT INTO t VALUES (1)")
    database.execute("INSERT INTO u VALUES (2)")
    one.run(spark, once=True)
    two.run(spark, once=True)
    assert (rows(tmp_path, "t", "id"), rows(tmp_path, "u", "id")) == ([(1,)], [(2,)])


def test_the_store_repeats_the_committed_offset(spark: SparkSession, database: Database, build: Build) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = build()
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES (1)")
    pipeline.run(spark, once=True)
    (committed,) = open_store(None).offsets("shop")
    assert committed.offset is not None
    (logged,) = [p for p in Home.at("shop").checkpoint.glob("offsets/[0-9]*") if p.name == str(committed.batch)]
    assert json.loads(logged.read_text().splitlines()[-1]) == committed.offset
    assert {"lsn", "lsn_commit", "lsn_proc", "txId", "ts_usec"} <= committed.offset.keys()


def test_runs_without_anything_to_do_leave_the_store_as_it_is(
    spark: SparkSession, database: Database, build: Build
) -> None:
    """Spark tells progress of a batch that never comes; the next start, and whoever reads offsets, must not stumble."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = build()
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES (1)")
    pipeline.run(spark, once=True)
    (before,) = open_store(None).offsets("shop")
    for _ in range(2):
        assert pipeline.run(spark, once=True).events_total == 0
    control = Control(open_store(None), lambda name: alone(name, pipeline.definition))
    (after,) = control.kept("shop")
    assert (after.batch, after.offset) == (before.batch, before.offset)
    assert checkpoint.committed(Home.at("shop")).batch == after.batch  # type: ignore[union-attr]


def test_a_run_waits_for_a_database_that_comes_up_later(
    spark: SparkSession, database: Database, build: Build, proxy: Proxy, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    source = {"database.hostname": proxy.host, "database.port": str(proxy.port), "snapshot.mode": "initial"}
    pipeline = build(source=source)
    proxy.refuse()
    with pytest.raises(TransientError, match=r"Check database\.hostname"):
        pipeline.run(spark, once=True)
    seen: list[Progress] = []

    def watch(progress: Progress) -> None:
        seen.append(progress)
        proxy.accept()
        if progress.events_total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipeline.run(spark, watch=watch)
    assert seen[0].state == WAITING
    assert "Check database.hostname" in seen[0].warnings[0]
    assert rows(tmp_path, "t", "id") == [(1,)]
