"""Worlds: a pipeline's settings and state on a fresh database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.postgres.world import World
from tests.servers import DATABASES, Database


@pytest.fixture(autouse=True)
def no_first_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query's first batch waits a second for events, so that it is not empty. Here nobody minds an empty one."""
    monkeypatch.setattr("tidelog.engine.reading._FIRST_WAIT_S", 0.05)


@pytest.fixture
def world(database: Database, tmp_path: Path) -> Iterator[World]:
    """On PostgreSQL 18."""
    made = World(database, tmp_path / "pipeline")
    yield made
    made.close()


@pytest.fixture(params=DATABASES)
def any_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """On each version that the tests know."""
    made = World(request.getfixturevalue(request.param), tmp_path / "pipeline")
    yield made
    made.close()
