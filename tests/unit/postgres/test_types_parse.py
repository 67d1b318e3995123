"""PostgreSQL text to Arrow, type by type."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.connectors.postgres import types
from tidelog.connectors.postgres.bytea import unhex
from tidelog.core.rules import apply
from tidelog.errors import ConfigError
from tidelog.model.schema import Column
from tidelog.model.selection import ColumnRule, Selection

INT32, INT64 = 2**31 - 1, 2**63 - 1


def modifier(precision: int, scale: int) -> int:
    return ((precision << 16) | (scale & 0x7FF)) + 4


def parsed(kind: str, *texts: str | None, packed: int = -1, **selection: Any) -> list[Any]:
    found, failed = types.parse(pa.array(texts, pa.string()), Column("c", kind, packed), Selection(**selection))
    assert found.type == types.arrow_type(Column("c", kind, packed), Selection(**selection))
    found.validate(full=True)
    whole = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64(), pa.timestamp("us", "UTC"): pa.int64()}
    values = found.view(whole[found.type]) if found.type in whole else found
    return ["failed" if bad else value for value, bad in zip(values.to_pylist(), failed, strict=True)]


@pytest.mark.parametrize(
    ("kind", "packed", "style", "expected"),
    [
        ("int2", -1, "precise", pa.int16()),
        ("oid", -1, "precise", pa.int64()),
        ("timestamp", -1, "precise", pa.timestamp("us")),
        ("timestamptz", -1, "precise", pa.timestamp("us", "UTC")),
        ("numeric", modifier(12, 2), "precise", pa.decimal128(12, 2)),
        ("numeric", modifier(38, 38), "precise", pa.decimal128(38, 38)),
        ("numeric", modifier(39, 2), "precise", pa.string()),
        ("numeric", modifier(3, 5), "precise", pa.decimal128(5, 5)),
        ("numeric", modifier(2, -3), "precise", pa.decimal128(5, 0)),
        ("numeric", modifier(30, -9), "precise", pa.string()),
        ("numeric", -1, "precise", pa.string()),
        ("numeric", modifier(12, 2), "double", pa.float64()),
        ("numeric", modifier(12, 2), "string", pa.string()),
        ("bytea", -1, "precise", pa.binary()),
        ("int4[]", -1, "precise", pa.string()),
        ("never heard of", -1, "precise", pa.string()),
    ],
)
def test_arrow_types(kind: str, packed: int, style: str, expected: pa.DataType) -> None:
    field = types.field_of(Column("c", kind, packed), Selection(decimals=style))
    assert (field.name, field.type, field.nullable, field.metadata) == ("c", expected, True, None)


def test_numbers() -> None:
    assert parsed("int2", "-32768", None, "32767") == [-32768, None, 32767]
    assert parsed("int8", str(INT64), str(-INT64 - 1)) == [INT64, -INT64 - 1]
    assert parsed("oid", "4294967295") == [4294967295]
    assert parsed("float8", "1.5", "-Infinity", "1e-300") == [1.5, float("-inf"), 1e-300]
    assert str(parsed("float4", "NaN")) == "[nan]"


def test_what_is_no_number_is_marked_alone() -> None:
    assert parsed("int2", "1", "32768", None, "x", "2") == [1, "failed", None, "failed", 2]
    assert parsed("float8", "1", "x", "NaN")[:2] == [1.0, "failed"]


def test_numeric_renderings() -> None:
    packed = modifier(5, 2)
    assert parsed("numeric", "1.20", "NaN", "-999.99", packed=packed) == [Decimal("1.20"), "failed", Decimal("-999.99")]
    assert parsed("numeric", "1.20", "NaN", packed=packed, decimals="string") == ["1.20", "NaN"]
    assert parsed("numeric", "1.20", "Infinity", packed=packed, decimals="double") == [1.2, float("inf")]
    assert parsed("numeric", "1.20000000000000000000000001", "NaN") == ["1.20000000000000000000000001", "NaN"]
    assert parsed("numeric", "-99000", packed=modifier(2, -3)) == [Decimal("-99000")]


def test_bools_of_both_spellings() -> None:
    assert parsed("bool", "t", "f", "true", "false", None, "x") == [True, False, True, False, None, "failed"]


def test_dates() -> None:
    assert parsed("date", "1970-01-01", "2024-02-29", None) == [0, 19782, None]
    assert parsed("date", "infinity", "-infinity", "1970-01-02") == [INT32, -INT32 - 1, 1]
    assert parsed("date", "0001-12-31 BC", "0001-01-01") == [-719163, -719162]
    assert parsed("date", "10000-01-01", "5874897-12-31", "4713-01-01 BC") == [2932897, 2145042905, -2440550]
    assert parsed("date", "2023-02-30", "nonsense", "0005-02-30 BC", "2023-03-01") == ["failed"] * 3 + [19417]


@given(st.dates())
def test_any_date(day: date) -> None:
    assert parsed("date", day.isoformat()) == [(day - date(1970, 1, 1)).days]


@given(st.datetimes())
def test_any_timestamp(moment: datetime) -> None:
    micros = (moment - datetime(1970, 1, 1)) // (datetime(1970, 1, 1, 0, 0, 0, 1) - datetime(1970, 1, 1))
    text = moment.isoformat(" ").rstrip("0") if moment.microsecond else moment.isoformat(" ")
    assert parsed("timestamp", text, "infinity") == [micros, INT64]
    assert parsed("timestamptz", text + "+00") == [micros]


def test_timestamps_at_the_edges() -> None:
    assert parsed("timestamptz", "infinity", "-infinity", None) == [INT64, -INT64 - 1, None]
    assert parsed("timestamp", "294247-01-10 04:00:54.775806", "294247-01-10 04:00:54.775807") == [INT64 - 1, "failed"]
    assert parsed("timestamp", "294276-12-31 23:59:59.999999", "1970-01-01 00:00:00.5") == ["failed", 500_000]
    assert parsed("timestamptz", "0044-03-15 12:00:00+00 BC") == [-63517780800000000]
    assert parsed("timestamptz", "10000-01-01 00:00:00.5+00") == [253402300800500000]


def test_timestamps_of_other_zones() -> None:
    assert parsed("timestamptz", "1970-01-01 05:30:00+05:30", "1969-12-31 19:00:00-05") == [0, 0]
    assert parsed("timestamptz", "1970-01-01 00:19:32+00:19:32", "10000-01-01 02:00:00+02") == [0, 253402300800000000]


@pytest.mark.parametrize(
    "kind", ["time", "timetz", "interval", "uuid", "jsonb", "enum", "inet", "money", "hstore", "xml"]
)
def test_other_types_are_their_text(kind: str) -> None:
    assert parsed(kind, 'any "text" ä', None, "") == ['any "text" ä', None, ""]


def test_text_that_is_not_utf8_is_marked() -> None:
    found, failed = types.parse(pa.array([b"a", b"\xff", None], pa.binary()), Column("c", "text"), Selection())
    assert (found.to_pylist(), failed.tolist()) == (["a", None, None], [False, True, False])


@given(st.lists(st.none() | st.binary(max_size=9), max_size=9))
def test_any_bytea(values: list[bytes | None]) -> None:
    texts = pa.array([None if v is None else "\\x" + v.hex() for v in [b"x", *values]], pa.string())
    found, failed = unhex(texts.slice(1))
    assert found.to_pylist() == values
    assert not failed.any()


def test_bytea_that_is_no_hex_is_marked() -> None:
    assert parsed("bytea", "\\x00", "\\x0", "abc", "\\xzz", None, "\\xFF") == [
        b"\0",
        "failed",
        "failed",
        "failed",
        None,
        b"\xff",
    ]


def test_arrays_are_json() -> None:
    assert parsed("int4[]", "{1,NULL,-3}", "{}", None, "{{1,2},{3,4}}", "[0:1]={5,6}") == [
        "[1,null,-3]",
        "[]",
        None,
        "[[1,2],[3,4]]",
        '"[0:1]={5,6}"',
    ]
    assert parsed("timestamptz[]", '{"2024-01-02 03:04:05+00"}') == ['["2024-01-02T03:04:05Z"]']
    assert parsed("int4[]", "{1,x}", "{2}") == ["failed", "[2]"]


def test_slices_and_other_string_types() -> None:
    texts = pa.array(["0", "{1}", None, '{"2"}', "{3}"], pa.large_string()).slice(1)
    assert types.parse(texts, Column("c", "text[]"), Selection())[0].to_pylist() == ['["1"]', None, '["2"]', '["3"]']
    assert types.parse(texts.slice(1, 1), Column("c", "int8"), Selection())[0].to_pylist() == [None]


@pytest.mark.parametrize("kind", ["int8", "text", "bool", "bytea", "date", "timestamptz", "int4[]", "text[]", "hstore"])
def test_nothing_and_nulls(kind: str) -> None:
    assert parsed(kind) == []
    assert parsed(kind, None, None) == [None, None]


@pytest.mark.parametrize(
    ("algorithm", "length"), [("SHA-256", 64), ("SHA-512", 128), ("MD5", 32), ("SHA3-256", 64), ("sha1", 40)]
)
def test_hashes_by_their_java_names(algorithm: str, length: int) -> None:
    rule = ColumnRule("hash", ".*", algorithm=algorithm)
    one, two, none = apply(pa.array(["a", "a", None]), [rule]).to_pylist()
    assert one == two
    assert (len(one), none) == (length, None)


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(ConfigError, match="SHA-9"):
        apply(pa.array(["a"]), [ColumnRule("hash", ".*", algorithm="SHA-9")])
    with pytest.raises(ConfigError, match="blur"):
        apply(pa.array(["a"]), [ColumnRule("blur", ".*")])
