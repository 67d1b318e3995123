"""Chunks over keys that are hard to walk: every row once, typed as the stream types it, between two watermarks."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tests.iseries.driver import Server
from tests.iseries.records import Field
from tests.iseries.run import OPTIONS
from tests.iseries.system import File, System
from tests.iseries.tables import Tables
from tidelog.connectors.iseries import chunks, client, connector, walk
from tidelog.connectors.iseries.connector import IseriesConnector
from tidelog.contracts import Key, Scan, Span
from tidelog.errors import ConfigError

PRICES = File(
    "SHOP",
    "PRICES",
    (
        Field("ID", "INTEGER", 4),
        Field("REGION", "CHAR", 4, ccsid=37, nullable=True),
        Field("PRICE", "DECIMAL", 9, 2, nullable=True),
        Field("RAW", "VARBIN", 4, nullable=True),
        Field("SEEN", "TIMESTMP", 10, fraction=6, nullable=True),
    ),
    key=("ID",),
)
ROWS = [
    (i, (None, "EU  ", "US  ", "Ä'x ")[i % 4], (None, 0.5, -0.25, 12.0)[i % 4], bytes([i % 256]), None)
    for i in range(-20, 20)
]
SETTINGS = {**OPTIONS, "table.include.list": r"SHOP\.PRICES"}


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[System, IseriesConnector]]:
    tables = Tables(PRICES)
    tables.insert(PRICES, *ROWS)
    system = System([PRICES])
    server = Server(system, tables.query)
    monkeypatch.setattr(client, "CONNECT", server.connect)
    source = connector.create(SETTINGS)
    yield system, source
    source.close()


def walked(source: IseriesConnector, key: tuple[str, ...], rows: int) -> list[tuple[Any, ...]]:
    """All rows, chunk by chunk."""
    (table,) = source.tables()
    scan = Scan(table, key)
    maximum = source.maximum(scan)
    assert maximum is not None
    reader, found, low = chunks.create(SETTINGS), list[tuple[Any, ...]](), None
    while low != maximum:
        for high in source.boundaries(scan, low, maximum, rows, 3):
            found += read(reader, scan, Span(low, high))
            low = high
    reader.close()
    return found


def read(reader: chunks.IseriesChunks, scan: Scan, span: Span) -> list[tuple[Any, ...]]:
    chunk = reader.open(scan, span, attempt="a")
    rows = [tuple(row.values()) for batch in chunk.rows() for row in batch.to_pylist()]
    assert chunk.letters().num_rows == 0
    chunk.end()
    chunk.close()
    return rows


@pytest.mark.parametrize("rows", [1, 3, 7, 100])
@pytest.mark.parametrize("key", [("ID",), ("REGION", "ID"), ("PRICE", "REGION", "ID")])
def test_every_row_comes_once(system: tuple[System, IseriesConnector], key: tuple[str, ...], rows: int) -> None:
    found = walked(system[1], key, rows)
    assert sorted(row[0] for row in found) == [row[0] for row in ROWS]
    by_id = {row[0]: row for row in found}
    for id, region, price, raw, seen in ROWS:
        assert by_id[id] == (id, region, None if price is None else Decimal(f"{price:.2f}"), raw, seen)


def test_keys_in_another_set_than_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read in the set that is meant, and compared as the bytes that they are."""
    file = File("SHOP", "PRICES", (Field("CODE", "CHAR", 3, ccsid=65535), Field("ID", "INTEGER", 4)), key=("CODE",))
    tables = Tables(file)
    letters = "ABCÄÖÜ{}[]xyz"
    tables.insert(file, *((f"{letter}'x".encode("cp273"), i) for i, letter in enumerate(letters)))
    monkeypatch.setattr(client, "CONNECT", Server(System([file]), tables.query).connect)
    monkeypatch.setitem(SETTINGS, "from.ccsid", "65535")
    monkeypatch.setitem(SETTINGS, "to.ccsid", "273")
    source = connector.create(SETTINGS)
    found = walked(source, ("CODE",), 2)
    assert sorted(found) == sorted((f"{letter}'x", i) for i, letter in enumerate(letters))
    source.close()


def test_a_chunk_knows_what_it_has_seen(system: tuple[System, IseriesConnector]) -> None:
    made, source = system
    (table,) = source.tables()
    made.row("PT", PRICES, 1, (1, "EU", Decimal("1.50"), b"", None))
    before = source.log_end()
    chunk = chunks.create(SETTINGS).open(Scan(table, ("ID",)), Span(None, None), attempt="a")
    made.row("PT", PRICES, 2, (2, "EU", Decimal("1.50"), b"", None))
    passed = chunk.end()
    positions = np.array([before - 1, before, passed - 1])
    assert chunk.watermark.covers(positions, positions).tolist() == [True, False, False]
    assert passed == source.log_end() > before


def test_rows_by_key_and_by_range(system: tuple[System, IseriesConnector]) -> None:
    _, source = system
    (table,) = source.tables()
    everything = [row for batch in source.read(table, ["ID", "PRICE"]) for row in batch.to_pylist()]
    assert len(everything) == len(ROWS)
    keys = source.decoder().schema(table, source.selection()).empty_table().select(["ID"])
    keys = keys.from_pylist([{"ID": 3}, {"ID": -7}, {"ID": 99}], schema=keys.schema)
    found = [row["ID"] for batch in source.read_keys(table, ["ID"], keys) for row in batch.to_pylist()]
    assert sorted(found) == [-7, 3]
    bounds = source.bounds(table, 15)
    assert bounds == ["-6", "9"]
    spans: list[tuple[str | None, str | None]] = [(None, "-6"), ("-6", "9"), ("9", None)]
    parts = [[r["ID"] for b in source.read_range(table, ["ID"], *span) for r in b.to_pylist()] for span in spans]
    assert sorted(id for part in parts for id in part) == [row[0] for row in ROWS]
    assert source.estimate(Scan(table, ("ID",))) == 17


def test_what_cannot_be_walked_is_refused(system: tuple[System, IseriesConnector]) -> None:
    _, source = system
    (table,) = source.tables()
    assert source.walked(table) == ("ID",)
    assert source.walked(table, "REGION") == ("REGION",)
    with pytest.raises(ConfigError, match="Surrogate key"):
        source.walked(table, "NOPE")
    with pytest.raises(ConfigError, match="has no key"):
        source.walked(type(table)(table.id, "S", "T", table.columns))


def test_composite_keys_are_compared_column_by_column(system: tuple[System, IseriesConnector]) -> None:
    (table,) = system[1].tables()
    planned = walk.Walk(table, (table.column("REGION"), table.column("ID")))
    key: Key = ("EU", "5")
    assert walk.above(planned, key) == (
        """((("REGION" > 'EU' OR "REGION" IS NULL)) OR ("REGION" = 'EU' AND "ID" > 5))"""
    )
    assert walk.below(planned, (None, "5")) == (
        """(("REGION" IS NOT NULL) OR ("REGION" IS NULL AND "ID" < 5) OR ("REGION" IS NULL AND "ID" = 5))"""
    )
