"""A start while the database does not answer."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.integration.postgres.world import World
from tests.proxy import Proxy
from tests.servers import free_port
from tidelog.cli.main import main
from tidelog.contracts import Status
from tidelog.engine import backoff, startup
from tidelog.engine.apart import run_apart
from tidelog.engine.home import Home
from tidelog.errors import TransientError

HINT = "Check database.hostname and database.port, and that the server runs and is reachable."


@pytest.fixture
def behind_proxy(world: World, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose way to the server is cut; its state is where a run by name finds it."""
    world.database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    world.source |= {"database.hostname": proxy.host, "database.port": str(proxy.port)}
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path))
    proxy.refuse()
    return world


@pytest.mark.parametrize("command", [["run", "--once"], ["check"]])
def test_a_command_says_where_it_looked_and_what_to_check(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "home"))
    port = free_port()
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""
        name: shop
        source: {{connector: postgres, database: {{hostname: 127.0.0.1, port: {port}, user: u, dbname: d}}}}
        sink: {{type: delta, path: {tmp_path}/lake}}
        """
    )
    assert main([command[0], str(file), *command[1:]]) == 2
    told = capsys.readouterr()
    said = told.out + told.err
    assert f"PostgreSQL at 127.0.0.1:{port} says: " in said
    assert HINT in said


def test_a_capture_waits_for_its_database(behind_proxy: World, proxy: Proxy) -> None:
    stop, states = threading.Event(), []

    def watch(status: Status) -> None:
        states.append(status.state)
        if status.state == startup.WAITING:
            assert HINT in status.warning
            proxy.accept()
        elif status.state == "running":
            stop.set()

    run_apart(behind_proxy.definition, stop, watch)
    assert states[0] == startup.WAITING
    assert states[-1] == "running"


def test_a_waiting_capture_can_be_stopped(behind_proxy: World) -> None:
    stop = threading.Event()
    run_apart(behind_proxy.definition, stop, lambda _: stop.set())
    assert not Home.open(behind_proxy.definition.name).holder("capture")


def test_a_first_start_gives_up_and_a_later_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "_FIRST_START_S", 0.0)
    monkeypatch.setattr(backoff, "_FIRST_S", 0.01)
    attempts = 0

    def attempt() -> int:
        nonlocal attempts
        attempts += 1
        if attempts % 3:
            raise TransientError("It does not answer.", hint="Check it.")
        return attempts

    with pytest.raises(TransientError, match="Check it"):
        startup.start_when_reachable(attempt, lambda _: None, first=True)
    assert startup.start_when_reachable(attempt, lambda _: None, first=False) == 3
