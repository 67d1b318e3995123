"""Everything from a standby: the log by a slot of its own, the rows by its reads; people write to the primary."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from demo.embedded import give_away, unprivileged

from tests.integration.postgres.snapshot_rig import Rig, rows_of
from tests.integration.postgres.snapshot_writers import Writer, create_items, finished
from tests.patience import Patience
from tests.servers import Database, Postgres

_REPLAYED = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"


@contextmanager
def standby_of(primary: Postgres, folder: Path) -> Iterator[Postgres]:
    """A copy of the server that follows it."""
    folder.mkdir()
    folder.chmod(0o777)
    give_away(folder)
    connection = ["-h", primary.host, "-p", str(primary.port), "-U", primary.user]
    command = primary.command("pg_basebackup", "-D", str(folder / "data"), "-R", "-c", "fast", "-X", "stream")
    environment = {**os.environ, "PGPASSWORD": primary.password}
    guard = unprivileged(folder)
    subprocess.run([*guard, *command, *connection], check=True, env=environment, cwd="/", capture_output=True)
    server = Postgres.start(18, folder, settings={"hot_standby": "on", "hot_standby_feedback": "on"})
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def telling_of_transactions(primary: Postgres) -> Iterator[None]:
    """A slot on a standby can begin only where the primary tells which transactions run."""
    over = threading.Event()

    def tell() -> None:
        with primary.connect() as connection:
            while not over.wait(0.1):
                connection.execute("SELECT pg_log_standby_snapshot()")

    thread = threading.Thread(target=tell)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def replay(primary: Database, standby: Database) -> None:
    """Wait until the standby has everything: up to a commit of our own, for the end of the log may lie behind the head
    of a page that has no record yet."""
    primary.execute("SELECT pg_logical_emit_message(true, 'tests', '')")
    (end,) = primary.execute("SELECT pg_current_wal_flush_lsn()::text")[0]
    patience = Patience()
    while standby.execute(_REPLAYED, [end]) != [(True,)]:
        assert not patience.is_over()
        time.sleep(0.02)


@pytest.fixture
def pair(private_postgres: Postgres, tmp_path: Path) -> Iterator[tuple[Database, Database]]:
    primary = private_postgres.create_database("shop")
    create_items(primary)
    primary.execute("CREATE PUBLICATION shop FOR TABLE items")
    with standby_of(private_postgres, tmp_path / "standby") as standby:
        yield primary, Database(standby, "shop")


def test_a_snapshot_from_a_standby(pair: tuple[Database, Database], tmp_path: Path) -> None:
    """With a crash in the middle. The last rows come though nobody writes any more. A hot standby refuses queries that
    are serializable, which this role's are by default."""
    primary, standby = pair
    primary.execute("CREATE ROLE strict LOGIN SUPERUSER PASSWORD 's3cret'")
    primary.execute("ALTER ROLE strict SET default_transaction_isolation = serializable")
    replay(primary, standby)
    source = {
        "database.user": "strict",
        "database.password": "s3cret",
        "incremental.snapshot.chunk.size": "10",
        "publication.name": "shop",
        "publication.autocreate.mode": "disabled",
        "table.include.list": "public.items",
    }
    with Rig(standby, tmp_path / "pipeline", source) as rig:
        with telling_of_transactions(primary.server):
            assert rig.start
        writer = Writer(primary, most=100)
        for hook in ("opened", "read", "staged", "planned"):
            setattr(rig.hooks, hook, writer)
        rig.run(until=lambda r: len(r.reads) > 100)
        rig.crash()
        rig.run(until=finished)
        writer.close()
        assert writer.calls > 20
        replay(primary, standby)
        rig.run()
        assert rows_of(primary, "items") == rows_of(standby, "items")
        rig.check("items")
