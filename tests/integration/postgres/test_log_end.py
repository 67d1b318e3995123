"""The end of the log is reached, also where the server's last record is not complete, and where nobody waits for it.

Where something was written, the server itself logs a little every 15 seconds, and so ends most waits. What is waited
for here has to come earlier.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

from tests.integration.postgres.snapshot_rig import Rig
from tests.integration.postgres.world import Event, World, catch_up, poll_until, told, until
from tests.patience import Patience, wall_seconds
from tests.servers import Database
from tidelog.connectors.postgres.tail import PostgresTail
from tidelog.model.record import Op

IN_TIME_S = 10.0
PAGE, HEADER_MAX = 8192, 40
_NUMBERS = itertools.count()

ENDS = """
SELECT (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8, (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8
"""


@pytest.fixture
def tables(any_world: World) -> World:
    any_world.database.execute("CREATE TABLE t (id int4 PRIMARY KEY); CREATE TABLE big (id int4 PRIMARY KEY, v text)")
    any_world.source["schema.refresh.interval.ms"] = "100"
    return any_world


def end_within_a_record(open_one: psycopg.Connection[Any], database: Database) -> None:
    """Write, without a commit, until just the whole pages of the log are durable, and a record goes on behind them."""
    for _ in range(20):
        first = next(_NUMBERS) * 1000
        rows = "INSERT INTO big SELECT g, repeat('x', 700) FROM generate_series(%s::int4, %s::int4) g"
        open_one.execute(rows, [first, first + 99])
        for _ in range(40):
            durable, inserted = database.execute(ENDS)[0]
            if durable % PAGE == 0 and durable + HEADER_MAX < inserted < durable + PAGE:
                return
            time.sleep(0.05)
    pytest.fail("the durable log would not end with a page")


def test_an_open_transaction_leaves_the_end_reachable(tables: World) -> None:
    reading = tables.reading()
    at = reading.initial()
    reading.latest(at, None, None)
    assert reading._log is not None
    with tables.database.connect(autocommit=False) as open_one:
        for number in range(3):
            tables.database.execute(f"INSERT INTO t VALUES ({number})")
            end_within_a_record(open_one, tables.database)
            assert reading._log.caught_up(reading.connector.log_end(), wall_seconds(IN_TIME_S))
            at, events = catch_up(reading, at)
            assert told(events) == [("t", "c", {"id": number})]
        open_one.commit()
    _, events = catch_up(reading, at)
    assert len(events) == tables.database.execute("SELECT count(*) FROM big")[0][0] > 0


def test_what_is_reached_is_no_place_to_read_on_from(tables: World) -> None:
    """The next commit may begin before it: what the server is told of, and where our own records stand, is less."""
    with (
        closing(tables.connector()) as connector,
        closing(connector.tail(connector.prepare(), [], 16 << 20)) as tail,
        tables.database.connect(autocommit=False) as open_one,
    ):
        for _ in range(10):
            end_within_a_record(open_one, tables.database)
            end, patience = connector.log_end(), Patience(IN_TIME_S)
            while tail.reached() < end:
                assert not patience.is_over()
                tail.poll(0.05, True)
                tail.ping()
            if tail.seen() < end:  # else the server has written something by itself
                break
        seen = tail.seen()
        assert seen < end <= tail.reached()
        open_one.commit()
        portions = poll_until(tail, lambda found: bool(found) and found[-1].end > 0, "the transaction")
        assert portions[-1].transactions.column("position")[0].as_py() >= seen


def test_a_schema_change_finds_its_place_before_an_open_transaction(tables: World) -> None:
    reading = tables.reading()
    start = reading.initial()
    tables.database.execute("INSERT INTO t VALUES (1)")
    start, _ = catch_up(reading, start)
    with tables.database.connect(autocommit=False) as open_one:
        tables.database.execute("ALTER TABLE t ADD COLUMN v int4 DEFAULT 7")
        end_within_a_record(open_one, tables.database)
        patience = Patience(IN_TIME_S)
        events: list[Event] = []
        while not events:
            assert not patience.is_over()
            start, events = catch_up(reading, start)
        assert [e.op for e in events] == [Op.SCHEMA]
        open_one.execute("INSERT INTO t VALUES (2)")
        open_one.commit()
    _, events = catch_up(reading, start)
    assert {"id": 2, "v": 7} in [e.row for e in events]
    assert [e.position for e in events] == sorted(e.position for e in events)


@contextmanager
def busy(database: Database, table: str) -> Iterator[None]:
    """Somebody writes without a pause."""
    stop = threading.Event()

    def write() -> None:
        with database.connect() as connection:
            for number in itertools.count():
                connection.execute(f"INSERT INTO {table} VALUES ({number})")
                if stop.wait(0.005):
                    return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_busy_log_leaves_a_schema_change_its_turn(tables: World) -> None:
    reading = tables.reading()
    start = reading.initial()
    tables.database.execute("INSERT INTO t VALUES (1)")
    start, _ = catch_up(reading, start)
    with busy(tables.database, "big"):
        tables.database.execute("ALTER TABLE t ADD COLUMN v int4 DEFAULT 7")
        patience = Patience(IN_TIME_S)
        events: list[Event] = []
        while not any(e.op == Op.SCHEMA for e in events):
            assert not patience.is_over()
            start, events = catch_up(reading, start)


def test_the_end_is_known_though_nobody_waits(tables: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture apart has its readers in other processes. On an idle database it asks, and nothing new is planned."""
    asked, ping = [], PostgresTail.ping
    monkeypatch.setattr(PostgresTail, "ping", lambda tail: (asked.append(tail), ping(tail)))
    tables.source |= {"status.update.interval.ms": "60000", "table.include.list": "public.t"}
    reading = tables.reading()
    start = reading.latest(reading.initial(), None, None)
    capture = reading._log
    assert capture is not None
    for number in range(3):
        tables.database.execute(f"INSERT INTO big VALUES ({number})")
        end, patience = reading.connector.log_end(), Patience(IN_TIME_S)
        while capture.seen() < end:
            assert not patience.is_over()
            time.sleep(0.05)
        assert reading.latest(start, None, None) == start
    before = len(asked)
    until(lambda: len(asked) >= before + 3, "to be asked")
    assert reading.latest(start, None, None) == start


def test_chunks_beside_an_open_transaction_do_not_wait_for_it(database16: Database, tmp_path: Any) -> None:
    """Each walk begins after something was written that is neither committed nor durable."""
    database16.execute(
        "CREATE TABLE t (id int4 PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 50); "
        "CREATE TABLE big (id int4 PRIMARY KEY, v text)"
    )
    source = {"table.include.list": "public.t", "incremental.snapshot.chunk.size": "10"}
    with Rig(database16, tmp_path / "rig", source) as rig, database16.connect(autocommit=False) as open_one:
        assert rig.start
        open_one.execute("INSERT INTO big VALUES (1, 'x')")
        began = time.monotonic()
        while rig.snapshot.get("entries"):
            assert time.monotonic() - began < IN_TIME_S
            if rig.batch():
                began = time.monotonic()
        rig.check("t")
