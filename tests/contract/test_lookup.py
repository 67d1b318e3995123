"""Rows by key, on a real server: keys as the stream types them find their rows, whatever the key is made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from tests.integration.postgres.test_check import options
from tests.patience import wait_until
from tests.servers import Database
from tidelog.connectors.postgres import connector as connector_module
from tidelog.connectors.postgres import lookup
from tidelog.connectors.postgres.connector import PostgresConnector, create
from tidelog.contracts import Scan
from tidelog.model.schema import Table

KEYS = {
    "bigint": "-9223372036854775808",
    "smallint": "7",
    "text": 'a"\\ {x}ä%s',
    "varchar(20)": "",
    "char(5)": "ab",
    "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "numeric(20,3)": "12345678901234567.125",
    "numeric": "0.1000000000000000000000001",
    "date": "1969-12-31",
    "timestamp": "1969-12-31 23:59:59.123456",
    "timestamptz": "2026-03-29 01:30:00.000001+00",
    "time": "03:04:05.1234",
    "interval": "1 year 2 days",
    "bytea": "\\x00ff",
    "bool": "t",
    "float8": "0.1",
    "inet": "10.0.0.1/8",
    "int[]": "{{1,2},{NULL,4}}",
    "text[]": '{a,"b c",NULL}',
    "mood": "so so",
    "email": "a@b",
}


@pytest.fixture
def connector(database: Database) -> Iterator[PostgresConnector]:
    database.execute("CREATE TYPE mood AS ENUM ('happy', 'so so')")
    database.execute("CREATE DOMAIN email AS text NOT NULL CHECK (VALUE LIKE '%@%')")
    names = ("hostname", "host"), ("port", "port"), ("user", "user"), ("password", "password"), ("dbname", "dbname")
    found = create({f"database.{name}": str(getattr(database, own)) for name, own in names})
    yield found
    found.close()


def by_keys(connector: PostgresConnector, columns: Sequence[str], keys: pa.Table) -> pa.Table:
    [table] = connector.tables()
    return pa.Table.from_batches(connector.read_keys(table, columns, keys))


DISTANT = [
    ("date", "infinity"),
    ("date", "-infinity"),
    ("date", "5874897-12-31"),
    ("date", "4713-01-01 BC"),
    ("timestamp", "infinity"),
    ("timestamp", "0044-03-15 12:00:00.5 BC"),
    ("timestamptz", "-infinity"),
    ("timestamptz", "0001-12-31 23:59:59.999999+00 BC"),
    ("timestamptz", "294200-12-31 23:59:59.999999+00"),
]


@pytest.mark.parametrize(("kind", "key"), [*KEYS.items(), *DISTANT])
def test_every_key_finds_its_row(connector: PostgresConnector, database: Database, kind: str, key: str) -> None:
    database.execute(f'CREATE TABLE "T t" ("the ""key" {kind} PRIMARY KEY, big text)')
    database.execute('INSERT INTO "T t" VALUES (%s, %s)', [key, "B,\n"])
    [table] = connector.tables()
    present = pa.Table.from_batches(connector.read(table, ['the "key', "big"]))
    assert present.num_rows == 1
    assert by_keys(connector, ['the "key', "big"], present.select(['the "key'])).equals(present)


def test_many_keys_of_two_columns(connector: PostgresConnector, database: Database) -> None:
    database.execute("CREATE TABLE t (a int, b text, c text, PRIMARY KEY (a, b))")
    database.execute("INSERT INTO t SELECT g, 'k' || g, repeat('x', 3) FROM generate_series(1, 25000) g")
    keys = pa.table({"b": [f"k{i}" for i in range(0, 50_000, 2)], "a": pa.array(range(0, 50_000, 2), pa.int32())})
    found = by_keys(connector, ["a", "c"], keys)
    assert sorted(found["a"].to_pylist()) == list(range(2, 25_001, 2))


def test_keys_with_nulls_and_columns_that_are_gone(connector: PostgresConnector, database: Database) -> None:
    database.execute("CREATE TABLE t (a int, b text, c text)")
    database.execute("INSERT INTO t VALUES (1, NULL, 'x'), (1, 'n', 'y'), (2, NULL, 'z')")
    [table] = connector.tables()
    keys = pa.table({"a": [1, 2], "b": pa.array([None, "n"], pa.string())})
    session = connector._reader()
    sql = lookup.statement(session, table, ["a", None, "c"], ["a", "b"], keys)
    found = [b.to_pylist() for b in connector._select(session, sql, table, ["a", "b", "c"])]
    assert found == [[{"a": 1, "b": None, "c": "x"}]]


# -- beside DDL --------------------------------------------------------------------------------------------------------

Read = Callable[[PostgresConnector, Table], Iterator[pa.RecordBatch]]
ONE = pa.table({"a": pa.array([1], pa.int32())})
READS: dict[str, Read] = {
    "all": lambda connector, table: connector.read(table, ["a", "b"]),
    "by key": lambda connector, table: connector.read_keys(table, ["a", "b"], ONE),
    "a range": lambda connector, table: connector.read_range(table, ["a", "b"], None, None),
}
WAITING = """
SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
 WHERE NOT l.granted
"""
DDL = {
    "a rewrite": "ALTER TABLE t ADD COLUMN c uuid DEFAULT gen_random_uuid()",
    "a rewrite of the column": "ALTER TABLE t ALTER COLUMN b TYPE varchar(9) USING b",
    "another name": "ALTER TABLE t RENAME TO u",
    "another schema": "CREATE SCHEMA s; ALTER TABLE t SET SCHEMA s; CREATE TABLE t (a int PRIMARY KEY, b varchar(9))",
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("change", DDL)
def test_rows_are_read_as_they_are_once_a_change_of_the_table_is_done(
    connector: PostgresConnector, database: Database, change: str, read: str
) -> None:
    """A table that is rewritten is empty to whoever looked before, and waited."""
    database.execute("CREATE TABLE t (a int PRIMARY KEY, b varchar(9))")
    database.execute("INSERT INTO t VALUES (1, 'x')")
    [table] = connector.tables()
    with database.connect(autocommit=False) as other, ThreadPoolExecutor() as pool:
        for statement in DDL[change].split(";"):
            other.execute(statement)
        rows = pool.submit(lambda: pa.Table.from_batches(READS[read](connector, table)).to_pylist())
        wait_until(lambda: database.execute(WAITING) != [(0,)], "the reader waits")
        other.commit()
        assert rows.result() == [{"a": 1, "b": "x"}]


def test_a_column_that_is_renamed_meanwhile_is_found(connector: PostgresConnector, database: Database) -> None:
    database.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    database.execute("INSERT INTO t VALUES (1, 'x')")
    [table] = connector.tables()
    with database.connect(autocommit=False) as other, ThreadPoolExecutor() as pool:
        other.execute("ALTER TABLE t RENAME COLUMN b TO c")
        rows = pool.submit(lambda: pa.Table.from_batches(connector.read(table, ["a", "b"])).to_pylist())
        wait_until(lambda: database.execute(WAITING) != [(0,)], "the reader waits")
        other.commit()
        assert rows.result() == [{"a": 1, "b": "x"}]


def test_rights_on_some_columns_are_enough(database: Database) -> None:
    database.execute("CREATE TABLE t (a int PRIMARY KEY, b text, secret text)")
    database.execute("INSERT INTO t VALUES (1, 'x', 's')")
    database.execute("CREATE ROLE some_columns LOGIN PASSWORD 'word'")
    database.execute("GRANT SELECT (a, b) ON t TO some_columns")
    role = {"snapshot.database.user": "some_columns", "snapshot.database.password": "word"}
    limited = create({**options(database), **role, "column.exclude.list": r"public\.t\.secret"})
    try:
        [table] = limited.tables()
        for read in READS.values():
            assert pa.Table.from_batches(read(limited, table)).to_pylist() == [{"a": 1, "b": "x"}]
    finally:
        limited.close()
        database.execute("DROP OWNED BY some_columns; DROP ROLE some_columns")


def test_a_slow_reader_is_not_cut_by_a_limit_on_idle_transactions(
    connector: PostgresConnector, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector_module, "_ROWS_PER_READ", 1)
    database.execute("CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    database.execute(f"ALTER DATABASE {database.dbname} SET idle_in_transaction_session_timeout = '50ms'")
    [table] = connector.tables()
    rows = 0
    for batch in connector.read(table, ["a", "b"]):
        time.sleep(0.3)
        rows += batch.num_rows
    assert rows == 2


# -- settings of the server --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["quote_all_identifiers = on", "default_transaction_read_only = on"])
def test_settings_of_the_database_do_not_matter(database: Database, setting: str) -> None:
    database.execute('CREATE TABLE "T t" (a int PRIMARY KEY, b text)')
    database.execute("""INSERT INTO "T t" VALUES (1, 'x')""")
    database.execute(f"ALTER DATABASE {database.dbname} SET {setting}")
    connector = create({**options(database), "read.only": "true"})
    try:
        assert connector.prepare() > 0
        [table] = connector.tables()
        assert connector.maximum(Scan(table, ("a",))) == ("1",)
        assert pa.Table.from_batches(connector.read(table, ["a", "b"])).to_pylist() == [{"a": 1, "b": "x"}]
    finally:
        connector.close()


@pytest.mark.parametrize("kind", ["ltree", "citext"])
def test_a_key_whose_type_is_not_in_the_search_path(database15: Database, kind: str) -> None:
    database15.execute(f"CREATE SCHEMA ext; CREATE EXTENSION {kind} SCHEMA ext")
    database15.execute(f"CREATE TABLE t (n int, k ext.{kind}, v int, PRIMARY KEY (n, k))")
    database15.execute("INSERT INTO t VALUES (1, 'a'), (1, 'B'), (2, 'c')")
    connector = create(options(database15))
    try:
        [table] = connector.tables()
        rows = pa.Table.from_batches(connector.read(table, ["n", "k"]))
        assert sorted(rows["k"].to_pylist()) == ["B", "a", "c"]
        assert pa.Table.from_batches(connector.read_keys(table, ["n", "k"], rows.slice(1))).num_rows == 2
    finally:
        connector.close()
