"""What the tests of the Spark layer share: definitions for a fresh database, with state in a folder of the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.servers import Database
from tidelog.spark.pipeline import Pipeline

Build = Callable[..., Pipeline]


def source_of(database: Database) -> dict[str, str]:
    return {
        "connector": "postgres",
        "database.hostname": database.host,
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": database.password,
        "database.dbname": database.dbname,
        "slot.name": f"{database.dbname}_slot",
        "schema.refresh.interval.ms": "100",
        "snapshot.mode": "no_data",
    }


@pytest.fixture
def build(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Builds a pipeline from the fresh database into the test's folder."""
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "home"))

    def pipeline(sink: dict[str, Any] | None = None, *, name: str = "shop", **sections: Any) -> Pipeline:
        source = source_of(database) | sections.pop("source", {})
        return Pipeline(source, sink or {"type": "delta", "path": str(tmp_path / "lake")}, name=name, **sections)

    return pipeline
