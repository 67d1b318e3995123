"""A slot that another process reads: named, and no reason to wait for ever; unless it is our own lost connection."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.integration.postgres.world import World, follow, until
from tests.proxy import Proxy
from tests.servers import Database
from tidelog.connectors.postgres import holder
from tidelog.connectors.postgres.client import Session
from tidelog.connectors.postgres.holder import SlotHolder
from tidelog.errors import Refused, TransientError


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
    except (TransientError, Refused) as exc:
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
            with pytest.raises(TransientError, match="our last connection"):
                reader.require_free(session)


def test_a_reader_that_never_answers_is_left_to_the_server(
    table: World, silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine may be gone: the server ends it."""
    monkeypatch.setattr(holder, "_PATIENCE_S", 0.0)
    with watching(table) as session:
        reader = SlotHolder(table.options["slot.name"])
        assert [outcome(reader, session) for _ in range(5)] == [TransientError] * 5
        session.query("SELECT pg_terminate_backend(%s)", [silent])
        until(lambda: outcome(reader, session) is None, "the end of the reader")


def test_a_reader_of_which_nothing_is_shown(table: World, silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A role that may not look into others' processes: the server would have ended a dead one long ago."""
    database = table.database
    database.execute("CREATE ROLE blind LOGIN REPLICATION PASSWORD 'blind'")
    try:
        blind = World(database, table.folder, source={"database.user": "blind", "database.password": "blind"})
        with watching(blind) as session:
            reader = SlotHolder(table.options["slot.name"])
            with pytest.raises(TransientError, match=f"server process {silent}, of another role"):
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
