"""The service without Spark: connectors that are stopped, a real store, and requests through the whole application."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from tests.patience import wall_seconds
from tidelog.server.app import create_app
from tidelog.server.auth import Access
from tidelog.server.service import Service
from tidelog.stores import open_store

PASSWORD = "pw-5ecret-Xyzzy"
SHOP = {
    "connector.class": "postgres",
    "database.hostname": "127.0.0.1",
    "database.port": "1",
    "database.user": "u",
    "database.password": PASSWORD,
    "database.dbname": "shop",
    "sink.type": "delta",
    "sink.path": "lake",
}
MYSQL = {"connector.class": "mysql", "database.password": PASSWORD, "topic.prefix": "inventory"}
MYSQL_OFFSETS = {
    "offsets": [{"partition": {"server": "inventory"}, "offset": {"file": "mysql-bin.000003", "pos": 154}}]
}


class Client(httpx.Client):
    """A service that listens on a port of its own, and a client of it."""

    def __init__(self, access: Access | None = None, storage: str = "") -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        where = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.service = Service(open_store(storage or None), storage=storage, worker=where)
        app = create_app(self.service, access)
        self._server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="on"))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})
        self._thread.start()
        super().__init__(base_url=f"http://{where}", timeout=wall_seconds())

    def request(self, *words: Any, **more: Any) -> httpx.Response:
        """Whatever is asked, the password that some connectors have is in no answer."""
        answer = super().request(*words, **more)
        assert PASSWORD not in answer.text + str(answer.headers)
        return answer

    def shut_down(self) -> None:
        if self.is_closed:
            return
        self.close()
        self._server.should_exit = True
        self._thread.join(wall_seconds())
        assert not self._thread.is_alive()
        self._listener.close()


Open = Callable[..., Client]


@pytest.fixture
def open_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens a service on the state of the test."""
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "home"))
    opened: list[Client] = []

    def make(access: Access | None = None, storage: str = "") -> Client:
        opened.append(Client(access, storage))
        return opened[-1]

    yield make
    for client in opened:
        client.shut_down()


@pytest.fixture
def client(open_client: Open) -> Client:
    return open_client()


@pytest.fixture
def shop(client: Client) -> Client:
    """With two connectors, `shop` (PostgreSQL) and `erp` (MySQL), both stopped."""
    for name, config in (("shop", SHOP), ("erp", MYSQL)):
        body = {"name": name, "config": config, "initial_state": "STOPPED"}
        assert client.post("/connectors", json=body).status_code == 201
    return client
