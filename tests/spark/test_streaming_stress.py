"""Large transactions side by side, read while they are open, killed: savepoints and whole transactions are rolled back,
small ones run between them, and the driver dies with -9. Afterwards `verify` finds nothing.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.patience import Patience
from tests.servers import Database
from tests.spark.test_snapshot_stress import SCHEMA, Stress, Writers, campaign

_APART = 10_000_000
"""Each writer has keys of its own, so that none waits for another."""
_PIECES = 10


@dataclass
class Loads:
    """Threads that each write one transaction of many rows after the other, as many as they are allowed to."""

    database: Database
    rows: int
    seed: int
    count: int = 4
    allowed: int = 0
    """Transactions of each writer so far."""
    done: list[int] = field(default_factory=list)
    rolled_back: int = 0
    failures: list[BaseException] = field(default_factory=list)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._stop = threading.Event()
        self.done = [0] * self.count
        threads = [threading.Thread(target=self._write, args=(i,)) for i in range(self.count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        assert not self.failures, self.failures[0]

    def settle(self) -> None:
        """Until everything that is allowed is written."""
        while sum(self.done) < self.allowed * self.count:
            assert not self.failures, self.failures[0]
            time.sleep(0.05)

    def _write(self, number: int) -> None:
        dice = random.Random(self.seed * 100 + number)
        try:
            with self.database.connect(autocommit=False) as connection:
                writer = _Writer(connection, dice, (number + 1) * 10 * _APART)
                while not self._stop.wait(0.02):
                    if self.done[number] < self.allowed:
                        self.rolled_back += writer.transact(self.rows)
                        self.done[number] += 1
        except BaseException as exc:  # noqa: BLE001  it is raised in the test's thread
            self.failures.append(exc)


@dataclass
class _Writer:
    connection: psycopg.Connection[Any]
    dice: random.Random
    first: int
    """Its rows have the keys from here on."""
    rows: int = 0

    def transact(self, rows: int) -> int:
        """About so many changes, with a small transaction before them; whether they were rolled back."""
        self._run("INSERT INTO big VALUES (%s, 1, 'small', NULL) ON CONFLICT DO NOTHING", self.first - 1)
        self._run("UPDATE big SET v = v + 1 WHERE id = %s", self.first - 1)
        self.connection.commit()
        before, each = self.rows, rows // _PIECES
        for _ in range(_PIECES):
            if self.dice.random() < 0.3:
                self._undone(each)
            self._change(each)
        if self.dice.random() < 0.2:
            self.connection.rollback()
            self.rows = before
            return 1
        self.connection.commit()
        return 0

    def _undone(self, rows: int) -> None:
        """A savepoint that is rolled back, with another one in it that was not."""
        before = self.rows
        self._run("SAVEPOINT outer_one")
        self._change(rows // 2)
        self._run("SAVEPOINT inner_one")
        self._change(rows // 2)
        self._run("RELEASE inner_one")
        self._run("ROLLBACK TO outer_one")
        self.rows = before

    def _change(self, rows: int) -> None:
        kind = self.dice.random()
        low = self.first + self.dice.randrange(max(1, self.rows))
        if kind < 0.5 or not self.rows:
            series = "generate_series(%s::bigint, %s::bigint) g"
            self._run(f"INSERT INTO big SELECT g, 0, 'new ' || g, NULL FROM {series}", *self._fresh(rows))
        elif kind < 0.85:
            self._run("UPDATE big SET v = v + 1, note = note || '.' WHERE id BETWEEN %s AND %s", low, low + rows)
        else:
            self._run("DELETE FROM big WHERE id BETWEEN %s AND %s", low, low + rows // 5)

    def _fresh(self, rows: int) -> tuple[int, int]:
        low = self.first + self.rows
        self.rows += rows
        return low, low + rows - 1

    def _run(self, sql: str, *values: int) -> None:
        self.connection.execute(sql.encode(), values or None)


class Streamed(Stress):
    """A pipeline that reads open transactions."""

    def __init__(self, database: Database, folder: Path, rows: int) -> None:
        """The server streams a transaction of so many rows in some hundreds of pieces."""
        super().__init__(database, folder, "streaming: on")
        self._database = database
        memory = max(64, rows // 200)
        database.execute(f"ALTER DATABASE {database.dbname} SET logical_decoding_work_mem = '{memory}kB'")

    def streamed(self) -> int:
        """Pieces of open transactions that the server has sent."""
        sql = "SELECT stream_count FROM pg_stat_replication_slots WHERE slot_name = %s"
        return int(self._database.execute(sql, [f"{self._database.dbname}_stress"])[0][0])

    def run_until(self, flows: Callable[[], bool], dice: random.Random) -> None:
        """Die once something flows in this life, or somewhat later."""
        driver, began = self._start(), time.time()
        patience = Patience()
        try:
            while not (self._captures(began) and flows()):
                assert driver.poll() is None, self._log()
                assert not patience.is_over(), self._log()
                time.sleep(0.05)
            time.sleep(dice.uniform(0, 3))
        finally:
            with suppress(ProcessLookupError):  # it has died by itself, which was told above
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()

    def _captures(self, since_s: float) -> bool:
        file = self._folder / "home" / "stress" / "status.json"
        if not file.exists():
            return False
        status = json.loads(file.read_text())
        return bool(status["updated_us"] > since_s * 1e6 and status["state"] == "running")


@pytest.mark.parametrize(
    ("rows", "kills", "each", "seed"),
    [
        (20_000, 1, 2, 1),
        *(pytest.param(200_000, 5, 1, seed, marks=pytest.mark.long) for seed in (1, 2)),
    ],
)
@pytest.mark.timeout(2400)
def test_large_transactions_side_by_side_survive_kills(
    database: Database, tmp_path: Path, rows: int, kills: int, each: int, seed: int
) -> None:
    """Between two deaths each of four writers commits, or rolls back, `each` transactions of so many rows."""
    database.execute(SCHEMA.format(rows=1000))
    stress, loads, dice = Streamed(database, tmp_path, rows), Loads(database, rows, seed), random.Random(seed)
    stress.prepare()
    with loads.at_work():
        for _ in range(kills):
            before = sum(loads.done)
            loads.allowed += each
            stress.run_until(lambda: sum(loads.done) > before, dice)  # noqa: B023
        loads.allowed += each
        loads.settle()
    stress.drain()
    assert stress.differences() == 0
    assert stress.streamed() > 0
    assert sum(loads.done) == 4 * each * (kills + 1)


@pytest.mark.parametrize(
    ("rows", "writers", "kills"),
    [pytest.param(n, w, k, marks=pytest.mark.long) for n, w, k in ((60_000, 3, 2), (1_000_000, 8, 5))],
)
@pytest.mark.timeout(2400)
def test_a_snapshot_beside_large_transactions_survives_kills(
    database: Database, tmp_path: Path, rows: int, writers: int, kills: int
) -> None:
    """Rows that existed before are read while small transactions change them and large ones add others."""
    database.execute(SCHEMA.format(rows=rows))
    stress, loads = Streamed(database, tmp_path, rows // 10), Loads(database, rows // 10, 3, count=2)
    stress.prepare()

    def more(_: int) -> None:
        loads.allowed += 2

    with loads.at_work():
        campaign(stress, Writers(database, rows, 17, writers), kills, more, loads.settle)
    assert stress.streamed() > 0
    assert sum(loads.done) == 2 * 2 * kills
