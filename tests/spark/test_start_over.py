"""A pipeline whose state folder was left behind: it stops, and goes on as somebody chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.servers import Database, drop_slots
from tests.spark.conftest import Build
from tidelog import ConfigError
from tidelog.engine.control import Control, alone
from tidelog.engine.first_start import accept
from tidelog.engine.former_writers import note_former_writers, read_former_writers
from tidelog.engine.home import Home
from tidelog.errors import TargetAway
from tidelog.model.schema import Table
from tidelog.spark import pipeline
from tidelog.spark.sinks.written import find_writers
from tidelog.stores import open_store


def rows(folder: Path) -> list[int]:
    found: list[int] = DeltaTable(str(folder / "lake/public/t")).to_pyarrow_table()["id"].to_pylist()
    return sorted(found)


def test_another_working_directory_never_leads_to_a_second_snapshot_by_itself(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t SELECT generate_series(1, 5)")
    pipeline = build(source={"snapshot.mode": "initial"})
    pipeline.run(spark, once=True)

    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "elsewhere"))
    database.execute("INSERT INTO t VALUES (6)")
    with pytest.raises(ConfigError, match=r"replication slot .*, rows of public\.t in the target"):
        pipeline.run(spark, once=True)
    carried_on = build(source={"snapshot.mode": "no_data"}).run(spark, once=True)
    assert carried_on.events_total == 1
    assert rows(tmp_path) == [1, 2, 3, 4, 5, 6]

    drop_slots(database)
    database.execute("DELETE FROM t WHERE id <= 2")
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "third"))
    with pytest.raises(ConfigError, match=r"Found: rows of public\.t in the target\."):
        pipeline.run(spark, once=True)
    assert not database.execute("SELECT 1 FROM pg_replication_slots WHERE database = current_database()")
    pipeline.run(spark, once=True, fresh=True)
    assert rows(tmp_path) == [3, 4, 5, 6], "a start over removes what the source has lost"


def test_a_history_that_has_rows_is_not_written_twice(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    sink = {"type": "history", "path": str(tmp_path / "history")}
    pipeline = build(sink, source={"snapshot.mode": "initial"})
    pipeline.run(spark, once=True)
    drop_slots(database)
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(ConfigError, match=r"rows of public\.t in the target"):
        pipeline.run(spark, once=True)


def test_two_pipelines_that_start_together_do_not_share_a_table(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    """Both find the target empty; the one that writes later is refused."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1), (2)")
    source = {"snapshot.mode": "initial"}
    early = build(source={**source, "slot.name": f"{database.dbname}_early"}, name="early")
    late = build(source={**source, "slot.name": f"{database.dbname}_late"}, name="late")
    home = Home.open("late")
    note_former_writers(home, lambda: find_writers(late.definition.sink, []))
    accept(home)
    early.run(spark, once=True)
    database.execute("DELETE FROM t WHERE id = 1")
    progress = late.run(spark, once=True)
    assert any("Another pipeline writes the target table of public.t" in text for text in progress.warnings)
    assert rows(tmp_path) == [1, 2]
    early.run(spark, once=True)
    assert rows(tmp_path) == [2]


def test_a_target_that_is_away_postpones_the_first_start(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    """Whose tables they are could not be told, and another pipeline's would be taken over for good."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    source = {"snapshot.mode": "initial"}
    early = build(source={**source, "slot.name": f"{database.dbname}_early"}, name="early")
    late = build(source={**source, "slot.name": f"{database.dbname}_late"}, name="late")
    early.run(spark, once=True)
    (commit,) = (tmp_path / "lake/_tables/_delta_log").glob("*0.json")
    content = commit.read_bytes()
    commit.write_bytes(content[: len(content) // 2])
    with pytest.raises(TargetAway, match="damaged"):
        late.run(spark, once=True)
    commit.write_bytes(content)
    with pytest.raises(ConfigError, match=r"Found: rows of public\.t in the target\."):
        late.run(spark, once=True)
    assert not database.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name LIKE '%late'")


def test_a_first_start_with_an_edit_takes_over_what_was_there_and_nothing_else(
    spark: SparkSession, database: Database, build: Build
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    shop = build(source={"snapshot.mode": "initial"})
    control = Control(open_store(None), lambda name: alone(name, shop.definition))
    body = {"offsets": [{"partition": {"server": database.dbname}, "offset": None}]}
    control.alter("shop", body, who="test", why="a test")
    shop.run(spark, once=True)
    assert read_former_writers(Home.open("shop")) == frozenset()


@pytest.mark.parametrize("fresh", [False, True])
def test_a_target_that_only_spark_can_read_is_taken_over_by_choice_only(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    source = {"snapshot.mode": "initial"}
    early = build(source={**source, "slot.name": f"{database.dbname}_early"}, name="early")
    late = build(source={**source, "slot.name": f"{database.dbname}_late"}, name="late")
    early.run(spark, once=True)
    database.execute("INSERT INTO t VALUES (2)")

    def read_by_spark(sink: Mapping[str, str], tables: Sequence[Table], engine: Any = None) -> frozenset[str] | None:
        if engine is None:
            raise TargetAway("delta-rs knows nothing of this storage.")
        return find_writers(sink, tables, engine)

    monkeypatch.setattr(pipeline, "find_writers", read_by_spark)
    monkeypatch.setattr(pipeline, "find_written", lambda *_: "")
    monkeypatch.setattr(pipeline, "needs_delta_rs", lambda *_: False)
    progress = late.run(spark, once=True, fresh=fresh)
    is_refused = any("Another pipeline writes the target table of public.t" in text for text in progress.warnings)
    assert (rows(tmp_path), is_refused) == (([1, 2], False) if fresh else ([1], True))
