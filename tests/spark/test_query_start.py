"""Python processes that Spark starts on a machine that is busy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.servers import Database
from tests.spark.conftest import Build
from tidelog.spark.pipeline import Pipeline
from tidelog.spark.progress import Progress

BeforeStart = Callable[[str], Path]
_INTERPRETER = """\
#!/bin/sh
cd {folder}
case "$*" in *python_streaming_source_runner*)
{before}
esac
exec {python} "$@"
"""


@pytest.fixture
def before_start(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BeforeStart:
    """Lets Spark run Python by a script that does something first when it starts the process of a stream's reader.
    Returns the folder in which the script runs."""
    folder = tmp_path / "interpreter"
    folder.mkdir()

    def install(before: str) -> Path:
        script = folder / "python"
        script.write_text(_INTERPRETER.format(folder=folder, before=before, python=sys.executable))
        script.chmod(0o755)
        monkeypatch.setenv("PYSPARK_PYTHON", str(script))
        monkeypatch.setattr(spark.sparkContext, "pythonExec", str(script))
        return folder

    return install


class Delivered(Exception):
    """The stream may end."""


@pytest.mark.timeout(1200)
def test_a_process_that_is_not_ready_in_time_is_started_again(
    spark: SparkSession, database: Database, build: Build, before_start: BeforeStart
) -> None:
    """The first two take longer than Spark waits: that of the warm-up, if there is one, and that of the query."""
    folder = before_start("for i in 1 2; do if mkdir slow$i 2>/dev/null; then sleep 15; break; fi; done")
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    warnings: set[str] = set()

    def watch(progress: Progress) -> None:
        warnings.update(progress.warnings)
        if progress.events_total:
            raise Delivered

    with pytest.raises(Delivered):
        build(source={"snapshot.mode": "initial"}).run(spark, watch=watch)
    assert (folder / "slow2").exists()
    (said,) = {w for w in warnings if w.startswith("The query is started again")}
    assert "was not ready within Spark's limit of 10 seconds. The machine is busy" in said


@pytest.mark.timeout(1200)
def test_queries_start_one_at_a_time(
    spark: SparkSession, database: Database, build: Build, before_start: BeforeStart
) -> None:
    folder = before_start("if mkdir starting 2>/dev/null; then sleep 1; rmdir starting; else touch overlapped; fi")
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    slots = [f"{database.dbname}_{i}" for i in range(3)]
    pipelines = [build(name=slot, source={"slot.name": slot, "publication.name": slot}) for slot in slots]

    def start_and_stop(pipeline: Pipeline) -> None:
        pipeline.start(spark).stop()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(start_and_stop, pipelines))
    assert not (folder / "overlapped").exists()
