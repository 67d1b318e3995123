"""Records that cannot be decoded: everybody who looks hears of them, and verify knows them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.servers import Database
from tests.spark.conftest import Build
from tests.spark.test_pipeline import rows
from tidelog.cli import status
from tidelog.cli.verify import lines
from tidelog.contracts import FAILURES
from tidelog.engine.dead_letters import DeadLetters
from tidelog.engine.definition import connector_of
from tidelog.engine.home import Home
from tidelog.engine.verify import verify
from tidelog.server.metrics import undelivered
from tidelog.spark.reading import read_target


def test_dead_letters_are_counted_and_named_everywhere(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE fine (id int PRIMARY KEY)")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, price numeric(8, 2), at timestamp)")
    database.execute("INSERT INTO t VALUES (1, 1, now()), (2, 'NaN', now()), (3, 3, '294270-03-01 10:00:00')")
    mode = {"event.processing.failure.handling.mode": "dead-letter", "snapshot.mode": "initial"}
    pipeline = build(source=mode)
    told = pipeline.run(spark, once=True).warnings
    assert [
        text for text in told if "Records of public.t could not be decoded: " in text and "kept as dead letters" in text
    ]
    database.execute("INSERT INTO t VALUES (4, 'NaN', now())")
    database.execute("UPDATE t SET price = 'NaN' WHERE id = 1")
    pipeline.run(spark, once=True)
    assert [row[0] for row in rows(tmp_path, "t", "id")] == [1]

    payloads = DeltaTable(str(tmp_path / "lake" / "_dead_letters")).to_pyarrow_table().to_pylist()
    read = {row["id"]: row for row in (json.loads(one["payload"]) for one in payloads if one["op"] == "r")}
    assert (read["2"]["price"], read["3"]["at"]) == ("NaN", "294270-03-01 10:00:00.000000")

    connector = connector_of(pipeline.definition)
    report = status.gather(pipeline.definition, connector)
    told = "public.t: 4 records could not be decoded (4 kept as dead letters); the last: column price"
    assert told in status.text(report)
    metrics = {(family.name, labels.get("fate")): value for family, labels, value in undelivered(Home.at("shop"))}
    assert metrics["undecodable_records", "set_aside"] == 4

    connector = connector_of(pipeline.definition)
    found = verify(connector, connector.tables(), read_target(pipeline.definition.sink))
    connector.close()
    assert found.in_sync
    assert str(found) == "in sync: 2 tables, 4 rows, 0 differences, 4 rows set aside"
    text = "\n".join(line for one in found.tables for line in lines(one, values=False))
    assert "4 rows are set aside" in text
    assert all(f"set aside: id={id}" in text for id in (1, 2, 3, 4))


def test_the_letters_of_a_batch_that_comes_again_are_counted_once(tmp_path: Path) -> None:
    letters = DeadLetters(Home(tmp_path))
    found = pa.Table.from_pylist([{"table": "public.t", "reason": "a"}, {"table": "public.t", "reason": "b"}], FAILURES)
    letters.count("q", 1, found, kept=True)
    letters.count("q", 1, found, kept=True)
    letters.count("q", 2, found.slice(0, 1), kept=False)
    (table,) = DeadLetters(Home(tmp_path)).all()
    assert (table.table, table.set_aside, table.left_out, table.reason) == ("public.t", 2, 1, "a")
