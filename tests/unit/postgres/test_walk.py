"""The SQL of walks as text; what it selects is tested on a server."""

from __future__ import annotations

import pytest

from tidelog.connectors.postgres import walk
from tidelog.connectors.postgres.chunks import reportable
from tidelog.connectors.postgres.names import literal
from tidelog.connectors.postgres.walk import Step, Walk
from tidelog.contracts import Scan, Span
from tidelog.errors import ConfigError
from tidelog.model.schema import Column, Table

ID = Step("id", "bigint")
TABLE = Table(1, "s1", "table1", (Column("id", "int8"), Column("val", "text")), key=("id",))


def test_not_null_keys_compare_as_rows() -> None:
    two = Walk("t", (ID, Step("b", "text")))
    assert walk.above(two, ("1", "x")) == """("id", "b") > ('1'::bigint, 'x'::text)"""
    assert walk.below(Walk("t", (ID,)), ("1",)) == """"id" <= '1'::bigint"""


def test_a_condition_stands_alone_even_if_it_ends_in_a_comment() -> None:
    one = Walk("t", (ID,), "a = 1 OR b = 2 -- odd")
    assert walk.within(one, Span(("1",), None)) == """ WHERE "id" > '1'::bigint AND (a = 1 OR b = 2 -- odd\n)"""


def test_a_span_below_a_value_has_no_nulls_so_that_an_index_finds_both_ends() -> None:
    one = Walk("t", (Step("n", "integer", nullable=True),))
    assert walk.within(one, Span(("1",), ("5",))) == """ WHERE "n" > '1'::integer AND "n" <= '5'::integer"""
    assert "IS NULL" in walk.within(one, Span(("1",), (None,)))


def test_a_chunk_has_no_limit_and_no_span_means_all_rows() -> None:
    assert walk.within(Walk("t", (ID,)), Span(None, None)) == ""
    assert "LIMIT" not in walk.within(Walk("t", (ID,)), Span(("1",), ("2",)))


def test_keys_are_cast_outside_so_that_order_by_means_the_column() -> None:
    found = walk.boundary(Walk("t", (ID,)), None, ("9",), 10)
    assert found.startswith('SELECT "id"::text FROM (SELECT "id" FROM t')
    assert 'ORDER BY "id" OFFSET 9 LIMIT 1' in found


def test_places_are_ends_of_blocks() -> None:
    assert walk.places(None, ("(10,0)",), 100, 3, density=20.0) == [("(5,0)",), ("(10,0)",)]
    assert walk.places(("(5,0)",), ("(7,0)",), 1, 9, density=20.0) == [("(6,0)",), ("(7,0)",)]
    assert walk.places(("(10,0)",), ("(10,0)",), 100, 3, density=20.0) == []
    by_place = walk.plan(Scan(TABLE, ()), "t", [])
    assert walk.within(by_place, Span(("(5,0)",), ("(9,0)",))) == (
        " WHERE ctid > '(5,0)'::tid AND ctid <= '(9,0)'::tid"
    )


def test_a_column_called_ctid_like_is_still_a_name() -> None:
    assert Step("Ctid", "tid").sql == '"Ctid"'


def test_the_last_end_is_the_maximum_once() -> None:
    assert walk.ends([("1",)], False, ("9",)) == [("1",)]
    assert walk.ends([("1",)], True, ("9",)) == [("1",), ("9",)]
    assert walk.ends([("1",), ("9",)], False, ("9",)) == [("1",), ("9",)]
    assert walk.ends([], True, ("9",)) == [("9",)]


def test_a_surrogate_that_is_missing_is_told() -> None:
    with pytest.raises(ConfigError, match=r'Surrogate key "sk" doesn.t exist in table "s1\.table1"'):
        walk.plan(Scan(TABLE, ("sk",)), "t", [("id", "bigint", False)])


def test_a_null_at_the_end_bounds_a_walk_only_where_nulls_come_first() -> None:
    key = (Step("n", "integer", nullable=True),)
    assert "WHERE" not in walk.boundary(Walk("t", key), None, (None,), 10)
    assert '"n" IS NULL' in walk.boundary(Walk("t", key, nulls_last=False), None, (None,), 10)


def test_an_unknown_order_of_nulls_is_refused_where_it_matters() -> None:
    Walk("t", (ID,), nulls_last=None)
    with pytest.raises(ConfigError, match="sort order of NULL"):
        Walk("t", (Step("n", "integer", nullable=True),), nulls_last=None)


def test_literals_survive_quotes_and_backslashes() -> None:
    assert literal("it's") == "'it''s'"
    assert literal("\\x00'") == " E'\\\\x00'''"


PAGE, SEGMENT = 8192, 16 << 20


@pytest.mark.parametrize(
    ("inserted", "told"),
    [
        (7 * PAGE + 24, 7 * PAGE),  # the log ends with a page; only the next header is past it
        (5 * SEGMENT + 40, 5 * SEGMENT),  # the same at the end of a segment
        (7 * PAGE + 40, 7 * PAGE + 40),  # the rest of a record that began a page before
        (7 * PAGE, 7 * PAGE),
        (7 * PAGE + 1000, 7 * PAGE + 1000),
        (5 * SEGMENT + 24, 5 * SEGMENT + 24),
    ],
)
def test_an_insert_position_past_a_page_header_is_the_page_before(inserted: int, told: int) -> None:
    assert reportable(inserted, PAGE, SEGMENT) == told
