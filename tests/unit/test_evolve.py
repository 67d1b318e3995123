"""What a target does to follow its source: each rule, and the rows of an old version in the same batch."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidelog.core import metadata
from tidelog.core.evolve import Plan, conform, describe, passage, plan, transform
from tidelog.core.fold import fold
from tidelog.errors import UnsupportedChange
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

TYPES = {
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "json": pa.string(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "text[]": pa.list_(pa.string()),
}
META = pa.schema(
    [
        (metadata.OP, pa.string()),
        (metadata.POSITION, pa.int64()),
        (metadata.COMMIT_TS, pa.timestamp("us", "UTC")),
        (metadata.XID, pa.int64()),
        (metadata.ORDINAL, pa.int64()),
    ]
)


def arrow(column: Column) -> pa.DataType:
    if column.type == "numeric" and (column.modifier < 0 or column.modifier >> 16 > 38):
        return pa.string()
    if column.type == "numeric":
        return pa.decimal128((column.modifier - 4) >> 16, (column.modifier - 4) & 0xFFFF)
    return TYPES[column.type]


def numeric(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "numeric", "modifier": ((precision << 16) | scale) + 4}


def table(*columns: Column, key: tuple[str, ...] = ("id",)) -> Table:
    return Table(1, "public", "t", columns, key)


def shape(table: Table) -> pa.Schema:
    columns = [pa.field(c.name, arrow(c)) for c in table.columns]
    return pa.schema(
        [*columns, *META, (metadata.BEFORE, pa.struct(columns)), (metadata.UNCHANGED, pa.list_(pa.string()))]
    )


def parse(text: str, table: Table, column: Column) -> Any:  # noqa: ARG001
    return int(text) if column.type.startswith("int") else text


def target(table: Table) -> pa.Schema:
    return describe(shape(table), table.columns)


def step(old: Table | pa.Schema, new: Table) -> Plan:
    present = old if isinstance(old, pa.Schema) else target(old)
    return plan(present, target(new), new, new.key, parse)


def run(version: Table, newest: Table, *events: dict[str, Any]) -> Any:
    rows = pa.Table.from_pylist(list(events), shape(version))
    return conform(version, newest, rows, Selection(), shape(newest), parse)


ID = Column("id", "int4", number=1)


def test_nothing_to_do() -> None:
    v = table(ID, Column("a", "text", number=2))
    assert step(v, v).added == ()
    assert not step(v, v).notes


def test_a_column_is_added_without_a_rewrite() -> None:
    done = step(table(ID), table(ID, Column("a", "text", number=2)))
    assert done.added is not None
    assert [f.name for f in done.added] == ["a"]
    assert done.notes == ["a is new"]


def test_a_default_fills_old_rows() -> None:
    new = table(ID, Column("a", "int4", number=2, fill="7"))
    done = step(table(ID), new)
    assert done.added is None
    rows = transform(done.steps, pa.table({"id": pa.array([1, 2], pa.int32())}))
    assert rows["a"].to_pylist() == [7, 7]


def test_a_volatile_default_is_asked_for() -> None:
    done = step(table(ID), table(ID, Column("a", "int4", number=2, rewritten=True)))
    assert done.asked == ("a",)
    assert done.added is not None


def test_a_chain_of_renames_and_a_swap() -> None:
    v1 = table(ID, Column("a", "text", number=2), Column("b", "text", number=3))
    v2 = table(ID, Column("c", "text", number=2), Column("a", "text", number=3))
    v3 = table(ID, Column("b", "text", number=2), Column("a", "text", number=3))
    old = pa.table({"id": pa.array([1], pa.int32()), "a": ["x"], "b": ["y"]})
    straight = transform(step(v1, v3).steps, old)
    way = step(v1, v2)
    over = transform(step(way.schema, v3).steps, transform(way.steps, old))
    assert straight.to_pylist() == over.to_pylist() == [{"id": 1, "b": "x", "a": "y"}]
    assert way.notes == ["a is now called c", "b is now called a"]


def test_a_dropped_column_stays() -> None:
    done = step(table(ID, Column("a", "text", number=2)), table(ID))
    assert done.schema.names == ["id", "a"]
    assert done.added == ()


def test_a_dropped_name_that_comes_back_is_another_column() -> None:
    v1, v2 = table(ID, Column("a", "text", number=2)), table(ID, Column("a", "text", number=3))
    done = step(v1, v2)
    assert done.added is None
    old = pa.table({"id": pa.array([1], pa.int32()), "a": ["gone"]})
    assert transform(done.steps, old)["a"].to_pylist() == [None]


def test_columns_without_numbers_go_by_name() -> None:
    done = step(table(Column("id", "int4"), Column("a", "int4")), table(Column("id", "int4"), Column("a", "int8")))
    assert done.schema.field("a").type == pa.int64()


def test_a_target_made_by_others_is_adopted_by_name() -> None:
    present = pa.schema([("id", pa.int32()), ("mine", pa.string())])
    assert step(present, table(ID)).added == ()


@pytest.mark.parametrize(
    ("old", "new", "way"),
    [
        ({"type": "int2"}, {"type": "int4"}, "cast"),
        ({"type": "int4"}, {"type": "int8"}, "cast"),
        ({"type": "int8"}, {"type": "int4"}, "ask"),
        ({"type": "float4"}, {"type": "float8"}, "cast"),
        ({"type": "int4"}, {"type": "float8"}, "ask"),
        (numeric(10, 2), numeric(12, 2), "cast"),
        (numeric(10, 2), numeric(12, 4), "cast"),
        (numeric(10, 2), numeric(10, 4), "ask"),
        (numeric(10, 2), numeric(10, 1), "ask"),
        ({"type": "int4"}, {"type": "text"}, "cast"),
        (numeric(10, 2), {"type": "text"}, "cast"),
        (numeric(10, 2), {"type": "numeric"}, "cast"),
        (numeric(10, 2), numeric(50, 2), "cast"),
        (numeric(38, 0), numeric(50, 0), "cast"),
        ({"type": "int8"}, numeric(40, 0), "cast"),
        (numeric(10, 2), numeric(50, 0), "ask"),
        (numeric(50, 2), {"type": "numeric"}, "same"),
        (numeric(50, 2), numeric(60, 2), "same"),
        (numeric(50, 2), numeric(60, 4), "ask"),
        ({"type": "numeric"}, numeric(50, 2), "ask"),
        ({"type": "int4"}, {"type": "numeric"}, "cast"),
        ({"type": "int4"}, numeric(50, 2), "ask"),
        ({"type": "int4"}, {"type": "bpchar", "modifier": 14}, "ask"),
        ({"type": "date"}, {"type": "json"}, "ask"),
        ({"type": "bool"}, {"type": "text"}, "cast"),
        ({"type": "date"}, {"type": "text"}, "cast"),
        ({"type": "float8"}, {"type": "text"}, "ask"),
        ({"type": "timestamp"}, {"type": "text"}, "ask"),
        ({"type": "text[]"}, {"type": "text"}, "ask"),
        ({"type": "timestamp"}, {"type": "timestamptz"}, "ask"),
        ({"type": "text"}, {"type": "varchar", "modifier": 14}, "same"),
        ({"type": "varchar", "modifier": 14}, {"type": "varchar", "modifier": 24}, "same"),
        ({"type": "bpchar", "modifier": 14}, {"type": "bpchar", "modifier": 24}, "ask"),
        ({"type": "timestamp", "modifier": 6}, {"type": "timestamp", "modifier": 0}, "ask"),
        ({"type": "timestamp", "modifier": -1}, {"type": "timestamp", "modifier": 0}, "ask"),
        ({"type": "timestamp", "modifier": 3}, {"type": "timestamp", "modifier": -1}, "same"),
        ({"type": "text"}, {"type": "json"}, "ask"),
    ],
)
def test_how_values_pass(old: dict[str, Any], new: dict[str, Any], way: str) -> None:
    fields = [target(table(Column("a", number=1, **v))).field("a") for v in (old, new)]
    assert passage(*fields) == way


def test_what_is_asked_for_keeps_its_place_until_answered() -> None:
    v1, v2 = table(ID, Column("a", "text[]", number=2)), table(ID, Column("a", "text", number=2))
    done = step(v1, v2)
    assert done.asked == ("a",)
    old = pa.table({"id": pa.array([1], pa.int32()), "a": pa.array([["x", None]])})
    assert transform(done.steps, old)["a"].to_pylist() == ['["x", null]']


def test_a_key_that_only_the_source_knows_is_refused() -> None:
    with pytest.raises(UnsupportedChange, match="key column id"):
        step(table(ID), table(Column("id", "float8", number=1)))


def test_old_rows_in_the_same_batch_get_the_fill_value() -> None:
    v1 = table(ID)
    v2 = table(ID, Column("a", "int4", number=2, fill="7"))
    old = run(v1, v2, {"id": 1, metadata.OP: "c"}, {"id": 2, metadata.OP: "c"})
    new = run(v2, v2, {"id": 2, "a": 8, metadata.OP: "u"}, {"id": 3, "a": None, metadata.OP: "c"})
    folded = fold([old, new], ["id"])
    assert {r["id"]: r["a"] for r in folded.upserts.to_pylist()} == {1: 7, 2: 8, 3: None}


def test_old_rows_follow_renames_casts_and_key_changes() -> None:
    v1 = table(
        Column("k", "int2", number=1), Column("a", "text", number=2), Column("gone", "text", number=3), key=("k",)
    )
    v2 = table(Column("id", "int8", number=1), Column("b", "text", number=2), key=("id",))
    moved = {"k": 2, metadata.OP: "u", metadata.BEFORE: {"k": 1}, metadata.UNCHANGED: ["a", "gone"]}
    old = run(v1, v2, {"k": 1, "a": "x", metadata.OP: "c"}, moved)
    new = run(v2, v2, {"id": 3, "b": "z", metadata.OP: "u", metadata.BEFORE: {"id": 9}})
    folded = fold([old, new], ["id"])
    assert folded.upserts.select(["id", "b"]).to_pylist() == [{"id": 2, "b": "x"}, {"id": 3, "b": "z"}]
    assert sorted(folded.deletes["id"].to_pylist()) == [1, 9]


def test_old_rows_do_not_know_what_was_rewritten() -> None:
    v1 = table(ID, Column("a", "text", number=2))
    v2 = table(ID, Column("a", "timestamptz", number=2), Column("r", "text", number=3, rewritten=True))
    assert run(v1, v2, {"id": 1, "a": "x", metadata.OP: "c"}).unknown == {"a", "r"}


def test_decimals_widen_with_their_values() -> None:
    v1, v2 = table(ID, Column("n", number=2, **numeric(5, 2))), table(ID, Column("n", number=2, **numeric(8, 3)))
    old = pa.table({"id": pa.array([1], pa.int32()), "n": pa.array([Decimal("1.25")], pa.decimal128(5, 2))})
    assert transform(step(v1, v2).steps, old)["n"].to_pylist() == [Decimal("1.250")]


def test_decimals_and_days_become_the_texts_that_the_database_writes() -> None:
    v1 = table(ID, Column("n", number=2, **numeric(20, 10)), Column("d", "date", number=3))
    v2 = table(ID, Column("n", "text", number=2), Column("d", "text", number=3))
    done = step(v1, v2)
    assert not done.asked
    events = [
        {"id": 1, "n": Decimal(0), "d": 2**31 - 1},
        {"id": 2, "n": Decimal("-0.0000000001"), "d": -735_000},
        {"id": 3, "n": Decimal("1.5"), "d": 0},
        {"id": 4, "n": None, "d": None},
    ]
    expected = {
        "n": ["0.0000000000", "-0.0000000001", "1.5000000000", None],
        "d": ["infinity", "0044-08-22 BC", "1970-01-01", None],
    }
    rows = pa.Table.from_pylist(events, pa.schema([shape(v1).field(c.name) for c in v1.columns]))
    assert transform(done.steps, rows).select(["n", "d"]).to_pydict() == expected
    assert run(v1, v2, *({**e, metadata.OP: "c"} for e in events)).rows.select(["n", "d"]).to_pydict() == expected


def test_a_key_that_becomes_text_is_the_same_text_in_old_images() -> None:
    v1 = table(Column("id", number=1, **numeric(20, 10)))
    v2 = table(Column("id", "text", number=1))
    found = run(v1, v2, {"id": Decimal(1), metadata.OP: "u", metadata.BEFORE: {"id": Decimal(0)}}).rows
    assert found[metadata.BEFORE].to_pylist() == [{"id": "0.0000000000"}]
