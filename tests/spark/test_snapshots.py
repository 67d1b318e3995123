"""Rows that existed before, as users of Spark meet them: in the envelope, as typed columns, and in Delta."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import tidelog
from tests.servers import Database, drop_slots
from tests.spark.conftest import Build, source_of
from tidelog.engine import signals

Options = dict[str, str]


@pytest.fixture
def options(database: Database, tmp_path: Path, spark: SparkSession) -> Options:
    tidelog.register(spark)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, name text, price numeric(8, 2), at timestamptz)")
    database.execute(
        "INSERT INTO t SELECT i, 'n' || i, i / 4.0, '2024-01-02 03:04:05.6+00' FROM generate_series(1, 25) i"
    )
    plain = {k: v for k, v in source_of(database).items() if k != "connector"}
    (tmp_path / "home").mkdir()
    more = {"snapshot.mode": "initial", "incremental.snapshot.chunk.size": "10"}
    return {**plain, **more, "name": "query", "home": str(tmp_path / "home")}


def drain(spark: SparkSession, options: Options, folder: Path, name: str) -> None:
    query = (
        spark.readStream.format("tidelog")
        .options(**options)
        .load()
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_the_envelope_of_rows_that_existed(
    spark: SparkSession, database: Database, options: Options, tmp_path: Path
) -> None:
    drain(spark, options, tmp_path, "existing")
    rows = spark.sql("SELECT * FROM existing").collect()
    assert [r.op for r in rows] == ["r"] * 25
    first = next(r for r in rows if json.loads(r.key) == {"id": 1})
    database.execute("UPDATE t SET name = 'n1' WHERE id = 1")
    told = spark.read.format("tidelog").options(**options).load().collect()
    assert json.loads(told[0].after) == json.loads(first.after)
    words = [json.loads(r.source)["snapshot"] for r in rows]
    assert sorted(set(words)) == ["last", "true"]
    assert words.count("last") == 1
    assert first.before is None


def test_asked_rows_say_incremental(spark: SparkSession, database: Database, options: Options, tmp_path: Path) -> None:
    asked = options | {"snapshot.mode": "no_data"}
    signals.send(
        tmp_path / "home" / "signals",
        "execute-snapshot",
        {
            "data-collections": ["public.t"],
            "additional-conditions": [{"data-collection": "public.t", "filter": "id > 20"}],
        },
    )
    database.execute("SELECT 1")
    drain(spark, asked, tmp_path, "asked")
    rows = spark.sql("SELECT * FROM asked").collect()
    assert sorted(json.loads(r.key)["id"] for r in rows) == [21, 22, 23, 24, 25]
    assert {json.loads(r.source)["snapshot"] for r in rows} == {"incremental"}


def test_typed_columns_of_rows_that_existed(spark: SparkSession, options: Options, tmp_path: Path) -> None:
    drain(spark, options | {"table": "public.t"}, tmp_path, "typed_existing")
    rows = spark.sql("SELECT * FROM typed_existing ORDER BY id").collect()
    assert [(r["_op"], r.id, r.name, str(r.price)) for r in rows[:2]] == [
        ("r", 1, "n1", "0.25"),
        ("r", 2, "n2", "0.50"),
    ]
    assert len(rows) == 25


@pytest.mark.parametrize("mode", ["warn", "dead-letter"])
def test_a_row_that_does_not_fit_its_type(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, mode: str
) -> None:
    database.execute("CREATE TABLE g (id int PRIMARY KEY, amount numeric(8, 2))")
    database.execute(
        "INSERT INTO g SELECT i, CASE WHEN i % 10 = 0 THEN numeric 'NaN' ELSE i END FROM generate_series(1, 30) i"
    )
    more = {"event.processing.failure.handling.mode": mode, "incremental.snapshot.chunk.size": "10"}
    pipeline = build(source={"snapshot.mode": "initial", **more})
    told: list[str] = []
    pipeline.run(spark, once=True, watch=lambda progress: told.extend(progress.warnings))
    assert ids(tmp_path) == [i for i in range(1, 31) if i % 10]
    letters = tmp_path / "lake" / "_dead_letters"
    if mode == "warn":
        assert any("Records of public.g could not be decoded: " in warning and "dropped" in warning for warning in told)
        assert not letters.exists()
        return
    database.execute("INSERT INTO g VALUES (31, 'NaN')")
    pipeline.run(spark, once=True)
    found = DeltaTable(str(letters)).to_pyarrow_table().sort_by("position").to_pylist()
    assert [letter["op"] for letter in found] == ["r", "r", "r", "c"]
    assert sorted(json.loads(letter["payload"])["id"] for letter in found[:3]) == ["10", "20", "30"]


def test_every_start_takes_all_rows_and_forgets_what_is_gone(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    """Ghosts: rows that vanished while nobody looked, here by way of a slot that was lost."""
    database.execute("CREATE TABLE g (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO g SELECT i, 'a' FROM generate_series(1, 500) i")
    pipeline = build(source={"snapshot.mode": "when_needed", "incremental.snapshot.chunk.size": "200"})
    pipeline.run(spark, once=True)
    assert ids(tmp_path) == list(range(1, 501))
    drop_slots(database)
    database.execute("DELETE FROM g WHERE id % 2 = 0")
    database.execute("UPDATE g SET v = 'b'")
    pipeline.run(spark, once=True)
    assert ids(tmp_path) == list(range(1, 501, 2))
    database.execute("TRUNCATE g")
    drop_slots(database)
    pipeline.run(spark, once=True)
    assert ids(tmp_path) == []


def ids(folder: Path) -> list[int]:
    found: list[int] = DeltaTable(str(folder / "lake" / "public" / "g")).to_pyarrow_table()["id"].to_pylist()
    return sorted(found)
