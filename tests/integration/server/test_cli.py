"""`tidelog server` and `tidelog connectors`: what people type, and what they read."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from tests.integration.server.conftest import MYSQL, PASSWORD, Client
from tests.integration.server.process import ServerProcess
from tidelog.cli.main import main
from tidelog.engine.home import Home


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "home"))


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told
    return told


def test_it_refuses_to_listen_openly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--tokens" in refused(capsys, "server", "--host", "0.0.0.0", "--port", "0")
    (tmp_path / "tokens").write_text("nonsense\n")
    assert "ROLE TOKEN" in refused(capsys, "server", "--host", "0.0.0.0", "--tokens", str(tmp_path / "tokens"))


def test_a_port_that_is_taken_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert "--port" in refused(capsys, "server", "--port", str(other.getsockname()[1]))
    assert "--port" in refused(capsys, "server", "--port", "70000")


def test_one_service_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    with Home.open("").lock("server"):
        assert "alive already" in refused(capsys, "server", "--port", "0")


def test_a_store_that_cannot_be_used_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"postgresql://u:{PASSWORD}@127.0.0.1:1/none"
    monkeypatch.setenv("TIDELOG_OFFSET_STORAGE", url)
    assert PASSWORD not in refused(capsys, "server", "--port", "0", "--offset-storage", url)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_listens_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    server = ServerProcess(tmp_path)
    try:
        with server.client.stream("GET", "/events") as listening:
            next(listening.iter_lines())
            body = {"name": "erp", "config": MYSQL, "initial_state": "STOPPED"}
            assert server.ask("POST", "/connectors", body).status_code == 201
            assert server.terminate(number) == 128 + number
    finally:
        server.kill()
    said = server.said.read_text()
    assert "listens on http://127.0.0.1:" in said
    assert "Traceback" not in said


def test_connectors_are_managed_from_the_command_line(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_SERVER", str(client.base_url))

    def say(*words: str) -> str:
        assert main(["connectors", *words]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    assert "no connectors" in say("list")
    shop = tmp_path / "shop.yaml"
    source = "{connector: postgres, database.user: u, database.dbname: shop, database.password: ${NOT_SET_HERE}}"
    shop.write_text(f"name: shop\nsource: {source}\nsink: {{type: delta, path: lake}}\n")
    assert "created" in say("create", str(shop), "--state", "STOPPED")
    erp = tmp_path / "erp.json"
    erp.write_text(json.dumps({"name": "erp", "config": MYSQL, "initial_state": "STOPPED"}))
    say("create", str(erp))
    assert [line.split() for line in say("list").splitlines()] == [
        ["erp", "STOPPED", "mysql"],
        ["shop", "STOPPED", "postgres"],
    ]
    assert json.loads(say("get", "shop"))["config"]["database.password"] == "${NOT_SET_HERE}"
    assert "paused" in say("pause", "shop")
    assert json.loads(say("status", "shop"))["connector"]["state"] == "PAUSED"
    assert "restarted" in say("restart", "shop")
    assert "stopped" in say("stop", "shop")
    assert "isn't there" in refused(capsys, "connectors", "resume", "erp")
    assert "not found" in refused(capsys, "connectors", "get", "nobody")
    assert "needs a name" in refused(capsys, "connectors", "stop")
    assert "deleted" in say("delete", "erp")
    assert "Start it" in refused(capsys, "connectors", "list", "--server", "http://127.0.0.1:1")
    assert "does not answer" in refused(capsys, "connectors", "list", "--server", "nonsense")
