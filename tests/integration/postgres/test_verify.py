"""Verifying by ranges of keys: source and target cut each kind of key alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from tests.integration.postgres.world import World
from tidelog.connectors.postgres.connector import PostgresConnector, create
from tidelog.engine.verify import verify
from tidelog.spark.reading import read_target
from tidelog.spark.sinks.delta_rust import RustEngine

KEYS = {
    "int4": "-5, 0, 7, 8, 2147483647",
    "text": "'', 'B', 'a', 'ä', 'it''s'",
    "char(4)": "'', 'ab', 'abc', 'b', 'b c'",
    "inet": "'10.0.0.1', '10.0.0.0/8', '10.0.0.10', '9.0.0.1', '::1'",
    "bool": "true, false",
    "bytea": "'', '\\x00', '\\x01', '\\xff', '\\xff00'",
    "float8": "'-Infinity', -0.1, 0.1, 1e300, 'Infinity', 'NaN'",
    "numeric(20,10)": "-1, 0, 0.0000000001, 1.5, 9000000000",
    "numeric": "-1, 0, 0.0000000001, 1.5, 9000000000",
    "date": "'-infinity', '0044-08-22 BC', '2020-01-01', '10000-01-02', 'infinity'",
    "timestamp": "'-infinity', '0044-08-22 01:02:03.5 BC', '2020-01-01', '10000-01-02', 'infinity'",
    "timestamptz": "'-infinity', '0044-08-22 01:02:03.5 BC', '2020-01-01', '10000-01-02', 'infinity'",
    "int4[]": "'{}', '{1,2}', '{10}', '{9,NULL}', '{{1},{2}}'",
    "uuid": "'00000000-0000-0000-0000-00000000000a', 'f0000000-0000-0000-0000-000000000000'",
}


def filled(world: World, kind: str) -> None:
    """Three rows under each first key."""
    values = ", ".join(f"({value.strip()}::{kind})" for value in KEYS[kind].split(", "))
    world.database.execute(f"CREATE TABLE t (k {kind}, n int, PRIMARY KEY (k, n))")
    world.database.execute(f"INSERT INTO t SELECT k, n FROM (VALUES {values}) v(k), generate_series(1, 3) n")


def copied(connector: PostgresConnector, folder: Path, columns: Sequence[str] = ("k", "n")) -> dict[str, str]:
    """A target that holds what the stream would have brought."""
    [table] = connector.tables()
    rows = pa.Table.from_batches(connector.read(table, columns))
    target = RustEngine({}).target(str(folder / "lake" / table.schema / "t"))
    target.create(rows.schema, {})
    target.append(rows, None)
    return {"type": "delta", "path": str(folder / "lake")}


@pytest.fixture
def connector(world: World) -> Iterator[PostgresConnector]:
    with closing(create(world.options)) as connector:
        yield connector


@pytest.mark.parametrize("kind", KEYS)
def test_each_kind_of_key_is_cut_alike(world: World, connector: PostgresConnector, kind: str, tmp_path: Path) -> None:
    filled(world, kind)
    sink = copied(connector, tmp_path)
    for rows in (1, 4):
        report = verify(connector, connector.tables(), read_target(sink), rows_per_range=rows)
        assert report.in_sync, report.tables[0].result
    assert report.rows == 3 * len(KEYS[kind].split(", "))


def test_a_hidden_key_is_not_cut(world: World, tmp_path: Path) -> None:
    filled(world, "text")
    with closing(create({**world.options, "column.mask.hash.SHA-256.with.salt.x": "public.t.k"})) as connector:
        report = verify(connector, connector.tables(), read_target(copied(connector, tmp_path)), rows_per_range=2)
    assert report.in_sync, report.tables[0].result
