"""A simulated database behind the driver's seam, and settings that lead to it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.oracle.database import Database
from tests.oracle.driver import Server
from tidelog.connectors.oracle import chunks, client, config
from tidelog.connectors.oracle.config import Config

OPTIONS = {
    "database.user": "c##tide",
    "database.password": "a-secret-word",
    "database.dbname": "FREE",
    "database.pdb.name": "FREEPDB1",
}


def settings(**more: str) -> Config:
    """Options with underscores for dots."""
    return config.read({**OPTIONS, **{name.replace("_", "."): text for name, text in more.items()}})


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Server]:
    def make(*, threads: int = 1, destinations: int = 1) -> Server:
        server = Server(Database(Random(7), threads=threads, destinations=destinations))
        monkeypatch.setattr(client, "CONNECT", lambda _: server.connect())
        monkeypatch.setattr(chunks, "_idle", {})  # connections to another test's server
        return server

    return make


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()
