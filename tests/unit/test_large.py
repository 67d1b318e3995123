"""Columns that hold more than 32 bits address, made small: the limits are arguments."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tidelog.core import large
from tidelog.core.large import pieces, take, wide

TEXTS = ["", "a", None, "bb" * 50, "ä", "c" * 30, None, "d" * 99]
KINDS = [pa.string(), pa.binary()]


def column(kind: pa.DataType) -> pa.ChunkedArray:
    texts = pa.chunked_array([pa.array(TEXTS[:3]), pa.array(TEXTS[2:])[1:], pa.array([], pa.string())])
    return texts.cast(kind)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_taking_by_way_of_64_bits_is_taking(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "PIECE_BYTES", 60)
    values = column(kind)
    for rows in ([7, 0, None, 3, 3, 2], [], [1], [None], list(range(8))):
        found = take(values, pa.array(rows, pa.int64()), most=10)
        assert found.type == kind
        assert found.to_pylist() == values.take(pa.array(rows, pa.int64())).to_pylist()
    assert take(values, np.array([3, 7]), most=10).num_chunks == 2  # each fills a piece


def test_a_table_keeps_its_schema_and_its_other_columns() -> None:
    schema = pa.schema([pa.field("t", pa.string(), metadata={"k": "v"}), ("n", pa.int32())])
    table = pa.table([column(pa.string()), pa.chunked_array([pa.array(range(8), pa.int32())])], schema=schema)
    found = take(table, pa.array([5, 0]), most=10)
    assert found.schema.equals(schema, check_metadata=True)
    assert found.to_pylist() == [{"t": "c" * 30, "n": 5}, {"t": "", "n": 0}]
    assert take(table.select([]), pa.array([1])).num_columns == 0


def test_only_columns_that_need_it_get_64_bits() -> None:
    table = pa.table({"t": column(pa.string()), "b": column(pa.binary()), "s": ["x"] * 8})
    assert [f.type for f in wide(table, most=200).schema] == [pa.large_string(), pa.large_binary(), pa.string()]
    assert wide(table, most=200).to_pylist() == table.to_pylist()
    assert wide(table).schema == table.schema


VIEWS = [pa.string_view(), pa.binary_view(), pa.large_string(), pa.large_binary(), *KINDS]


@pytest.mark.parametrize("kind", VIEWS, ids=str)
def test_a_batch_is_cut_where_its_texts_are_long(kind: pa.DataType) -> None:
    values = pa.array(TEXTS).cast(kind)
    batch = pa.record_batch({"t": values, "n": pa.array(range(8))})
    for some in (batch, batch.slice(1, 6)):
        parts = list(pieces(some, 50))
        assert pa.Table.from_batches(parts).to_pylist() == some.to_pylist()
        lengths = [
            sum(len(v or "") for v in part["t"].to_pylist()) - len(part["t"][-1].as_py() or "") for part in parts
        ]
        assert max(lengths) <= 50  # but for its last row
    assert list(pieces(batch, 1 << 20)) == [batch]
    assert list(pieces(batch.slice(0, 0), 1)) in ([], [batch.slice(0, 0)])
