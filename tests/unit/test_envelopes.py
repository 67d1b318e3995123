"""The rows of a chunk as envelopes: the last row of an initial snapshot says that it is."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tests.unit.postgres.pgoutput import table
from tidelog.connectors.postgres.decode import PostgresDecoder
from tidelog.model.selection import Selection
from tidelog.spark.chunks import Chunk, Emit, Read, envelopes

READ = Read("c", "", ("id",), None, None, "", "", "main", "postgres", "p", {})
ORDERS = table("id int8")


@pytest.mark.parametrize(
    ("rows", "last", "words"),
    [(3, True, ["true", "true", "last"]), (1, True, ["last"]), (2, False, ["true", "true"]), (0, True, [])],
)
def test_the_last_row_says_so(rows: int, last: bool, words: list[str]) -> None:
    """A window may have taken all rows of the last chunk."""
    chunk = Chunk(ORDERS, pa.table({"id": pa.array([str(i) for i in range(rows)], pa.string())}), 1, 2)
    found = envelopes(Emit(READ, "", (), "true", last), chunk, PostgresDecoder(), Selection())
    told = [json.loads(text) for part in found for text in part.rows["source"].to_pylist()]
    assert [source["snapshot"] for source in told] == words
