"""Values that are larger than any buffer on their way: read from tables, and told by the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.integration.postgres.world import World
from tidelog.connectors import chunk_reader
from tidelog.connectors.postgres import connector as postgres
from tidelog.connectors.postgres import ranges
from tidelog.connectors.postgres.connector import PostgresConnector, create
from tidelog.contracts import Scan, Span
from tidelog.engine.verify import verify
from tidelog.model.schema import Table
from tidelog.spark.reading import read_target
from tidelog.spark.sinks.delta_rust import RustEngine

MIB = 1 << 20
TEXTS = {1: MIB - 1, 2: 3 * MIB, 3: 0, 4: 9 * MIB, 5: 17 * MIB}
"""Length of the text by key, all of quotes in one of them: COPY writes these twice."""
BYTES = {1: 2 * MIB, 4: 20 * MIB}
LARGEST = 64 * MIB, 50 * MIB


def filled(world: World) -> None:
    world.database.execute("CREATE TABLE wide (id int PRIMARY KEY, v text STORAGE EXTERNAL, b bytea STORAGE EXTERNAL)")
    for key, length in TEXTS.items():
        letter = '"' if key == 4 else "x"
        content = f"decode(repeat('0a22', {BYTES[key] // 2}), 'hex')" if key in BYTES else "NULL"
        world.database.execute(f"INSERT INTO wide VALUES ({key}, repeat('{letter}', {length}), {content})")


@pytest.fixture
def connector(world: World) -> Iterator[PostgresConnector]:
    filled(world)
    with closing(create(world.options)) as connector:
        yield connector


def lengths(batches: Iterator[pa.RecordBatch]) -> dict[int, tuple[int, int | None]]:
    found = {}
    for batch in batches:
        for i, key in enumerate(batch["id"].to_pylist()):
            text, content = batch["v"][i].as_buffer(), batch["b"][i].as_buffer()
            found[key] = (text.size, None if content is None else content.size)
    return found


def test_reading_a_table(connector: PostgresConnector, world: World) -> None:
    text, content = LARGEST
    world.database.execute(f"INSERT INTO wide VALUES (6, repeat('x', {text}), decode(repeat('ff', {content}), 'hex'))")
    [table] = connector.tables()
    expected = {key: (length, BYTES.get(key)) for key, length in TEXTS.items()} | {6: LARGEST}
    assert lengths(connector.read(table, ["id", "v", "b"])) == expected
    keys = pa.table({"id": pa.array([2, 4, 6], pa.int32())})
    assert lengths(connector.read_keys(table, ["id", "v", "b"], keys)) == {k: expected[k] for k in (2, 4, 6)}
    assert lengths(connector.read_range(table, ["id", "v", "b"], "4", None)) == {k: expected[k] for k in (5, 6)}


@pytest.mark.parametrize("texts", [False, True], ids=["typed", "envelope"])
def test_a_chunk(connector: PostgresConnector, world: World, texts: bool) -> None:
    [table] = connector.tables()
    scan = Scan(table, table.key)
    with closing(
        chunk_reader("postgres", world.options).open(scan, Span(None, None), attempt="a", texts=texts)
    ) as chunk:
        batches = list(chunk.rows())
        chunk.end()
    found = {int(key): size for key, size in lengths(iter(batches)).items()}
    digits = {key: 2 + 2 * size for key, size in BYTES.items()} if texts else BYTES
    assert found == {key: (length, digits.get(key)) for key, length in TEXTS.items()}


def test_a_portion_of_a_table_is_bounded_by_bytes(
    connector: PostgresConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_BYTES_PER_READ", 2 * MIB)
    [table] = connector.tables()
    rows = [batch.num_rows for batch in connector.read(table, ["id", "v"])]
    assert rows == [2, 2, 1]  # a portion ends with the row that fills it


def copied(connector: PostgresConnector, table: Table, folder: Path) -> None:
    batches = connector.read(table, [column.name for column in table.columns])
    target = RustEngine({}).target(f"{folder}/public/{table.name}")
    for batch in batches:
        if target.schema() is None:
            target.create(batch.schema, {})
        target.append(pa.Table.from_batches([batch]), None)


def test_verify(connector: PostgresConnector, world: World, tmp_path: Path) -> None:
    """Also what differs in the last byte of many is found, and the table behind a broken one is compared."""
    world.database.execute("CREATE TABLE zoo (id int PRIMARY KEY); INSERT INTO zoo VALUES (1)")
    for table in connector.tables():
        copied(connector, table, tmp_path)
    sink = {"type": "delta", "path": str(tmp_path)}
    report = verify(connector, connector.tables(), read_target(sink))
    assert report.in_sync, report
    assert report.rows == len(TEXTS) + 1
    last = BYTES[4] - 1
    world.database.execute(f"UPDATE wide SET b = set_byte(b, {last}, 7) WHERE id = 4")
    world.database.execute("DELETE FROM zoo")
    report = verify(connector, connector.tables(), read_target(sink))
    assert [table.result.different for table in report.tables] == [1, 0]
    assert [table.result.extra for table in report.tables] == [0, 1]


def test_a_table_that_cannot_be_compared(connector: PostgresConnector, world: World, tmp_path: Path) -> None:
    world.database.execute("CREATE TABLE zoo (id int PRIMARY KEY); INSERT INTO zoo VALUES (1)")
    tables = connector.tables()
    for table in tables:
        copied(connector, table, tmp_path)
    world.database.execute("ALTER TABLE wide DROP COLUMN v")
    report = verify(connector, tables, read_target({"type": "delta", "path": str(tmp_path)}))
    assert [table.failure is None for table in report.tables] == [False, True]
    assert report.failures == 1
    assert not report.in_sync
    assert report.tables[1].in_sync
    assert report.tables[1].result.rows == 1


def test_ranges_end_where_bytes_are_full(world: World) -> None:
    world.database.execute("CREATE TABLE t (id int PRIMARY KEY, v text, j jsonb)")
    world.database.execute("INSERT INTO t SELECT i, repeat('x', 1000 * (i % 3)) FROM generate_series(1, 12) i")
    with closing(create(world.options)) as connector:
        [table] = connector.tables()
        ends = [int(row[0]) for row in world.database.execute(ranges.boundaries(table, "t", "id", 100, 3000))]
        assert ends == [2, 5, 8, 11]
        narrow = replace(table, columns=table.columns[:1])
        ends = [int(row[0]) for row in world.database.execute(ranges.boundaries(narrow, "t", "id", 5, 10))]
        assert ends == [5, 10]
