"""A snapshot beside writers, killed: rows that existed before, changes of every kind meanwhile, chunks in flight, and a
driver that dies with -9. Afterwards `verify` finds nothing.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from tests.integration.postgres.test_snapshot_standby import replay, standby_of, telling_of_transactions
from tests.patience import Patience, wait_for_exit
from tests.servers import Database, Postgres
from tests.spark.prepared import prepare_source
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
  incremental.snapshot.parallelism: 4
  schema.refresh.interval.ms: 500
  {more}
sink: {{type: delta, path: "{path}"}}
"""

SCHEMA = """
CREATE TABLE big (id bigint PRIMARY KEY, v int NOT NULL, note text, doc text);
ALTER TABLE big ALTER doc SET STORAGE EXTERNAL;
CREATE TABLE pair (a int, b text, v int NOT NULL, PRIMARY KEY (a, b));
INSERT INTO big SELECT i, 0, 'row ' || i, CASE WHEN i % 500 = 0 THEN repeat(md5(i::text), 100) END
  FROM generate_series(1, {rows}) i;
INSERT INTO pair SELECT i % 97, 'k' || i, 0 FROM generate_series(1, {rows} / 10) i;
ANALYZE big; ANALYZE pair;
"""


@dataclass
class Writers:
    """Threads that change what is there, and what is to come, until they are told to stop."""

    database: Database
    rows: int
    seed: int
    count: int
    failures: list[BaseException] = field(default_factory=list)
    transactions: int = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._stop = threading.Event()
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

    def _write(self, number: int) -> None:
        dice = random.Random(self.seed * 100 + number)
        try:
            with self.database.connect(autocommit=False) as connection:
                while not self._stop.is_set():
                    self._transact(connection, dice)
        except BaseException as exc:  # noqa: BLE001  it is raised in the test's thread
            self.failures.append(exc)

    def _transact(self, connection: psycopg.Connection[tuple[object, ...]], dice: random.Random) -> None:
        try:
            for _ in range(dice.randint(1, 8)):
                if dice.random() < 0.3:
                    self._nested(connection, dice)
                else:
                    connection.execute(*self._change(dice))
            time.sleep(dice.choice([0, 0, 0.002, 0.05]))
            connection.rollback() if dice.random() < 0.1 else connection.commit()
            self.transactions += 1
        except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
            connection.rollback()

    def _nested(self, connection: psycopg.Connection[tuple[object, ...]], dice: random.Random) -> None:
        connection.execute("SAVEPOINT s")
        connection.execute(*self._change(dice))
        connection.execute("ROLLBACK TO s" if dice.random() < 0.4 else "RELEASE s")

    def _change(self, dice: random.Random) -> tuple[str, list[object]]:
        id = dice.randint(1, self.rows)
        match dice.randrange(9):
            case 0:
                return "INSERT INTO big VALUES (%s, 1, 'new', NULL) ON CONFLICT DO NOTHING", [id + self.rows]
            case 1:
                return "DELETE FROM big WHERE id = %s", [id]
            case 2:
                return "UPDATE big SET id = %s WHERE id = %s", [id + 2 * self.rows, id // 500 * 500]
            case 3:
                return "INSERT INTO pair VALUES (%s, %s, 1) ON CONFLICT DO NOTHING", [id % 97, f"n{id}"]
            case 4:
                return "UPDATE pair SET v = v + 1 WHERE a = %s AND b = %s", [id % 97, f"k{id}"]
            case 5:
                return "DELETE FROM pair WHERE b = %s", [f"k{id // 10}"]
            case 6:
                return "UPDATE big SET v = v + 1 WHERE id = %s", [id // 500 * 500]
            case _:
                return "UPDATE big SET v = v + 1, note = %s WHERE id = %s", [f"u{dice.random()}", id]


class Stress:
    def __init__(self, database: Database, folder: Path, more: str = "") -> None:
        self._folder = folder
        os.environ["TIDELOG_TEST_PASSWORD"] = database.password
        self._environment = {
            **os.environ,
            "TIDELOG_HOME": str(folder / "home"),
            "TIDELOG_TEST_PASSWORD": database.password,
        }
        self._file = folder / "stress.yaml"
        self._file.write_text(
            DEFINITION.format(
                name="stress",
                slot=f"{database.dbname}_stress",
                host=database.host,
                port=database.port,
                user=database.user,
                dbname=database.dbname,
                path=folder / "lake",
                more=more,
            )
        )

    def prepare(self) -> None:
        prepare_source(load(self._file), self._folder / "home")

    def run_and_kill(self, dice: random.Random, share: float) -> None:
        """Die once a share of the rows is delivered, or somewhat later."""
        driver = self._start()
        patience = Patience()
        while self.delivered() < share:
            assert driver.poll() is None, self._log()
            assert not patience.is_over(), self._log()
            time.sleep(0.05)
        time.sleep(dice.uniform(0, 1.5))
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()

    def delivered(self) -> float:
        """The share of the rows that the snapshot has delivered; 1 when nothing is left."""
        file = self._folder / "home" / "stress" / "snapshot.json"
        if not file.exists():
            return 0.0
        tables = json.loads(file.read_text())["tables"]
        return 1.0 if not tables else tables[0]["rows"] / max(1, tables[0]["estimate"]) * 0.9

    def drain(self) -> None:
        driver = self._start("--once")
        assert wait_for_exit(driver, self._log, seconds=900) == 0, self._log()

    def differences(self) -> int:
        definition = load(self._file)
        connector = connector_of(definition)
        try:
            report = verify(connector, connector.tables(), target_of(definition))
        finally:
            connector.close()
        assert report.rows > 0
        return report.differences

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.spark.driver", *arguments, str(self._file)]
        with (self._folder / "driver.log").open("ab") as log:
            return subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, start_new_session=True)

    def _log(self) -> str:
        return (self._folder / "driver.log").read_text(errors="replace")[-4000:]


def campaign(
    stress: Stress,
    writers: Writers,
    kills: int,
    meddle: Callable[[int], None] = lambda _: None,
    settle: Callable[[], None] = lambda: None,
) -> None:
    dice = random.Random(writers.seed)
    with writers.at_work():
        for kill in range(kills):
            meddle(kill)
            stress.run_and_kill(dice, share=0.8 * (kill + 0.5) / kills)
    assert writers.transactions > 0
    settle()
    stress.drain()
    assert stress.differences() == 0


@pytest.mark.parametrize(
    ("rows", "writers", "kills", "seed"),
    [
        (80_000, 4, 2, 1),
        *(pytest.param(1_000_000, 8, 5, seed, marks=pytest.mark.long) for seed in (1, 2, 3)),
    ],
)
@pytest.mark.timeout(2400)
def test_a_snapshot_beside_writers_survives_kills(
    database: Database, tmp_path: Path, rows: int, writers: int, kills: int, seed: int
) -> None:
    database.execute(SCHEMA.format(rows=rows))
    stress = Stress(database, tmp_path)
    stress.prepare()
    campaign(stress, Writers(database, rows, seed, writers), kills)


@pytest.mark.parametrize("rows", [60_000, pytest.param(1_000_000, marks=pytest.mark.long)])
@pytest.mark.timeout(2400)
def test_a_snapshot_while_its_tables_change_their_shape(database: Database, tmp_path: Path, rows: int) -> None:
    database.execute(SCHEMA.format(rows=rows))
    stress = Stress(database, tmp_path)
    stress.prepare()

    def meddle(kill: int) -> None:
        with database.connect() as connection:
            connection.execute(f"ALTER TABLE big ADD COLUMN extra{kill} int DEFAULT {kill}")
            connection.execute("ALTER TABLE big ALTER note TYPE varchar(200)" if kill else "TRUNCATE pair")

    campaign(stress, Writers(database, rows, 7, 4), 2, meddle)


@pytest.mark.parametrize("rows", [pytest.param(1_000_000, marks=pytest.mark.long)])
@pytest.mark.timeout(2400)
def test_a_snapshot_by_a_role_that_only_reads(database: Database, tmp_path: Path, rows: int) -> None:
    database.execute(SCHEMA.format(rows=rows))
    role = f"{database.dbname}_reader"
    database.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'reads-only'")
    database.execute(f"ALTER ROLE {role} SET default_transaction_read_only = on")
    database.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    stress = Stress(database, tmp_path, f"snapshot.database.user: {role}\n  snapshot.database.password: reads-only")
    stress.prepare()
    try:
        campaign(stress, Writers(database, rows, 11, 8), 5)
    finally:
        database.execute(f"DROP OWNED BY {role}")
        database.execute(f"DROP ROLE {role}")


@pytest.mark.long
@pytest.mark.parametrize(("rows", "writers", "kills"), [(30_000, 3, 2), (500_000, 8, 5)])
@pytest.mark.timeout(2400)
def test_a_snapshot_from_a_standby_survives_kills(
    private_postgres: Postgres, tmp_path: Path, rows: int, writers: int, kills: int
) -> None:
    """Log and rows come from the standby, by replay positions; people write to the primary."""
    primary = private_postgres.create_database("shop")
    primary.execute(SCHEMA.format(rows=rows))
    primary.execute("CREATE PUBLICATION shop_stress FOR TABLE big, pair")
    with standby_of(private_postgres, tmp_path / "standby") as server:
        standby = Database(server, "shop")
        replay(primary, standby)
        stress = Stress(standby, tmp_path, "publication.autocreate.mode: disabled")
        with telling_of_transactions(private_postgres):
            stress.prepare()
        campaign(stress, Writers(primary, rows, 13, writers), kills, settle=lambda: replay(primary, standby))
