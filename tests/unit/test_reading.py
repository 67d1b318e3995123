"""Reading a Delta target by ranges of its key: exact for every type of key, soft deletes left out."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tidelog.model.schema import Column, Table
from tidelog.spark.reading import read_target
from tidelog.spark.sinks.delta_rust import RustEngine

ROWS = 100
DATA = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int32()),
        "name": [f"k{i:03d}'x" for i in range(ROWS)],
        "price": pa.array([Decimal(i) / 100 for i in range(ROWS)], pa.decimal128(10, 2)),
        "at": pa.array([i * 1_000_000 for i in range(ROWS)], pa.timestamp("us", "UTC")),
        "raw": [bytes([i]) for i in range(ROWS)],
        "_deleted": [i % 2 == 0 for i in range(ROWS)],
    }
)


@pytest.fixture
def lake(tmp_path: Path) -> str:
    write_deltalake(tmp_path / "public" / "t", DATA)
    return str(tmp_path)


def table(key: str) -> Table:
    return Table(1, "public", "t", tuple(Column(c, "") for c in DATA.column_names), (key,))


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [
        ("id", pa.scalar(10, pa.int64()), pa.scalar(20, pa.int64())),
        ("name", "k010'x", "k020'x"),
        ("price", Decimal("0.10"), Decimal("0.20")),
        ("raw", b"\x0a", b"\x14"),
        ("at", pa.scalar(10_000_000, pa.timestamp("us", "UTC")), pa.scalar(20_000_000, pa.timestamp("us", "UTC"))),
    ],
)
def test_ranges_exclude_low_and_include_high(lake: str, key: str, low: Any, high: Any) -> None:
    low, high = pa.scalar(low), pa.scalar(high)
    hard = read_target({"type": "delta", "path": lake})
    columns = list(dict.fromkeys(["id", key]))
    read = [hard(table(key), columns, *ends) for ends in ((low, high), (low, None), (None, high), (None, None))]
    ids = [sorted(t["id"].to_pylist()) for t in read if t is not None]
    assert ids == [list(range(11, 21)), list(range(11, ROWS)), list(range(21)), list(range(ROWS))]
    soft = read_target({"type": "delta", "path": lake, "delete.mode": "soft"})(table(key), columns, low, high)
    assert soft is not None
    assert sorted(soft["id"].to_pylist()) == [11, 13, 15, 17, 19]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")])
def test_ranges_that_end_where_no_calendar_does(tmp_path: Path, kind: pa.DataType) -> None:
    last = 2**31 - 1 if kind == pa.date32() else 2**63 - 1
    ends = pa.array([-last - 1, 0, last], kind)
    rows, target = pa.table({"id": ends, "n": [1, 2, 3]}), RustEngine({}).target(str(tmp_path / "public" / "t"))
    target.create(rows.schema, {})
    target.append(rows, None)
    read = read_target({"type": "delta", "path": str(tmp_path)})
    spans = ((None, ends[0]), (ends[0], ends[1]), (ends[1], ends[2]), (ends[2], None))
    found = [read(table("id"), ["id", "n"], *span) for span in spans]
    assert [part["n"].to_pylist() for part in found if part is not None] == [[1], [2], [3], []]


def test_what_is_not_there(lake: str) -> None:
    read = read_target({"type": "delta", "path": lake})
    assert read(Table(2, "public", "none", (), ("id",)), ["id"], None, None) is None
    found = read(table("id"), ["id", "newer"], None, None)
    assert found is not None
    assert found.column_names == ["id"]
