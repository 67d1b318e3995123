"""Stretches of keys: every row lies in one of them, and none holds many more than it should."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest

from tidelog.spark.sinks import stretches
from tidelog.spark.sinks.stretches import Stretch

RANDOM = random.Random(4)
NUMBERS = RANDOM.sample(range(-(10**6), 10**6), 5000)
WAYS = {
    "whole numbers": pa.array(NUMBERS, pa.int64()),
    "texts": pa.array([f"k{n}é" for n in NUMBERS]),
    "bytes": pa.array([b"%d" % n for n in NUMBERS], pa.binary()),
    "decimals": pa.array([Decimal(n) / 7 for n in NUMBERS], pa.decimal128(38, 28)),
    "days": pa.array(NUMBERS, pa.int32()).cast(pa.date32()),
    "moments": pa.array(NUMBERS, pa.timestamp("us", "UTC")),
    "times": pa.array([n + 10**6 for n in NUMBERS], pa.time64("us")),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "ROWS", 500)


def portions(rows: pa.Table) -> list[pa.Table]:
    return [rows.slice(at, 37) for at in range(0, rows.num_rows, 37)]


@pytest.mark.parametrize("way", WAYS)
def test_each_row_lies_in_one(way: str) -> None:
    keys = pa.table({"few": ["a", "b"] * 2500, "many": WAYS[way]})
    found, rows = stretches.stretches(portions(keys)), keys.append_column("row", pa.array(range(5000)))
    assert {stretch.column for stretch in found} == {"many"}
    parts = [stretch.of(rows) for stretch in found]
    assert all(0 < part.num_rows < 1500 for part in parts)
    assert sorted(pa.concat_tables(parts)["row"].to_pylist()) == list(range(5000))


def test_rows_outside_of_all_keys_lie_in_one_too() -> None:
    found = stretches.stretches(portions(pa.table({"id": range(5000)})))
    rows = pa.table({"id": [-(2**62), 2**62, 2500, None]})
    assert sum(stretch.of(rows).num_rows for stretch in found) == 4


def test_rows_without_a_key_are_no_end() -> None:
    """A truncation is such a row."""
    for ids in ([None] * 4000 + list(range(1000)), [None] * 5000):
        rows = pa.table({"id": pa.array(ids, pa.int64())})
        found = stretches.stretches(portions(rows))
        there = pa.table({"id": range(-5, 2000)})
        assert sum(stretch.of(there).num_rows for stretch in found) == 2005


def test_few_keys_are_one_stretch() -> None:
    for rows in (pa.table({"id": range(500)}), pa.table({"id": pa.array([], pa.int64())})):
        assert stretches.stretches(portions(rows)) == [Stretch()]
    assert Stretch().of(rows) == rows


def test_large_keys_make_more_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "BYTES", 100_000)
    rows = pa.table({"name": [f"{n:04d}" * 500 for n in range(400)]})
    held = [stretch.of(rows).nbytes for stretch in stretches.stretches(portions(rows))]
    assert (len(held), max(held) < 100_000) == (9, True)


def test_one_value_is_not_divided() -> None:
    rows = pa.table({"id": [7] * 4000 + list(range(1000, 1100))})
    found = stretches.stretches(portions(rows))
    assert sum(stretch.of(rows).num_rows for stretch in found) == 4100


def test_without_an_order_there_is_one() -> None:
    assert stretches.stretches(portions(pa.table({"x": [float(n) for n in range(5000)]}))) == [Stretch()]


def test_whole_numbers_as_a_condition() -> None:
    found = stretches.stretches(portions(pa.table({"a b": range(1000)})))
    assert [stretch.sql(lambda name: f"<{name}>") for stretch in found] == [
        "(<a b> < 500 OR <a b> IS NULL)",
        "<a b> >= 500",
    ]
    some = stretches.stretches(portions(pa.table({"id": range(1500)})))
    assert some[1].sql(str) == "id >= 500 AND id < 1000"
    texts = stretches.stretches(portions(pa.table({"t": [f"{n:04d}" for n in range(1000)]})))
    assert [stretch.sql(repr) for stretch in (*texts, Stretch())] == [None, None, None]
