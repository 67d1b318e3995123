"""The service outlives its Spark: when the JVM dies, another session starts, and the connectors go on."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.server.process import ServerProcess
from tests.integration.server.test_end_to_end import config_of, ids
from tests.servers import Database

NAMES = ("shop", "copy")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path)
    yield process
    process.kill()


@pytest.mark.timeout(1800)
def test_connectors_go_on_when_the_jvm_was_killed(server: ServerProcess, database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    for name in NAMES:
        config = config_of(database, tmp_path / name) | {"slot.name": f"{database.dbname}_{name}"}
        assert server.ask("PUT", f"/connectors/{name}/config", config).status_code == 201
        server.until(lambda name=name: ids(tmp_path / name) == [1])
    (jvm,) = [p for p in psutil.Process(server.pid).children(recursive=True) if p.name() == "java"]
    jvm.kill()
    server.until(lambda: any(server.state(name) == "UNASSIGNED" for name in NAMES))
    traces = [str(server.ask("GET", f"/connectors/{name}/status").json()) for name in NAMES]
    assert any("Spark ended while the pipeline was running" in trace for trace in traces)
    database.execute("INSERT INTO t VALUES (2)")
    server.until(lambda: all(ids(tmp_path / name) == [1, 2] for name in NAMES))
    assert [server.state(name) for name in NAMES] == ["RUNNING", "RUNNING"]
    assert server.terminate() == 128 + signal.SIGTERM
    assert not re.search("Traceback", server.said.read_text())
