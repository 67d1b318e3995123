"""What `prepare` leaves behind on the server when it fails: nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.integration.postgres.test_check import config, options
from tests.patience import ENOUGH_S, wait_until
from tests.servers import Database, Postgres
from tidelog.connectors.postgres import lock_waits
from tidelog.connectors.postgres.client import Session
from tidelog.connectors.postgres.config import Config
from tidelog.connectors.postgres.connector import PostgresConnector
from tidelog.errors import ConfigError, PositionLost, TransientError

PUBLICATIONS = "SELECT count(*) FROM pg_publication"
CANCEL = (
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE datname = %s AND cardinality(pg_blocking_pids(pid)) > 0"
)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [({"wal_level": "replica"}, "wal_level is replica"), ({"max_replication_slots": 0}, "All 0 replication slots")],
)
def test_nothing_is_created_where_no_slot_can_be(setting: dict[str, object], sentence: str) -> None:
    with Postgres.start(18, settings=setting) as server:
        database = server.create_database("without_slots")
        database.execute("CREATE TABLE t (id int PRIMARY KEY)")
        with pytest.raises(ConfigError, match=sentence) as refused:
            PostgresConnector(config(database)).prepare()
        assert refused.value.hint.startswith(f"ALTER SYSTEM SET {next(iter(setting))}")
        assert database.execute(PUBLICATIONS) == [(0,)]


@pytest.fixture
def busy(database: Database) -> Iterator[Database]:
    """A transaction is open that a new slot has to wait for."""
    with database.connect(autocommit=False) as writer:
        writer.execute("CREATE TABLE unfinished (id int)")
        yield database
        writer.rollback()


def prepare_and_cancel(database: Database, wanted: Config) -> None:
    """The statement that creates the slot is cancelled while it waits."""
    with ThreadPoolExecutor() as pool:
        prepared = pool.submit(PostgresConnector(wanted).prepare)
        wait_until(lambda: database.execute(CANCEL, [database.dbname]) or prepared.done(), "a wait that is cancelled")
        with pytest.raises(TransientError, match="canceling statement due to user request"):
            prepared.result()


@pytest.mark.parametrize("mode", ["filtered", "all_tables"])
def test_the_publication_goes_when_its_slot_is_not_created(busy: Database, mode: str) -> None:
    busy.execute("CREATE TABLE t (id int PRIMARY KEY)")
    prepare_and_cancel(busy, config(busy, publication__autocreate__mode=mode))
    assert busy.execute(PUBLICATIONS) == [(0,)]


def test_a_publication_that_was_there_stays(busy: Database) -> None:
    busy.execute("CREATE TABLE t (id int PRIMARY KEY)")
    wanted = config(busy)
    busy.execute(f"CREATE PUBLICATION {wanted.publication} FOR TABLE t")
    prepare_and_cancel(busy, wanted)
    assert busy.execute(PUBLICATIONS) == [(1,)]


@pytest.mark.parametrize(
    ("resuming", "sentence"), [(False, "no change would ever arrive"), (True, "since the publication was dropped")]
)
def test_a_publication_that_others_make_has_to_be_there(database: Database, resuming: bool, sentence: str) -> None:
    """PostgreSQL 18 would stream nothing without it, and say nothing."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    connector = PostgresConnector(config(database, publication__autocreate__mode="disabled"))
    if resuming:
        database.execute(f"CREATE PUBLICATION {connector._config.publication} FOR TABLE t")
        connector.prepare()
        database.execute(f"DROP PUBLICATION {connector._config.publication}")
    with pytest.raises(ConfigError, match=sentence):
        connector.prepare(resuming=resuming)
    slots = database.execute("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()")
    assert slots == [(int(resuming),)]


def test_a_lost_slot_publishes_nothing(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with pytest.raises(PositionLost):
        PostgresConnector(config(database)).prepare(resuming=True)
    assert database.execute(PUBLICATIONS) == [(0,)]


# -- waits for other sessions ------------------------------------------------------------------------------------------


@pytest.fixture
def table(database: Database) -> Database:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    return database


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_waits, "_FIRST_REPORT_S", 0.2)
    monkeypatch.setattr(lock_waits, "_NEXT_REPORT_S", 0.2)


def prepared_in_background(connector: PostgresConnector) -> Future[int]:
    future: Future[int] = Future()
    Thread(target=lambda: future.set_result(connector.prepare()), daemon=True).start()
    return future


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("statement", "action"),
    [
        ("LOCK TABLE t IN ACCESS EXCLUSIVE MODE", "Creating the publication tidelog"),
        ("INSERT INTO t VALUES (1)", "Creating the replication slot slot_test"),
    ],
)
def test_a_start_that_waits_for_another_session_names_it(
    table: Database, caplog: pytest.LogCaptureFixture, statement: str, action: str
) -> None:
    with table.connect(autocommit=False) as other:
        other.execute("SET application_name = 'nightly load'")
        other.execute(statement)
        pid = other.info.backend_pid
        prepared = prepared_in_background(PostgresConnector(config(table)))
        wait_until(lambda: "nightly load" in caplog.text, "a warning that names the other session")
        other.rollback()
    assert prepared.result(ENOUGH_S) > 0
    (warning, *_) = [r.message for r in caplog.records if "waits for" in r.message]
    assert warning.startswith(action)
    assert f"waits for 1 session: pid {pid} (application 'nightly load', user " in warning


@pytest.mark.usefixtures("hurried")
def test_a_start_names_a_prepared_transaction_that_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    with Postgres.start(18, settings={"max_prepared_transactions": 1}) as server:
        database = server.create_database("with_prepared")
        database.execute("CREATE TABLE t (id int PRIMARY KEY)")
        with database.connect(autocommit=False) as other:
            other.execute("INSERT INTO t VALUES (1)")
            other.execute("PREPARE TRANSACTION 'forgotten'")
        prepared = prepared_in_background(PostgresConnector(config(database)))
        wait_until(lambda: "pg_prepared_xacts" in caplog.text, "a warning that speaks of the prepared transaction")
        database.execute("ROLLBACK PREPARED 'forgotten'")
        assert prepared.result(ENOUGH_S) > 0


def test_a_slot_that_is_being_created_is_waited_for(table: Database) -> None:
    connector = PostgresConnector(config(table))
    with table.connect(autocommit=False) as other:
        other.execute("INSERT INTO t VALUES (1)")
        prepared = prepared_in_background(connector)
        slots = "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
        wait_until(lambda: table.execute(slots), "the unfinished slot")
        for action in (connector.lag, connector.reach, PostgresConnector(config(table)).prepare):
            with pytest.raises(
                TransientError, match=rf"still creates the replication slot .*pid {other.info.backend_pid}"
            ):
                action()
        other.rollback()
    assert prepared.result(ENOUGH_S) > 0
    connector.close()


def test_a_start_that_was_killed_leaves_no_slot_behind(table: Database, tmp_path: Path) -> None:
    """The server ends the statement although the transaction that it waits for is still open."""
    definition = tmp_path / "shop.yaml"
    source = {"connector": "postgres", **options(table)}
    definition.write_text(json.dumps({"name": "shop", "source": source, "sink": {"type": "console"}}))
    slots = "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
    with table.connect(autocommit=False) as other:
        other.execute("INSERT INTO t VALUES (1)")
        command = [sys.executable, "-m", "tidelog", "capture", str(definition)]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as capture:
            wait_until(lambda: table.execute(slots), "the unfinished slot")
            capture.kill()
        wait_until(lambda: not table.execute(slots), "the end of the unfinished slot")
        other.rollback()


class GivenUp(BaseException):
    """As an interrupt, or a connector that is asked to end."""


LEFT_BEHIND = """
SELECT (SELECT count(*) FROM pg_publication),
       (SELECT count(*) FROM pg_replication_slots WHERE database = current_database())
"""
"""How many publications and slots there are."""


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("statement", ["LOCK TABLE t IN ACCESS EXCLUSIVE MODE", "INSERT INTO t VALUES (1)"])
def test_a_start_that_is_given_up_too_late_keeps_what_it_has_created(table: Database, statement: str) -> None:
    """The caller gives up at the moment in which the statement succeeds."""
    with table.connect(autocommit=False) as other:
        other.execute(statement)
        reasons = [""]

        def watch(reason: str) -> None:
            reasons.append(reason)
            if reason:
                other.rollback()
            elif reasons[-2]:
                raise GivenUp

        connector = PostgresConnector(config(table))
        position = connector.prepare(watch=watch)
    assert reasons[-2].startswith("Creating the ")
    assert reasons[-1] == "", "the caller hears that the wait is over"
    assert connector.prepare(resuming=True) == position
    connector.close()


@pytest.mark.parametrize(
    ("last", "mode", "left"),
    [
        ("CREATE PUBLICATION", "filtered", (0, 0)),
        ("COMMIT", "filtered", (0, 0)),
        ("SELECT pg_create_logical_replication_slot", "filtered", (1, 1)),
        ("SELECT pg_create_logical_replication_slot", "all_tables", (1, 1)),
    ],
)
def test_a_start_that_is_interrupted_leaves_no_slot_without_its_publication(
    table: Database, monkeypatch: pytest.MonkeyPatch, last: str, mode: str, left: tuple[int, int]
) -> None:
    """Right after a statement that has succeeded."""
    query = Session.query

    def interrupted(session: Session, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        rows = query(session, sql, parameters)
        if sql.startswith(last):
            raise GivenUp
        return rows

    connector = PostgresConnector(config(table, publication__autocreate__mode=mode))
    with monkeypatch.context() as patch:
        patch.setattr(Session, "query", interrupted)
        with pytest.raises(GivenUp):
            connector.prepare()
    assert table.execute(LEFT_BEHIND) == [left]
    connector.prepare(resuming=left == (1, 1))
    assert table.execute(LEFT_BEHIND) == [(1, 1)]


def test_a_physical_slot_of_the_name_is_refused(table: Database) -> None:
    wanted = config(table)
    table.execute("SELECT pg_create_physical_replication_slot(%s)", [wanted.slot])
    try:
        connector = PostgresConnector(wanted)
        for action in (connector.prepare, connector.lag):
            with pytest.raises(ConfigError, match=f"{wanted.slot} is a physical one"):
                action()
        connector.close()
    finally:
        table.execute("SELECT pg_drop_replication_slot(%s)", [wanted.slot])
