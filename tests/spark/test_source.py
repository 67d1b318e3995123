"""`format("tidelog")` as a user of Spark meets it: streams and batches, the envelope and typed columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tidelog
from tests.servers import Database
from tests.spark.conftest import source_of
from tidelog import connectors
from tidelog.spark.session import register, warm
from tidelog.spark.warmup import Warmup

Options = dict[str, str]


@pytest.fixture
def options(database: Database, tmp_path: Path, spark: SparkSession) -> Options:
    """A fresh database with a table, whose changes from now on can be read."""
    tidelog.register(spark)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, name text, at timestamptz, price numeric(8, 2))")
    plain = {k: v for k, v in source_of(database).items() if k != "connector"}
    connectors.create("postgres", plain, pipeline="query").prepare()
    return {**plain, "name": "query", "home": str(tmp_path / "home")} | made(tmp_path / "home")


def made(home: Path) -> Options:
    home.mkdir()
    return {}


def write(database: Database) -> None:
    database.execute("INSERT INTO t VALUES (1, 'a', '2024-01-02 03:04:05.6+00', 9.99), (2, 'b', NULL, NULL)")
    database.execute("UPDATE t SET name = 'new' WHERE id = 1")
    database.execute("UPDATE t SET id = 3 WHERE id = 2")
    database.execute("DELETE FROM t WHERE id = 1")


def batch(spark: SparkSession, options: Options) -> DataFrame:
    return spark.read.format("tidelog").options(**options).load()


def stream(spark: SparkSession, options: Options, folder: Path, name: str) -> StreamingQuery:
    """Drain into a table in memory."""
    query = (
        spark.readStream.format("tidelog")
        .options(**options)
        .load()
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(folder / f"checkpoint-{name}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def test_a_batch_of_envelopes(spark: SparkSession, database: Database, options: Options) -> None:
    write(database)
    rows = batch(spark, options).collect()
    assert [r.op for r in rows] == ["c", "c", "u", "d", "c", "d"]
    assert {r.topic for r in rows} == {f"{database.dbname}.public.t"}
    created = json.loads(rows[0].after)
    assert created == {"id": 1, "name": "a", "at": "2024-01-02T03:04:05.6Z", "price": 9.99}
    assert [json.loads(r.key) for r in rows] == [{"id": i} for i in (1, 2, 1, 2, 3, 1)]
    assert json.loads(rows[5].before)["id"] == 1
    source = json.loads(rows[0].source)
    assert (source["connector"], source["schema"], source["table"], source["snapshot"]) == (
        "postgresql",
        "public",
        "t",
        "false",
    )


def test_a_batch_reads_the_same_twice_and_everything(spark: SparkSession, database: Database, options: Options) -> None:
    for i in range(40):
        database.execute(f"INSERT INTO t SELECT i FROM generate_series({i * 500}, {i * 500 + 499}) i")
    frame = batch(spark, options | {"table": "public.t", "journal.memory.bytes": "1mb"})
    assert frame.count() == 20_000
    assert frame.count() == 20_000
    positions = sorted({r["_position"] for r in frame.select("_position").collect()})
    some = batch(spark, options | {"table": "public.t", "endposition": str(positions[10])})
    assert {r["_position"] for r in some.select("_position").collect()} == set(positions[:10])


def test_a_stream_of_typed_columns(spark: SparkSession, database: Database, options: Options, tmp_path: Path) -> None:
    write(database)
    query = stream(spark, options | {"table": "public.t"}, tmp_path, "typed")
    rows = spark.sql("SELECT * FROM typed ORDER BY _position, _ordinal").collect()
    assert [(r["_op"], r.id, r.name) for r in rows] == [
        ("c", 1, "a"),
        ("c", 2, "b"),
        ("u", 1, "new"),
        ("u", 3, "b"),
        ("d", 1, None),
    ]
    assert str(rows[0].price) == "9.99"
    assert (rows[3]["_before"].id, rows[3]["_before"].name) == (2, None)
    assert rows[0]["_before"] is None
    assert rows[0]["_unchanged"] == []
    assert rows[1]["_xid"] == rows[0]["_xid"]
    told = query.recentProgress[-1]["sources"][0]["latestOffset"]
    latest: dict[str, Any] = json.loads(told) if isinstance(told, str) else told
    assert latest["events"] == {"c": 2, "u": 2, "d": 1}
    assert {"lag_ms", "lag_bytes", "journal_bytes", "state"} <= latest.keys()


def test_unchanged_toast_is_named_not_null(
    spark: SparkSession, database: Database, options: Options, tmp_path: Path
) -> None:
    database.execute("ALTER TABLE t ALTER COLUMN name SET STORAGE EXTERNAL")
    database.execute("INSERT INTO t VALUES (1, repeat('x', 9000))")
    database.execute("UPDATE t SET price = 1")
    stream(spark, options | {"table": "public.t"}, tmp_path, "toast")
    (update,) = spark.sql("SELECT name, _unchanged FROM toast WHERE _op = 'u'").collect()
    assert (update.name, update["_unchanged"]) == (None, ["name"])
    with pytest.raises(PySparkException, match="can't be read again"):  # delivered: the slot has gone on
        batch(spark, options | {"startposition": "0"}).collect()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_times_do_not_depend_on_the_session(
    spark: SparkSession, database: Database, options: Options, zone: str
) -> None:
    database.execute("INSERT INTO t VALUES (1, 'a', '2024-01-02 03:04:05.6+00')")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = batch(spark, options | {"table": "public.t"})
        assert frame.selectExpr("unix_micros(at) AS us").collect()[0].us == 1704164645600000
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


def test_transactions_are_told(spark: SparkSession, database: Database, options: Options) -> None:
    database.execute("CREATE TABLE u (id int PRIMARY KEY)")
    options = options | {"provide.transaction.metadata": "true"}
    connectors.create(
        "postgres", {k: v for k, v in source_of(database).items() if k != "connector"}, pipeline="query"
    ).prepare()
    with database.connect(autocommit=False) as connection:
        connection.execute("INSERT INTO t (id) VALUES (1), (2)")
        connection.execute("INSERT INTO u VALUES (1)")
        connection.commit()
    rows = batch(spark, options).collect()
    told = [json.loads(r.after) for r in rows if r.topic.endswith(".transaction")]
    assert [t["status"] for t in told] == ["BEGIN", "END"]
    assert told[1]["event_count"] == 3
    counts = {c["data_collection"]: c["event_count"] for c in told[1]["data_collections"]}
    assert counts == {"public.t": 2, "public.u": 1}
    events = [r.transaction for r in rows if r.op == "c"]
    assert sorted((t.total_order, t.data_collection_order) for t in events) == [(1, 1), (2, 2), (3, 1)]
    assert {t.id for t in events} == {told[0]["id"]}


def test_messages_and_skipped_operations(spark: SparkSession, database: Database, options: Options) -> None:
    write(database)
    database.execute("SELECT pg_logical_emit_message(true, 'outbox', 'hello')")
    rows = batch(spark, options | {"skipped.operations": "d,u"}).collect()
    assert sorted(r.op for r in rows) == ["c", "c", "m"]
    (message,) = [json.loads(r.after) for r in rows if r.op == "m"]
    assert message["prefix"] == "outbox"


def test_dead_letters_have_a_topic_of_their_own(spark: SparkSession, database: Database, options: Options) -> None:
    database.execute("INSERT INTO t VALUES (1, 'a', NULL, 'NaN'), (2, 'b', NULL, 1)")
    settings = {"event.processing.failure.handling.mode": "dead-letter", "table.include.list": r"public\.t"}
    rows = batch(spark, options | settings).collect()
    assert [json.loads(r.key)["id"] for r in rows if r.op] == [1, 2]  # in JSON, NaN has a place
    with pytest.raises(PySparkException, match="no place for dead letters"):
        batch(spark, options | settings | {"table": "public.t"})


def test_mistakes_are_told(spark: SparkSession, database: Database, options: Options) -> None:
    with pytest.raises(PySparkException, match=r"Did you mean 'public\.t'"):
        batch(spark, options | {"table": "public.tt"})
    with pytest.raises(PySparkException, match=r"Did you mean 'table\.include\.list'"):
        batch(spark, options | {"table.includelist": "x", "table": "public.t"})
    with pytest.raises(PySparkException, match=r"Did you mean 'table\.include\.list'"):
        spark.readStream.format("tidelog").options(**options, **{"table.includelist": "x"}).load()
    with pytest.raises(PySparkException, match="lower case"):
        batch(spark, options | {"column.mask.hash.SHA-256.with.salt.X": "a", "table": "public.t"})
    with pytest.raises(PySparkException, match="password") as caught:
        batch(spark, options | {"database.password": "wr0ng!", "table": "public.t"})
    assert "wr0ng!" not in str(caught.value)
    assert database.password not in str(caught.value)


def test_a_second_reader_of_the_same_name_is_refused(
    spark: SparkSession, database: Database, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.engine.home import Home
    from tidelog.engine.reading import Reading
    from tidelog.spark.source import definition_of

    monkeypatch.setattr("tidelog.engine.serving._LOCK_S", 0.2)
    write(database)
    definition, home = definition_of({k: v for k, v in options.items() if k != "home"}), Home(tmp_path / "home")
    first, second = Reading(definition, home), Reading(definition, home)
    start = first.initial()
    first.latest(start, None, None)
    with pytest.raises(tidelog.ConfigError, match="alive already"):
        second.latest(start, None, None)
    first.close()
    second.drain()
    assert second.latest(start, None, None) != start
    second.close()
    assert spark is not None


def test_a_query_that_starts_cannot_tear_the_tasks_of_another(spark: SparkSession) -> None:
    """Spark puts variables into a map that every query of the source serialises: the map's names must not grow."""
    register(spark, Warmup)
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    before = set(sources.lookupDataSource("tidelog-warmup").dataSourceCls().envVars())
    warm(spark, "postgres")
    assert set(sources.lookupDataSource("tidelog-warmup").dataSourceCls().envVars()) == before


def test_a_column_that_is_called_like_a_metadata_column(
    spark: SparkSession, database: Database, options: Options
) -> None:
    database.execute("ALTER TABLE t ADD COLUMN _op text, ADD COLUMN _before text")
    database.execute("INSERT INTO t (id, _op, _before) VALUES (1, 'mine', 'was')")
    with pytest.raises(PySparkException, match=r"public\.t has a column _op.*metadata\.prefix"):
        batch(spark, options | {"table": "public.t"}).collect()
    [row] = batch(spark, options | {"table": "public.t", "metadata.prefix": "cdc_"}).collect()
    assert (row["_op"], row["_before"], row["cdc_op"], row["cdc_before"]) == ("mine", "was", "c", None)
    [event] = batch(spark, options).collect()
    assert json.loads(event.after)["_op"] == "mine"
