"""PostgreSQL text to JSON, type by type and setting by setting."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.connectors.postgres import render
from tidelog.core import jsontext
from tidelog.model.schema import Column
from tidelog.model.selection import Selection


def rendered(kind: str, *texts: str | None, **selection: Any) -> list[str | None]:
    found = render.fragment(pa.array(texts, pa.string()), Column("c", kind), Selection(**selection))
    assert not found.failed.any()
    values: list[str | None] = found.json().to_pylist()
    for value in values:
        assert value is None or json.loads(value) is not None
    return values


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("int8", "-9223372036854775808", "-9223372036854775808"),
        ("float8", "1e+20", "1e+20"),
        ("float4", "NaN", '"NaN"'),
        ("float8", "-Infinity", '"-Infinity"'),
        ("bool", "t", "true"),
        ("bool", "f", "false"),
        ("numeric", "0.1000000000000000000000001", "0.1000000000000000000000001"),
        ("numeric", "NaN", '"NaN"'),
        ("text", 'a"\\\n\x01ä', '"a\\"\\\\\\n\\u0001ä"'),
        ("jsonb", '{"a": "b"}', '"{\\"a\\": \\"b\\"}"'),
        ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
        ("interval", "P1Y2M", '"P1Y2M"'),
        ("point", "(1,2)", '"(1,2)"'),
        ("hstore", '"a"=>"x=>\\"N", "b"=>NULL', '"{\\"a\\": \\"x=>\\\\\\"N\\", \\"b\\": null}"'),
        ("hstore", "", '"{}"'),
        ("whatever", "x", '"x"'),
    ],
)
def test_values(kind: str, text: str, expected: str) -> None:
    assert rendered(kind, text) == [expected]
    assert rendered(kind, None, text, text) == [None, expected, expected]


@pytest.mark.parametrize(("style", "expected"), [("precise", "1.20"), ("double", "1.20"), ("string", '"1.20"')])
def test_decimals(style: str, expected: str) -> None:
    assert rendered("numeric", "1.20", decimals=style) == [expected]


@pytest.mark.parametrize(
    ("style", "expected"),
    [("bytes", '"+/8="'), ("base64", '"+/8="'), ("base64-url-safe", '"-_8="'), ("hex", '"fbff"')],
)
def test_binaries(style: str, expected: str) -> None:
    assert rendered("bytea", "\\xfbff", None, "\\x", binaries=style) == [expected, None, '""']


MOMENTS = {
    "date": ("2024-01-02", "19724", "19724", '"2024-01-02"'),
    "time": ("03:04:05.1234", "11045123400", "11045123", '"03:04:05.1234"'),
    "timestamp": ("2024-01-02 03:04:05.1234", "1704164645123400", "1704164645123", '"2024-01-02T03:04:05.1234"'),
    "timestamptz": ("2024-01-02 03:04:05.123456+00", *['"2024-01-02T03:04:05.123456Z"'] * 3),
    "timetz": ("03:04:05+02", *['"03:04:05+02:00"'] * 3),
}


@pytest.mark.parametrize("kind", MOMENTS)
def test_times(kind: str) -> None:
    text, adaptive, connect, iso = MOMENTS[kind]
    assert rendered(kind, text, None) == [adaptive, None]
    assert rendered(kind, text, times="adaptive_time_microseconds") == [adaptive]
    assert rendered(kind, text, times="connect") == [connect]
    assert rendered(kind, text, times="isostring") == [iso]


def test_rare_times() -> None:
    top = 2**63 - 1
    assert rendered("timestamptz", "infinity", "0044-03-15 12:00:00+00 BC", "10000-01-01 00:00:00+00", None) == [
        '"infinity"',
        '"-0043-03-15T12:00:00Z"',
        '"+10000-01-01T00:00:00Z"',
        None,
    ]
    assert rendered("timestamp", "infinity", "-infinity") == [str(top), str(-top - 1)]
    assert rendered("timestamp", "infinity", "1969-12-31 23:59:59.9999", times="connect") == [str(top), "-1"]
    assert rendered("date", "infinity", "10000-01-01") == [str(2**31 - 1), "2932897"]
    assert rendered("date", "0001-01-01 BC", "-infinity", times="isostring") == ['"0000-01-01"', '"-infinity"']
    assert rendered("time", "24:00:00") == ["86400000000"]
    assert rendered("timetz", "03:04:05+00", "03:04:05-03:30") == ['"03:04:05Z"', '"03:04:05-03:30"']
    assert rendered("timestamptz", "2024-01-02 03:04:05+05:30") == ['"2024-01-02T03:04:05+05:30"']


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("int4[]", "{}", "[]"),
        ("int4[]", "{1,NULL,3}", "[1,null,3]"),
        ("int4[]", "{{1,2},{3,4}}", "[[1,2],[3,4]]"),
        ("int4[]", "{{{1}},{{2}}}", "[[[1]],[[2]]]"),
        ("float8[]", "{NaN,1.5}", '["NaN",1.5]'),
        ("numeric[]", "{1.10,NULL}", "[1.10,null]"),
        ("bool[]", "{t,f}", "[true,false]"),
        ("text[]", '{a,"NULL",NULL,""}', '["a","NULL",null,""]'),
        ("text[]", '{"a,b","{c}","q\\"\\\\","d e"}', '["a,b","{c}","q\\"\\\\","d e"]'),
        ("text[]", '{"x\ny"}', '["x\\ny"]'),
        ("bytea[]", '{"\\\\xff"}', '["/w=="]'),
        ("date[]", "{2024-01-02}", "[19724]"),
        ("timestamptz[]", '{"2024-01-02 03:04:05+00"}', '["2024-01-02T03:04:05Z"]'),
        ("jsonb[]", '{"{\\"a\\": 1}"}', '["{\\"a\\": 1}"]'),
        ("box[]", "{(2,2),(0,0);(3,3),(1,1)}", '["(2,2),(0,0)","(3,3),(1,1)"]'),
        ("int4[]", "[0:1]={1,2}", '"[0:1]={1,2}"'),
    ],
)
def test_arrays(kind: str, text: str, expected: str) -> None:
    assert rendered(kind, text) == [expected]
    assert rendered(kind, text, None, "{}", text) == [expected, None, "[]", expected]


def literal(value: Any) -> str:
    """A list as PostgreSQL would write it, everything quoted."""
    if isinstance(value, list):
        return "{" + ",".join(map(literal, value)) + "}"
    return "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
ARRAY = st.lists(st.none() | TEXT, max_size=3) | st.lists(
    st.lists(TEXT, min_size=2, max_size=2), min_size=1, max_size=2
)


@given(st.lists(st.none() | ARRAY, max_size=6))
def test_any_array_of_texts(values: list[Any]) -> None:
    texts = pa.array([None if v is None else literal(v) for v in values], pa.string())
    found = render.fragment(texts, Column("c", "text[]"), Selection()).json().to_pylist()
    assert [None if v is None else json.loads(v) for v in found] == values


@given(st.lists(st.none() | st.dictionaries(TEXT, st.none() | TEXT, max_size=3), max_size=4))
def test_any_hstore(values: list[Any]) -> None:
    written = [None if v is None else ", ".join(f"{literal(k)}=>{literal(w)}" for k, w in v.items()) for v in values]
    found = render.fragment(pa.array(written, pa.string()), Column("c", "hstore"), Selection()).json().to_pylist()
    assert [None if v is None else json.loads(json.loads(v)) for v in found] == values


@given(st.lists(st.none() | TEXT, max_size=6))
def test_any_text(values: list[str | None]) -> None:
    found = render.fragment(pa.array(values, pa.string()), Column("c", "text"), Selection()).json().to_pylist()
    assert [None if v is None else json.loads(v) for v in found] == values


def test_what_has_no_json_form_is_marked() -> None:
    for kind in ("int4", "float8", "numeric", "bool", "bytea", "date", "int4[]"):
        found = render.fragment(pa.array([None, "{x}"]), Column("c", kind), Selection())
        assert found.failed.tolist() == [False, True], kind


def test_objects_of_mixed_fragments() -> None:
    columns = [Column("n", "int4"), Column('s"', "text"), Column("z", "text"), Column("d", "numeric")]
    texts = [["1", "2"], ["a", "b"], [None, "c"], ["1.50", None]]
    parts = [render.fragment(pa.array(t, pa.string()), c, Selection()) for t, c in zip(texts, columns, strict=True)]
    found = jsontext.objects([c.name for c in columns], parts, 2).to_pylist()
    assert [json.loads(row, parse_float=Decimal) for row in found] == [
        {"n": 1, 's"': "a", "z": None, "d": Decimal("1.50")},
        {"n": 2, 's"': "b", "z": "c", "d": None},
    ]
    assert jsontext.objects([], [], 2).to_pylist() == ["{}", "{}"]
