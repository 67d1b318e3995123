"""A server that is restored to an earlier time, with its slot: places of its log come to mean other changes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.postgres.snapshot_rig import Rig
from tests.servers import Postgres
from tidelog.engine.jumps import Jump
from tidelog.errors import PositionLost
from tidelog.spark.source import JUMP


@pytest.mark.parametrize("retention", ["0", "50mb"])
def test_what_was_delivered_and_is_gone_is_noticed(
    private_postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retention: str
) -> None:
    """The journal may still hold changes that the server has lost: they are not delivered after a new start."""
    monkeypatch.setattr("tidelog.engine.serving._REPLAY_S", 0.0)
    server, backup = private_postgres, tmp_path / "backup"
    database = server.create_database("restored")
    database.execute("CREATE TABLE a (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO a VALUES (1, 'old')")
    with Rig(database, tmp_path / "pipeline") as rig:
        rig.source["journal.retention.bytes"] = retention
        rig.run()
        rig.crash()
        server.halt()
        subprocess.run(["cp", "-a", server.data, backup], check=True)
        server.resume()
        database.execute("INSERT INTO a SELECT i, repeat('x', 1000) FROM generate_series(2, 2000) i")
        rig.run()
        rig.check("a")
        rig.crash()
        server.halt()
        shutil.rmtree(server.data)
        subprocess.run(["cp", "-a", backup, server.data], check=True)
        server.resume()
        with pytest.raises(PositionLost, match="restored to an earlier time"):
            rig.run()
        rig.crash()
        rig.source[JUMP] = Jump(1, None).to_json()
        rig.run()
        rig.check("a")
