"""Connectors whose first start waits for a lock in the database: they say so, end at once, and hold up no other."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.integration.server.process import ServerProcess
from tests.integration.server.test_end_to_end import config_of, ids
from tests.servers import Database


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "home"))
    process = ServerProcess(tmp_path)
    yield process
    process.kill()


@pytest.fixture
def lock(database: Database) -> Iterator[psycopg.Connection]:
    """A session that holds a lock on the table `locked`."""
    database.execute("CREATE TABLE locked (id int PRIMARY KEY)")
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with database.connect(autocommit=False) as session:
        session.execute("SET application_name = 'nightly load'")
        yield session
        session.rollback()


def create(server: ServerProcess, database: Database, folder: Path, table: str) -> None:
    name = f"{database.dbname}_{table}"
    own = {"slot.name": name, "publication.name": name, "table.include.list": f"public.{table}"}
    body = {"name": table, "config": config_of(database, folder) | own}
    assert server.ask("POST", "/connectors", body).status_code == 201


def trace(server: ServerProcess, name: str) -> str:
    return str(server.ask("GET", f"/connectors/{name}/status").json()["connector"].get("trace", ""))


@pytest.mark.timeout(1200)
def test_a_start_that_waits_for_a_lock(
    server: ServerProcess, database: Database, tmp_path: Path, lock: psycopg.Connection
) -> None:
    database.execute("INSERT INTO t VALUES (1)")
    create(server, database, tmp_path, "t")
    server.until(lambda: ids(tmp_path) == [1])
    assert server.ask("PUT", "/connectors/t/stop").status_code == 204

    lock.execute("LOCK TABLE locked IN ACCESS EXCLUSIVE MODE")
    create(server, database, tmp_path, "locked")
    server.until(lambda: "nightly load" in trace(server, "locked"))
    assert server.state("locked") == "UNASSIGNED"
    database.execute("INSERT INTO t VALUES (2)")
    assert server.ask("PUT", "/connectors/t/resume").status_code == 202
    server.until(lambda: ids(tmp_path) == [1, 2])

    assert server.ask("PUT", "/connectors/locked/pause").status_code == 202
    assert server.state("locked") == "PAUSED"
    assert server.ask("PUT", "/connectors/locked/resume").status_code == 202
    server.until(lambda: "nightly load" in trace(server, "locked"))
    assert server.ask("DELETE", "/connectors/locked").status_code == 204
    create(server, database, tmp_path, "locked")
    server.until(lambda: "nightly load" in trace(server, "locked"))
    lock.rollback()
    server.until(lambda: server.state("locked") == "RUNNING")


@pytest.mark.timeout(1200)
def test_first_starts_do_not_wait_for_each_other(
    server: ServerProcess, database: Database, tmp_path: Path, lock: psycopg.Connection
) -> None:
    """A lock as VACUUM has it, in a session that writes nothing: only the table's own connector waits for it."""
    database.execute("INSERT INTO t VALUES (1)")
    lock.execute("LOCK TABLE locked IN SHARE UPDATE EXCLUSIVE MODE")
    create(server, database, tmp_path, "locked")
    server.until(lambda: "nightly load" in trace(server, "locked"))
    create(server, database, tmp_path, "t")
    server.until(lambda: ids(tmp_path) == [1])
    assert server.state("locked") == "UNASSIGNED"


@pytest.mark.timeout(1200)
def test_a_service_ends_while_a_start_waits_for_a_lock(
    server: ServerProcess, database: Database, tmp_path: Path, lock: psycopg.Connection
) -> None:
    lock.execute("LOCK TABLE locked IN ACCESS EXCLUSIVE MODE")
    create(server, database, tmp_path, "locked")
    server.until(lambda: "nightly load" in trace(server, "locked"))
    assert server.terminate() == 128 + signal.SIGTERM
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    assert database.execute(waiting) == [(0,)]
