"""What goes wrong between a server and us: nothing is lost, nothing comes twice, and what cannot go on says why."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.postgres.world import Event, World, catch_up, changes, decode, follow, told, until
from tests.proxy import Proxy
from tests.servers import Database, Postgres, await_readers, drop_slots
from tidelog.contracts import Connector
from tidelog.engine import backoff
from tidelog.engine import capture as capture_module
from tidelog.engine.reading import Reading
from tidelog.errors import ConfigError, PositionLost, TidelogError, TransientError
from tidelog.model.offset import Offset


@pytest.fixture
def private_world(private_postgres: Postgres, tmp_path: Path) -> Iterator[World]:
    made = World(private_postgres.create_database("alone"), tmp_path / "pipeline")
    yield made
    made.close()


@pytest.fixture
def cut_world(database: Database, proxy: Proxy, tmp_path: Path) -> Iterator[World]:
    """Reached through the proxy."""
    made = World(database, tmp_path / "pipeline", source={"database.port": str(proxy.port)})
    yield made
    made.close()


def state(reading: Reading) -> str:
    return str(reading.metrics()["state"])


# -- connections ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cut_anywhere_nothing_is_lost_or_doubled(
    cut_world: World, proxy: Proxy, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "_FIRST_S", 0.02)
    r = random.Random(seed)
    database = cut_world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    cut_world.journal = {"memory.bytes": "5mb"}
    reading = cut_world.reading()
    offset = reading.initial()
    assert reading.latest(offset, None, None) == offset  # connected now
    found: list[Event] = []
    written = 0
    for _ in range(12):
        proxy.cut_after(r.randrange(200, 400_000))
        with database.connect(autocommit=False) as session:
            for _ in range(r.randint(1, 6)):
                count = r.choice([1, 3, 50, 2000])
                session.execute(
                    "INSERT INTO t SELECT i, repeat('v', 80) FROM generate_series(%s::int, %s::int) i",
                    [written + 1, written + count],
                )
                session.commit()
                written += count
        if r.random() < 0.5:
            proxy.cut()
        offset, events = follow(reading, offset, written - len(found))
        found += events
    assert [e.row["id"] for e in changes(found)] == list(range(1, written + 1))
    assert len({e.place for e in found}) == written
    assert proxy.accepted > 3


def test_cut_in_the_middle_of_a_transaction(cut_world: World, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_FIRST_S", 0.02)
    database = cut_world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    cut_world.journal = {"memory.bytes": "5mb"}
    reading = cut_world.reading()
    offset = reading.initial()
    database.execute("INSERT INTO t VALUES (0)")
    offset, _ = follow(reading, offset, 1)
    proxy.cut_after(3_000_000)
    database.execute("INSERT INTO t SELECT i, repeat('v', 100) FROM generate_series(1, 30000) i")
    offset, events = follow(reading, offset, 30_000)
    assert [(e.row["id"], e.ordinal) for e in events] == [(i, i - 1) for i in range(1, 30_001)]
    epochs = {base.partition("-")[0] for base in reading.journal._files.names("segments")}
    assert len(epochs) == 2  # half of it was written before the cut, and does not count


def test_a_server_that_restarts(private_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_module, "_LAG_S", 0.1)
    database = private_world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    reading = private_world.reading()
    offset = reading.initial()
    database.execute("INSERT INTO t VALUES (1)")
    offset, events = follow(reading, offset, 1)
    for immediate in (False, True):
        database.server.restart(immediate=immediate)
        until(lambda: state(reading) == "running", "running again")
        database.execute("INSERT INTO t SELECT max(id) + 1 FROM t")
        offset, more = follow(reading, offset, 1)
        events += more
    assert [e.row["id"] for e in changes(events)] == [1, 2, 3]
    until(lambda: answers(reading.connector), "an answer")  # its session was cut too
    assert reading.connector.lag().bytes >= 0


def answers(connector: Connector) -> bool:
    """Whoever asks first after a cut hears of it."""
    try:
        return connector.log_end() > 0
    except TransientError:
        return False


# -- slots ---------------------------------------------------------------------------------------------------------


def start_and_stop(world: World) -> Offset:
    """A first run that delivered one row, and left another in the log."""
    world.database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    reading = world.reading()
    offset = reading.initial()
    world.database.execute("INSERT INTO t VALUES (1)")
    offset, events = catch_up(reading, offset)
    assert len(events) == 1
    reading.finish()
    reading.close()
    await_readers(world.database)
    world.database.execute("INSERT INTO t VALUES (2)")
    return offset


def test_a_slot_that_was_dropped(world: World) -> None:
    offset = start_and_stop(world)
    drop_slots(world.database)
    with pytest.raises(PositionLost, match=r"slot \w+ does not exist any more: changes since") as caught:
        follow(world.reading(), offset, 1)
    assert "read anew" in caught.value.hint


def test_a_slot_that_another_reader_advanced(world: World) -> None:
    offset = start_and_stop(world)
    world.database.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [world.options["slot.name"]])
    with pytest.raises(PositionLost, match=r"past the wanted .* can't be read again") as caught:
        follow(world.reading(), offset, 1)
    assert "own slot.name" in caught.value.hint


def test_a_slot_that_the_server_gave_up(private_world: World) -> None:
    server = private_world.database.server
    offset = start_and_stop(private_world)
    for setting in ("max_slot_wal_keep_size = '1MB'", "max_wal_size = '32MB'"):
        server.execute(f"ALTER SYSTEM SET {setting}")
    server.execute("SELECT pg_reload_conf()")
    for _ in range(4):
        server.execute("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000))")
        server.execute("SELECT pg_switch_wal()")
    server.execute("CHECKPOINT")
    until(
        lambda: server.execute("SELECT wal_status FROM pg_replication_slots")[0][0] == "lost", "the slot's invalidation"
    )
    with pytest.raises(PositionLost, match="max_slot_wal_keep_size") as caught:
        follow(private_world.reading(), offset, 1)
    assert "read anew" in caught.value.hint


def test_lag_watches_what_the_server_keeps(private_world: World) -> None:
    server = private_world.database.server
    private_world.database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    server.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '64MB'")
    server.execute("SELECT pg_reload_conf()")
    reading = private_world.reading()
    offset = reading.initial()
    private_world.database.execute("INSERT INTO t VALUES (0)")
    end, _ = follow(reading, offset, 1)
    until(lambda: reading.metrics()["lag_bytes"] > 0, "the first look at the lag")
    assert reading.metrics()["warning"] == ""
    private_world.database.execute("INSERT INTO t SELECT generate_series(1, 500000)")
    reading.latest(end, None, None)
    until(lambda: "max_slot_wal_keep_size" in str(reading.metrics()["warning"]), "the warning")


# -- what the user wrote -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "kind", "sentence"),
    [
        ({"database.password": "wrong-hunter2"}, ConfigError, "password authentication failed"),
        ({"database.user": "nobody_here"}, ConfigError, "Check database.user and database.password"),
        ({"database.dbname": "not_there"}, ConfigError, 'database "not_there" does not exist'),
        ({"database.hostname": "no-such-host.invalid"}, TransientError, "no-such-host.invalid:"),
        ({"database.port": "1"}, TransientError, ":1 says: "),
    ],
)
def test_settings_that_lead_nowhere(world: World, change: dict[str, str], kind: type, sentence: str) -> None:
    world.source = {"database.connect.timeout.ms": "60000", **change}
    secret = world.options["database.password"]
    connector = world.connector()
    with pytest.raises(kind) as caught:
        connector.prepare()
    error = caught.value
    assert isinstance(error, TidelogError)
    assert sentence in str(error)
    assert "\n" not in str(error)
    for text in (str(error), repr(error), repr(connector), repr(connector._config), str(error.__cause__)):
        assert secret not in text
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_slot_of_another_plugin(database15: Database, tmp_path: Path) -> None:
    world = World(database15, tmp_path)
    database15.execute("CREATE TABLE t (id int PRIMARY KEY)")
    create = "SELECT pg_create_logical_replication_slot(%s, 'test_decoding')"
    database15.execute(create, [world.options["slot.name"]])
    with pytest.raises(ConfigError, match="uses the plugin test_decoding, not pgoutput"):
        world.connector().prepare()


# -- limits and acknowledgements -----------------------------------------------------------------------------------


def test_a_full_journal_waits_and_goes_on(world: World) -> None:
    database = world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    world.source["status.update.interval.ms"] = "100"
    world.journal = {"max.bytes": "1mb", "memory.bytes": "5mb"}
    reading = world.reading()
    offset = reading.initial()
    reading.latest(offset, 1, None)
    [(before,)] = database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    with database.connect() as session:
        for i in range(20):
            session.execute(
                "INSERT INTO t SELECT i, repeat('v', 200) FROM generate_series(%s::int, %s::int) i",
                [i * 1000, i * 1000 + 999],
            )
    until(lambda: state(reading) == "waiting", "waiting")
    held = reading.journal.bytes()
    assert held < 4 << 20
    active = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
    assert database.execute(active, [world.options["slot.name"]]) == [(True,)]
    assert world.confirmed() <= before
    found = []
    while len(found) < 20_000:
        end = reading.latest(offset, 1000, None)
        found += [e.row["id"] for e in decode(reading.plan(offset, end))]
        offset = end
    assert found == list(range(20_000))


def test_a_transaction_larger_than_the_journal_passes(world: World) -> None:
    database = world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    world.journal = {"max.bytes": "1mb", "memory.bytes": "5mb"}
    reading = world.reading()
    offset = reading.initial()
    database.execute("INSERT INTO t VALUES (-1, 'before')")
    database.execute("INSERT INTO t SELECT i, repeat('v', 200) FROM generate_series(0, 19999) i")
    database.execute("INSERT INTO t VALUES (-2, 'after')")
    offset, events = follow(reading, offset, 20_002)
    assert [e.row["id"] for e in events] == [-1, *range(20_000), -2]


def test_the_server_hears_only_of_what_was_delivered(
    cut_world: World, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a reconnect and a restart, though the journal holds more: it is a cache, and may be lost."""
    monkeypatch.setattr(backoff, "_FIRST_S", 0.02)
    monkeypatch.setattr(capture_module, "_IDLE_S", 0.05)
    database = cut_world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    cut_world.source["status.update.interval.ms"] = "20"
    reading = cut_world.reading()
    start = reading.initial()
    database.execute("INSERT INTO t VALUES (1)")
    first, _ = follow(reading, start, 1)
    assert reading.latest(first, None, None) == first  # delivered
    [(before,)] = database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    database.execute("INSERT INTO t VALUES (2)")
    until(lambda: reading.journal.end() > first.position, "the second row")
    for _ in range(3):
        accepted = proxy.accepted
        proxy.cut()
        until(lambda: proxy.accepted > accepted and state(reading) == "running", "running again")  # noqa: B023
        upstream = proxy.bytes_up
        until(lambda: proxy.bytes_up > upstream + 400, "some feedback")  # noqa: B023
        assert cut_world.confirmed() <= before
    reading.close()
    again = cut_world.reading()
    second, events = follow(again, first, 1)
    upstream = proxy.bytes_up
    until(lambda: proxy.bytes_up > upstream + 400, "some feedback")
    assert cut_world.confirmed() <= before
    assert told(events) == [("t", "c", {"id": 2})]
    again.acknowledge(second)
    until(lambda: cut_world.confirmed() >= second.position & ~7, "the acknowledgement")


def test_an_idle_table_in_a_busy_server_holds_nothing_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_module, "_IDLE_S", 0.05)
    database = world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("CREATE TABLE noise (id int)")
    world.source["table.include.list"] = r"public\.t"
    reading = world.reading()
    offset = reading.initial()
    database.execute("INSERT INTO t VALUES (1)")
    offset, _ = follow(reading, offset, 1)
    assert reading.latest(offset, None, None) == offset
    database.execute("INSERT INTO noise SELECT generate_series(1, 10000)")
    [(busy,)] = database.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")
    until(lambda: world.confirmed() >= busy, "the idle acknowledgement")
    assert reading.latest(offset, None, None) == offset  # no new offset for it
    reading.close()
    database.execute("INSERT INTO t VALUES (2)")
    again = world.reading()
    end, events = follow(again, offset, 1)
    assert told(events) == [("t", "c", {"id": 2})]
    again.close()
    lose_segments(again)
    after = world.reading()
    assert [(e.table, e.op, e.row) for e in decode(after.plan(offset, end))] == [("t", "c", {"id": 2})]


def lose_segments(reading: Reading) -> None:
    files = reading._files
    for base in files.names("segments"):
        files.delete(f"segments/{base}")


def test_an_error_of_the_capture_reaches_who_asks(world: World) -> None:
    world.database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    reading = world.reading()
    offset = reading.initial()
    world.database.execute("INSERT INTO t VALUES (1)")
    offset, _ = follow(reading, offset, 1)
    segments = Path(reading.journal._files.path("segments"))
    for path in segments.iterdir():
        path.unlink()
    segments.rmdir()
    segments.write_text("in the way")
    world.database.execute("INSERT INTO t VALUES (2)")
    with pytest.raises(ConfigError, match="The journal can't be written"):
        follow(reading, offset, 1)
    assert state(reading) == "failed"
    until(lambda: not any(t.name == "tidelog-capture" for t in threading.enumerate()), "the end of the capture")
