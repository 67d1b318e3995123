"""Tables that the sink cannot take: the others stream on, the printed remedy helps, and nothing is lost on the way."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.servers import Database
from tests.spark.conftest import Build
from tests.spark.test_pipeline import prepare, rows, wait
from tidelog import ConfigError
from tidelog.engine.home import Home
from tidelog.engine.set_aside import SetAside


@dataclass(frozen=True)
class Refusal:
    table: str
    create: tuple[str, ...]
    says: str
    """What the reason and the cure say."""
    sql: tuple[str, ...] = ()
    """The remedy, in the database."""
    source: Mapping[str, str] = field(default_factory=dict)
    """The remedy, in the settings of the source."""
    sink: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ("id", "v")


def keyless(name: str) -> tuple[str, ...]:
    return (f"CREATE TABLE {name} (id int, v text)", f"ALTER TABLE {name} REPLICA IDENTITY FULL")


REFUSALS = (
    Refusal("a_key", keyless("a_key"), "has no key", sql=("ALTER TABLE a_key ADD PRIMARY KEY (id)",)),
    Refusal("named_key", keyless("named_key"), "message.key.columns", source={"message.key.columns": ".*named_key:id"}),
    Refusal(
        "excluded",
        ('CREATE TABLE excluded (id int PRIMARY KEY, v text, "V" text)',),
        "column.exclude.list",
        source={"column.exclude.list": r"public\.excluded\.V"},
    ),
    Refusal(
        "dropped",
        ('CREATE TABLE dropped (id int PRIMARY KEY, v text, "V" text)',),
        "drop or rename it",
        sql=('ALTER TABLE dropped DROP COLUMN "V"',),
    ),
    Refusal(
        "stamped",
        ("CREATE TABLE stamped (id int PRIMARY KEY, v text, _op text)",),
        "metadata.prefix",
        sink={"metadata.prefix": "cdc_"},
        columns=("id", "v", "_op", "cdc_op"),
    ),
    Refusal("left_out", keyless("left_out"), "table.include.list", source={"table.exclude.list": r"public\.left_out"}),
)


def test_every_printed_remedy_helps(spark: SparkSession, database: Database, build: Build, tmp_path: Path) -> None:
    tables = ["fine", *(refusal.table for refusal in REFUSALS)]
    database.execute("CREATE TABLE fine (id int PRIMARY KEY, v text)")
    for statement in (statement for refusal in REFUSALS for statement in refusal.create):
        database.execute(statement)
    insert(database, tables, 1, 2)
    sink = {"type": "delta", "path": str(tmp_path / "lake"), "metadata.columns": "_op"}
    first = build(sink, source={"snapshot.mode": "initial"})
    prepare(first)
    insert(database, tables, 3, 4)
    told = set(first.run(spark, once=True).warnings)
    assert rows(tmp_path, "fine", "id", "v") == [(i, f"v{i}") for i in (1, 2, 3, 4)]
    for refusal in REFUSALS:
        assert not (tmp_path / "lake" / "public" / refusal.table).exists()
        assert any(f"public.{refusal.table} is set aside" in text and refusal.says in text for text in told)
    insert(database, tables, 5, 5)
    for statement in (statement for refusal in REFUSALS for statement in refusal.sql):
        database.execute(statement)
    insert(database, tables, 6, 6)
    source = {key: text for refusal in REFUSALS for key, text in refusal.source.items()}
    more = {key: text for refusal in REFUSALS for key, text in refusal.sink.items()}
    cured = build(sink | more, source={"snapshot.mode": "initial"} | source)
    told = set()
    cured.run(spark, once=True, watch=lambda progress: told.update(progress.warnings))
    assert not [text for text in told if "set aside" in text]
    delivered = [refusal for refusal in REFUSALS if refusal.table != "left_out"]
    for refusal in delivered:
        found = rows(tmp_path, refusal.table, *refusal.columns)
        assert [row[:2] for row in found] == [(i, f"v{i}") for i in range(1, 7)], refusal.table
    assert not (tmp_path / "lake" / "public" / "left_out").exists()
    database.execute("UPDATE stamped SET _op = 'mine' WHERE id = 1")
    insert(database, [refusal.table for refusal in delivered], 7, 7)
    cured.run(spark, once=True)
    for refusal in delivered:
        assert len(rows(tmp_path, refusal.table, *refusal.columns)) == 7
    assert (1, "v1", "mine", "u") in rows(tmp_path, "stamped", "id", "v", "_op", "cdc_op")
    assert [aside.name for aside in SetAside(Home.at("shop")).all() if aside.waits] == []


def insert(database: Database, tables: list[str], first: int, last: int) -> None:
    for table in tables:
        database.execute(f"INSERT INTO {table} (id, v) SELECT i, 'v' || i FROM generate_series({first}, {last}) i")


def test_a_table_that_loses_its_key_comes_back_without_ghosts(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE fine (id int PRIMARY KEY)")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    pipeline = build()
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    with pipeline.start(spark) as run:
        wait(run, lambda: (tmp_path / "lake/public/t").exists() and len(rows(tmp_path, "t", "id")) == 3)
        database.execute("ALTER TABLE t DROP CONSTRAINT t_pkey")
        database.execute("DELETE FROM t WHERE id = 1")
        database.execute("UPDATE t SET v = 'B' WHERE id = 2")
        wait(run, lambda: any("public.t is set aside" in text for text in run.progress().warnings))
        database.execute("INSERT INTO fine VALUES (1)")
        wait(run, lambda: (tmp_path / "lake/public/fine").exists() and rows(tmp_path, "fine", "id") == [(1,)])
        database.execute("INSERT INTO t VALUES (4, 'd')")
        database.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
        database.execute("DELETE FROM t WHERE id = 3")
        database.execute("INSERT INTO t VALUES (5, 'e')")
        wait(run, lambda: rows(tmp_path, "t", "id", "v") == [(2, "B"), (4, "d"), (5, "e")])
        wait(run, lambda: not any("set aside" in text for text in run.progress().warnings))


def test_a_batch_that_was_refused_is_planned_again_under_the_settings_of_today(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE fine (id int PRIMARY KEY)")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, price numeric(8, 2), secret text)")
    strict = build()
    prepare(strict)
    database.execute("INSERT INTO t VALUES (1, 1.5, 'mask me'), (2, 'NaN', 'x')")
    database.execute("INSERT INTO fine VALUES (1)")
    with pytest.raises(Exception, match=r"price.*dead-letter"):
        strict.run(spark, once=True)
    lenient = build(
        source={
            "event.processing.failure.handling.mode": "dead-letter",
            "column.mask.with.5.chars": r"public\.t\.secret",
        }
    )
    lenient.run(spark, once=True)
    assert rows(tmp_path, "fine", "id") == [(1,)]
    assert [(row[0], str(row[1]), row[2]) for row in rows(tmp_path, "t", "id", "price", "secret")] == [
        (1, "1.50", "*****")
    ]


def test_a_pipeline_of_which_no_table_can_be_delivered_stops(
    spark: SparkSession, database: Database, build: Build
) -> None:
    for statement in keyless("t"):
        database.execute(statement)
    with pytest.raises(ConfigError, match=r"public\.t has no key.*message\.key\.columns"):
        build().run(spark, once=True)


def test_a_key_that_changed_its_type_is_cured_by_a_new_target(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE fine (id int PRIMARY KEY)")
    database.execute("CREATE TABLE t (id text PRIMARY KEY, v text)")
    pipeline = build()
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES ('1', 'a'), ('2', 'b')")
    pipeline.run(spark, once=True)
    database.execute("ALTER TABLE t ALTER COLUMN id TYPE int USING id::int")
    database.execute("UPDATE t SET v = 'A' WHERE id = 1")
    for number in (1, 2):  # the second start tries again, and nothing has changed
        database.execute(f"INSERT INTO fine VALUES ({number})")
        told = pipeline.run(spark, once=True).warnings
        assert any("public.t is set aside" in text and "Move or delete the target table" in text for text in told)
        assert rows(tmp_path, "fine", "id") == [(i,) for i in range(1, number + 1)]
    shutil.rmtree(tmp_path / "lake" / "public" / "t")
    database.execute("INSERT INTO t VALUES (3, 'c')")
    assert not any("set aside" in text for text in pipeline.run(spark, once=True).warnings)
    assert rows(tmp_path, "t", "id", "v") == [(1, "A"), (2, "b"), (3, "c")]


def test_what_stops_the_pipeline_is_cured_as_it_says(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    """A property of the target, and a row of a snapshot that does not fit its type."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, price numeric(8, 2))")
    database.execute("INSERT INTO t VALUES (1, 1), (2, 'NaN')")
    first = {"snapshot.mode": "initial"}
    with pytest.raises(Exception, match=r"price.*dead-letter"):
        build(source=first).run(spark, once=True)
    pipeline = build(source=first | {"event.processing.failure.handling.mode": "dead-letter"})
    pipeline.run(spark, once=True)
    assert rows(tmp_path, "t", "id") == [(1,)]
    target = str(tmp_path / "lake" / "public" / "t")
    DeltaTable(target).alter.set_table_properties({"delta.appendOnly": "true"})
    database.execute("DELETE FROM t WHERE id = 1")
    with pytest.raises(ConfigError, match=r"delta\.appendOnly is set.*Unset it"):
        pipeline.run(spark, once=True)
    DeltaTable(target).alter.set_table_properties({"delta.appendOnly": "false"})
    pipeline.run(spark, once=True)
    assert rows(tmp_path, "t", "id") == []


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_the_history_takes_back_a_table_whose_columns_clashed(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, kind: str
) -> None:
    database.execute("CREATE TABLE fine (id int PRIMARY KEY)")
    database.execute('CREATE TABLE t (id int PRIMARY KEY, _op text, v text, "V" text)')
    database.execute("INSERT INTO t VALUES (1, 'mine', 'a', 'A')")
    sink = {"type": "history", "format": kind, "path": str(tmp_path / "lake")}
    pipeline = build(sink, source={"snapshot.mode": "initial"})
    assert any("public.t is set aside" in text for text in pipeline.run(spark, once=True).warnings)
    assert not (tmp_path / "lake" / "public" / "t").exists()
    excluded = {"column.exclude.list": r"public\.t\.V"} if kind == "delta" else {}
    cured = build(sink | {"metadata.prefix": "cdc_"}, source={"snapshot.mode": "initial"} | excluded)
    assert not any("set aside" in text for text in cured.run(spark, once=True).warnings)
    place = str(tmp_path / "lake" / "public" / "t")
    found = DeltaTable(place).to_pyarrow_table() if kind == "delta" else ds.dataset(place).to_table()
    assert [(row["cdc_op"], row["_op"], row["v"]) for row in found.to_pylist()] == [("r", "mine", "a")]


def test_another_replica_identity_loses_no_delete(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    """From then on the log tells another key than the target has."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, w int NOT NULL UNIQUE)")
    database.execute("CREATE TABLE fine (id int PRIMARY KEY)")
    database.execute("INSERT INTO t SELECT i, i + 10 FROM generate_series(1, 5) i")
    pipeline = build(source={"snapshot.mode": "initial"})
    pipeline.run(spark, once=True)
    database.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX t_w_key")
    database.execute("DELETE FROM t WHERE id = 2")
    database.execute("UPDATE t SET id = 100 WHERE id = 1")
    database.execute("INSERT INTO t VALUES (6, 16)")
    for _ in range(2):  # once more, should the table wait for the next start
        pipeline.run(spark, once=True)
    assert sorted(rows(tmp_path, "t", "id", "w")) == [(3, 13), (4, 14), (5, 15), (6, 16), (100, 11)]


def test_a_named_key_that_a_delete_does_not_tell(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, w int NOT NULL)")
    database.execute("CREATE TABLE fine (id int PRIMARY KEY)")
    database.execute("INSERT INTO t SELECT i, i + 10 FROM generate_series(1, 3) i")
    pipeline = build(source={"snapshot.mode": "initial", "message.key.columns": r"public\.t:w"})
    progress = pipeline.run(spark, once=True)
    assert any("does not tell w of a deleted row of public.t" in text for text in progress.warnings)
    database.execute("DELETE FROM t WHERE id = 2")
    database.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    database.execute("DELETE FROM t WHERE id = 1")
    pipeline.run(spark, once=True)
    assert rows(tmp_path, "t", "id", "w") == [(3, 13)]
