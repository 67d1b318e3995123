"""Exactly once, proven by killing: the driver dies with -9 at random moments while changes flow.

Afterwards the Delta tables equal the source, and the history holds every change exactly once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.patience import Patience, wait_for_exit
from tests.servers import Database
from tests.spark.prepared import prepare_source
from tests.spark.workload import SCHEMA, Change, Workload
from tidelog.cli.verify import target_of
from tidelog.engine.definition import connector_of, load
from tidelog.engine.verify import verify

DEFINITION = """
name: {name}
source:
  connector: postgres
  database.hostname: {host}
  database.port: {port}
  database.user: {user}
  database.password: ${{TIDELOG_TEST_PASSWORD}}
  database.dbname: {dbname}
  slot.name: {slot}
  publication.name: {slot}
  snapshot.mode: {snapshot}
sink: {{type: {sink}, path: "{path}"{more}}}
stream: {{maxEventsPerTrigger: 20000}}
"""


@pytest.mark.parametrize(
    ("changes", "kills"),
    [(30_000, 3), pytest.param(200_000, 20, marks=pytest.mark.long)],
)
@pytest.mark.timeout(1800)
def test_killed_drivers_lose_and_double_nothing(database: Database, tmp_path: Path, changes: int, kills: int) -> None:
    crash = Crash(database, tmp_path, random.Random(changes))
    workload = crash.write(changes, kills)
    crash.drain()
    assert crash.differences() == 0
    assert crash.history() == workload.changes
    assert workload.total >= changes


def flows(status: dict[str, Any], since_s: float) -> bool:
    return status["updated_us"] > since_s * 1e6 and status["state"] == "running" and status["position"] > 0


class Crash:
    def __init__(self, database: Database, folder: Path, dice: random.Random) -> None:
        self._database = database
        self._folder = folder
        self._dice = dice
        self._files = [
            self._define("mirror", "delta", ""),
            self._define("past", "history", ", format: delta"),
        ]
        self._environment = {
            **os.environ,
            "TIDELOG_HOME": str(folder / "home"),
            "TIDELOG_TEST_PASSWORD": database.password,
        }
        os.environ["TIDELOG_TEST_PASSWORD"] = database.password
        with database.connect() as connection:
            connection.execute(SCHEMA)
        for file in self._files:
            prepare_source(load(file), folder / "home")

    def write(self, changes: int, kills: int) -> Workload:
        """Commit at least `changes` while the driver is killed `kills` times."""
        with self._database.connect() as connection:
            workload = Workload(connection, seed=changes)
            self._killed, self._over = 0, False
            with ThreadPoolExecutor(1) as pool:
                writing = pool.submit(self._keep_writing, workload, changes, kills)
                try:
                    for _ in range(kills):
                        self._run_and_kill()
                except BaseException:
                    self._over = True
                    raise
                writing.result()
        return workload

    def _keep_writing(self, workload: Workload, changes: int, kills: int) -> None:
        """Spread the changes over the kills, so that something flows at each of them."""
        while workload.total < changes and not self._over:
            share = changes * (self._killed + 1) / kills
            if workload.total < share or self._killed >= kills:
                workload.transact()
            else:
                time.sleep(0.05)

    def _run_and_kill(self) -> None:
        """Most die in full flow, some while they start."""
        driver = self._start()
        if self._dice.random() < 0.8:
            self._await_flow(driver)
        time.sleep(self._dice.uniform(0.5, 5))
        assert driver.poll() is None, self._log()
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        self._killed += 1

    def _await_flow(self, driver: subprocess.Popen[bytes]) -> None:
        """Until both pipelines have captured something in this life."""
        began, patience = time.time(), Patience()
        for name in ("mirror", "past"):
            status = self._folder / "home" / name / "status.json"
            while not (status.exists() and flows(json.loads(status.read_text()), began)):
                assert driver.poll() is None, self._log()
                assert not patience.is_over(), self._log()
                time.sleep(0.05)

    def drain(self) -> None:
        driver = self._start("--once")
        assert wait_for_exit(driver, self._log) == 0, self._log()

    def differences(self) -> int:
        definition = load(self._files[0])
        connector = connector_of(definition)
        try:
            report = verify(connector, connector.tables(), target_of(definition))
        finally:
            connector.close()
        assert report.rows > 0
        return report.differences

    def history(self) -> Counter[Change]:
        found: Counter[Change] = Counter()
        for table in "ab":
            rows = DeltaTable(str(self._folder / "past" / "public" / table)).to_pyarrow_table(
                columns=["_op", "id", "version"]
            )
            ops, ids, versions = (rows.column(c).to_pylist() for c in ("_op", "id", "version"))
            found.update((table, op, i, 0 if op == "d" else v) for op, i, v in zip(ops, ids, versions, strict=True))
        return found

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.spark.driver", *arguments, *map(str, self._files)]
        with (self._folder / "driver.log").open("ab") as log:
            return subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, start_new_session=True)

    def _define(self, name: str, sink: str, more: str) -> Path:
        file = self._folder / f"{name}.yaml"
        database = self._database
        file.write_text(
            DEFINITION.format(
                name=name,
                slot=f"{database.dbname}_{name}",
                snapshot="initial" if sink == "delta" else "no_data",
                host=database.host,
                port=database.port,
                user=database.user,
                dbname=database.dbname,
                sink=sink,
                path=self._folder / name,
                more=more,
            )
        )
        return file

    def _log(self) -> str:
        return (self._folder / "driver.log").read_text(errors="replace")[-4000:]
