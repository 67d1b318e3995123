"""Oracle's values as canonical texts, Arrow values and JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.connectors.oracle import internal, moments, types
from tidelog.connectors.oracle.redo import literals, unicode
from tidelog.model.schema import Column
from tidelog.model.selection import Selection

INT = types.column("C", "NUMBER", precision=9, scale=0)
MONEY = types.column("C", "NUMBER", precision=10, scale=2)
STAMP = types.column("C", "TIMESTAMP(6)", scale=6)
FINE = types.column("C", "TIMESTAMP(9)", scale=9)
ZONED = types.column("C", "TIMESTAMP(6) WITH TIME ZONE", scale=6)
LOCAL = types.column("C", "TIMESTAMP(6) WITH LOCAL TIME ZONE", scale=6)
DAYS = types.column("C", "INTERVAL DAY(2) TO SECOND(6)", scale=6)
MONTHS = types.column("C", "INTERVAL YEAR(2) TO MONTH")


@pytest.mark.parametrize(
    ("data_type", "precision", "scale", "arrow"),
    [
        ("NUMBER", 4, 0, pa.int16()),
        ("NUMBER", 9, 0, pa.int32()),
        ("NUMBER", 18, 0, pa.int64()),
        ("NUMBER", 19, 0, pa.decimal128(19, 0)),
        ("NUMBER", None, 0, pa.decimal128(38, 0)),
        ("NUMBER", 3, -2, pa.int32()),
        ("NUMBER", 38, -10, pa.string()),
        ("NUMBER", 10, 2, pa.decimal128(10, 2)),
        ("NUMBER", 2, 5, pa.decimal128(5, 5)),
        ("NUMBER", None, None, pa.string()),
        ("FLOAT", 126, None, pa.string()),
        ("BINARY_FLOAT", None, None, pa.float32()),
        ("BINARY_DOUBLE", None, None, pa.float64()),
        ("DATE", None, None, pa.timestamp("us")),
        ("TIMESTAMP(6)", None, 6, pa.timestamp("us")),
        ("TIMESTAMP(9)", None, 9, pa.string()),
        ("TIMESTAMP(6) WITH TIME ZONE", None, 6, pa.timestamp("us", "UTC")),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", None, 6, pa.timestamp("us", "UTC")),
        ("INTERVAL DAY(2) TO SECOND(6)", 2, 6, pa.string()),
        ("RAW", None, None, pa.binary()),
        ("BLOB", None, None, pa.binary()),
        ("CLOB", None, None, pa.string()),
        ("SYS.XMLTYPE", None, None, pa.string()),
        ("VARCHAR2", None, None, pa.string()),
        ("BOOLEAN", None, None, pa.bool_()),
    ],
)
def test_each_type_has_its_arrow_type(data_type: str, precision: int | None, scale: int | None, arrow: Any) -> None:
    column = types.column("C", data_type, length=10, precision=precision, scale=scale)
    assert types.arrow_type(column, Selection()) == arrow
    assert types.field_of(column, Selection()) == pa.field("C", arrow)


@given(st.integers(1, 38), st.integers(-84, 127))
def test_precision_and_scale_come_back(precision: int, scale: int) -> None:
    assert types.digits(types.packed(precision, scale)) == (precision, scale)


ORDINARY = [
    (INT, "12", 12, "12"),
    (MONEY, "-.5", Decimal("-0.50"), "-0.5"),
    (MONEY, ".25", Decimal("0.25"), "0.25"),
    (types.column("C", "BINARY_DOUBLE"), "1.5E+000", 1.5, "1.5"),
    (types.column("C", "BINARY_FLOAT"), "3.1400001E+000", pa.scalar(3.14, pa.float32()).as_py(), "3.14"),
    (types.column("C", "BINARY_DOUBLE"), "Inf", float("inf"), '"Infinity"'),
    (types.column("C", "DATE"), "2024-02-29 10:11:12", datetime(2024, 2, 29, 10, 11, 12), "1709201472000"),
    (
        types.column("C", "TIMESTAMP(3)", scale=3),
        "2024-02-29 00:00:00.5",
        datetime(2024, 2, 29, 0, 0, 0, 500_000),
        "1709164800500",
    ),
    (STAMP, "2024-02-29 10:11:10.", datetime(2024, 2, 29, 10, 11, 10), "1709201470000000"),
    (STAMP, "2024-02-29 10:11:12.120000000", datetime(2024, 2, 29, 10, 11, 12, 120_000), "1709201472120000"),
    (FINE, "2024-02-29 10:11:12.123456789", "2024-02-29 10:11:12.123456789", "1709201472123456789"),
    (FINE, "2024-02-29 10:11:12.500000000", "2024-02-29 10:11:12.5", "1709201472500000000"),
    (
        ZONED,
        "2024-02-29 10:11:12.500000 +01:00",
        datetime(2024, 2, 29, 9, 11, 12, 500_000, UTC),
        '"2024-02-29T10:11:12.5+01:00"',
    ),
    (ZONED, "2024-02-29 10:11:12.000000 +00:00", datetime(2024, 2, 29, 10, 11, 12, 0, UTC), '"2024-02-29T10:11:12Z"'),
    (LOCAL, "2024-02-29 10:11:12.500000", datetime(2024, 2, 29, 10, 11, 12, 500_000, UTC), '"2024-02-29T10:11:12.5Z"'),
    (DAYS, "+01 02:03:04.500000", "P1DT2H3M4.5S", '"P1DT2H3M4.5S"'),
    (DAYS, "-00 00:00:01.000000", "PT-1S", '"PT-1S"'),
    (DAYS, "+00 00:00:00.000000", "PT0S", '"PT0S"'),
    (MONTHS, "+01-02", "P1Y2M", '"P1Y2M"'),
    (types.column("C", "RAW"), "0AFF", b"\n\xff", '"Cv8="'),
    (types.column("C", "BOOLEAN"), "TRUE", True, "true"),
    (types.column("C", "VARCHAR2"), 'a"b', 'a"b', '"a\\"b"'),
]


@pytest.mark.parametrize(("column", "text", "value", "json"), ORDINARY)
def test_a_value(column: Column, text: str, value: Any, json: str) -> None:
    canonical = types.canonical(pa.array([text, None]), column)
    assert types.canonical(canonical, column).equals(canonical)
    found, failed = types.parse(canonical, column, Selection())
    assert found.to_pylist() == [value, None]
    rendered = types.fragment(canonical, column, Selection())
    assert rendered.json().to_pylist() == [json, None]
    assert not (failed | rendered.failed).any()


def test_a_year_before_christ() -> None:
    column = types.column("C", "DATE")
    canonical = types.canonical(pa.array(["-4712-01-01 00:00:00", " 2024-02-29 10:11:12"]), column)
    assert canonical.to_pylist() == ["4712-01-01 00:00:00 BC", "2024-02-29 10:11:12"]
    assert not types.parse(canonical, column, Selection())[1].any()


def test_times_follow_their_setting() -> None:
    texts = pa.array(["2024-02-29 10:11:12.5"])
    iso = types.fragment(texts, STAMP, Selection(times="isostring")).json().to_pylist()
    assert iso == ['"2024-02-29T10:11:12.5"']
    assert types.fragment(texts, FINE, Selection(times="isostring")).json().to_pylist() == iso
    assert types.fragment(texts, FINE, Selection(times="connect")).json().to_pylist() == ["1709201472500"]


def test_what_does_not_fit_is_marked() -> None:
    for column in (INT, MONEY, STAMP, ZONED, types.column("C", "BINARY_DOUBLE"), types.column("C", "RAW")):
        texts = types.canonical(pa.array(["x", None]), column)
        found, failed = types.parse(texts, column, Selection())
        assert failed.tolist() == [True, False], column.type
        assert found.to_pylist() == [None, None]


@given(st.lists(st.sampled_from(["0", "00", "5", "50", "05", "120000", "000001", "100200300"]), min_size=1))
def test_trailing_zeros_go(fractions: list[str]) -> None:
    found = moments.local(pa.array([f"2020-10-20 10:20:30.{fraction}" for fraction in fractions]))
    expected = [f"2020-10-20 10:20:30.{fraction}".rstrip("0").rstrip(".") for fraction in fractions]
    assert found.to_pylist() == [text if "." in text else "2020-10-20 10:20:30" for text in expected]


@pytest.mark.parametrize(
    ("text", "form", "expected"),
    [
        ("15-MAY-21", "DD-MON-RR", "2021-05-15 00:00:00"),
        ("15-MAY-71", "DD-MON-RR", "1971-05-15 00:00:00"),
        ("2020-01-02 03:04:05", "YYYY-MM-DD HH24:MI:SS", "2020-01-02 03:04:05"),
        ("15-MAY-21 01.02.03.456000 PM", "DD-MON-RR HH.MI.SSXFF AM", "2021-05-15 13:02:03.456"),
        ("15-MAY-21 12.02.03 AM", "DD-MON-RR HH.MI.SS AM", "2021-05-15 00:02:03"),
        ("2020-01-02 03:04:05.5 +02:00", None, "2020-01-02 03:04:05.5+02:00"),
        ("15-XXX-21", "DD-MON-RR", None),
        ("soon", None, None),
    ],
)
def test_formats(text: str, form: str | None, expected: str | None) -> None:
    assert moments.parse(text, form) == expected


@pytest.mark.parametrize(
    ("digits", "number"),
    [
        ("80", "0"),
        ("c102", "1"),
        ("c10b33", "10.5"),
        ("3e6466", "-1"),
        ("c3024d", "17600"),
        ("c033", "0.5"),
        ("c104152b", "3.2042"),
    ],
)
def test_numbers_of_the_block(digits: str, number: str) -> None:
    assert internal.number(bytes.fromhex(digits)) == number


def test_moments_of_the_block() -> None:
    assert internal.moment(bytes.fromhex("7878020304050b")) == "2020-02-03 03:04:10"
    assert internal.moment(bytes.fromhex("7878020304050b1dcd6500")) == "2020-02-03 03:04:10.5"
    assert internal.moment(bytes.fromhex("7878020304050b000000001e3c")) == "2020-02-03 03:04:10 +00:00"
    assert float(internal.binary(bytes.fromhex("c048f5c3"))) == pytest.approx(3.14)
    assert internal.binary(bytes.fromhex("4007ffffffffffff")) == "-1.5"


@given(st.lists(st.text(st.sampled_from("aé\\0B-41D8😀 "), max_size=8), max_size=6))
def test_unistr_by_the_column_is_as_one_by_one(texts: list[str]) -> None:
    written = ["".join(_escaped(char) for char in text) for text in texts]
    found, failed = unicode.unescaped(pa.array(written, pa.string()))
    assert not failed.any()
    assert found.to_pylist() == [literals.text_of(f"UNISTR('{text}')") for text in written] == texts


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be").hex()
    return "\\\\" if char == "\\" else char if char.isascii() else "\\" + "\\".join((units[:4], units[4:])).rstrip("\\")


def test_escapes_that_are_none_are_marked() -> None:
    found, failed = unicode.unescaped(pa.array(["\\12", "\\0041", "\\00", "\\", "\\0042", "\\004G"]))
    assert failed.tolist() == [True, False, True, True, False, True]
    assert found.to_pylist()[1::3] == ["A", "B"]
