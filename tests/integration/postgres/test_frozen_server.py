"""A server that freezes is noticed, although its connections stay open; one that is only slow is left alone."""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.postgres.world import Event, World, changes, follow
from tests.patience import Patience, wait_until
from tests.servers import Postgres, frozen
from tidelog.connectors.postgres import server_watch
from tidelog.connectors.postgres.bulk import Bulk
from tidelog.connectors.postgres.client import Session
from tidelog.connectors.postgres.config import Config
from tidelog.engine import backoff
from tidelog.engine.reading import Reading
from tidelog.errors import DatabaseAway, TransientError

_SILENCE = re.compile(r"PostgreSQL at [\w.]+:\d+ has not answered for \d+ s\.")
_HINT = "Check database.hostname and database.port, and that the server runs and is reachable."


@pytest.fixture(autouse=True)
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_watch, "SILENCE_S", 0.3)
    monkeypatch.setattr(backoff, "_FIRST_S", 0.05)
    monkeypatch.setattr(backoff, "_LIMIT_S", 0.5)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What the watch has learnt from the server so far."""
    learnt: list[bool] = []
    ask = server_watch.answers

    def ask_and_note(peer: server_watch.Peer, timeout_s: float) -> bool:
        learnt.append(ask(peer, timeout_s))
        return learnt[-1]

    monkeypatch.setattr(server_watch, "answers", ask_and_note)
    return learnt


@pytest.fixture
def private_world(private_postgres: Postgres, tmp_path: Path) -> Iterator[World]:
    made = World(private_postgres.create_database("alone"), tmp_path / "pipeline")
    made.source["database.connect.timeout.ms"] = "2000"
    yield made
    made.close()


@pytest.fixture
def slow_world(world: World) -> World:
    """Its server has all the time it wants to answer: a busy machine proves nothing."""
    world.source["database.connect.timeout.ms"] = "600000"
    return world


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor()
    yield pool
    pool.shutdown(wait=False)  # what a failed test left there ends with the server


def config_of(world: World) -> Config:
    return world.connector()._config


def await_result(future: Future[Any]) -> Any:
    wait_until(future.done, "the end of the operation")
    return future.result()


# -- a server that freezes -----------------------------------------------------------------------------------------


def test_an_idle_capture_reconnects(private_world: World) -> None:
    database = private_world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    reading = private_world.reading()
    offset = reading.initial()
    database.execute("INSERT INTO t VALUES (1)")
    offset, events = follow(reading, offset, 1)
    warnings: list[str] = []
    with frozen(database.server):

        def is_noticed() -> bool:
            metrics = reading.metrics()
            warnings.append(str(metrics["warning"]))
            return metrics["state"] == "reconnecting"

        wait_until(is_noticed, "the capture reconnects")
        assert _SILENCE.fullmatch(warnings[-1].removesuffix(_HINT).strip()), warnings[-1]
        assert 0 < unreachable_since_us(reading) <= time.time_ns() // 1000
    database.execute("INSERT INTO t VALUES (2)")
    _, more = follow(reading, offset, 1)
    assert rows(events + more) == [1, 2]
    wait_until(lambda: not unreachable_since_us(reading), "a status of the reading")


def unreachable_since_us(reading: Reading) -> int:
    """As `status` and the metrics have it."""
    return reading._served.status().unreachable_since_us


def rows(events: list[Event]) -> list[int]:
    return [event.row["id"] for event in changes(events)]


def lock_table(session: Session) -> bool:
    with session.transaction():
        return session.lock("t")


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(lambda session: session.query("SELECT pg_sleep(3600)"), id="query"),
        pytest.param(lambda session: session.ask("SELECT pg_sleep(3600)"), id="ask"),
        pytest.param(lock_table, id="lock"),
        pytest.param(lambda session: list(session.copy("SELECT pg_sleep(3600)", 10, 10)), id="copy"),
    ],
)
def test_an_operation_in_flight_ends(
    private_world: World, background: ThreadPoolExecutor, operation: Callable[[Session], object]
) -> None:
    database = private_world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    config = config_of(private_world)
    with database.connect(autocommit=False) as blocker:
        blocker.execute("LOCK TABLE t")
        with Session(config) as session:
            future = background.submit(operation, session)
            is_running = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state = 'active' AND wait_event IS NOT NULL"
            wait_until(lambda: database.execute(is_running, [session.backend_pid]), "the operation runs")
            with frozen(database.server), pytest.raises(TransientError, match=_SILENCE) as caught:
                await_result(future)
            assert caught.value.hint == _HINT
            assert session.closed
    with Session(config) as session:
        assert session.query("SELECT 1") == [(1,)]


@pytest.fixture
def bulk(private_world: World, background: ThreadPoolExecutor) -> Iterator[Bulk]:
    made = Bulk(config_of(private_world))
    yield made
    if made._socket is not None:
        await_result(background.submit(made.close))


def read_rows(bulk: Bulk) -> int:
    return sum(batch.num_rows for batch in bulk.batches("SELECT pg_sleep(3600)"))


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(lambda bulk: bulk.query("SELECT pg_sleep(3600)"), id="query"),
        pytest.param(read_rows, id="rows"),
        pytest.param(lambda bulk: bulk.query("LOCK TABLE t"), id="lock"),
    ],
)
def test_the_reading_of_a_chunk_ends(
    private_world: World, bulk: Bulk, background: ThreadPoolExecutor, operation: Callable[[Bulk], object]
) -> None:
    database = private_world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with database.connect(autocommit=False) as blocker:
        blocker.execute("LOCK TABLE t")
        bulk.query("BEGIN")
        bulk.query("SET lock_timeout = 0")
        future = background.submit(operation, bulk)
        is_running = (
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'tidelog chunks' AND wait_event ~ 'PgSleep|rel'"
        )
        wait_until(lambda: future.done() or database.execute(is_running), "the operation runs")
        with frozen(database.server):
            with pytest.raises(DatabaseAway, match=_SILENCE):
                await_result(future)
            closed = background.submit(bulk.close)
            wait_until(closed.done, "the connection is closed")


def test_a_chunk_that_is_left_ends(private_world: World, bulk: Bulk, background: ThreadPoolExecutor) -> None:
    rows = bulk.batches("SELECT i, repeat('x', 1000) FROM generate_series(1, 200000) i")
    next(rows)
    with frozen(private_world.database.server):
        left = background.submit(bulk.close)
        wait_until(left.done, "the connection is closed")
        assert isinstance(left.exception(), TransientError | None)


def test_a_slow_chunk_goes_on(slow_world: World, background: ThreadPoolExecutor, answers: list[bool]) -> None:
    """Also while its consumer is slow."""
    slow = Bulk(config_of(slow_world))
    sql = "SELECT i, repeat('x', 1000) AS v FROM generate_series(1, 100000) i"
    database = slow_world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    try:
        rows = slow.batches(sql)
        count = next(rows).num_rows
        time.sleep(1)
        assert not answers
        assert count + sum(batch.num_rows for batch in rows) == 100_000
        with database.connect(autocommit=False) as blocker:
            blocker.execute("LOCK TABLE t")
            waiting = background.submit(slow.query, "SELECT count(*) FROM t")
            wait_until(lambda: len(answers) > 2, "the watch has asked several times")
        assert await_result(waiting) == [(0,)]
    finally:
        slow.close()
    assert all(answers)


def test_a_chunk_leaves_no_open_files(world: World) -> None:
    def open_files() -> int:
        return psutil.Process().num_fds()

    bulk = Bulk(config_of(world))  # the first one loads the driver
    bulk.close()
    before = open_files()
    bulk = Bulk(config_of(world))
    assert bulk.query("SELECT 1") == [(1,)]
    bulk.close()
    assert open_files() == before


def test_a_silent_stream_ends(private_world: World) -> None:
    private_world.database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    connector = private_world.connector()
    tail = connector.tail(connector.prepare(), [], 1 << 20)
    try:
        with frozen(private_world.database.server), pytest.raises(TransientError, match=_SILENCE):
            poll(tail._stream, until=lambda _: False)
    finally:
        tail.close()
        connector.close()


def poll(stream: Any, until: Callable[[list[memoryview]], bool]) -> None:
    """Read what the stream sends."""
    messages: list[memoryview] = []
    patience = Patience()
    while not until(messages):
        assert not patience.is_over(), "the stream neither sends nor ends"
        stream.wait(0.05)
        stream.drain(messages, 1 << 20)


# -- a server that lives -------------------------------------------------------------------------------------------


def test_a_long_query_goes_on(slow_world: World, background: ThreadPoolExecutor, answers: list[bool]) -> None:
    database = slow_world.database
    database.execute("CREATE TABLE done (id int)")
    until_done = "DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM done) LOOP PERFORM pg_sleep(0.05); END LOOP; END $$"
    with Session(config_of(slow_world)) as session:
        future = background.submit(session.query, until_done)
        wait_until(lambda: len(answers) > 2, "the watch has asked several times")
        database.execute("INSERT INTO done VALUES (1)")
        assert await_result(future) == []
        assert session.query("SELECT 1") == [(1,)]
    assert all(answers)


def test_a_wait_for_a_lock_goes_on(slow_world: World, background: ThreadPoolExecutor, answers: list[bool]) -> None:
    database = slow_world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with Session(config_of(slow_world)) as session, session.transaction():
        with database.connect(autocommit=False) as blocker:
            blocker.execute("LOCK TABLE t")
            future = background.submit(session.lock, "t")
            wait_until(lambda: len(answers) > 2, "the watch has asked several times")
        assert await_result(future) is True
    assert all(answers)


def test_a_stream_that_is_not_polled_goes_on(slow_world: World, answers: list[bool]) -> None:
    """As while the journal is full."""
    database = slow_world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    connector = slow_world.connector()
    tail = connector.tail(connector.prepare(), [], 1 << 20)
    try:
        while tail._stream.wait(0.05):  # its first reports
            tail._stream.drain([], 1 << 20)
        wait_until(lambda: len(answers) > 2, "the watch has asked several times")
        database.execute("INSERT INTO t VALUES (1)")
        poll(tail._stream, until=lambda messages: len(messages) >= 3)  # begin, table, insert
    finally:
        tail.close()
        connector.close()
    assert all(answers)


def test_a_slow_consumer_of_a_copy_is_not_waiting(
    slow_world: World, background: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where the server seems to be gone: whatever waits for it ends, but not what its consumer holds up."""
    config = config_of(slow_world)
    with Session(config) as session, Session(config) as other:
        texts = session.copy("SELECT i, repeat('x', 1000) FROM generate_series(1, 20000) i", 1000, 1 << 20)
        count = next(texts).count(b"\n")
        monkeypatch.setattr(server_watch, "answers", lambda *_: False)
        with pytest.raises(TransientError, match=_SILENCE):
            await_result(background.submit(other.query, "SELECT pg_sleep(3600)"))
        monkeypatch.setattr(server_watch, "answers", lambda *_: True)
        assert count + sum(text.count(b"\n") for text in texts) == 20_000
        assert session.query("SELECT 1") == [(1,)]


def test_a_copy_that_its_consumer_leaves_ends_on_a_frozen_server(
    private_world: World, background: ThreadPoolExecutor
) -> None:
    config = config_of(private_world)
    with Session(config) as session:
        texts = session.copy("SELECT i, repeat('x', 1000) FROM generate_series(1, 200000) i", 1000, 1 << 20)
        next(texts)
        with frozen(private_world.database.server):
            left = background.submit(texts.close)
            wait_until(left.done, "the copy ends")
        assert isinstance(left.exception(), TransientError | None)
        wait_until(lambda: session.closed, "the connection is given up")


def test_nothing_is_left_in_flight(world: World) -> None:
    """Also where an operation fails."""
    before = set(server_watch._watch._operations)
    with Session(config_of(world)) as session:
        session.query("SELECT 1")
        for text in session.copy("SELECT 1", 10, 10):
            assert text
        with pytest.raises(Exception, match="nowhere"):
            session.query("SELECT * FROM nowhere")
        with session.transaction():
            assert session.lock("nowhere") is False
    assert set(server_watch._watch._operations) <= before


# -- a process without what the watch needs ----------------------------------------------------------------------------


def test_queries_go_on_unwatched_where_no_more_files_may_be_opened(world: World) -> None:
    _, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Session(config_of(world)) as session, ExitStack() as stack:
        highest = max(int(file.name) for file in Path("/dev/fd").iterdir())
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, hard))
        with suppress(OSError):  # too many open files
            while True:
                stack.callback(os.close, os.dup(0))
        rows = session.query("SELECT 1")
        copied = list(session.copy("SELECT 1", 1, 1))
    assert rows == [(1,)]
    assert copied == [b'"1"\n']
