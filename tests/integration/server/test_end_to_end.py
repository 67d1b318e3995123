"""The service as its users have it: a process, a real PostgreSQL, real Spark, and Delta."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from deltalake import DeltaTable

from tests.integration.server.process import ServerProcess
from tests.servers import Database
from tidelog.engine.home import Home


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "home"))
    process = ServerProcess(tmp_path)
    yield process
    process.kill()


def config_of(database: Database, folder: Path) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": database.host,
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": database.password,
        "database.dbname": database.dbname,
        "slot.name": f"{database.dbname}_slot",
        "sink.type": "delta",
        "sink.path": str(folder / "lake"),
    }


def ids(folder: Path) -> list[int]:
    table = folder / "lake" / "public" / "t"
    if not DeltaTable.is_deltatable(str(table)):
        return []
    return sorted(DeltaTable(str(table)).to_pyarrow_table(columns=["id"]).column("id").to_pylist())


class Listener(threading.Thread):
    """Collects the live events."""

    def __init__(self, client: httpx.Client) -> None:
        super().__init__(daemon=True)
        self.heard: list[tuple[str, dict[str, object]]] = []
        self.listens = threading.Event()
        self._address = str(client.base_url)

    def run(self) -> None:
        type = ""
        killed = contextlib.suppress(httpx.TransportError)  # by a test that has failed already
        with killed, httpx.stream("GET", f"{self._address}/events", timeout=None) as answer:
            for line in answer.iter_lines():
                self.listens.set()
                if line.startswith("event: "):
                    type = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    self.heard.append((type, json.loads(line.removeprefix("data: "))))

    def types(self) -> set[str]:
        return {type for type, _ in self.heard}


@pytest.mark.timeout(1800)
def test_a_connector_from_its_creation_to_a_restart_of_the_service(
    server: ServerProcess, database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, name text)")
    database.execute("INSERT INTO t SELECT i, 'n' FROM generate_series(1, 3) i")
    listener = Listener(server.client)
    listener.start()
    server.until(listener.listens.is_set)

    body = {"name": "shop", "config": config_of(database, tmp_path)}
    assert server.ask("POST", "/connectors", body).status_code == 201
    assert server.ask("POST", "/connectors", body).status_code == 409
    server.until(lambda: ids(tmp_path) == [1, 2, 3])
    database.execute("INSERT INTO t VALUES (4, 'n')")
    server.until(lambda: ids(tmp_path) == [1, 2, 3, 4])
    assert server.state("shop") == "RUNNING"
    watched(server)
    snapshotted(server)
    server.until(lambda: {"status", "metrics", "notification", "snapshot", "offsets"} <= listener.types())

    paused_and_stopped(server, database, tmp_path)
    failed(server, database, tmp_path)
    waiting(server, database, tmp_path)

    assert server.ask("PUT", "/connectors/shop/resume").status_code == 202
    server.until(lambda: server.state("shop") == "RUNNING")
    assert server.terminate() == 128 + signal.SIGTERM
    assert Home.at("shop").holder() is None
    database.execute("INSERT INTO t VALUES (6, 'n')")
    restarted(tmp_path, database)
    told_nothing(server, database, tmp_path)


def watched(server: ServerProcess) -> None:
    server.until(lambda: server.ask("GET", "/connectors/shop/metrics").json()["events_total"] == 4)
    (table,) = server.ask("GET", "/connectors/shop/tables").json()["tables"]
    assert (table["name"], table["events"]) == ("public.t", 4)
    assert server.ask("GET", "/connectors/shop/metrics/history?seconds=60").json()["points"]
    wanted = {
        'tidelog_connector_state{connector="shop",state="RUNNING"} 1',
        'tidelog_total_number_of_create_events_seen{connector="shop"} 1',
        'tidelog_milli_seconds_behind_source{connector="shop"} 0',
    }
    server.until(lambda: wanted <= set(server.ask("GET", "/metrics").text.splitlines()))
    (offset,) = server.ask("GET", "/connectors/shop/offsets").json()["offsets"]
    assert offset["offset"]["lsn"] > 0
    assert not any(key.startswith("tidelog_") for key in offset["offset"])


def snapshotted(server: ServerProcess) -> None:
    asked = server.ask("POST", "/connectors/shop/snapshots", {"tables": ["public.t"], "id": "again"})
    assert (asked.status_code, asked.json()) == (202, {"id": "again"})

    def completed() -> bool:
        told = server.ask("GET", "/connectors/shop/notifications").json()["notifications"]
        return ("again", "COMPLETED") in {(n["id"], n["type"]) for n in told}

    def newest() -> tuple[str, str, dict[str, int]] | None:
        ended = server.ask("GET", "/connectors/shop/snapshots").json()["ended"]
        return (ended[0]["id"], ended[0]["how"], ended[0]["tables"]) if ended else None

    server.until(completed)
    server.until(lambda: newest() == ("again", "COMPLETED", {"public.t": 4}))


def paused_and_stopped(server: ServerProcess, database: Database, folder: Path) -> None:
    edit = server.ask("GET", "/connectors/shop/offsets").json()
    refused = server.ask("PATCH", "/connectors/shop/offsets", edit)
    assert (refused.status_code, "RUNNING" in refused.json()["message"]) == (400, True)

    assert server.ask("PUT", "/connectors/shop/pause").status_code == 202
    assert server.state("shop") == "PAUSED"
    assert Home.at("shop").holder() is not None
    refused = server.ask("PATCH", "/connectors/shop/offsets", edit)
    assert (refused.status_code, "PAUSED" in refused.json()["message"]) == (400, True)
    database.execute("INSERT INTO t VALUES (5, 'n')")
    assert server.ask("PUT", "/connectors/shop/resume").status_code == 202
    server.until(lambda: ids(folder) == [1, 2, 3, 4, 5])

    assert server.ask("PUT", "/connectors/shop/stop").status_code == 204
    assert server.ask("GET", "/connectors/shop/status").json()["tasks"] == []
    assert (server.state("shop"), Home.at("shop").holder()) == ("STOPPED", None)
    preview = server.ask("POST", "/connectors/shop/offsets/preview", edit).json()
    assert (len(preview["parts"]), preview["problems"], preview["parts"][0]["refused"]) == (1, [], "")


def failed(server: ServerProcess, database: Database, folder: Path) -> None:
    """A connector that cannot work says why, and does not disturb the others."""
    config = config_of(database, folder) | {"database.dbname": "nowhere", "slot.name": "nowhere"}
    assert server.ask("PUT", "/connectors/broken/config", config).status_code == 201
    server.until(lambda: server.state("broken") == "FAILED")
    (task,) = server.ask("GET", "/connectors/broken/status").json()["tasks"]
    assert "nowhere" in task["trace"]
    assert "\n" not in task["trace"]
    assert server.ask("GET", "/health").json()["status"] == "degraded"
    assert server.ask("DELETE", "/connectors/broken").status_code == 204
    assert server.ask("GET", "/connectors/broken/status").status_code == 404


def waiting(server: ServerProcess, database: Database, folder: Path) -> None:
    """A database that is away is waited for, and the waiting can be ended."""
    config = config_of(database, folder) | {"database.port": "1"}
    assert server.ask("PUT", "/connectors/away/config", config).status_code == 201
    server.until(lambda: "trace" in server.ask("GET", "/connectors/away/status").json()["connector"])
    told = server.ask("GET", "/connectors/away/status").json()["connector"]
    assert (told["state"], "refused" in told["trace"]) == ("UNASSIGNED", True)
    assert server.ask("PUT", "/connectors/away/stop").status_code == 204
    assert server.state("away") == "STOPPED"


def restarted(folder: Path, database: Database) -> None:
    """What ran runs again, and nobody had to ask for it."""
    again = ServerProcess(folder)
    try:
        again.until(lambda: again.state("shop") == "RUNNING")
        again.until(lambda: ids(folder) == [1, 2, 3, 4, 5, 6])
        assert again.terminate() == 128 + signal.SIGTERM
    finally:
        again.kill()
    assert database.password not in "".join(again.answers)


def told_nothing(server: ServerProcess, database: Database, folder: Path) -> None:
    """The password is in the store, as it was written, and nowhere else."""
    stored = {folder / "home" / name for name in ("tidelog.sqlite", "tidelog.sqlite-wal")}
    files = [file for file in folder.rglob("*") if file.is_file() and file not in stored]
    assert folder / "home" / "tidelog.log" in files
    assert folder / "server.out" in files
    for text in [*server.answers, *(file.read_bytes().decode("latin-1") for file in files)]:
        assert database.password not in text
