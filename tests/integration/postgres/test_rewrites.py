"""Which changes of a column may have given its rows other values: what the catalog's traces prove, and what not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.integration.postgres.world import World, catch_up, follow
from tests.servers import Postgres
from tidelog.connectors.postgres.decode import PostgresDecoder
from tidelog.core.evolve import describe, plan
from tidelog.model.offset import Offset
from tidelog.model.record import Op
from tidelog.model.schema import Table
from tidelog.model.selection import Selection

TABLE = """
CREATE TABLE {name} (id int, a text, w varchar(10), n int, f varchar(10)) {rest};
ALTER TABLE {name} ADD PRIMARY KEY (id);
"""
REWRITES = {
    "the type stays": "ALTER TABLE t ALTER COLUMN a TYPE text USING upper(a)",
    "text to varchar": "ALTER TABLE t ALTER COLUMN a TYPE varchar(50) USING upper(a)",
    "a longer varchar": "ALTER TABLE t ALTER COLUMN w TYPE varchar(20) USING w || w",
    "a wider number": "ALTER TABLE t ALTER COLUMN n TYPE bigint USING n * 7",
    "a wider number, plainly": "ALTER TABLE t ALTER COLUMN n TYPE bigint",
    "after VACUUM FULL": "VACUUM FULL t; ALTER TABLE t ALTER COLUMN a TYPE text USING upper(a)",
}
HARMLESS = {
    "a longer varchar": "ALTER TABLE t ALTER COLUMN w TYPE varchar(20)",
    "varchar to text": "ALTER TABLE t ALTER COLUMN w TYPE text",
    "a collation": 'ALTER TABLE t ALTER COLUMN a TYPE text COLLATE "C"',
    "a file": "VACUUM FULL t",
    "no rows": "TRUNCATE t",
    "definitions": "ALTER TABLE t ALTER a SET DEFAULT 'x', ALTER n SET NOT NULL, ALTER w SET STATISTICS 7",
    "a new column": "ALTER TABLE t ADD COLUMN x double precision DEFAULT random()",
}


def execute(world: World, statements: str) -> None:
    for statement in statements.split(";"):
        if statement.strip():
            world.database.execute(statement)


def asked(before: Table, after: Table) -> tuple[str, ...]:
    """The columns of `before` that a target which followed it asks the source for, when it comes to `after`."""
    shapes = [PostgresDecoder().schema(table, Selection()) for table in (before, after)]
    have, wanted = (describe(shape, table.columns) for shape, table in zip(shapes, (before, after), strict=True))
    steps = plan(have, wanted, after, after.key, lambda text, *_: text).steps
    return tuple(step.field.name for step in steps if step.ask and step.origin is not None)


class Log:
    """The versions of a table as the log tells of them."""

    def __init__(self, world: World, rest: str = "", name: str = "t") -> None:
        execute(world, TABLE.format(name=name, rest=rest))
        world.source["schema.refresh.interval.ms"] = "50"
        self.world = world
        self.reading = world.reading()
        self.offset: Offset = self.reading.initial()
        self.number = 0

    def row(self) -> Table:
        """The version under which a new row is told. With it, the catalog's answers of before have come, too."""
        self.number += 1
        self.world.database.execute(f"INSERT INTO t (id, a, n) VALUES ({self.number}, 'v', {self.number})")
        while True:
            self.offset, events = follow(self.reading, self.offset, 1)
            if found := [e.version for e in events if e.op != Op.SCHEMA and e.version is not None]:
                return found[-1]

    def version(self, wanted: Callable[[Table], object]) -> Table:
        """The first version from here on that is wanted, with or without a row."""
        while True:
            self.offset, events = follow(self.reading, self.offset, 1)
            for event in events:
                if event.version is not None and wanted(event.version):
                    return event.version


@pytest.mark.parametrize("statements", REWRITES.values(), ids=REWRITES)
@pytest.mark.parametrize("told", ["by a row", "by nothing"])
def test_values_that_may_be_others_are_asked_for(world: World, statements: str, told: str) -> None:
    log = Log(world)
    before = log.row()
    execute(world, statements)
    column = statements.split("ALTER COLUMN ")[1].split()[0]
    if told == "by a row":
        world.database.execute("INSERT INTO t (id) VALUES (100)")
    after = log.version(lambda version: column in asked(before, version))
    assert asked(after, log.row()) == ()  # once is enough


@pytest.mark.parametrize("rest", ["", "PARTITION BY RANGE (id)"], ids=["plain", "partitioned"])
def test_a_rewrite_of_a_partitioned_table(world: World, rest: str) -> None:
    log = Log(world, rest)
    if rest:
        world.database.execute("CREATE TABLE p PARTITION OF t FOR VALUES FROM (0) TO (100)")
    before = log.row()
    world.database.execute("ALTER TABLE t ALTER COLUMN w TYPE varchar(20)")
    between = log.row()
    assert asked(before, between) == ()
    world.database.execute("ALTER TABLE t ALTER COLUMN a TYPE text USING upper(a)")
    log.version(lambda version: asked(between, version) == ("a",))


@pytest.mark.parametrize("statements", HARMLESS.values(), ids=HARMLESS)
def test_what_provably_left_the_values_alone(world: World, statements: str) -> None:
    log = Log(world)
    before = log.row()
    execute(world, statements)
    assert asked(before, log.row()) == ()
    assert asked(before, marked(log)) == ()


DEFAULTS = {
    "written into every row": "ALTER TABLE t ADD COLUMN x float DEFAULT random()",
    "kept for old rows, and then written": (
        "ALTER TABLE t ADD COLUMN x int DEFAULT 7; ALTER TABLE t ADD COLUMN y float DEFAULT random()"
    ),
}


@pytest.mark.parametrize("statements", DEFAULTS.values(), ids=DEFAULTS)
def test_a_new_column_whose_values_only_the_source_knows(world: World, statements: str) -> None:
    """Its default is dropped at once, as tools for migrations do it."""
    log = Log(world)
    log.row()
    with world.database.connect() as connection, connection.transaction():
        for statement in (*statements.split(";"), "ALTER TABLE t ALTER COLUMN x DROP DEFAULT"):
            connection.execute(statement)
    version = log.version(lambda version: "x" in {column.name for column in version.columns})
    assert version.column("x").rewritten


def test_a_new_column_without_values_is_not_asked_for(world: World) -> None:
    log = Log(world)
    log.row()
    assert not with_column(log, "x").column("x").rewritten


def marked(log: Log) -> Table:
    """The version after the catalog was asked again: a column more tells that it was."""
    return with_column(log, "mark")


def with_column(log: Log, name: str) -> Table:
    log.world.database.execute(f"ALTER TABLE t ADD COLUMN {name} int")
    return log.version(lambda version: name in {column.name for column in version.columns})


def test_changes_that_are_harmless_one_by_one_stay_so(world: World) -> None:
    """A new file and a new definition prove nothing together if the catalog was looked at between them."""
    log = Log(world)
    before = log.row()
    world.database.execute("ALTER TABLE t ALTER COLUMN w TYPE varchar(20)")
    log.row()
    world.database.execute("VACUUM FULL t")
    with_column(log, "seen")
    world.database.execute("ALTER TABLE t ALTER COLUMN w TYPE varchar(30)")
    assert asked(before, with_column(log, "last")) == ()


@contextmanager
def writer(world: World) -> Iterator[None]:
    """Somebody who writes to a table that is not captured, all the time: the log's end goes on."""
    over = threading.Event()

    def write() -> None:
        with world.database.connect() as session:
            while not over.wait(0.001):
                session.execute("INSERT INTO noise VALUES (1)")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("known", ["known", "new to the log"])
@pytest.mark.parametrize("others", ["alone", "others write"])
def test_a_drain_follows_a_change_without_rows(world: World, known: str, others: str) -> None:
    """What was done before it began: rows, and then a change of the table that the log does not tell."""
    execute(world, TABLE.format(name="t", rest=""))
    world.database.execute("CREATE TABLE noise (id int)")
    world.source["table.include.list"] = "public.t"
    reading = world.reading()
    offset = reading.initial()
    if known == "known":
        world.database.execute("INSERT INTO t (id, a) VALUES (1, 'v')")
        offset, _ = catch_up(reading, offset)
    reading.close()
    world.database.execute("INSERT INTO t (id, a) VALUES (2, 'v')")
    world.database.execute("ALTER TABLE t ALTER COLUMN a TYPE bytea USING convert_to(a, 'UTF8')")
    with writer(world) if others == "others write" else nullcontext():
        _, events = catch_up(world.reading(), offset)
    versions = [event.version for event in events if event.version is not None]
    assert versions[-1].column("a").type == "bytea"


@pytest.fixture
def lonely(private_postgres: Postgres, tmp_path: Path) -> Iterator[World]:
    """On a server of its own: a slot keeps the catalog for as long as the oldest slot or transaction of its server."""
    world = World(private_postgres.create_database("lonely"), tmp_path / "pipeline")
    yield world
    world.close()


def test_columns_that_a_change_leaves_alone_are_not_read_again(lonely: World) -> None:
    """A reader that meets a table for the first time when the catalog has moved on: what was there before the slot's
    log begins is known all the same."""
    execute(lonely, TABLE.format(name="t", rest=""))
    reading = lonely.reading()
    offset = reading.initial()
    lonely.database.execute("INSERT INTO t (id, n) VALUES (1, 1)")
    lonely.database.execute("ALTER TABLE t ADD COLUMN x int")
    lonely.database.execute("INSERT INTO t (id, n) VALUES (2, 2)")
    _, events = catch_up(reading, offset)
    first, *_, last = [event.version for event in events if event.version is not None]
    assert [column.name for column in last.columns] == ["id", "a", "w", "n", "f", "x"]
    assert asked(first, last) == ()
