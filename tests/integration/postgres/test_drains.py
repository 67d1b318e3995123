"""A drain (`--once`, `Trigger.AvailableNow`) ends, and not before the snapshots that were queued are delivered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.postgres.snapshot_rig import Rig
from tests.integration.postgres.snapshot_writers import WINDOWS, items, times
from tests.patience import wait_until
from tests.servers import Database
from tidelog.connectors.postgres.connector import PostgresConnector
from tidelog.engine.signals import send
from tidelog.errors import TransientError
from tidelog.model.schema import Table

_BATCHES_MAX = 100

INITIAL = {"snapshot.mode": "initial"}
SIGNALS = {"signal.data.collection": "public.signals"}


def drain(rig: Rig) -> int:
    """Take batches as Spark does with `Trigger.AvailableNow`; returns how many."""
    failures: list[BaseException] = []
    batches = 0

    def run() -> None:
        nonlocal batches
        try:
            assert rig.start
            rig._reader().prepareForTriggerAvailableNow()
            while rig.batch():
                batches += 1
                assert batches < _BATCHES_MAX, f"the drain goes on: {rig.snapshot}"
        except BaseException as exc:  # noqa: BLE001  raised again below
            failures.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    wait_until(lambda: not thread.is_alive(), lambda: f"the end of the drain: {rig.snapshot}")
    for failure in failures:
        raise failure
    rig.crash()
    return batches


def execute(rig: Rig, kind: str = "incremental") -> None:
    send(rig.folder / "signals", "execute-snapshot", {"type": kind, "data-collections": ["public.items"]}, "queued")


@contextmanager
def busy(database: Database) -> Iterator[None]:
    """Somebody who commits to a captured table all the time."""
    over = threading.Event()

    def write() -> None:
        with database.connect() as session:
            for n in range(1_000_000):
                if over.is_set():
                    return
                session.execute("UPDATE items SET n = %s WHERE id = 10", [n])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def delivered(rig: Rig) -> bool:
    """Whether every row of the table was read once."""
    return sorted(row["id"] for _, row in rig.reads) == list(range(10, 3001, 10)) and not rig.snapshot.get("entries")


@pytest.mark.parametrize("windows", WINDOWS)
def test_an_initial_snapshot_ends_a_drain(database: Database, tmp_path: Path, windows: str) -> None:
    with items(database, tmp_path, windows, 100, **INITIAL) as rig:
        drain(rig)
        assert delivered(rig)
        rig.check("items")


@pytest.mark.parametrize("kind", ["incremental", "blocking"])
@pytest.mark.parametrize("windows", WINDOWS)
def test_a_queued_snapshot_ends_a_drain(database: Database, tmp_path: Path, windows: str, kind: str) -> None:
    with items(database, tmp_path, windows, 100, **{"snapshot.mode": "no_data"}) as rig:
        drain(rig)
        execute(rig, kind)
        drain(rig)
        assert delivered(rig)
        rig.check("items")


@pytest.mark.parametrize("windows", ["read-only", "insert_insert"])
def test_a_drain_ends_while_others_write(database: Database, tmp_path: Path, windows: str) -> None:
    with items(database, tmp_path, windows, 100, **INITIAL) as rig:
        with busy(database):
            drain(rig)
            assert not rig.snapshot.get("entries")
        drain(rig)
        rig.check("items")


def test_the_log_goes_on_past_the_last_chunk(database: Database, tmp_path: Path) -> None:
    """A transaction that commits when the last chunk was read is known, and belongs to a later run: the chunk's window
    ends before it."""
    with items(database, tmp_path, "read-only", 1000, **INITIAL) as rig:

        def commit() -> None:
            database.execute("UPDATE items SET v = 'later' WHERE id = 10")
            rig.catch_up()

        rig.hooks.planned = times(lambda: database.execute("CREATE TYPE unrelated AS (v int)"), 1)
        rig.hooks.executed = times(commit, 1)
        drain(rig)
        assert delivered(rig)
        drain(rig)
        rig.check("items")


@pytest.mark.parametrize("windows", ["read-only", "insert_insert"])
def test_a_blocking_snapshot_takes_the_log_along(database: Database, tmp_path: Path, windows: str) -> None:
    """What the rows of a blocking snapshot have seen of other tables' transactions is delivered with them."""
    with items(database, tmp_path, windows, 1000, **{"snapshot.mode": "no_data"}) as rig:
        database.execute("CREATE TABLE other (id int PRIMARY KEY)")
        drain(rig)
        execute(rig, "blocking")

        def commit() -> None:
            database.execute("WITH u AS (UPDATE items SET v = 'new' WHERE id = 10) INSERT INTO other VALUES (1)")

        rig.hooks.planned = times(commit, 1)
        drain(rig)
        assert rig.target["public.items"][(10,)]["v"] == "new"
        assert list(rig.target["public.other"]) == [(1,)]


def test_a_drain_ends_where_its_snapshots_are_paused(database: Database, tmp_path: Path) -> None:
    with items(database, tmp_path, "insert_insert", 100, **INITIAL) as rig:
        assert rig.start
        send(rig.folder / "signals", "pause-snapshot", {"type": "incremental"})
        drain(rig)
        assert rig.snapshot["paused"]
        assert len(rig.reads) < 300
        send(rig.folder / "signals", "resume-snapshot", {"type": "incremental"})
        drain(rig)
        assert delivered(rig)


@pytest.mark.parametrize("windows", ["read-only", "insert_insert"])
def test_a_chunk_that_fails_delays_a_drain(database: Database, tmp_path: Path, windows: str) -> None:
    def fail() -> None:
        raise TransientError("canceling statement due to statement timeout")

    with items(database, tmp_path, windows, 100, **INITIAL) as rig:
        rig.hooks.opened = times(fail, 2)
        drain(rig)
        assert delivered(rig)


def test_a_signal_that_comes_while_a_drain_runs(database: Database, tmp_path: Path) -> None:
    with items(database, tmp_path, "insert_insert", 1000, **INITIAL) as rig:
        rig.hooks.executed = times(lambda: execute(rig), 2)
        drain(rig)
        assert len(rig.reads) == 600
        assert not rig.snapshot.get("entries")


def test_a_transaction_that_stays_open(database: Database, tmp_path: Path) -> None:
    """It writes to the table that is read, and is not over when the drain ends."""
    with items(database, tmp_path, "insert_insert", 100, **INITIAL) as rig, database.connect(autocommit=False) as long:
        assert rig.start
        long.execute("UPDATE items SET n = -1 WHERE id % 70 = 0")
        drain(rig)
        assert delivered(rig)
        long.commit()
        drain(rig)
        rig.check("items")


def test_a_table_that_was_published_late_waits_for_older_transactions(database: Database, tmp_path: Path) -> None:
    """The drain waits with it: ending would leave the table out."""
    with items(database, tmp_path, "read-only", 100, **INITIAL) as rig, database.connect(autocommit=False) as long:
        drain(rig)
        database.execute("CREATE TABLE late (id int PRIMARY KEY); INSERT INTO late VALUES (1)")
        long.execute("INSERT INTO late VALUES (2)")
        over = threading.Timer(3, long.commit)
        over.start()
        drain(rig)
        over.join()
        rig.check("late")


def test_a_drain_does_not_end_before_a_signal_could_be_followed(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that does not answer for a moment, just when the signal is looked at."""
    failures = 3
    tables = PostgresConnector.tables

    def fail(self: PostgresConnector) -> list[Table]:
        nonlocal failures
        log = rig._reader().reading._log
        if log is None or failures <= 0:
            return tables(self)
        failures -= log.caught_up(self.log_end(), 0)  # before that, the drain would not end anyway
        raise TransientError("connection lost")

    with items(database, tmp_path, "read-only", 1000, **{"snapshot.mode": "no_data"}) as rig:
        drain(rig)
        execute(rig)
        monkeypatch.setattr(PostgresConnector, "tables", fail)
        drain(rig)
        assert not failures
        assert delivered(rig)
