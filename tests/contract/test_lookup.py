"""Rows by key, on a real server: keys as the stream types them find their rows, whatever the key is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from tests.servers import Database
from tidelog.connectors.postgres import lookup
from tidelog.connectors.postgres.connector import PostgresConnector, create

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
    found = lookup.statements(connector._reader(), table, columns, keys.column_names, keys)
    return pa.Table.from_batches([b for sql in found for b in connector._select(sql, table, columns)])


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
    [sql] = lookup.statements(connector._reader(), table, ["a", None, "c"], ["a", "b"], keys)
    found = [b.to_pylist() for b in connector._select(sql, table, ["a", "b", "c"])]
    assert found == [[{"a": 1, "b": None, "c": "x"}]]
