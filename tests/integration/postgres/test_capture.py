"""From a real server's log into the journal and out again: every kind of change, and every change of a schema."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tests.integration.postgres.world import World, catch_up, changes, decode, follow, poll_until, told
from tests.servers import await_readers
from tidelog.contracts import Portion, Slice
from tidelog.engine.batch_plan import Plan
from tidelog.errors import ConfigError
from tidelog.journal import segment
from tidelog.journal.files import Files
from tidelog.model.record import Op

SMALL_MEMORY = {"memory.bytes": "5mb"}  # portions of one megabyte


def test_every_kind_of_change(any_world: World) -> None:
    database = any_world.database
    database.execute("CREATE TABLE a (id int PRIMARY KEY, v text)")
    database.execute("CREATE TABLE b (x int, y int, PRIMARY KEY (y, x))")
    reading = any_world.reading()
    start = reading.initial()
    with database.connect() as session:
        session.execute("INSERT INTO a VALUES (1, 'one'), (2, NULL)")
        session.execute("UPDATE a SET v = 'zwei' WHERE id = 2")
        session.execute("UPDATE a SET id = 3 WHERE id = 1")
        session.execute("DELETE FROM a WHERE id = 2")
        with session.transaction():
            session.execute("INSERT INTO b VALUES (1, 2)")
            session.execute("SELECT pg_logical_emit_message(true, 'app', 'inside')")
            session.execute("INSERT INTO a VALUES (7, 'sieben')")
            session.execute("TRUNCATE a, b")
        session.execute("SELECT pg_logical_emit_message(false, 'app', 'outside')")
        session.execute("INSERT INTO a VALUES (8, 'acht')")
    end, events = catch_up(reading, start)
    sends_messages = database.server.version >= 14
    expected = [
        ("a", "c", {"id": 1, "v": "one"}),
        ("a", "c", {"id": 2, "v": None}),
        ("a", "u", {"id": 2, "v": "zwei"}),
        ("a", "u", {"id": 3, "v": "one"}),
        ("a", "d", {"id": 2, "v": None}),
        ("b", "c", {"x": 1, "y": 2}),
        ("", "m", {}),
        ("a", "c", {"id": 7, "v": "sieben"}),
        ("a", "t", {"id": None, "v": None}),
        ("b", "t", {"x": None, "y": None}),
        ("", "m", {}),
        ("a", "c", {"id": 8, "v": "acht"}),
    ]
    assert told(events) == [event for event in expected if sends_messages or event[1] != "m"]
    inside = events[5 : 10 if sends_messages else 9]
    assert [e.ordinal for e in inside] == list(range(len(inside)))
    assert len({e.position for e in inside}) == 1
    assert [b"inside" in e.payload for e in events if e.op == "m"] == ([True, False] if sends_messages else [])
    moved = events[3].before
    assert moved is not None
    assert moved["id"] == 1
    assert events[5].version is not None
    assert events[5].version.key == ("y", "x")
    assert len({e.xid for e in events if e.op != "m"}) == 6
    assert end.document["lsn"] == end.position & ~7
    assert end.document["txId"] == events[-1].xid


def test_what_was_rolled_back_never_appears(any_world: World) -> None:
    database = any_world.database
    database.execute("CREATE TABLE a (id int PRIMARY KEY)")
    reading = any_world.reading()
    start = reading.initial()
    with database.connect(autocommit=False) as session:
        session.execute("INSERT INTO a VALUES (1)")
        session.rollback()
        session.execute("INSERT INTO a VALUES (2)")
        session.execute("SAVEPOINT s")
        session.execute("INSERT INTO a VALUES (3)")
        session.execute("ROLLBACK TO SAVEPOINT s")
        session.execute("INSERT INTO a VALUES (4)")
        session.commit()
    _, events = catch_up(reading, start)
    assert [(e.row["id"], e.ordinal) for e in events] == [(2, 0), (4, 1)]
    assert len({e.xid for e in events}) == 1


def test_the_old_row_by_replica_identity(world: World) -> None:
    database = world.database
    database.execute("CREATE TABLE by_key (id int PRIMARY KEY, v text)")
    database.execute("CREATE TABLE by_index (id int PRIMARY KEY, u int NOT NULL UNIQUE, v text)")
    database.execute("ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_u_key")
    database.execute("CREATE TABLE by_row (id int, v text)")
    database.execute("ALTER TABLE by_row REPLICA IDENTITY FULL")
    reading = world.reading()
    start = reading.initial()
    with database.connect() as session:
        session.execute("INSERT INTO by_key VALUES (1, 'x'); INSERT INTO by_row VALUES (1, 'x')")
        session.execute("INSERT INTO by_index VALUES (1, 10, 'x')")
        session.execute("UPDATE by_key SET v = 'y'; UPDATE by_index SET u = 11; UPDATE by_row SET v = 'y'")
        session.execute("DELETE FROM by_key; DELETE FROM by_index; DELETE FROM by_row")
    _, events = catch_up(reading, start)
    updates = {e.table: e for e in events if e.op == "u"}
    deletes = {e.table: e for e in events if e.op == "d"}
    assert updates["by_key"].before is None
    assert (updates["by_index"].before or {})["u"] == 10
    assert updates["by_row"].before == {"id": 1, "v": "x"}
    assert [deletes[t].row["id"] for t in ("by_key", "by_row")] == [1, 1]
    assert deletes["by_index"].row["u"] == 11
    keys = {e.table: e.version.key for e in events if e.version}
    assert keys == {"by_key": ("id",), "by_index": ("u",), "by_row": ()}


def test_a_partitioned_table_is_one_table(any_world: World) -> None:
    database = any_world.database
    database.execute("CREATE TABLE p (id int, d int, PRIMARY KEY (id, d)) PARTITION BY RANGE (d)")
    database.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)")
    database.execute("CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)")
    reading = any_world.reading()
    start = reading.initial()
    database.execute("INSERT INTO p VALUES (1, 5), (2, 15)")
    database.execute("UPDATE p SET d = 16 WHERE id = 1")
    _, events = catch_up(reading, start)
    assert {e.table for e in events} == {"p"}
    assert [(e.op, e.row["id"], e.row["d"]) for e in events] == [
        ("c", 1, 5),
        ("c", 2, 15),
        ("d", 1, 5),
        ("c", 1, 16),
    ]


def test_changes_know_where_they_come_from(any_world: World) -> None:
    database = any_world.database
    database.execute("CREATE TABLE a (id int PRIMARY KEY)")
    reading = any_world.reading()
    start = reading.initial()
    name = f"from_{database.dbname}"
    database.execute("SELECT pg_replication_origin_create(%s)", [name])
    with database.connect() as session:
        session.execute("INSERT INTO a VALUES (1)")
        session.execute("SELECT pg_replication_origin_session_setup(%s)", [name])
        session.execute("INSERT INTO a VALUES (2), (3)")
        session.execute("SELECT pg_replication_origin_session_reset()")
        session.execute("INSERT INTO a VALUES (4)")
    _, events = catch_up(reading, start)
    assert [(e.row["id"], e.origin) for e in events] == [(1, None), (2, name), (3, name), (4, None)]
    database.execute("SELECT pg_replication_origin_drop(%s)", [name])


def test_a_big_transaction_comes_in_portions(any_world: World) -> None:
    database = any_world.database
    database.execute("CREATE TABLE big (id int PRIMARY KEY, v text)")
    database.execute("CREATE TABLE side (id int PRIMARY KEY)")
    any_world.journal = SMALL_MEMORY
    any_world.source["provide.transaction.metadata"] = "true"
    reading = any_world.reading()
    start = reading.initial()
    with database.connect(autocommit=False) as session:
        session.execute("INSERT INTO side VALUES (1)")
        session.execute("INSERT INTO big SELECT i, repeat('x', 100) FROM generate_series(1, 30000) i")
        session.execute("INSERT INTO side VALUES (2)")
        session.commit()
    database.execute("INSERT INTO big VALUES (30001, 'after')")
    reading.drain()
    end = reading.latest(start, 10, None)  # a transaction is never split over batches
    plan = reading.plan(start, end)
    events = decode(plan)
    assert [e.ordinal for e in events] == list(range(30_002))
    assert [e.row["id"] for e in events] == [1, *range(1, 30_001), 2]
    assert len({e.xid for e in events}) == 1
    assert len({piece.path for piece in plan.slices}) > 3
    [commit] = [c for piece in plan.commits for c in commits(plan, piece)]
    assert commit == (events[0].position, 30_002, {"public.big": 30_000, "public.side": 2})
    _, rest = catch_up(reading, end)
    assert told(rest) == [("big", "c", {"id": 30_001, "v": "after"})]


def commits(plan: Plan, piece: Slice) -> list[tuple[int, int, dict[str, int]]]:
    rows = segment.read(Files(plan.journal), piece.path, piece.index, piece.checksum).to_pylist()
    mine = [r for r in rows if piece.low <= r["position"] < piece.high]
    return [(r["position"], r["ordinal"], json.loads(r["payload"])) for r in mine]


# -- schemas that change -------------------------------------------------------------------------------------------


def test_each_row_is_decoded_under_its_own_version(any_world: World) -> None:
    database = any_world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY, a text, b int)")
    reading = any_world.reading()
    start = reading.initial()
    with database.connect() as session:
        session.execute("INSERT INTO t VALUES (1, 'x', 10)")
        session.execute("ALTER TABLE t ADD COLUMN c int DEFAULT 7")
        session.execute("INSERT INTO t VALUES (2, 'y', 20, 30)")
        with session.transaction():
            session.execute("INSERT INTO t VALUES (3, 'z', 30, 40)")
            session.execute("ALTER TABLE t DROP COLUMN a")
            session.execute("INSERT INTO t VALUES (4, 40, 50)")
        session.execute("ALTER TABLE t RENAME COLUMN b TO bb")
        session.execute("INSERT INTO t VALUES (5, 50, 60)")
        session.execute("ALTER TABLE t ALTER COLUMN bb TYPE text")
        session.execute("INSERT INTO t VALUES (6, 'sixty', 70)")
        session.execute("ALTER TABLE t RENAME TO u")
        session.execute("INSERT INTO u VALUES (7, 'seventy', 80)")
    _, events = catch_up(reading, start)
    assert told(events) == [
        ("t", "c", {"id": 1, "a": "x", "b": 10}),
        ("t", "c", {"id": 2, "a": "y", "b": 20, "c": 30}),
        ("t", "c", {"id": 3, "a": "z", "b": 30, "c": 40}),
        ("t", "c", {"id": 4, "b": 40, "c": 50}),
        ("t", "c", {"id": 5, "bb": 50, "c": 60}),
        ("t", "c", {"id": 6, "bb": "sixty", "c": 70}),
        ("u", "c", {"id": 7, "bb": "seventy", "c": 80}),
    ]


def test_a_catalog_that_has_moved_on(world: World) -> None:
    """All of it happened before anyone read the log: the log's word counts, not the catalog's."""
    database = world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY, a int, old text)")
    reading = world.reading()
    start = reading.initial()
    database.execute("INSERT INTO t VALUES (1, 10, 'x')")
    database.execute("ALTER TABLE t RENAME COLUMN a TO b")
    database.execute("INSERT INTO t VALUES (2, 20, 'y')")
    database.execute("ALTER TABLE t DROP COLUMN old, ALTER COLUMN b TYPE numeric(9,2), ADD COLUMN a text DEFAULT 'new'")
    database.execute("INSERT INTO t VALUES (3, 30.5, 'z')")
    _, events = catch_up(reading, start)
    assert [(list(e.row), e.row["id"]) for e in changes(events)] == [
        (["id", "a", "old"], 1),
        (["id", "b", "old"], 2),
        (["id", "b", "a"], 3),
    ]
    assert [e.row.get("a") for e in changes(events)] == [10, None, "z"]
    assert [e.row.get("b") for e in changes(events)][1] == 20


def test_ddl_that_writes_no_row_is_noticed(world: World) -> None:
    database = world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    world.source["schema.refresh.interval.ms"] = "100"
    reading = world.reading()
    start = reading.initial()
    database.execute("INSERT INTO t VALUES (1)")
    offset, events = follow(reading, start, 1)
    assert told(events) == [("t", "c", {"id": 1})]
    database.execute("ALTER TABLE t ADD COLUMN c int DEFAULT 7")
    offset, [event] = follow(reading, offset, 1)
    assert event.op == Op.SCHEMA
    assert event.version is not None
    assert [(c.name, c.fill) for c in event.version.columns] == [("id", None), ("c", "7")]
    database.execute("INSERT INTO t VALUES (2, 8)")
    _, events = follow(reading, offset, 1)
    assert told(events) == [("t", "c", {"id": 2, "c": 8})]
    assert events[0].version == event.version


def test_a_stale_word_of_the_catalog_never_overtakes_the_log(world: World) -> None:
    """The catalog was asked, and before the log got there the table changed once more and a row came."""
    database = world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    world.source["schema.refresh.interval.ms"] = "0"
    connector = world.connector()
    tail = connector.tail(connector.prepare(), [], 1 << 20)
    try:
        database.execute("INSERT INTO t VALUES (1)")
        poll_until(tail, lambda found: len(inserted(found)) == 1, "the first row")
        database.execute("ALTER TABLE t ADD COLUMN a int")
        tail._ask()  # as a poll does now and then; the log has not told that it came so far
        database.execute("ALTER TABLE t ADD COLUMN b int")
        database.execute("INSERT INTO t VALUES (2, 3, 4)")
        portions = poll_until(tail, lambda found: len(inserted(found)) == 1, "the second row")
        tail.ping()
        portions += poll_until(tail, lambda _: tail._pending is None, "the end of the log")
        database.execute("INSERT INTO t VALUES (3, 4, 5)")
        portions += poll_until(tail, lambda found: len(inserted(found)) == 1, "the third row")
    finally:
        tail.close()
        connector.close()
    assert inserted(portions) == [3, 3]


def inserted(portions: Sequence[Portion]) -> list[int]:
    """Of each block of rows, how many columns its table has."""
    blocks = [b for p in portions for b in p.blocks if b.table and b.records["op"][0].as_py() == ord(Op.CREATE)]
    return [len(b.table.columns) for b in blocks if b.table]


def test_reading_on_after_a_message_that_touches_a_commit(world: World) -> None:
    """The message's record ends where the commit's record begins: an offset between them loses neither."""
    database = world.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    connector = world.connector()
    start = connector.prepare()
    with database.connect(autocommit=False) as session:
        session.execute("INSERT INTO t VALUES (1)")
        session.execute("SELECT pg_logical_emit_message(false, 'app', 'first')")
        session.commit()
    tail = connector.tail(start, [], 1 << 20)
    portions = poll_until(tail, lambda found: sum(p.transactions.num_rows for p in found) == 2, "both")
    tail.close()
    await_readers(database)
    message, insert = [t for p in portions for t in p.transactions.to_pylist()]
    assert message["position"] < message["end"] <= insert["position"]
    again = connector.tail(message["end"], [], 1 << 20)
    portions = poll_until(again, lambda found: any(p.transactions.num_rows for p in found), "the insert")
    again.close()
    connector.close()
    assert [t["position"] for p in portions for t in p.transactions.to_pylist()] == [insert["position"]]


# -- publications --------------------------------------------------------------------------------------------------


def published(world: World) -> set[str]:
    rows = world.database.execute(
        "SELECT tablename FROM pg_publication_tables WHERE pubname = %s", [world.options["publication.name"]]
    )
    return {row[0] for row in rows}


def test_publications(world: World) -> None:
    database = world.database
    for table in ("a", "b", "c"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
    world.source["table.include.list"] = r"public\.(a|b)"
    world.connector().prepare()
    assert published(world) == {"a", "b"}
    world.source["table.include.list"] = r"public\.(b|c)"
    world.connector().prepare()
    assert published(world) == {"b", "c"}
    world.source |= {"publication.autocreate.mode": "all_tables", "publication.name": "everything"}
    with pytest.raises(ConfigError, match="publication was dropped are lost"):
        world.connector().prepare()
    database.execute("SELECT pg_drop_replication_slot(%s)", [world.options["slot.name"]])
    world.connector().prepare()
    assert published(world) == {"a", "b", "c"}
    world.source |= {"publication.autocreate.mode": "disabled", "publication.name": "mine"}
    database.execute("CREATE PUBLICATION mine FOR TABLE c")
    world.source["table.include.list"] = ""
    reading = world.reading()
    start = reading.initial()
    assert published(world) == {"c"}
    database.execute("INSERT INTO a VALUES (1)")
    database.execute("INSERT INTO c VALUES (1)")
    _, events = catch_up(reading, start)
    assert told(events) == [("c", "c", {"id": 1})]


@pytest.mark.parametrize("identity", ["DEFAULT", "NOTHING"])
def test_a_table_without_identity_is_not_published(
    world: World, identity: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The server would refuse UPDATE and DELETE on it. It does not stop the others; alone, it is an error."""
    world.database.execute("CREATE TABLE bad (id int)")
    world.database.execute(f"ALTER TABLE bad REPLICA IDENTITY {identity}")
    with pytest.raises(ConfigError, match=r"public\.bad: It has no key that the log can use") as caught:
        world.connector().prepare()
    cure = 'ALTER TABLE "public"."bad" REPLICA IDENTITY FULL;'
    assert cure in caught.value.hint
    assert published(world) == set()
    world.database.execute("CREATE TABLE good (id int PRIMARY KEY)")
    world.connector().prepare()
    assert published(world) == {"good"}
    assert cure in caplog.text
    world.database.execute(cure)
    world.connector().prepare()
    assert published(world) == {"good", "bad"}


def test_no_table_matches(world: World) -> None:
    world.database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    world.source["table.include.list"] = r"public\.oders"
    with pytest.raises(ConfigError, match=r"No table of .* Did you mean 'public\.orders'\?"):
        world.connector().prepare()
