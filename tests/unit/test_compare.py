"""Comparing tables: every way rows can differ is found, and nothing that means the same is reported."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidelog.core.compare import Comparison, compare, equal
from tidelog.engine.verify import verify
from tidelog.model.schema import Column, Table
from tidelog.model.selection import ColumnRule, Selection

NAN = float("nan")


def same(a: list[Any], b: list[Any], a_type: pa.DataType = None, b_type: pa.DataType = None) -> list[bool]:
    columns = pa.chunked_array([pa.array(a, a_type)]), pa.chunked_array([pa.array(b, b_type or a_type)])
    return list(equal(*columns))


def counts(found: Comparison) -> tuple[int, int, int, int]:
    return found.rows, found.missing, found.extra, found.different


@pytest.mark.parametrize(
    ("a_type", "b_type", "pairs"),
    [
        (pa.int32(), pa.int64(), [(1, 1, True), (1, 2, False), (None, None, True), (None, 0, False)]),
        (pa.float64(), pa.float64(), [(NAN, NAN, True), (NAN, 1.0, False), (None, NAN, False), (0.0, -0.0, True)]),
        (pa.float32(), pa.float64(), [(0.5, 0.5, True), (NAN, NAN, True)]),
        (pa.string(), pa.large_string(), [("a", "a", True), ("a", "", False), ("", None, False)]),
        (pa.string(), pa.string_view(), [("a", "a", True), ("a", "b", False)]),
        (pa.binary(), pa.large_binary(), [(b"\x00", b"\x00", True), (b"\x00", b"", False)]),
        (pa.bool_(), pa.bool_(), [(True, True, True), (True, False, False)]),
        (pa.date32(), pa.date32(), [(dt.date(2024, 2, 29), dt.date(2024, 2, 29), True)]),
        (
            pa.decimal128(10, 2),
            pa.decimal128(38, 18),
            [(Decimal("1.50"), Decimal("1.5"), True), (Decimal("1.50"), Decimal("1.500001"), False)],
        ),
        (pa.decimal128(38, 0), pa.decimal128(38, 37), [(Decimal(10**37), Decimal("1.5"), False)]),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "Etc/UTC"), [(0, 0, True), (0, 1, False)]),
        (pa.timestamp("us"), pa.timestamp("ns"), [(dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1), True)]),
        (pa.int64(), pa.string(), [(5, "5", True), (5, "6", False)]),
        (
            pa.list_(pa.float64()),
            pa.large_list(pa.float64()),
            [
                ([1, NAN], [1, NAN], True),
                ([1, 2], [1], False),
                ([], [], True),
                ([], None, False),
                ([1, None], [1, None], True),
                ([1, None], [1, 0], False),
                (None, None, True),
            ],
        ),
        (
            pa.list_(pa.list_(pa.string())),
            pa.list_(pa.list_(pa.string())),
            [([["a"], []], [["a"], []], True), ([["a"]], [["b"]], False)],
        ),
        (
            pa.struct([("x", pa.int32())]),
            pa.struct([("x", pa.int32())]),
            [({"x": 1}, {"x": 1}, True), ({"x": 1}, {"x": None}, False), (None, {"x": None}, False)],
        ),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int32()), [([("a", 1)], [("a", 1)], True)]),
        (pa.null(), pa.string(), [(None, None, True), (None, "a", False)]),
    ],
)
def test_values_by_what_they_mean(a_type: pa.DataType, b_type: pa.DataType, pairs: list[tuple[Any, Any, bool]]) -> None:
    found = same([p[0] for p in pairs], [p[1] for p in pairs], a_type, b_type)
    assert found == [p[2] for p in pairs]


def test_every_kind_of_difference() -> None:
    source = pa.table({"id": [1, 2, 3, 4], "a": ["x", "y", None, "w"], "b": [1.0, 2.0, 3.0, 4.0]})
    target = pa.table({"id": [4, 3, 1, 9], "a": ["W", None, "x", "n"], "b": [5.0, 3.0, 1.0, 9.0]})
    found = compare(source, target, ["id"])
    assert counts(found) == (4, 1, 1, 1)
    assert [(d.kind, d.key, d.columns) for d in found.examples] == [
        ("missing", (("id", 2),), ()),
        ("extra", (("id", 9),), ()),
        ("different", (("id", 4),), ("a", "b")),
    ]
    assert (found.examples[2].source, found.examples[2].target) == (("w", 4.0), ("W", 5.0))


def test_a_row_written_twice_is_extra() -> None:
    source = pa.table({"id": [1, 2], "a": ["x", "y"]})
    target = pa.table({"id": [1, 2, 2], "a": ["x", "y", "y"]})
    assert counts(compare(source, target, ["id"])) == (2, 0, 1, 0)
    assert counts(compare(target, source, ["id"])) == (3, 1, 0, 0)


def test_composite_keys_with_nulls() -> None:
    source = pa.table({"k": ["a", "a", None], "l": [1, 2, None], "v": [1, 2, 3]})
    target = pa.table({"k": [None, "a", "a"], "l": pa.array([None, 2, 1], pa.int32()), "v": [3, 0, 1]})
    assert counts(compare(source, target, ["k", "l"])) == (3, 0, 0, 1)


def test_without_a_key_rows_are_wholes() -> None:
    source = pa.table({"a": [1, 1, 2], "l": [[1], [1], None]})
    target = pa.table({"a": [1, 2, 2], "l": [[1], None, None]})
    assert counts(compare(source, target, [])) == (3, 1, 1, 0)


def test_empty_tables() -> None:
    some = pa.table({"id": [1], "a": ["x"]})
    assert counts(compare(some.slice(0, 0), some.slice(0, 0), ["id"])) == (0, 0, 0, 0)
    assert counts(compare(some, some.slice(0, 0), ["id"])) == (1, 1, 0, 0)
    assert counts(compare(some.slice(0, 0), some, ["id"])) == (0, 0, 1, 0)


def test_examples_are_few_and_counts_are_whole() -> None:
    source = pa.table({"id": range(1000), "a": ["x"] * 1000})
    found = compare(source, source.slice(0, 100), ["id"], examples_max=3)
    assert (found.missing, len(found.examples)) == (900, 3)
    assert found.plus(found, 4).missing == 1800
    assert len(found.plus(found, 4).examples) == 4


@pytest.mark.parametrize("seed", range(20))
def test_random_tables_against_a_loop(seed: int) -> None:
    random.seed(seed)
    rows = {i: random.choice([None, "a", "b"]) for i in random.sample(range(60), 40)}
    other = {i: random.choice([None, "a", "b"]) for i in random.sample(range(60), 40)}
    a = pa.table({"id": list(rows), "v": pa.array(list(rows.values()), pa.string())})
    b = pa.table({"id": list(other), "v": pa.array(list(other.values()), pa.string())})
    expected = (
        len(rows),
        len(rows.keys() - other.keys()),
        len(other.keys() - rows.keys()),
        sum(rows[k] != other[k] for k in rows.keys() & other.keys()),
    )
    assert counts(compare(a, b, ["id"])) == expected


class Rows:
    """A source with one table of numbers."""

    table = Table(1, "public", "t", (Column("id", "int4", nullable=False), Column("v", "text")), ("id",))

    def __init__(self, rows: dict[int, str]) -> None:
        self.rows = rows

    def selection(self) -> Selection:
        return Selection()

    def tables(self) -> list[Table]:
        return [self.table]

    def bounds(self, _: Table, rows: int) -> list[str]:
        return [str(k) for k in sorted(self.rows)[rows - 1 :: rows]]

    def parse(self, text: str, _: Table, __: Column) -> pa.Scalar:
        return pa.scalar(int(text), pa.int32())

    def read_range(
        self, _: Table, columns: Sequence[str], low: str | None, high: str | None
    ) -> Iterator[pa.RecordBatch]:
        keys = [k for k in self.rows if (low is None or k > int(low)) and (high is None or k <= int(high))]
        data = {"id": pa.array(keys, pa.int32()), "v": pa.array([self.rows[k] for k in keys], pa.string())}
        yield pa.record_batch({c: data[c] for c in columns})


def reader(rows: dict[int, str]) -> Any:
    def read(table: Table, columns: Sequence[str], low: pa.Scalar | None, high: pa.Scalar | None) -> pa.Table:
        ends = [None if end is None else str(end.as_py()) for end in (low, high)]
        return pa.Table.from_batches(Rows(rows).read_range(table, columns, *ends))

    return read


def test_verify_by_ranges() -> None:
    rows = {i: f"v{i}" for i in range(0, 1000, 3)}
    report = verify(Rows(rows), [Rows.table], reader(rows), rows_per_range=50)
    assert str(report) == "in sync: 1 table, 334 rows, 0 differences"


def test_verify_finds_what_lies_between_and_beyond_the_ranges() -> None:
    rows = {i: f"v{i}" for i in range(0, 1000, 3)}
    other = {**rows, -5: "low", 100: "between", 5000: "high", 300: "changed"}
    del other[999]
    report = verify(Rows(rows), [Rows.table], reader(other), rows_per_range=50)
    assert not report.in_sync
    assert (report.tables[0].result.missing, report.tables[0].result.extra, report.differences) == (1, 3, 5)


def test_verify_cuts_no_ranges_by_a_key_that_a_rule_hides() -> None:
    class Hidden(Rows):
        def selection(self) -> Selection:
            return Selection(rules=(ColumnRule("hash", "public.t.id", algorithm="SHA-256"),))

        def bounds(self, *_: object) -> list[str]:
            raise AssertionError

    assert verify(Hidden({1: "a", 2: "b"}), [Rows.table], reader({1: "a", 2: "b"}), rows_per_range=1).in_sync


def test_verify_of_a_table_that_is_not_there() -> None:
    report = verify(Rows({1: "a"}), [Rows.table], lambda *_: None)
    assert (report.in_sync, report.tables[0].absent, report.differences) == (False, True, 1)
    assert verify(Rows({}), [Rows.table], lambda *_: None).in_sync


def test_verify_names_lacking_columns() -> None:
    report = verify(Rows({1: "a"}), [Rows.table], lambda *_: pa.table({"id": [1]}))
    assert (report.in_sync, report.tables[0].lacking) == (False, ("v",))


def test_verify_looks_again_while_changes_are_on_their_way() -> None:
    target = {1: "old"}

    def again(looks: int) -> bool:
        target[1] = "new"
        return looks < 3

    assert verify(Rows({1: "new"}), [Rows.table], reader(target), again=again).in_sync


def test_verify_of_a_key_that_the_table_lacks() -> None:
    class Wrong(Rows):
        def selection(self) -> Selection:
            return Selection(message_keys="public.t:nope")

    assert verify(Wrong({1: "a"}), [Rows.table], reader({1: "a"})).in_sync
