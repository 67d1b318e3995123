"""A slot that another process reads: named, and no reason to wait for ever; unless it is our own lost connection."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.integration.postgres.world import World, follow, until
from tests.patience import wall_seconds
from tests.proxy import Proxy
from tests.servers import Database
from tidelog.connectors.postgres import holder
from tidelog.connectors.postgres.client import Session
from tidelog.connectors.postgres.holder import SlotHolder
from tidelog.contracts import Status
from tidelog.engine.capture import last_status
from tidelog.engine.home import Home
from tidelog.errors import PositionLost, Refused, SlotBusy


@pytest.fixture
def table(world: World) -> World:
    world.database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    return world


@pytest.fixture
def silent(table: World) -> Iterator[int]:
    """A reader that takes the slot and never answers; the server's process that serves it."""
    slot = table.options["slot.name"]
    table.connector().prepare()
    with closing(psycopg.connect(table.database.dsn, replication="database", autocommit=True)) as reader:
        options = f"(proto_version '1', publication_names '\"{slot}\"')"
        reader.pgconn.exec_(f"START_REPLICATION SLOT {slot} LOGICAL 0/0 {options}".encode())
        yield reader.pgconn.backend_pid


def outcome(reader: SlotHolder, session: Session) -> type[Exception] | None:
    try:
        reader.require_free(session)
    except (SlotBusy, Refused) as exc:
        return type(exc)
    return None


def watching(world: World) -> Session:
    return Session(world.connector()._config)


@pytest.mark.parametrize("once", [True, False])
def test_a_pipeline_of_the_same_name_elsewhere(
    table: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    monkeypatch.setattr(holder, "_PATIENCE_S", 1.0)
    first = table.reading()
    start = first.initial()
    table.database.execute("INSERT INTO t VALUES (1, 'x')")
    follow(first, start, 1)
    elsewhere = World(table.database, tmp_path / "elsewhere", source={"slot.name": table.options["slot.name"]})
    second = elsewhere.reading()
    try:
        offset = second.initial()
        if once:
            second.drain()
        with pytest.raises(Refused, match=r"'tidelog capture' as .* from 127\.0\.0\.1") as found:
            until(lambda: second.latest(offset, None, None) != offset and False, "the refusal")
    finally:
        elsewhere.close()
    (pid,) = re.findall(r"pg_terminate_backend\((\d+)\)", found.value.hint)
    assert f"server process {pid}:" in found.value.message
    table.database.execute("INSERT INTO t VALUES (2, 'y')")
    follow(first, start, 2)


def test_a_lost_connection_of_our_own_is_waited_for(table: World, silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "_PATIENCE_S", 0.0)
    with watching(table) as session:
        session.query("SET wal_sender_timeout = '1ms'")
        monkeypatch.setattr(holder, "_MARGIN_S", 0.0)
        reader = SlotHolder(table.options["slot.name"])
        reader.add_own_sender(silent)
        for _ in range(5):
            with pytest.raises(SlotBusy, match="our last connection"):
                reader.require_free(session)


def test_a_reader_that_never_answers_is_left_to_the_server(
    table: World, silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine may be gone: the server ends it."""
    monkeypatch.setattr(holder, "_PATIENCE_S", 0.0)
    with watching(table) as session:
        reader = SlotHolder(table.options["slot.name"])
        assert [outcome(reader, session) for _ in range(5)] == [SlotBusy] * 5
        session.query("SELECT pg_terminate_backend(%s)", [silent])
        until(lambda: outcome(reader, session) is None, "the end of the reader")


def test_the_status_of_a_capture_that_waits_for_its_slot(table: World, silent: int) -> None:
    """The database answers."""
    reading = table.reading()
    start, file = reading.initial(), Home(table.folder).status
    with ThreadPoolExecutor(1) as beside:
        followed = beside.submit(follow, reading, start, 1)
        until(lambda: (last_status(file) or Status("")).waits_for == "the replication slot", "a status that says so")
        status = last_status(file)
        assert status is not None
        assert (status.state, status.unreachable_since_us) == ("reconnecting", 0)
        table.database.execute("SELECT pg_terminate_backend(%s)", [silent])
        table.database.execute("INSERT INTO t VALUES (1, 'x')")
        followed.result(wall_seconds())
    until(lambda: (last_status(file) or Status("")).state == "running", "a status of the reading")
    assert reading._served.status().waits_for == ""


def test_the_status_of_a_capture_whose_slot_was_dropped(table: World) -> None:
    reading = table.reading()
    start = reading.initial()
    table.database.execute("INSERT INTO t VALUES (1, 'x')")
    start, _ = follow(reading, start, 1)
    slot = table.options["slot.name"]
    table.database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    dropped = f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{slot}'"
    table.database.execute(dropped)
    with pytest.raises(PositionLost):
        until(lambda: reading.latest(start, None, None) != start and False, "the end of the capture")
    status = last_status(Home(table.folder).status)
    assert status is not None
    assert (status.state, status.waits_for, status.unreachable_since_us) == ("failed", "", 0)


def test_a_reader_of_which_nothing_is_shown(table: World, silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A role that may not look into others' processes: the server would have ended a dead one long ago."""
    database = table.database
    database.execute("CREATE ROLE blind LOGIN REPLICATION PASSWORD 'blind'")
    try:
        blind = World(database, table.folder, source={"database.user": "blind", "database.password": "blind"})
        with watching(blind) as session:
            reader = SlotHolder(table.options["slot.name"])
            with pytest.raises(SlotBusy, match=f"server process {silent}, of another role"):
                reader.require_free(session)
            session.query("SET wal_sender_timeout = '1ms'")
            monkeypatch.setattr(holder, "_MARGIN_S", 0.0)
            time.sleep(0.01)
            with pytest.raises(Refused, match=f"server process {silent}, of another role"):
                reader.require_free(session)
    finally:
        database.execute("DROP ROLE blind")


def test_a_pipeline_that_lost_its_connection_gets_its_slot_back(
    database: Database, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "_PATIENCE_S", 0.0)
    world = World(database, tmp_path / "pipeline", source={"database.port": str(proxy.port)})
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    try:
        reading = world.reading()
        start = reading.initial()
        for n in range(3):
            database.execute("INSERT INTO t VALUES (%s, 'x')", [n])
            start, events = follow(reading, start, 1)
            assert [e.row["id"] for e in events] == [n]
            proxy.cut()
    finally:
        world.close()
