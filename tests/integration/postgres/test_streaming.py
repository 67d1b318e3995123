"""A transaction that is read while it is open is delivered as if it had been read afterwards.

Each test writes once and reads twice: by a slot that streams and by one that does not. What comes out is the same to
the last number: positions, ordinals, ids, rows. The server streams as soon as a transaction has 64 kB.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.integration.postgres.test_capture import commits
from tests.integration.postgres.world import Event, World, catch_up, changes, until
from tests.servers import DATABASES, Database, Postgres
from tests.spark.workload import SCHEMA, Workload
from tidelog.engine import capture
from tidelog.engine.reading import Reading
from tidelog.errors import ConfigError, TransientError
from tidelog.model.offset import Offset
from tidelog.model.schema import UNSURE

MANY = 2000
"""Rows that are streamed for sure."""
ROWS = f"INSERT INTO {{table}} SELECT g, repeat('x', 40) FROM generate_series({{first}}, {{first}} + {MANY - 1}) g"

Session = psycopg.Connection[Any]


def streams_early(database: Database) -> None:
    database.execute(f"ALTER DATABASE {database.dbname} SET logical_decoding_work_mem = '64kB'")


@dataclass
class Twins:
    """Two pipelines on one database: the first streams."""

    database: Database
    folder: Path
    source: dict[str, str] = field(default_factory=dict)
    journal: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        streams_early(self.database)
        self.worlds = [self._world("on"), self._world("off")]

    def _world(self, streaming: str) -> World:
        name = f"{self.database.dbname}_{streaming}"
        source = {"streaming": streaming, "slot.name": name, "publication.name": name, **self.source}
        return World(self.database, self.folder / streaming, source, self.journal)

    def begin(self) -> None:
        self.readings: list[Reading] = [world.reading() for world in self.worlds]
        self.offsets: list[Offset] = [reading.initial() for reading in self.readings]
        for reading, offset in zip(self.readings, self.offsets, strict=True):
            reading.latest(offset, None, None)  # it listens before anything is written

    def told(self) -> list[Event]:
        """What both have told since, which is the same."""
        found: list[list[Event]] = []
        for i, reading in enumerate(self.readings):
            self.offsets[i], events = catch_up(reading, self.offsets[i])
            found.append(changes(events))
        streamed, whole = found
        assert [plain(e) for e in streamed] == [plain(e) for e in whole]
        return streamed

    def streamed(self) -> int:
        """How many pieces of open transactions the server has sent."""
        sql = "SELECT stream_count FROM pg_stat_replication_slots WHERE slot_name = %s"
        rows = self.database.server.execute(sql, [self.worlds[0].options["slot.name"]])
        return int(rows[0][0]) if rows else 0

    def must_have_streamed(self) -> None:
        until(self.streamed, "a piece of an open transaction")

    def again(self, number: int) -> None:
        """End a reading and start it again from what it has delivered."""
        self.readings[number].close()
        self.readings[number] = self.worlds[number].reading()

    def close(self) -> None:
        for world in self.worlds:
            world.close()


def plain(event: Event) -> dict[str, Any]:
    """All but what the catalog adds: it is asked at another moment."""
    version = None if event.version is None else event.version.shape
    return {**vars(event), "version": version}


@pytest.fixture(params=[each for each in DATABASES if each.id != "13"])
def twins(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Twins]:
    made = Twins(request.getfixturevalue(request.param), tmp_path)
    yield made
    made.close()


@pytest.fixture
def twins18(database: Database, tmp_path: Path) -> Iterator[Twins]:
    made = Twins(database, tmp_path)
    yield made
    made.close()


def many(session: Session, first: int, table: str = "t") -> None:
    session.execute(ROWS.format(table=table, first=first))


def started(twins: Twins, *more: str) -> Twins:
    for statement in (
        "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE u (id int PRIMARY KEY, v text)",
        *more,
    ):
        twins.database.execute(statement)
    twins.begin()
    return twins


# -- what is told ----------------------------------------------------------------------------------------------------


def test_every_kind_of_change(twins: Twins) -> None:
    started(twins)
    with twins.database.connect() as session, session.transaction():
        many(session, 1)
        session.execute("UPDATE t SET v = 'new' WHERE id <= 700")
        session.execute("UPDATE t SET id = id + 100000 WHERE id <= 10")
        session.execute("DELETE FROM t WHERE id BETWEEN 500 AND 1500")
        session.execute("SELECT pg_logical_emit_message(true, 'app', 'inside')")
        many(session, 1, "u")
        session.execute("TRUNCATE t, u")
        many(session, 9_000, "u")
    events = twins.told()
    twins.must_have_streamed()
    assert len(events) == MANY + 700 + 10 + 1001 + 1 + MANY + 2 + MANY
    assert [e.ordinal for e in events] == list(range(len(events)))
    assert len({(e.position, e.xid) for e in events}) == 1
    assert [e.op for e in events if e.op in "tm"] == ["m", "t", "t"]


def test_small_transactions_come_between_the_pieces_and_in_commit_order(twins: Twins) -> None:
    started(twins)
    database = twins.database
    with database.connect(autocommit=False) as one, database.connect(autocommit=False) as other:
        many(one, 0)
        database.execute("INSERT INTO t VALUES (-1, 'small')")
        many(other, 0, "u")
        database.execute("SELECT pg_logical_emit_message(false, 'app', 'outside')")
        many(one, MANY)
        twins.must_have_streamed()
        database.execute("INSERT INTO t VALUES (-2, 'small')")
        other.commit()
        database.execute("INSERT INTO u VALUES (-3, 'small')")
        one.commit()
    events = twins.told()
    heads = [e for before, e in zip([None, *events], events, strict=False) if before is None or before.xid != e.xid]
    assert [(e.table, e.op, e.row.get("id")) for e in heads] == [
        ("t", "c", -1),
        ("", "m", None),
        ("t", "c", -2),
        ("u", "c", 0),
        ("u", "c", -3),
        ("t", "c", 0),
    ]
    assert [e.position for e in events] == sorted(e.position for e in events)


def test_what_was_rolled_back_never_appears(twins: Twins) -> None:
    started(twins)
    with twins.database.connect(autocommit=False) as session:
        many(session, 1)
        session.rollback()
        many(session, 1, "u")
        session.execute("SAVEPOINT a")
        many(session, 10_000)
        session.execute("SAVEPOINT b")
        many(session, 20_000)
        session.execute("RELEASE b")
        many(session, 30_000)
        session.execute("ROLLBACK TO a")
        many(session, 40_000)
        session.execute("SAVEPOINT c")
        many(session, 50_000)
        session.execute("SAVEPOINT d")
        many(session, 60_000)
        session.execute("ROLLBACK TO d")
        session.execute("RELEASE c")
        session.execute("SAVEPOINT a")
        session.execute("INSERT INTO t VALUES (7, 'small')")
        session.execute("ROLLBACK TO a")
        session.commit()
    events = twins.told()
    twins.must_have_streamed()
    firsts = sorted({e.row["id"] // 10_000 for e in events})
    assert (len(events), firsts) == (3 * MANY, [0, 4, 5])
    assert [e.ordinal for e in events] == list(range(3 * MANY))


def test_a_transaction_of_which_nothing_is_left(twins: Twins) -> None:
    started(twins)
    with twins.database.connect(autocommit=False) as session:
        session.execute("SAVEPOINT a")
        many(session, 1)
        session.execute("ROLLBACK TO a")
        session.commit()
    assert twins.told() == []
    twins.must_have_streamed()


def test_many_failing_blocks(twins: Twins) -> None:
    """Each is a sub-transaction that is rolled back, most of them after they were streamed."""
    started(twins)
    twins.database.execute(
        """
        DO $$ BEGIN
            FOR i IN 1..300 LOOP
                INSERT INTO t SELECT i * 1000 + g, repeat('x', 40) FROM generate_series(1, 30) g;
                BEGIN
                    INSERT INTO t SELECT i * 1000 + 500 + g, repeat('y', 40) FROM generate_series(1, 60) g;
                    IF i % 3 > 0 THEN RAISE EXCEPTION 'no'; END IF;
                EXCEPTION WHEN raise_exception THEN NULL;
                END;
            END LOOP;
        END $$
        """
    )
    events = twins.told()
    twins.must_have_streamed()
    assert len(events) == 300 * 30 + 100 * 60


def test_long_values_and_old_rows(twins: Twins) -> None:
    started(
        twins,
        "CREATE TABLE long (id int PRIMARY KEY, n int, v text); ALTER TABLE long ALTER v SET STORAGE EXTERNAL",
        "CREATE TABLE whole (id int, v text); ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE TABLE p (id int, d int, PRIMARY KEY (id, d)) PARTITION BY RANGE (d)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)",
    )
    with twins.database.connect() as session, session.transaction():
        session.execute("INSERT INTO long SELECT g, 0, repeat('x', 5000) FROM generate_series(1, 50) g")
        session.execute("INSERT INTO whole SELECT g, 'x' FROM generate_series(1, 500) g")
        session.execute("UPDATE long SET n = 1")
        session.execute("UPDATE whole SET v = 'y'")
        session.execute("INSERT INTO p SELECT g, g % 20 FROM generate_series(1, 500) g")
        session.execute("UPDATE p SET d = 19 - d")
        session.execute("DELETE FROM whole")
    events = twins.told()
    twins.must_have_streamed()
    assert {e.table for e in events} == {"long", "whole", "p"}


def test_an_origin(twins: Twins) -> None:
    """It is told once, in the first piece of a transaction."""
    started(twins)
    server = twins.database
    name = f"{server.dbname}_north"
    server.execute(f"SELECT pg_replication_origin_create('{name}')")
    try:
        with server.connect() as session, server.connect() as local:
            session.execute(f"SELECT pg_replication_origin_session_setup('{name}')")
            with session.transaction(), local.transaction():
                many(session, 1)
                many(local, 1, "u")
                twins.must_have_streamed()
                session.execute("INSERT INTO t VALUES (-1, 'last')")
                many(local, 10_000, "u")
            session.execute("INSERT INTO t VALUES (-2, 'small')")
        assert {(e.table, e.origin) for e in twins.told()} == {("t", name), ("u", None)}
    finally:
        server.execute(f"SELECT pg_replication_origin_drop('{name}')")


# -- changes of a schema ---------------------------------------------------------------------------------------------


def test_ddl_inside_a_transaction(twins: Twins) -> None:
    started(twins)
    with twins.database.connect() as session, session.transaction():
        many(session, 1)
        session.execute("ALTER TABLE t ADD COLUMN n int DEFAULT 7")
        session.execute("INSERT INTO t SELECT g, 'n', g FROM generate_series(10001, 12000) g")
        session.execute("ALTER TABLE t RENAME COLUMN v TO w")
        session.execute("INSERT INTO t SELECT g, 'w', g FROM generate_series(20001, 22000) g")
        session.execute("ALTER TABLE t DROP COLUMN n")
        many(session, 30_001)
    events = twins.told()
    twins.must_have_streamed()
    shapes = [tuple(e.row) for e in events]
    assert list(dict.fromkeys(shapes)) == [("id", "v"), ("id", "v", "n"), ("id", "w", "n"), ("id", "w")]
    assert events[-1].version is not None
    assert [c.number for c in events[-1].version.columns] == [1, 2]
    twins.database.execute("INSERT INTO t VALUES (1000000, 'after')")
    (after,) = twins.told()
    assert after.version == events[-1].version


def test_a_column_that_takes_the_name_of_another(twins: Twins) -> None:
    """The log shows no difference between the two; only the catalog does, once the transaction has committed."""
    started(twins)
    twins.database.execute("INSERT INTO t VALUES (1, 'old')")
    (before,) = twins.told()
    with twins.database.connect() as session, session.transaction():
        session.execute("ALTER TABLE t DROP COLUMN v")
        session.execute("ALTER TABLE t ADD COLUMN v text")
        many(session, 10)
        twins.must_have_streamed()
    events = twins.told()
    assert before.version is not None
    assert [c.number for c in before.version.columns] == [1, 2]
    assert {tuple(c.number for c in e.version.columns) for e in events if e.version} == {(1, 3)}


def test_ddl_that_is_rolled_back_with_its_savepoint(twins: Twins) -> None:
    started(twins)
    with twins.database.connect(autocommit=False) as session:
        many(session, 1)
        session.execute("SAVEPOINT a")
        session.execute("ALTER TABLE t ADD COLUMN n int; ALTER TABLE t ALTER v TYPE varchar(50)")
        session.execute("INSERT INTO t SELECT g, 'n', g FROM generate_series(10001, 12000) g")
        twins.must_have_streamed()
        session.execute("ROLLBACK TO a")
        many(session, 20_001)
        session.commit()
    events = twins.told()
    assert {tuple((c.name, c.type, c.number) for c in e.version.columns) for e in events if e.version} == {
        (("id", "int4", 1), ("v", "text", 2))
    }
    assert len(events) == 2 * MANY


def test_ddl_that_is_rolled_back_leaves_no_trace(twins: Twins) -> None:
    started(twins)
    with twins.database.connect(autocommit=False) as session:
        session.execute("ALTER TABLE t RENAME COLUMN v TO w; ALTER TABLE t ADD COLUMN n int DEFAULT 1")
        session.execute("INSERT INTO t SELECT g, 'n', g FROM generate_series(10001, 12000) g")
        twins.must_have_streamed()
        session.rollback()
        many(session, 1)
        session.commit()
    assert {tuple(e.row) for e in twins.told()} == {("id", "v")}


def test_a_table_and_a_type_that_nobody_else_sees_yet(twins: Twins) -> None:
    twins.source["publication.autocreate.mode"] = "all_tables"
    for world in twins.worlds:
        world.source |= twins.source
    started(twins)
    with twins.database.connect() as session, session.transaction():
        session.execute("CREATE TYPE mood AS ENUM ('fine', 'bad')")
        session.execute("CREATE TABLE fresh (id int PRIMARY KEY, m mood)")
        session.execute("INSERT INTO fresh SELECT g, 'fine' FROM generate_series(1, 3000) g")
        twins.must_have_streamed()
    events = twins.told()
    assert {e.table for e in events} == {"fresh"}
    columns = {c for e in events if e.version for c in e.version.columns}
    assert {(c.name, c.type, c.number) for c in columns} == {("id", "int4", 1), ("m", "enum", 2)}


def test_ddl_of_others_while_a_transaction_is_open(twins: Twins) -> None:
    started(twins)
    database = twins.database
    with database.connect(autocommit=False) as session:
        many(session, 1)
        twins.must_have_streamed()
        database.execute("ALTER TABLE u ADD COLUMN n int DEFAULT 7")
        database.execute("INSERT INTO u VALUES (1, 'other', 2)")
        session.execute("INSERT INTO u SELECT g, 'u', g FROM generate_series(10, 2000) g")
        database.execute("INSERT INTO u VALUES (2, 'other', 3)")
        session.commit()
    events = twins.told()
    assert {tuple(e.row) for e in events if e.table == "u"} == {("id", "v", "n")}
    assert all(c.number != UNSURE for e in events if e.version for c in e.version.columns)


def test_a_schema_change_that_wrote_no_row_is_told_beside_an_open_transaction(twins18: Twins) -> None:
    for world in twins18.worlds:
        world.source |= {"schema.refresh.interval.ms": "50", "heartbeat.interval.ms": "100"}
    started(twins18)
    twins18.database.execute("INSERT INTO u VALUES (1, 'x')")
    twins18.told()
    reading, start = twins18.readings[0], twins18.offsets[0]
    with twins18.database.connect(autocommit=False) as session:
        many(session, 1)
        twins18.must_have_streamed()
        twins18.database.execute("ALTER TABLE u ADD COLUMN n int DEFAULT 7")
        seen: list[Event] = []

        def told() -> bool:
            nonlocal start
            start, events = catch_up(reading, start)
            seen.extend(events)
            return {"s", "h"} <= {e.op for e in seen}

        until(told, "the schema and a heartbeat")
        assert {e.op for e in seen} == {"s", "h"}
        session.commit()
    start, events = catch_up(reading, start)
    assert len(changes(events)) == MANY
    assert max(e.position for e in seen) < min(e.position for e in changes(events))


# -- what breaks -----------------------------------------------------------------------------------------------------


def kill_sender(database: Database, slot: str) -> None:
    sql = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active_pid > 0"
    until(lambda: database.server.execute(sql, [slot]), "a reader of the slot")


def test_a_cut_connection_is_told_open_transactions_from_their_beginning(twins: Twins) -> None:
    started(twins)
    database, slot = twins.database, twins.worlds[0].options["slot.name"]
    with database.connect(autocommit=False) as one, database.connect(autocommit=False) as other:
        many(one, 1)
        many(other, 1, "u")
        twins.must_have_streamed()
        database.execute("INSERT INTO t VALUES (-1, 'small')")
        kill_sender(database, slot)
        one.execute("SAVEPOINT a")
        many(one, 10_000)
        kill_sender(database, slot)
        one.execute("ROLLBACK TO a")
        other.rollback()
        many(one, 20_000)
        kill_sender(database, slot)
        one.commit()
    assert len(twins.told()) == 1 + 2 * MANY


@pytest.mark.parametrize("mode", ["persistent", "transient"])
def test_a_restart_forgets_what_was_open(twins18: Twins, mode: str) -> None:
    """What the buffer kept on disk is told again; of what was rolled back meanwhile nothing comes."""
    twins18.journal |= {"mode": mode, "memory.bytes": "1mb"}
    started(twins18)
    database = twins18.database
    with database.connect(autocommit=False) as one, database.connect(autocommit=False) as other:
        for first in range(0, 20_000, MANY):
            many(one, first)
            many(other, first, "u")
        database.execute("INSERT INTO t VALUES (-1, 'small')")
        assert len(twins18.told()) == 1
        twins18.again(0)
        twins18.told()
        twins18.readings[0].close()
        other.rollback()
        one.execute("SAVEPOINT a")
        many(one, 100_000)
        one.execute("ROLLBACK TO a")
        twins18.again(0)
        twins18.told()
        twins18.again(0)
        one.commit()
    assert len(twins18.told()) == 20_000


def test_a_crash_of_the_server(private_postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "_LAG_S", 1e9)  # else it may be the first to notice
    twins = Twins(private_postgres.create_database("shop"), tmp_path)
    started(twins)
    with pytest.raises(psycopg.OperationalError), twins.database.connect(autocommit=False) as session:  # noqa: PT012
        many(session, 1)
        twins.must_have_streamed()
        private_postgres.restart(immediate=True)
        session.commit()
    with twins.database.connect() as session, session.transaction():
        many(session, 1)
    for reading in twins.readings:
        with pytest.raises(TransientError):  # the first to notice that the server was away
            reading.connector.log_end()
    events = twins.told()
    assert (len(events), len({e.xid for e in events})) == (MANY, 1)
    twins.close()


def test_prepared_transactions(tmp_path: Path) -> None:
    with Postgres.start(18, settings={"max_prepared_transactions": 10}) as server:
        twins = Twins(server.create_database("shop"), tmp_path)
        started(twins)
        with twins.database.connect() as session:
            for name, first in (("a", 1), ("b", 10_000)):
                session.execute("BEGIN")
                many(session, first)
                session.execute(f"PREPARE TRANSACTION '{name}'")
            session.execute("INSERT INTO u VALUES (1, 'between')")
            session.execute("COMMIT PREPARED 'b'")
            session.execute("ROLLBACK PREPARED 'a'")
        events = twins.told()
        twins.must_have_streamed()
        assert [e.row["id"] for e in events] == [1, *range(10_000, 10_000 + MANY)]
        twins.close()


# -- how far the log is known ----------------------------------------------------------------------------------------


def test_an_open_transaction_holds_nothing_back(twins: Twins) -> None:
    """The end of the log is reached, and what was delivered is acknowledged, while a stream is open."""
    started(twins)
    database, world = twins.database, twins.worlds[0]
    with database.connect(autocommit=False) as session:
        many(session, 1)
        twins.must_have_streamed()
        for number in range(3):
            database.execute(f"INSERT INTO u VALUES ({number}, 'small')")
            assert [e.row["id"] for e in twins.told()] == [number]
            end = twins.offsets[0].position
            twins.readings[0].latest(twins.offsets[0], None, None)
            until(lambda: world.confirmed() >= end & ~7, "an acknowledgement")  # noqa: B023
            many(session, 10_000 * (number + 1))
        twins.again(0)
        session.commit()
    assert len(twins.told()) == 4 * MANY


def test_what_only_others_wrote_is_passed_while_a_stream_is_open(twins18: Twins) -> None:
    """The server may forget what nobody wants; the open transaction comes all the same, also after a restart."""
    for world in twins18.worlds:
        world.source["table.include.list"] = "public.t"
    started(twins18)
    world = twins18.worlds[0]
    with twins18.database.connect(autocommit=False) as session:
        many(session, 1)
        twins18.must_have_streamed()
        end = int(twins18.database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0][0])
        twins18.database.execute("INSERT INTO u VALUES (1, 'unwanted')")
        until(lambda: world.confirmed() > end, "passing what others wrote")
        twins18.again(0)
        twins18.told()
        session.commit()
    assert len(twins18.told()) == MANY


# -- large and random ------------------------------------------------------------------------------------------------


def test_a_transaction_larger_than_the_memory(twins18: Twins) -> None:
    twins18.journal["memory.bytes"] = "1mb"
    started(twins18)
    with twins18.database.connect(autocommit=False) as session:
        session.execute("INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 30000) g")
        session.execute("SAVEPOINT a")
        session.execute("INSERT INTO u SELECT g, repeat('y', 100) FROM generate_series(1, 10000) g")
        session.execute("ROLLBACK TO a")
        session.execute("UPDATE t SET v = 'short' WHERE id % 3 = 0")
        session.commit()
    assert len(twins18.told()) == 40_000


@pytest.mark.parametrize("seed", range(3))
def test_random_transactions_side_by_side(twins: Twins, seed: int) -> None:
    dice = random.Random(seed)
    twins.database.execute(SCHEMA)
    twins.begin()
    sessions = [twins.database.connect() for _ in range(4)]
    works = [Workload(session, seed=seed * 10 + i) for i, session in enumerate(sessions)]
    for i, work in enumerate(works):
        work._next_id = 1 + i * 1_000_000  # each writes rows of its own
    steps: list[Iterator[None]] = [turns(work, dice) for work in works]
    for _ in range(60):
        next(dice.choice(steps), None)
    for step in steps:
        for _ in step:
            pass
    for session in sessions:
        session.close()
    events = twins.told()
    twins.must_have_streamed()
    assert len(events) == sum(work.total for work in works)


def turns(work: Workload, dice: random.Random) -> Iterator[None]:
    """Transactions with a pause after each statement, so that others write meanwhile."""
    for _ in range(4):
        work._pending = []
        with work.connection.transaction() as transaction:
            for _ in range(dice.randint(1, 5)):
                work._statement(dice.choice([5, 200, 1500]))
                if dice.random() < 0.3:
                    work._undone()
                yield
            if dice.random() < 0.2:
                work._pending = []
                raise psycopg.Rollback(transaction)
        work.changes.update(work._pending)


# -- settings --------------------------------------------------------------------------------------------------------


def test_transaction_metadata_counts_what_is_left(twins18: Twins) -> None:
    for world in twins18.worlds:
        world.source["provide.transaction.metadata"] = "true"
    started(twins18)
    with twins18.database.connect(autocommit=False) as session:
        many(session, 1)
        session.execute("SAVEPOINT a")
        many(session, 1, "u")
        session.execute("ROLLBACK TO a")
        session.execute("INSERT INTO u VALUES (1, 'x')")
        session.commit()
    streamed, whole = (
        counted(reading, start) for reading, start in zip(twins18.readings, twins18.offsets, strict=True)
    )
    twins18.must_have_streamed()
    assert streamed == whole
    assert [counts for _, _, counts in streamed] == [{"public.t": MANY, "public.u": 1}]


def counted(reading: Reading, start: Offset) -> list[tuple[int, int, dict[str, int]]]:
    """The commits of the next batch, each with its events by table."""
    reading.drain()
    plan = reading.plan(start, reading.latest(start, None, None))
    return [commit for piece in plan.commits for commit in commits(plan, piece)]


def test_a_setting_that_does_not_exist(world: World) -> None:
    world.source["streaming"] = "parallel"
    with pytest.raises(ConfigError, match="streaming"):
        world.connector()
