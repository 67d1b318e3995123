"""A slot that outlives its primary: standbys keep a copy of it, and capture goes on from the one that is promoted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from demo.embedded import give_away, unprivileged

from tests.integration.postgres.world import World, follow, told, until
from tests.servers import Database, Postgres

_FAILOVER = "SELECT failover, plugin FROM pg_replication_slots WHERE slot_name = %s"


@pytest.mark.parametrize(("setting", "failover"), [({}, True), ({"slot.failover": "false"}, False)])
def test_the_slot_is_made_as_the_setting_says(world: World, setting: dict[str, str], failover: bool) -> None:
    world.database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    world.source = setting
    world.connector().prepare()
    assert world.database.execute(_FAILOVER, [world.options["slot.name"]]) == [(failover, "pgoutput")]
    world.connector().prepare(resuming=True)  # one that exists stays as it is
    assert world.database.execute(_FAILOVER, [world.options["slot.name"]]) == [(failover, "pgoutput")]


@pytest.mark.parametrize("version", ["database16", "database15"])
def test_older_servers_know_no_such_slots(request: pytest.FixtureRequest, tmp_path: Path, version: str) -> None:
    world = World(request.getfixturevalue(version), tmp_path / "pipeline", source={"slot.failover": "true"})
    world.database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    world.connector().prepare()
    assert world.confirmed() > 0


@contextmanager
def keeper_of(primary: Postgres, folder: Path, dbname: str) -> Iterator[Postgres]:
    """A standby that keeps copies of the primary's slots; the primary sends nothing to others before it has it."""
    folder.mkdir()
    folder.chmod(0o777)
    give_away(folder)
    conninfo = ["-d", f"host={primary.host} port={primary.port} user={primary.user} dbname={dbname}"]
    more = ["-R", "-c", "fast", "-X", "stream", "-C", "-S", "keeper"]
    command = primary.command("pg_basebackup", "-D", str(folder / "data"), *more, *conninfo)
    environment = {**os.environ, "PGPASSWORD": primary.password}
    subprocess.run([*unprivileged(folder), *command], check=True, env=environment, cwd="/", capture_output=True)
    settings = {"hot_standby": "on", "hot_standby_feedback": "on", "sync_replication_slots": "on"}
    server = Postgres.start(18, folder, settings=settings)
    try:
        yield server
    finally:
        server.stop()


def synced(standby: Postgres, slot: str, beyond: int) -> bool:
    sql = "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = %s AND synced"
    found = standby.execute(f"{sql} AND NOT temporary", [slot])
    return bool(found) and int(found[0][0]) >= beyond


def test_capture_goes_on_from_a_promoted_standby(private_postgres: Postgres, tmp_path: Path) -> None:
    """Once the standby has a copy of the slot, the primary may be lost: nothing is, and nothing comes twice."""
    primary = private_postgres.create_database("shop")
    primary.execute("CREATE TABLE t (id int PRIMARY KEY)")
    world = World(primary, tmp_path / "pipeline")
    try:
        reading = world.reading()
        offset = reading.initial()
        with keeper_of(private_postgres, tmp_path / "standby", "shop") as standby:
            primary.execute("ALTER SYSTEM SET synchronized_standby_slots = 'keeper'")
            primary.execute("SELECT pg_reload_conf()")
            primary.execute("INSERT INTO t VALUES (1)")
            offset, first = follow(reading, offset, 1)
            reading.latest(offset, None, None)  # acknowledges
            until(lambda: world.confirmed() >= offset.position & ~7, "the acknowledgement")
            primary.execute("INSERT INTO t VALUES (2)")
            offset, second = follow(reading, offset, 1)
            until(lambda: synced(standby, "shop", world.confirmed()), "the copy of the slot")
            private_postgres.halt(immediate=True)
            reading.close()
            standby.execute("SELECT pg_promote()")
            promoted = Database(standby, "shop")
            promoted.execute("INSERT INTO t VALUES (3)")
            world.source = {"database.port": str(standby.port)}
            offset, third = follow(world.reading(), offset, 1)
            world.close()
        assert told(first + second + third) == [("t", "c", {"id": i}) for i in (1, 2, 3)]
    finally:
        world.close()
