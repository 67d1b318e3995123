"""What a role or a database sets for its applications changes neither what tidelog reads nor how long it may take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.integration.postgres.snapshot_rig import Rig
from tests.integration.postgres.test_verify import copied
from tests.integration.postgres.world import World
from tests.patience import Patience, wait_until
from tests.servers import Database
from tidelog.connectors import chunk_reader
from tidelog.connectors.postgres import chunks
from tidelog.connectors.postgres.connector import PostgresConnector
from tidelog.contracts import Scan, Span
from tidelog.engine.verify import verify
from tidelog.spark.reading import read_target

LIMITS = {
    "statement_timeout": ("200ms", 0),
    "lock_timeout": ("200ms", 0),
    "idle_in_transaction_session_timeout": ("200ms", 0),
    "idle_session_timeout": ("200ms", 14),
    "transaction_timeout": ("1s", 17),  # counts while a connection starts, which takes long on a busy machine
}
"""Each with the version that brought it."""
LONGER_S = 1.5
BEHAVIOUR = {
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "standard_conforming_strings": "off",
    "escape_string_warning": "on",
    "transform_null_equals": "on",
    "search_path": "nowhere",
    "TimeZone": "Asia/Kolkata",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "bytea_output": "escape",
    "extra_float_digits": "-10",
    "xmlbinary": "hex",
    "quote_all_identifiers": "on",
    "array_nulls": "off",
    "client_encoding": "LATIN1",
}


def add_role(database: Database, settings: dict[str, str]) -> dict[str, str]:
    """The options of a role with these defaults."""
    name = f"{database.dbname}_app"
    database.execute(f"CREATE ROLE {name} SUPERUSER LOGIN PASSWORD 's3cret'")
    for setting, value in settings.items():
        database.execute(f"ALTER ROLE {name} SET {setting} = '{value}'")
    return {"database.user": name, "database.password": "s3cret"}


@pytest.fixture
def defaults(any_world: World) -> Iterator[World]:
    database = any_world.database
    known = {name: value for name, (value, since) in LIMITS.items() if database.server.version >= since}
    any_world.source |= add_role(database, known | BEHAVIOUR)
    yield any_world
    any_world.close()
    for idle in chunks._idle.values():
        while idle:
            idle.pop().close()
    database.execute(f"REASSIGN OWNED BY {database.dbname}_app TO {database.user}")
    database.execute(f"DROP ROLE {database.dbname}_app")


@pytest.fixture
def connector(defaults: World) -> Iterator[PostgresConnector]:
    made = defaults.connector()
    yield made
    made.close()


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def is_blocked(database: Database) -> bool:
    blocked = "SELECT 1 FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0 AND datname = %s"
    return bool(database.execute(blocked, [database.dbname]))


# -- values ---------------------------------------------------------------------------------------------------------

VALUES = {
    "text": r"E'back\\slash'",
    "timestamptz": "'2024-02-01 10:00:00+00'",
    "date": "'2024-02-01'",
    "interval": "'1 year 2 days 03:04:05'",
    "bytea": r"E'\\xff00'",
    "float8": "0.1::float8 + 0.2::float8",
    "numeric(20,10)": "1.5",
    "money": "12.34",
    "int[]": "'{1,NULL}'",
}
_PLACED = "INSERT INTO pgmore.t SELECT i, {} FROM generate_series(%s::int, %s::int) i"


def test_rows_are_read_as_they_are_streamed(defaults: World, connector: PostgresConnector, tmp_path: Path) -> None:
    """In a schema whose name resembles the server's own."""
    database = defaults.database
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(VALUES))
    insert = _PLACED.format(", ".join(VALUES.values()))
    database.execute("CREATE SCHEMA pgmore")
    database.execute(f"CREATE TABLE pgmore.t (id int PRIMARY KEY, {columns})")
    database.execute(insert, [1, 20])
    source = {**defaults.source, "incremental.snapshot.chunk.size": "7"}
    with Rig(database, tmp_path / "rig", source) as rig:
        rig.run()
        database.execute(insert, [21, 40])
        rig.run()
        rows = rig.target["pgmore.t"]
        assert len(rig.reads) == 20
        assert [without_key(rows[(i,)]) for i in range(1, 21)] == [without_key(rows[(i,)]) for i in range(21, 41)]
    [table] = connector.tables()
    target = read_target(copied(connector, tmp_path, [column.name for column in table.columns]))
    report = verify(connector, [table], target, rows_per_range=4)
    assert report.in_sync, report.tables[0].result
    assert report.rows == 40


def without_key(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "id"}


# -- limits ---------------------------------------------------------------------------------------------------------


def test_a_slot_waits_as_long_as_a_transaction_is_open(
    defaults: World, connector: PostgresConnector, background: ThreadPoolExecutor
) -> None:
    database = defaults.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with database.connect(autocommit=False) as open_transaction:
        open_transaction.execute("INSERT INTO t VALUES (1)")
        prepared = background.submit(connector.prepare)
        wait_until(lambda: prepared.done() or is_blocked(database), "the slot waits")
        time.sleep(LONGER_S)
        assert not prepared.done(), prepared.result()
    assert prepared.result() > 0


def test_a_table_is_read_however_long_it_takes(
    defaults: World, connector: PostgresConnector, background: ThreadPoolExecutor
) -> None:
    database = defaults.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t SELECT generate_series(1, 120000)")
    [table] = connector.tables()
    with database.connect(autocommit=False) as blocker:
        blocker.execute("LOCK TABLE t")
        reading = connector.read(table, ["id"])
        first = background.submit(lambda: next(reading))
        wait_until(lambda: first.done() or is_blocked(database), "the reader waits")
        time.sleep(LONGER_S)
    rows = first.result().num_rows
    time.sleep(LONGER_S)  # its consumer is slow
    assert rows + sum(batch.num_rows for batch in reading) == 120_000


def test_a_chunk_is_read_however_long_it_takes(
    defaults: World, connector: PostgresConnector, background: ThreadPoolExecutor
) -> None:
    database = defaults.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t SELECT generate_series(1, 1000)")
    [table] = connector.tables()
    reader = chunk_reader("postgres", defaults.options)
    with database.connect(autocommit=False) as blocker:
        blocker.execute("LOCK TABLE t")
        opened = background.submit(reader.open, Scan(table, ("id",)), Span(None, None), attempt="a")
        wait_until(lambda: opened.done() or is_blocked(database), "the chunk waits")
        time.sleep(LONGER_S)
    chunk = opened.result()
    time.sleep(LONGER_S)  # its task has something else to do
    assert sum(batch.num_rows for batch in chunk.rows()) == 1000
    chunk.end()
    chunk.close()
    (kept,) = (bulk for idle in chunks._idle.values() for bulk in idle)
    time.sleep(LONGER_S)
    assert kept.query("SELECT 1") == [(1,)]


def test_an_idle_session_stays(defaults: World, connector: PostgresConnector) -> None:
    defaults.database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    first = connector.log_end()
    time.sleep(LONGER_S)
    assert connector.log_end() >= first


def test_a_transaction_is_streamed_however_long_it_takes(defaults: World, connector: PostgresConnector) -> None:
    """As while the journal is full: the server's own transaction, in which it decodes this one, stays open."""
    database = defaults.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    tail = connector.tail(connector.prepare(), [], 1 << 30)
    try:
        database.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 30000) i")
        messages: list[memoryview] = []
        patience = Patience()
        while not messages:
            assert not patience.is_over(), "nothing is streamed"
            tail._stream.wait(0.05)
            tail._stream.drain(messages, 1)
        time.sleep(LONGER_S)
        while len(messages) < 30_000:
            assert not patience.is_over(), f"only {len(messages)} messages came"
            tail._stream.wait(0.05)
            tail._stream.drain(messages, 1 << 20)
    finally:
        tail.close()


def test_windows_are_told_by_a_role_that_only_reads_by_default(defaults: World, tmp_path: Path) -> None:
    database = defaults.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t SELECT generate_series(1, 20)")
    database.execute("CREATE TABLE signals (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))")
    windows = {"read.only": "false", "signal.data.collection": "public.signals", "table.include.list": "public.t"}
    with Rig(database, tmp_path / "rig", {**defaults.source, **windows}) as rig:
        rig.run()
        rig.check("t")
    assert database.execute("SELECT count(*) > 0 FROM signals") == [(True,)]
