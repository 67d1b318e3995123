"""Columns that change their type or their values under the rows that are there, from PostgreSQL to Delta."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.servers import Database
from tests.spark.conftest import Build
from tests.spark.prepared import prepare_source

MIB = 1 << 20
RETYPES = {
    "same": "TYPE text USING upper(same)",
    "shorter": "TYPE varchar(50) USING upper(shorter)",
    "longer": "TYPE varchar(20) USING longer || longer",
    "wider": "TYPE bigint USING wider * 7",
    "other": "TYPE int USING length(other)",
}


def lake(folder: Path, table: str, version: int | None = None) -> list[dict[str, Any]]:
    found = DeltaTable(str(folder / "lake" / "public" / table), version=version).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def test_values_that_were_computed_anew(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With rows after the change, and without; where the table was not rewritten, nothing is read."""
    columns = "same text, shorter text, longer varchar(10), wider int, other text"
    for name in ("busy", "calm"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, {columns})")
    pipeline = build()
    prepare_source(pipeline.definition)
    for name in ("busy", "calm"):
        database.execute(f"INSERT INTO {name} SELECT i, 'a', 'b', 'c', i, 'dd' FROM generate_series(1, 500) i")
    pipeline.run(spark, once=True)
    for name in ("busy", "calm"):
        for column, how in RETYPES.items():
            database.execute(f"ALTER TABLE {name} ALTER COLUMN {column} {how}")
    database.execute("UPDATE busy SET same = 'later' WHERE id = 7")
    caplog.set_level(logging.INFO, "tidelog")
    pipeline.run(spark, once=True)
    for name in ("busy", "calm"):
        fields = ("id", *RETYPES)
        expected = database.execute(f"SELECT {', '.join(fields)} FROM {name} ORDER BY id")
        assert [tuple(row[f] for f in fields) for row in lake(tmp_path, name)] == [tuple(row) for row in expected]
    assert "wider is read from the source" in caplog.text
    caplog.clear()
    database.execute("ALTER TABLE calm ALTER COLUMN longer TYPE varchar(30)")
    database.execute("UPDATE calm SET longer = repeat('x', 30) WHERE id = 1")
    pipeline.run(spark, once=True)
    assert lake(tmp_path, "calm")[0]["longer"] == "x" * 30
    assert "is read from the source" not in caplog.text


def test_large_values_that_become_bytes(spark: SparkSession, database: Database, build: Build, tmp_path: Path) -> None:
    """They come in one transaction. No reader finds a row without its value, whatever it reads."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text STORAGE EXTERNAL)")
    pipeline = build()
    prepare_source(pipeline.definition)
    sizes = {1: 3 * MIB, 2: 50 * MIB, 3: 5, 4: 64 * MIB}
    values = ", ".join(f"({key}, repeat('x', {size}))" for key, size in sizes.items())
    database.execute(f"INSERT INTO t VALUES {values}")
    pipeline.run(spark, once=True)
    assert {row["id"]: len(row["v"]) for row in lake(tmp_path, "t")} == sizes
    database.execute("ALTER TABLE t ALTER COLUMN v TYPE bytea USING convert_to(v, 'UTF8')")
    database.execute("INSERT INTO t VALUES (5, 'new')")
    pipeline.run(spark, once=True)
    found = {row["id"]: row["v"] for row in lake(tmp_path, "t")}
    assert found == {**{key: b"x" * size for key, size in sizes.items()}, 5: b"new"}
    for version in range(DeltaTable(str(tmp_path / "lake/public/t")).version() + 1):
        assert all(row["v"] is not None for row in lake(tmp_path, "t", version))


def test_a_key_that_changes_only_its_sign(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    """0.0 and -0.0 are one key to the database, and two texts in the log."""
    database.execute("CREATE TABLE t (id float8 PRIMARY KEY, v text)")
    pipeline = build()
    prepare_source(pipeline.definition)
    database.execute("INSERT INTO t VALUES (0.0, 'zero'), (1.5, 'more')")
    pipeline.run(spark, once=True)
    database.execute("UPDATE t SET id = '-0.0', v = 'minus' WHERE id = 0")
    pipeline.run(spark, once=True)
    assert [(row["id"], row["v"]) for row in lake(tmp_path, "t")] == [(0.0, "minus"), (1.5, "more")]
    database.execute("DELETE FROM t WHERE id = 0")
    pipeline.run(spark, once=True)
    assert [row["v"] for row in lake(tmp_path, "t")] == ["more"]
