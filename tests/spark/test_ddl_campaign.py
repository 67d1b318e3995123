"""Tables that are changed in every way, beside rows, snapshots and restarts; each row then equals the source's."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.servers import Database
from tests.spark.conftest import Build
from tests.spark.ddl_workload import SCHEMA, TABLES, DdlWorkload
from tidelog.engine.home import Home
from tidelog.engine.signals import send

_RUNS = 4
"""How often the pipeline starts while tables change; it runs once more when they are done."""
_STEPS = 25
"""Transactions beside each of these runs."""


def differences(database: Database, lake: Path) -> list[str]:
    """The rows of the source and of the target that are not the same, whatever tidelog itself says of them."""
    found = []
    for table in TABLES:
        with database.connect() as connection:
            cursor = connection.execute(f"SELECT * FROM {table}")
            assert cursor.description is not None
            names = [column.name for column in cursor.description]
            source = sorted(_texts(row) for row in cursor.fetchall())
        rows = DeltaTable(str(lake / "public" / table)).to_pyarrow_table()
        lacking = set(names) - set(rows.column_names)
        if lacking:
            found.append(f"{table} lacks the columns {sorted(lacking)}")
            continue
        target = sorted(_texts(tuple(row[name] for name in names)) for row in rows.to_pylist())
        for what, ours, theirs in (("lacks", source, target), ("has", target, source)):
            if wrong := sorted(set(ours) - set(theirs)):
                found.append(f"{table} {what} {len(wrong)} rows: {names} {wrong[:3]}")
        if len(source) != len(target):
            found.append(f"{table} has {len(target)} rows, and the source {len(source)}")
    return found


def _texts(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(str(value) for value in row)


def write(workload: DdlWorkload) -> None:
    """Spread over the run, so that every part of it meets changes."""
    for _ in range(_STEPS):
        workload.step()
        time.sleep(0.3 * workload.dice.random())


def campaign(
    spark: SparkSession, database: Database, build: Build, folder: Path, seed: int, *, runs: int = _RUNS
) -> list[str]:
    """Returns what differs in the end, followed by what was done."""
    for statement in SCHEMA.split(";"):
        database.execute(statement)
    dice = random.Random(seed)
    source = {"snapshot.mode": "initial", "table.include.list": ",".join(f"public.{t}" for t in TABLES)}
    pipeline = build(source={**source, "incremental.snapshot.chunk.size": "20"}, name=f"ddl{seed}")
    with database.connect() as connection:
        workload = DdlWorkload(connection, seed)
        for _ in range(runs):
            if dice.random() < 0.5:
                tables = [f"public.{dice.choice(TABLES)}"]
                send(Home.at(pipeline.definition.name).signals, "execute-snapshot", {"data-collections": tables})
            writer = threading.Thread(target=write, args=(workload,))
            writer.start()
            try:
                pipeline.run(spark, once=True)
            finally:
                writer.join()
            workload.history.append("-- a run has ended")
    pipeline.run(spark, once=True)
    found = differences(database, folder / "lake")
    return [*found, *workload.history] if found else []


@pytest.mark.parametrize("seed", [1, 2])
def test_tables_that_change_while_they_are_read(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, seed: int
) -> None:
    found = campaign(spark, database, build, tmp_path, seed)
    assert not found, "\n".join(found)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_the_same_at_length(spark: SparkSession, database: Database, build: Build, tmp_path: Path, seed: int) -> None:
    found = campaign(spark, database, build, tmp_path, seed, runs=2 * _RUNS)
    assert not found, "\n".join(found)
