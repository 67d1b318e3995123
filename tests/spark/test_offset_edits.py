"""Edits of offsets from end to end: PostgreSQL, Spark, Delta, and a store. Each is also followed by a driver that is
killed -9 in the middle of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.patience import Patience, wait_for_exit
from tests.servers import Database
from tests.spark.conftest import source_of
from tests.spark.prepared import prepare_source
from tidelog import UnsupportedChange
from tidelog.engine.control import Control, alone
from tidelog.engine.definition import Definition, connector_of, from_mapping
from tidelog.errors import Refused
from tidelog.spark.pipeline import Pipeline
from tidelog.stores import open_store

KEEP = {"retention.bytes": "50mb"}


@dataclass
class Shop:
    """One pipeline of one table."""

    database: Database
    folder: Path
    name: str
    definition: Definition
    spark: SparkSession | None = None

    @property
    def control(self) -> Control:
        return Control(open_store(None), lambda name: alone(name, self.definition))

    @property
    def offset(self) -> dict[str, Any]:
        found: dict[str, Any] = self.control.offsets(self.name)[0]["offset"]
        return found

    def run(self) -> None:
        Pipeline.of(self.definition).run(self.spark, once=True)

    def insert(self, *ids: int) -> None:
        for id in ids:
            self.database.execute(f"INSERT INTO {self.name} VALUES ({id}, {id})")

    def set(self, lsn: int) -> None:
        body = {"offsets": [{"partition": {"server": self.database.dbname}, "offset": {"lsn": lsn}}]}
        self.control.alter(self.name, body, who="test", why="a test")

    def log_end(self) -> int:
        connector = connector_of(self.definition)
        try:
            return connector.log_end()
        finally:
            connector.close()

    def rows(self) -> dict[int, Any]:
        table = DeltaTable(str(self.folder / "lake" / "public" / self.name)).to_pyarrow_table(columns=["id", "amount"])
        return dict(zip(table["id"].to_pylist(), map(str, table["amount"].to_pylist()), strict=True))

    def source(self) -> dict[int, Any]:
        with self.database.connect() as session:
            return {i: str(a) for i, a in session.execute(f"SELECT id, amount FROM {self.name}").fetchall()}

    def history(self) -> Counter[int]:
        table = DeltaTable(str(self.folder / "past" / "public" / self.name)).to_pyarrow_table(columns=["id"])
        return Counter(table["id"].to_pylist())


# -- what is edited. Each is made ready in steps, and the pipelines run after each step; then it is edited, and in the
# -- end it is checked, after the driver has run, died, and run again.

Steps = Generator[None, Exception | None]
"""Gets what the pipeline's run has failed with, if it has."""


def rewound(shop: Shop) -> Steps:
    shop.insert(1, 2)
    yield
    early = shop.offset["lsn"]
    shop.insert(3, 4)
    shop.database.execute(f"UPDATE {shop.name} SET amount = 40 WHERE id = 4")
    shop.database.execute(f"DELETE FROM {shop.name} WHERE id = 3")
    yield
    shop.set(early)
    yield
    _equal(shop)


def told_again(shop: Shop) -> Steps:
    """An appending target gets what is rewound twice, and not three times."""
    shop.insert(1, 2)
    yield
    early = shop.offset["lsn"]
    shop.insert(3, 4)
    yield
    shop.set(early)
    shop.insert(5)
    yield
    assert shop.history() == {1: 1, 2: 1, 3: 2, 4: 2, 5: 1}


def skipped(shop: Shop) -> Steps:
    yield
    shop.insert(1)
    yield
    shop.insert(2, 3)
    shop.set(shop.log_end())
    shop.insert(4)
    yield
    assert sorted(shop.rows()) == [1, 4]


def deleted(shop: Shop) -> Steps:
    """Skipped changes leave ghosts; a new snapshot takes them away, and brings what was missed."""
    shop.insert(1, 2, 3)
    yield
    shop.database.execute(f"DELETE FROM {shop.name} WHERE id = 2")
    shop.insert(5)
    shop.set(shop.log_end())
    yield
    assert sorted(shop.rows()) == [1, 2, 3]
    shop.control.delete(shop.name, who="test")
    yield
    _equal(shop)


def undone(shop: Shop) -> Steps:
    shop.insert(1)
    yield
    shop.insert(2, 3)
    shop.set(shop.log_end())
    shop.insert(4)
    yield
    assert sorted(shop.rows()) == [1, 4]
    shop.control.undo(shop.name, who="test")
    yield
    _equal(shop)


def imported(shop: Shop) -> Steps:
    """Into a checkpoint that knows nothing: the slot is the old one."""
    yield
    shop.insert(1, 2)
    yield
    exported = shop.control.export(shop.name)
    shop.insert(3, 4)
    shop.definition = from_mapping(_definition(shop.database, shop.folder, shop.name, f"{shop.name}_moved"))
    shop.control.load(shop.definition.name, exported, who="test")
    yield
    _equal(shop)


def poisoned(shop: Shop) -> Steps:
    """A change that nothing can represent fails for ever, until it is skipped."""
    shop.insert(1)
    yield
    shop.database.execute(f"INSERT INTO {shop.name} VALUES (2, 'NaN')")
    failed = yield
    assert isinstance(failed, UnsupportedChange)
    past = shop.log_end()
    shop.database.execute(f"DELETE FROM {shop.name} WHERE id = 2")
    shop.insert(3)
    shop.set(past)
    yield
    _equal(shop)


def _equal(shop: Shop) -> None:
    assert shop.rows() == shop.source()
    assert shop.source()


EDITS = {e.__name__: e for e in (rewound, told_again, skipped, deleted, undone, imported, poisoned)}


def _definition(database: Database, folder: Path, table: str, name: str) -> dict[str, Any]:
    source = source_of(database) | {
        "table.include.list": f"public\\.{table}",
        "slot.name": f"{database.dbname}_{table}",
        "publication.name": f"{database.dbname}_{table}",
        "snapshot.mode": "initial" if table == "deleted" else "no_data",
    }
    lake, past = {"type": "delta", "path": str(folder / "lake")}, {"type": "history", "path": str(folder / "past")}
    sink = {**past, "format": "delta"} if table == "told_again" else lake
    return {"name": name, "source": source, "sink": sink, "journal": KEEP}


def _shop(database: Database, folder: Path, edit: str, spark: SparkSession) -> Shop:
    database.execute(f"CREATE TABLE {edit} (id int PRIMARY KEY, amount numeric(8, 2))")
    definition = from_mapping(_definition(database, folder, edit, edit))
    prepare_source(definition)
    return Shop(database, folder, edit, definition, spark)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("rewound", "deleted", "poisoned"), id="back-anew-past"),
        pytest.param(("told_again", "skipped"), id="again-ahead", marks=pytest.mark.long),
        pytest.param(("undone", "imported"), id="undone-imported", marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(1200)
def test_a_driver_that_is_killed_follows_every_edit_once(
    spark: SparkSession, database: Database, home: Path, names: tuple[str, ...]
) -> None:
    """Some pipelines in one driver, which dies while they jump."""
    shops = [_shop(database, home, edit, spark) for edit in names]
    edits = [EDITS[shop.name](shop) for shop in shops]
    for edit in edits:
        next(edit)
    for _ in range(2):
        for edit, failed in zip(edits, _run(shops), strict=True):
            edit.send(failed)
    files = [_written(home, shop.definition) for shop in shops]
    for after_s in (0.0, 1.0):
        driver = _drive(home, files)
        _await_offset(home, [shop.definition.name for shop in shops], driver)
        time.sleep(after_s)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    driver = _drive(home, files, "--once")
    assert wait_for_exit(driver, lambda: _log(home)) == 0, _log(home)
    for edit in edits:
        assert next(edit, "checked") == "checked"


def _run(shops: list[Shop]) -> list[Exception | None]:
    """All at once, until everything is delivered; what each has failed with."""
    with ThreadPoolExecutor(len(shops)) as pool:
        runs = [pool.submit(shop.run) for shop in shops]
        errors = [run.exception() for run in runs]
    return [error if isinstance(error, Exception) else None for error in errors]


def _written(folder: Path, definition: Definition) -> Path:
    file = folder / f"{definition.name}.yaml"
    raw = {
        "name": definition.name,
        "source": dict(definition.source),
        "sink": dict(definition.sink),
        "journal": dict(definition.journal),
    }
    file.write_text(yaml.safe_dump(raw))
    return file


def _drive(folder: Path, files: list[Path], *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.driver", *arguments, *map(str, files)]
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def _await_offset(folder: Path, names: list[str], driver: subprocess.Popen[bytes]) -> None:
    """Until one of them has planned a batch in this life; or nothing is planned, because all edits are followed."""
    began, idle = time.time(), Patience(5)
    while True:
        planned = [p for name in names for p in (folder / "home" / name / "checkpoint" / "offsets").glob("[0-9]*")]
        if any(p.stat().st_mtime > began for p in planned):
            return
        assert driver.poll() is None, _log(folder)
        if not all(_captures(folder / "home" / name, began) for name in names):
            idle = Patience(5)
        elif idle.is_over():
            return
        time.sleep(0.02)


def _captures(home: Path, since_s: float) -> bool:
    file = home / "status.json"
    if not file.exists():
        return False
    status = json.loads(file.read_text())
    return bool(status["updated_us"] > since_s * 1e6 and status["state"] == "running")


def _log(folder: Path) -> str:
    return (folder / "driver.log").read_text(errors="replace")[-4000:]


def test_a_rewind_past_what_is_kept_is_refused(spark: SparkSession, database: Database, home: Path) -> None:
    shop = _shop(database, home, "rewound", spark)
    shop.definition = from_mapping({**_definition(database, home, "rewound", "rewound"), "journal": {}})
    first = shop.log_end()
    for i in range(2):
        shop.insert(i)
        shop.run()
    with pytest.raises(Refused, match="the oldest place that can be reached is LSN"):
        shop.set(first - 8)
    with pytest.raises(Refused, match="in the future"):
        shop.set(shop.log_end() + (1 << 30))
    shop.run()
    assert sorted(shop.rows()) == [0, 1]
