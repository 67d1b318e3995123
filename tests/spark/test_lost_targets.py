"""Target tables that somebody removed: they come back complete, whether rows change in them or not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.servers import Database
from tests.spark.conftest import Build
from tests.spark.test_pipeline import rows, wait
from tidelog.spark.pipeline import Pipeline

INITIAL = {"snapshot.mode": "initial"}


def fill(database: Database, *tables: str) -> None:
    for table in tables:
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)")
        database.execute(f"INSERT INTO {table} SELECT i, 'old' FROM generate_series(1, 5) i")


def expected(*changed: int) -> list[tuple[object, ...]]:
    return [(i, "new" if i in changed else "old") for i in range(1, 6)]


def change(database: Database, table: str, *ids: int) -> None:
    database.execute(f"UPDATE {table} SET v = 'new' WHERE id IN ({', '.join(map(str, ids))})")


def test_a_table_that_is_gone_comes_back_complete(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(database, "t", "quiet", "fine")
    pipeline = build(source=INITIAL)
    pipeline.run(spark, once=True)
    for table in ("t", "quiet"):
        shutil.rmtree(tmp_path / "lake" / "public" / table)
    change(database, "t", 2, 4)
    change(database, "fine", 1)
    pipeline.run(spark, once=True)
    assert rows(tmp_path, "t", "id", "v") == expected(2, 4)
    assert rows(tmp_path, "quiet", "id", "v") == expected()
    assert rows(tmp_path, "fine", "id", "v") == expected(1)
    told = [record.getMessage() for record in caplog.records if "is gone" in record.getMessage()]
    assert [text.split(" is gone")[0] for text in sorted(told)] == [
        "The target table of public.quiet",
        "The target table of public.t",
    ]


@pytest.mark.parametrize("book", ["with its book", "without it"])
def test_a_lake_that_is_gone_comes_back_complete(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, book: str
) -> None:
    fill(database, "t", "renamed")
    sink = {"type": "delta", "path": str(tmp_path / "lake"), "delete.mode": "soft"}
    pipeline = build(sink, source=INITIAL)
    pipeline.run(spark, once=True)
    if book == "without it":
        shutil.rmtree(tmp_path / "lake")
    else:
        shutil.rmtree(tmp_path / "lake" / "public")
    change(database, "t", 3)
    database.execute("DELETE FROM t WHERE id = 5")
    database.execute("ALTER TABLE renamed RENAME TO other")
    change(database, "other", 1)
    pipeline.run(spark, once=True)
    assert rows(tmp_path, "t", "id", "v", "_deleted") == [(*row, False) for row in expected(3)[:4]]
    assert rows(tmp_path, "other", "id", "v", "_deleted") == [(*row, False) for row in expected(1)]


def test_a_renamed_table_comes_back_and_stays_when_only_the_book_is_gone(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(database, "t")
    pipeline = build(source=INITIAL)
    pipeline.run(spark, once=True)
    database.execute("ALTER TABLE t RENAME TO renamed")  # so this is the second place of the table
    change(database, "renamed", 1)
    pipeline.run(spark, once=True)
    shutil.rmtree(tmp_path / "lake" / "public")  # the book is there, and speaks of the first place
    change(database, "renamed", 2)
    pipeline.run(spark, once=True)
    assert rows(tmp_path, "renamed", "id", "v") == expected(1, 2)
    assert "its rows were left in" not in caplog.text
    shutil.rmtree(tmp_path / "lake" / "_tables")
    change(database, "renamed", 3)
    pipeline.run(spark, once=True)
    assert rows(tmp_path, "renamed", "id", "v") == expected(1, 2, 3)


def test_a_lake_that_was_moved_is_followed(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    fill(database, "t")
    build({"type": "delta", "path": str(tmp_path / "before")}, source=INITIAL).run(spark, once=True)
    (tmp_path / "before").rename(tmp_path / "lake")
    moved = build(source=INITIAL)
    change(database, "t", 3)
    moved.run(spark, once=True)
    assert rows(tmp_path, "t", "id", "v") == expected(3)


def test_a_table_that_is_lost_in_the_middle_of_the_stream_comes_back(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    fill(database, "t", "fine")
    pipeline = build(source=INITIAL)
    with pipeline.start(spark) as run:
        wait(run, lambda: all(has(tmp_path, table, expected()) for table in ("t", "fine")))
        shutil.rmtree(tmp_path / "lake" / "public" / "t")
        change(database, "t", 1)
        wait(run, lambda: has(tmp_path, "t", expected(1)))
        shutil.rmtree(tmp_path / "lake")
        change(database, "t", 2)
        change(database, "fine", 3)
        wait(run, lambda: has(tmp_path, "t", expected(1, 2)) and has(tmp_path, "fine", expected(3)))


def has(folder: Path, table: str, content: list[tuple[object, ...]]) -> bool:
    place = str(folder / "lake" / "public" / table)
    return DeltaTable.is_deltatable(place) and rows(folder, table, "id", "v") == content


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_history_that_is_gone_begins_again_with_all_rows(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, kind: str
) -> None:
    fill(database, "t", "quiet")
    sink = {"type": "history", "format": kind, "path": str(tmp_path / "lake")}
    pipeline = build(sink, source=INITIAL)
    pipeline.run(spark, once=True)
    shutil.rmtree(tmp_path / "lake")
    change(database, "t", 2)
    pipeline.run(spark, once=True)
    change(database, "t", 4)
    pipeline.run(spark, once=True)
    assert history(tmp_path, "t", kind) == [*(("r", *row) for row in expected(2)), ("u", 4, "new")]
    assert history(tmp_path, "quiet", kind) == [("r", *row) for row in expected()]


def history(folder: Path, table: str, kind: str) -> list[tuple[object, ...]]:
    place = str(folder / "lake" / "public" / table)
    found = DeltaTable(place).to_pyarrow_table() if kind == "delta" else ds.dataset(place).to_table()
    return sorted((row["_op"], row["id"], row["v"]) for row in found.to_pylist())


def test_another_table_in_its_place_is_left_alone(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    fill(database, "t", "fine")
    pipeline: Pipeline = build(source=INITIAL)
    pipeline.run(spark, once=True)
    place = tmp_path / "lake" / "public" / "t"
    replace_by_other(place)
    change(database, "t", 1)
    change(database, "fine", 1)
    for _ in range(2):  # the second start finds it again
        told = pipeline.run(spark, once=True).warnings
        assert any("replaced by another table" in text and "Move or delete" in text for text in told)
        assert DeltaTable(str(place)).to_pyarrow_table().to_pylist() == [{"id": 77}]
    assert rows(tmp_path, "fine", "id", "v") == expected(1)
    shutil.rmtree(place)
    assert not pipeline.run(spark, once=True).warnings
    assert rows(tmp_path, "t", "id", "v") == expected(1)


def replace_by_other(place: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    shutil.rmtree(place)
    for _ in range(8):  # as many commits as the other had
        write_deltalake(str(place), pa.table({"id": pa.array([77], pa.int64())}), mode="overwrite")
