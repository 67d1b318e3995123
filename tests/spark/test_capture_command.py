"""`tidelog capture` as a process beside a query: it may be killed and come back, and every change arrives once."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.patience import Patience
from tests.servers import Database
from tests.spark.command import EACH, Command, Shop, Writer
from tidelog.engine.definition import load
from tidelog.spark.pipeline import Pipeline, Run


def until_flowing(shop: Shop, writer: Writer, run: Run, capture: Command) -> None:
    """Rows that are written after now have arrived."""
    goal = (writer.transactions + 1) * EACH
    patience = Patience()
    while max(shop.ids(), default=0) < goal:
        run.raise_failure()
        assert not patience.is_over(), capture.said
        time.sleep(0.05)


def test_a_capture_that_is_killed_loses_and_doubles_nothing(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(database, tmp_path, stream="{capture: apart}")
    for name in ("TIDELOG_HOME", "TIDELOG_TEST_PASSWORD"):
        monkeypatch.setenv(name, shop.environment[name])
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = Pipeline.of(load(shop.file))
    with shop.start("capture") as first:
        first.until((shop.home / "journal" / "capture.json").exists, "the journal")
        with pipeline.start(spark) as run, Writer(database) as writer:
            until_flowing(shop, writer, run, first)
            with shop.start("capture") as second:
                assert second.end() == 2
                assert "alive already" in second.said
            first.kill()
            killed_at = writer.transactions
            while writer.transactions < killed_at + 20:
                run.raise_failure()  # the query waits for its capture
                time.sleep(0.05)
            with shop.start("capture") as again:
                until_flowing(shop, writer, run, again)
                again.terminate()
                assert again.end() == 128 + signal.SIGTERM, again.said
                assert "the next capture goes on from here" in again.said
                assert database.password not in first.said + again.said
    with shop.start("capture") as last:
        last.until(lambda: "captured" in last.said, "the capture")
        pipeline.run(spark, once=True)
        assert shop.ids() == writer.ids
        last.interrupt()
        assert last.end() == 128 + signal.SIGINT, last.said
