"""Snapshots as their users ask for them, on real parts; what the guide shows is run as it stands."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.patience import Patience, wall_seconds
from tests.servers import Database
from tests.spark.conftest import Build
from tidelog.cli import asking
from tidelog.cli.main import main
from tidelog.engine.home import Home
from tidelog.spark.pipeline import Pipeline, Run

GUIDE = (Path(__file__).parents[2] / "docs/guide/snapshots.md").read_text(encoding="utf-8")
SHOP = """
CREATE TABLE orders (id int PRIMARY KEY, total numeric(10, 2));
CREATE TABLE customers (id int PRIMARY KEY, name text);
INSERT INTO orders SELECT n, n FROM generate_series(1, 1000) n;
INSERT INTO customers SELECT n, 'c' || n FROM generate_series(1, 300) n;
ANALYZE;
"""

INITIAL = {"snapshot.mode": "initial"}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks hears what became of it, however long a batch takes here."""
    monkeypatch.setattr(asking, "PATIENCE_S", wall_seconds())


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, flags=re.DOTALL)


SIGNAL_TABLE, INSERT, ROLES, _ = blocks("sql")
CHANNELS, TWO_ROLES = (yaml.safe_load(text) for text in blocks("yaml"))
LINE, NOTIFICATIONS = blocks("json")
COMMANDS = [shlex.split(line)[2:] for line in blocks("console")[0].splitlines()]
(PYTHON,) = blocks("python")


def furnish(database: Database, more: str = "") -> None:
    with database.connect() as connection:
        connection.execute((SHOP + more).encode())


def count(folder: Path, table: str) -> int:
    return int(DeltaTable(str(folder / "lake/public" / table)).to_pyarrow_table().num_rows)


def until(true: Callable[[], bool], run: Run) -> None:
    patience = Patience()
    while not true():
        run.raise_failure()
        assert not patience.is_over(), run.progress()
        time.sleep(0.1)


def told(home: Home) -> list[dict[str, Any]]:
    return [json.loads(line) for line in home.notifications.read_text(encoding="utf-8").splitlines()]


def ended(run: Run) -> dict[str, tuple[str, int]]:
    return {one.id: (one.how, one.rows) for one in run.progress().ended}


def test_initial_only_ends_by_itself(spark: SparkSession, database: Database, build: Build, tmp_path: Path) -> None:
    furnish(database)
    seen: list[int] = []
    pipeline = build(source={"snapshot.mode": "initial_only", "incremental.snapshot.chunk.size": "200"})
    done = pipeline.run(spark, watch=lambda progress: seen.append(len(progress.snapshots.tables)))
    (initial,) = done.ended
    assert (initial.id, initial.good) == ("initial", True)
    assert dict(initial.tables) == {"public.orders": 1000, "public.customers": 300}
    assert (count(tmp_path, "orders"), count(tmp_path, "customers")) == (1000, 300)
    assert max(seen) > 0
    assert seen[-1] == 0


def test_what_the_guide_shows(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    furnish(database, SIGNAL_TABLE)
    file = tmp_path / CHANNELS["signal.file"]
    settings = {**INITIAL, **CHANNELS, "signal.file": str(file), "incremental.snapshot.chunk.size": "500"}
    shop = build(source=settings)
    home = Home.at("shop")
    with shop.start(spark) as run:
        until(lambda: ended(run).get("initial") == ("COMPLETED", 1300), run)
        database.execute(INSERT)
        file.write_text(LINE)
        until(lambda: {"orders-1", "orders-2"} <= ended(run).keys(), run)
        assert (ended(run)["orders-1"], ended(run)["orders-2"]) == (("COMPLETED", 1000), ("COMPLETED", 900))
        until(lambda: file.read_text() == "", run)
        for words in COMMANDS:
            assert main(words) == 0, words
        names: dict[str, Any] = {"shop": shop}
        exec(PYTHON, names)
        until(lambda: {"big-orders", names["id"]} <= ended(run).keys(), run)
        assert ended(run)[names["id"]] == ("COMPLETED", 900)
    assert "snapshot of 2 tables: 1,300 rows in " in capsys.readouterr().out
    alike(told(home), [json.loads(line) for line in NOTIFICATIONS.splitlines()])
    assert (count(tmp_path, "orders"), count(tmp_path, "customers")) == (1000, 300)
    assert not (tmp_path / "lake/public/tidelog_signal").exists()


def alike(found: list[dict[str, Any]], shown: list[dict[str, Any]]) -> None:
    """The guide's notifications are those of this table; only times, paces and steps on the way are others."""
    mine = [one for one in found if one["id"] == shown[0]["id"]]
    for example in shown:
        same = next(one for one in reversed(mine) if one["type"] == example["type"])
        assert list(same["additional_data"]) == list(example["additional_data"])
        assert example["type"] == "IN_PROGRESS" or _lasting(same) == _lasting(example)


def _lasting(one: dict[str, Any]) -> dict[str, Any]:
    data = {k: v for k, v in one["additional_data"].items() if k not in ("rows_per_second", "seconds_left")}
    return {**one, "additional_data": data, "timestamp": 0}


def test_what_is_not_read_is_told(
    spark: SparkSession, database: Database, build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where somebody waits, and on the screen of the run."""
    furnish(database, SIGNAL_TABLE)
    with build(source={**INITIAL, "signal.data.collection": CHANNELS["signal.data.collection"]}).start(spark) as run:
        until(lambda: "initial" in ended(run), run)
        assert main(["snapshot", "shop", "public.customers", "public.nope", "--wait"]) == 1
        assert "300 rows in " in (said := capsys.readouterr().out)
        assert "; public.nope was not read: no captured table matches" in said
        database.execute("INSERT INTO tidelog_signal VALUES ('bad', 'stop-snapshot', '{\"tables\": []}')")
        until(lambda: len(run.progress().warnings) == 2, run)
        assert [text.split(";")[0] for text in run.progress().warnings] == [
            f"The signal {next(id for id in ended(run) if id != 'initial')!r}: no captured table matches: public.nope",
            "The signal 'bad' was skipped: stop-snapshot: there is no 'tables'",
        ]


def test_paused_snapshots_rest_until_they_are_resumed(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    furnish(database)
    slowly = {"incremental.snapshot.chunk.size": "20", "incremental.snapshot.chunk.target.ms": "0"}
    settings = {**INITIAL, **slowly, "incremental.snapshot.parallelism": "1"}
    shop = build(source=settings)
    with shop.start(spark) as run:
        until(lambda: any(walk.rows for walk in run.progress().snapshots.tables), run)
        assert main(["pause", "shop"]) == 0
        until(lambda: run.progress().snapshots.paused, run)
        rows = [walk.rows for walk in run.progress().snapshots.tables]
        database.execute("INSERT INTO customers VALUES (1000, 'streamed')")
        until(lambda: (tmp_path / "lake/public/customers").exists(), run)
        assert [walk.rows for walk in run.progress().snapshots.tables] == rows
        assert main(["stop", "shop", "public.orders"]) == 0
        shop.resume()
        until(lambda: "initial" in ended(run), run)
    assert count(tmp_path, "customers") == 301
    assert "stopped the snapshots of public.orders" in capsys.readouterr().out


def test_a_role_for_the_log_and_one_for_the_rows(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    furnish(database, ROLES.replace("'…'", "'a-secret'"))
    try:
        settings = {**INITIAL, **TWO_ROLES, "database.password": "a-secret", "snapshot.database.password": "a-secret"}
        shop: Pipeline = build(source=settings)
        shop.run(spark, once=True)
        database.execute("UPDATE orders SET total = 0 WHERE id = 1")
        shop.run(spark, once=True)
        assert (count(tmp_path, "orders"), count(tmp_path, "customers")) == (1000, 300)
        allowed = "SELECT has_table_privilege('tidelog_log', 'orders', 'SELECT')"
        assert database.execute(allowed) == [(False,)]
    finally:
        database.execute("DROP OWNED BY tidelog_rows, tidelog_log; DROP ROLE tidelog_rows, tidelog_log")
