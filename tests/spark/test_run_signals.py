"""`tidelog run` as a process: Ctrl-C and SIGTERM end it in order, and the next run goes on where it ended."""

from __future__ import annotations

import itertools
import shutil
import signal
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.servers import Database
from tests.spark.command import EACH, Shop, Writer
from tests.spark.prepared import prepare_source
from tidelog.engine.definition import load
from tidelog.spark.pipeline import Pipeline


def whole(shop: Shop) -> bool:
    """Every transaction that has arrived has arrived once, and wholly."""
    ids = shop.ids()
    arrived = {number // EACH for number in ids}
    return set(ids.values()) <= {1} and len(ids) == len(arrived) * EACH


def refused(shop: Shop) -> None:
    with shop.start("run") as second:
        assert second.end() == 2
        assert "alive already" in second.said


def exit_code(way: str) -> int:
    return 128 + {"interrupt": signal.SIGINT, "terminate": signal.SIGTERM}[way]


def test_runs_that_are_ended_lose_and_double_nothing(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(database, tmp_path)
    for name in ("TIDELOG_HOME", "TIDELOG_TEST_PASSWORD"):
        monkeypatch.setenv(name, shop.environment[name])
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    prepare_source(load(shop.file), shop.home.parent)
    with Writer(database) as writer:
        for way in ("interrupt", "terminate"):
            before = len(shop.ids())
            with shop.start("run") as run:
                run.until(lambda before=before: len(shop.ids()) > before, "the first batch")
                assert run.spark_loads("pyarrow")
                assert not run.spark_loads("pandas")  # each process would take 0.65 s more
                if way == "interrupt":
                    refused(shop)
                getattr(run, way)()
                assert run.end() == exit_code(way), run.said
                assert "the next run goes on from here" in run.said
                assert "Traceback" not in run.said
                assert database.password not in run.said
            assert whole(shop)
    assert len(shop.ids()) < len(writer.ids)
    Pipeline.of(load(shop.file)).run(spark, once=True)
    assert shop.ids() == writer.ids


# While Python imports, while Spark starts, before the first batch, and while it streams; then many moments between.
MOMENTS_S = (0.0, 0.4, 1.2, 3.0, 7.0)
MORE_MOMENTS_S = (0.1, 0.2, 0.3, 0.6, 0.8, 1.0, 1.6, 2.0, 2.5, 4.0, 5.0, 6.0, 8.0)


@pytest.mark.parametrize("moments_s", [MOMENTS_S, pytest.param(MORE_MOMENTS_S, marks=pytest.mark.long)], ids=len)
def test_a_signal_at_any_moment_ends_the_command(
    database: Database, tmp_path: Path, moments_s: tuple[float, ...]
) -> None:
    """With one line, the conventional exit code, and no process left, also while Python imports or Spark starts."""
    shop = Shop(database, tmp_path)
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    for delay_s, way in zip(moments_s, itertools.cycle(["interrupt", "terminate"])):
        with shop.start("run") as run:
            run.until_started()
            time.sleep(delay_s)
            getattr(run, way)()
            assert run.end() == exit_code(way), f"after {delay_s} s: {run.said}"
            (line,) = [line for line in run.said.splitlines() if "starting Spark" not in line and "lag" not in line]
            assert line == "tidelog: interrupted" or line.endswith("the next run goes on from here"), run.said


def test_a_run_that_is_ended_before_spark_has_started_leaves_nothing_behind(database: Database, tmp_path: Path) -> None:
    shop = Shop(database, tmp_path)
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with shop.start("run") as run:
        run.until(lambda: "java" in run.processes(), "the JVM")
        run.interrupt()
        assert run.end() == exit_code("interrupt"), run.said
        assert "the next run goes on from here" in run.said


def test_a_run_whose_jvm_is_killed_says_so_and_the_next_one_goes_on(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(database, tmp_path)
    monkeypatch.setenv("TIDELOG_TEST_PASSWORD", database.password)
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    prepare_source(load(shop.file), shop.home.parent)
    with Writer(database) as writer:
        with shop.start("run") as run:
            run.until(shop.ids, "the first batch")
            run.kill_jvm()
            assert run.end() == 2, run.said
            assert "Spark ended while the pipeline was running" in run.said
            assert "Traceback" not in run.said
        assert whole(shop)
    with shop.start("run", "--once") as again:
        assert again.end() == 0, again.said
    assert shop.ids() == writer.ids


def test_a_run_whose_state_folder_is_deleted_says_so(database: Database, tmp_path: Path) -> None:
    shop = Shop(database, tmp_path)
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with Writer(database):
        with shop.start("run") as run:
            run.until(shop.ids, "the first batch")
            shutil.rmtree(shop.home)
            assert run.end() == 2, run.said
        last = run.said.split("tidelog: ")[1]
        assert last.startswith(f"The state folder {shop.home} was deleted, moved or replaced"), run.said
        assert len(last.splitlines()) == 2, run.said
    assert whole(shop)
