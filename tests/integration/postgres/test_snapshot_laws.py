"""Laws that need a server of one's own: commits that are not visible yet, and transaction ids past the first epoch."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from pathlib import Path

from demo.embedded import unprivileged

from tests.integration.postgres.snapshot_rig import Rig
from tests.integration.postgres.snapshot_writers import finished, items, write_at
from tests.integration.postgres.world import until
from tests.patience import Patience, wall_seconds
from tests.servers import Database, Postgres
from tidelog.core.snapshot import document, java
from tidelog.engine.signals import send


def _configure(server: Postgres, setting: str, value: str) -> None:
    server.execute(f"ALTER SYSTEM SET {setting} = '{value}'")
    server.execute("SELECT pg_reload_conf()")
    while server.execute(f"SHOW {setting}") != [(value,)]:
        time.sleep(0.02)


def _stuck(database: Database, update: str) -> threading.Thread:
    """Somebody whose commit is in the log, and waits there."""
    thread = threading.Thread(target=lambda: database.execute(update))
    thread.start()
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    until(lambda: database.execute(waiting), "the commit")
    return thread


def _confirmed(rig: Rig) -> int:
    sql = "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots WHERE slot_name = %s"
    return int(rig.database.execute(sql, [rig.options["slot.name"]])[0][0])


def test_a_commit_that_is_delivered_before_it_is_visible(private_postgres: Postgres, tmp_path: Path) -> None:
    """It waits for synchronous replication: the log has it, readers see the old row, and the old row must
    not come after the new one, however late the snapshot is asked for."""
    database = private_postgres.create_database("shop")
    with items(database, tmp_path, size=50, **{"snapshot.mode": "no_data", "status.update.interval.ms": "50"}) as rig:
        rig.run()
        _configure(private_postgres, "synchronous_standby_names", "nobody")
        stuck = _stuck(database, "UPDATE items SET v = 'invisible' WHERE id IN (10, 2000)")
        rig.run(until=lambda r: len(r.target["public.items"]) == 2)
        delivered = rig.start["tidelog_position"]
        send(rig.folder / "signals", "execute-snapshot", {"data-collections": ["public.items"]}, "late")
        rig.run(until=lambda r: len(r.reads) == 298)
        rig.run()
        assert database.execute("SELECT v FROM items WHERE id = 10") == [("v1",)]  # still invisible
        assert rig.target["public.items"][(10,)]["v"] == "invisible"
        assert _confirmed(rig) < delivered
        _configure(private_postgres, "synchronous_standby_names", "")
        stuck.join(wall_seconds())
        rig.crash()
        rig.run()
        rig.check("items")
        assert _rises_past(rig, delivered - 1)


def test_the_window_of_an_invisible_commit_outlives_a_crash(private_postgres: Postgres, tmp_path: Path) -> None:
    """The chunk is read, the process dies, and the journal with it: the event that the chunk has not seen was delivered
    long before, and must be read again from the slot for the window."""
    database = private_postgres.create_database("shop")
    with items(database, tmp_path, size=500, **{"snapshot.mode": "no_data"}) as rig:
        rig.run()
        _configure(private_postgres, "synchronous_standby_names", "nobody")
        stuck = _stuck(database, "UPDATE items SET v = 'invisible' WHERE id = 10")
        rig.run(until=lambda r: len(r.target["public.items"]) == 1)
        send(rig.folder / "signals", "execute-snapshot", {"data-collections": ["public.items"]}, "late")
        rig.run(until=lambda r: bool(r.snapshot.get("entries", [{}])[0].get("chunks")))
        _configure(private_postgres, "synchronous_standby_names", "")
        stuck.join(wall_seconds())
        rig.crash()
        shutil.rmtree(rig.folder / "journal" / "segments")
        rig.run()
        assert rig.target["public.items"][(10,)]["v"] == "invisible"
        rig.check("items")


def _rises_past(rig: Rig, position: int) -> bool:
    """Now that everybody sees it, the log may go."""
    patience = Patience()
    while _confirmed(rig) <= position and not patience.is_over():
        rig.batch()
        time.sleep(0.05)
    return _confirmed(rig) > position


def test_transaction_ids_past_the_first_epoch(private_postgres: Postgres, tmp_path: Path) -> None:
    """The log tells 32 bits of an id, a snapshot 64."""
    private_postgres.halt()
    command = private_postgres.command("pg_resetwal", "-e", "3", "-D", str(private_postgres.data))
    subprocess.run([*unprivileged(private_postgres.data), *command], check=True, capture_output=True, cwd="/")
    private_postgres.resume()
    database = private_postgres.create_database("shop")
    assert int(database.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")[0][0]) > 3 << 32
    with items(database, tmp_path, size=20) as rig:
        writer = write_at(rig, "read", "planned", most=30)
        rig.run(until=finished)
        writer.close()
        rig.run()
        rig.check("items")


def test_the_offset_tells_how_far_it_is(database: Database, tmp_path: Path) -> None:
    """The attributes that other connectors know: the key that was sent last, and the maximum."""
    with items(database, tmp_path, size=20) as rig:
        assert document.read(rig.start) is not None
        batches = 0
        while (told := document.read(rig.start)) is not None and batches < 30:
            assert [asked.table for asked in told.queue] == ["public.items"]
            assert told.asked_by(told.queue[0]) == "initial"
            if told.sent is not None:
                keys = [value.value for key in (told.sent, told.maximum or ()) for value in key if value is not None]
                assert keys == [max(row["id"] for _, row in rig.reads), 3000]
                assert java.decode(rig.start["incremental_snapshot_primary_key"]) == told.sent
            batches += rig.batch()
        assert batches >= 4
        assert finished(rig)
        assert not [name for name in rig.start if name.startswith("incremental_snapshot")]
