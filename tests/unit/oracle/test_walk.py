"""Walks over tables: every row once, whatever the key."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.oracle.driver import Server
from tests.oracle.literals import Column as Described
from tests.unit.oracle.conftest import settings
from tidelog.connectors.oracle import walk
from tidelog.connectors.oracle.chunks import OracleChunks, watermark
from tidelog.connectors.oracle.tables import Tables
from tidelog.contracts import Key, Scan, Span
from tidelog.errors import ConfigError
from tidelog.model.schema import Column, Table

Serve = Callable[..., Server]
COLUMNS = (
    Described("A", "NUMBER", precision=5, scale=0, nullable=False),
    Described("B", "VARCHAR2", 10, nullable=False),
    Described("C", "NUMBER", precision=5, scale=0),
)


def fill(server: Server, rows: int, key: tuple[str, ...] = ("A", "B"), seed: int = 1) -> list[dict[str, Any]]:
    rng, relation = Random(seed), server.database.create("INV", "T", COLUMNS, key)
    work, seen = server.database.begin(1), []
    for n in range(rows):
        row = {"A": rng.randint(1, 6), "B": f"b{n:03}", "C": rng.choice([None, rng.randint(1, 9)])}
        work.insert(relation, row)
        seen.append(row)
    work.commit()
    return seen


def spans(tables: Tables, scan: Scan, rows: int, count: int) -> list[Span]:
    last = tables.maximum(scan)
    if last is None:
        return []
    found: list[Span] = []
    low: Key | None = None
    while low != last:
        ends = tables.boundaries(scan, low, last, rows, count)
        assert ends
        for end in ends:
            found.append(Span(low, end))
            low = end
    return found


def texts(chunks: OracleChunks, scan: Scan, span: Span) -> list[dict[str, Any]]:
    chunk = chunks.open(scan, span, attempt="a", texts=True)
    try:
        found = [row for batch in chunk.rows() for row in batch.to_pylist()]
        chunk.end()
    finally:
        chunk.close()
    return found


def shown(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    return sorted(tuple("" if v is None else str(v) for v in row.values()) for row in rows)


@pytest.mark.parametrize("key", [("A", "B"), ("B",), ("C",), ("A", "C", "B"), ("C", "B"), ()])
@pytest.mark.parametrize("rows", [0, 1, 57])
def test_every_row_is_visited_once(serve: Serve, key: tuple[str, ...], rows: int) -> None:
    server, tables = serve(), Tables(settings())
    expected = fill(server, rows)
    (table,) = tables.captured()
    export = tables.export(Scan(table, key)) if not key else ""
    scan, chunks = Scan(table, key, export=export), OracleChunks(settings())
    walked = [row for span in spans(tables, scan, 10, 3) for row in texts(chunks, scan, span)]
    assert shown(walked) == shown(expected)


def test_a_condition_holds_in_chunks_and_bounds(serve: Serve) -> None:
    server, tables = serve(), Tables(settings())
    expected = [row for row in fill(server, 60) if row["A"] > 3]
    (table,) = tables.captured()
    scan, chunks = Scan(table, ("A", "B"), condition="A > 3 -- only these"), OracleChunks(settings())
    found = spans(tables, scan, 10, 2)
    assert len(found) >= len(expected) // 10
    assert shown([row for span in found for row in texts(chunks, scan, span)]) == shown(expected)


def test_a_chunk_covers_exactly_what_its_scn_has_seen(serve: Serve) -> None:
    server, tables = serve(), Tables(settings())
    fill(server, 3)
    (table,) = tables.captured()
    scan = Scan(table, ("A", "B"))
    chunk = OracleChunks(settings()).open(scan, Span(None, None), attempt="a", texts=True)
    relation = server.database.relations["INV.T"]
    work = server.database.begin(1)
    work.insert(relation, {"A": 9, "B": "later", "C": None})
    server.database.redo.advance()
    later = work.commit()
    assert [row["B"] for batch in chunk.rows() for row in batch.to_pylist()] == ["b000", "b001", "b002"]
    passed = chunk.end()
    chunk.close()
    positions = np.array([passed - 1, passed, later * 4096], np.int64)
    assert chunk.watermark.covers(positions, positions).tolist() == [True, False, False]
    assert watermark(41).position == 42 * 4096


def test_a_table_that_changes_while_it_is_read_is_read_again(serve: Serve) -> None:
    server, tables = serve(), Tables(settings())
    fill(server, 3)
    (table,) = tables.captured()
    chunk = OracleChunks(settings()).open(Scan(table, ("A", "B")), Span(None, None), attempt="a", texts=True)
    assert list(chunk.rows())
    more = (*COLUMNS, Described("D", "NUMBER", precision=5, scale=0))
    server.database.alter(server.database.relations["INV.T"], more, 'alter table "INV"."T" add d number(5)', 1)
    with pytest.raises(Exception, match="was changed while"):
        chunk.end()
    chunk.close()


def test_an_empty_span_has_a_batch_of_no_rows(serve: Serve) -> None:
    server, tables = serve(), Tables(settings())
    fill(server, 3)
    (table,) = tables.captured()
    chunk = OracleChunks(settings()).open(
        Scan(table, ("A", "B"), columns=("B",)), Span(("99", "x"), None), attempt="a", texts=True
    )
    (batch,) = chunk.rows()
    assert (batch.num_rows, batch.schema.names) == (0, ["B"])
    chunk.close()


def test_a_connection_serves_the_next_chunk_but_not_after_a_failure(serve: Serve) -> None:
    server, tables = serve(), Tables(settings(database_user="c##other"))
    fill(server, 3)
    (table,) = tables.captured()
    chunks, scan = OracleChunks(settings(database_user="c##other")), Scan(table, ("A", "B"))
    texts(chunks, scan, Span(None, None))
    connected = len(server.connections)
    texts(chunks, scan, Span(None, None))
    assert len(server.connections) == connected
    broken = chunks.open(scan, Span(None, None), attempt="b", texts=True)
    broken.close()
    assert len(server.connections) == connected - 1


def test_a_table_that_is_gone_is_told(serve: Serve) -> None:
    serve()
    gone = Table(5, "INV", "GONE", (Column("A", "NUMBER"),), ("A",))
    with pytest.raises(ConfigError, match=r"INV\.GONE does not exist"):
        OracleChunks(settings()).open(Scan(gone, ("A",)), Span(None, None), attempt="a")


# -- texts


TABLE = Table(1, "INV", "T", (Column("A", "NUMBER", nullable=False), Column("B", "DATE"), Column("D", "CLOB")), ("A",))


def test_keys_are_bound_and_become_values_of_their_type() -> None:
    planned = walk.plan(Scan(TABLE, ("A", "B")), TABLE)
    found = walk.rows(planned, '"A"', Span(("1", "2024-01-01 00:00:00"), ("9", None)), 77)
    assert found.sql == (
        'SELECT /* tidelog chunk */ "A" FROM "INV"."T" AS OF SCN :scn0 WHERE "A" >= TO_NUMBER(:k1) AND '
        '(("A" > TO_NUMBER(:k1)) OR ("A" = TO_NUMBER(:k1) AND '
        '("B" > TO_DATE(:k2, \'YYYY-MM-DD HH24:MI:SS\') OR "B" IS NULL))) AND '
        '"A" <= TO_NUMBER(:k3) AND (("A" < TO_NUMBER(:k3)) OR ("A" = TO_NUMBER(:k3) AND "B" IS NOT NULL) OR '
        '("A" = TO_NUMBER(:k3) AND "B" IS NULL))'
    )
    assert found.binds == {"scn0": 77, "k1": "1", "k2": "2024-01-01 00:00:00", "k3": "9"}


def test_a_column_that_has_no_order_is_no_key() -> None:
    with pytest.raises(ConfigError, match="can't be walked by its column D"):
        walk.plan(Scan(TABLE, ("D",)), TABLE)
    with pytest.raises(ConfigError, match="Surrogate key"):
        walk.plan(Scan(TABLE, ("X",)), TABLE)


def test_a_table_without_a_key_is_walked_by_the_place_of_its_rows() -> None:
    planned = walk.plan(Scan(TABLE, (), export="55"), TABLE)
    assert planned.by_place
    assert planned.scn == 55
    found = walk.places(planned, ("AAA",), 10, 3)
    assert "ROWID > CHARTOROWID(:k0)" in found.sql
    assert "AS OF SCN :scn1" in found.sql


def test_names_cannot_leave_their_quotes() -> None:
    odd = Table(1, "IN'V", 'T"x', (Column('A"', "NUMBER", nullable=False),), ('A"',))
    assert walk.plan(Scan(odd, ('A"',)), odd).source == '"IN\'V"."T""x"'
    assert '"A""" <= TO_NUMBER(:k1)' in walk.rows(walk.plan(Scan(odd, ('A"',)), odd), "1", Span(None, ("3",)), 5).sql
