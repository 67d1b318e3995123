"""Days and moments that Python has no object for, written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from tidelog.core.compare import compare
from tidelog.core.moments import distant, legible, texts, written

UTC = pa.timestamp("us", "UTC")
LAST = {pa.date32(): 2**31 - 1, UTC: 2**63 - 1}


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (2**31 - 1, pa.date32(), "infinity"),
        (-(2**31), pa.date32(), "-infinity"),
        (0, pa.date32(), "1970-01-01"),
        (2_932_897, pa.date32(), "10000-01-01"),
        (-719_163, pa.date32(), "0001-12-31 BC"),
        (2**63 - 1, UTC, "infinity"),
        (-1, UTC, "1969-12-31 23:59:59.999999"),
        (253_402_300_800_000_000, UTC, "10000-01-01 00:00:00.000000"),
    ],
)
def test_every_day_and_moment_can_be_written(number: int, kind: pa.DataType, text: str) -> None:
    assert written(pa.array([number, None]).cast(pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)) == [
        text,
        None,
    ]


@pytest.mark.parametrize(
    ("day", "is_distant"), [(-719_163, True), (-719_162, False), (2_932_896, False), (2_932_897, True)]
)
def test_what_lies_outside_the_calendar(day: int, is_distant: bool) -> None:
    days = pa.array([0, day], pa.int32()).cast(pa.date32())
    assert distant(days) is is_distant
    moments = pa.chunked_array([pa.array([day * 86_400_000_000], pa.int64()).cast(UTC)])
    assert distant(moments) is is_distant
    assert not distant(pa.array(["infinity"]))
    assert not distant(pa.array([None], pa.date32()))


@pytest.mark.parametrize("kind", LAST)
def test_rows_with_them_can_be_shown(kind: pa.DataType) -> None:
    endless = pa.array([LAST[kind], None], kind)
    rows = pa.table(
        {"d": endless, "e": pa.array([1, 2], pa.date32()), "s": pa.StructArray.from_arrays([endless], ["x"])}
    )
    assert legible(rows) == [
        {"d": "infinity", "e": date(1970, 1, 2), "s": {"x": "infinity"}},
        {"d": None, "e": date(1970, 1, 3), "s": {"x": None}},
    ]
    assert texts(endless).to_pylist() == ["infinity", None]


@pytest.mark.parametrize("scale", [0, 2, 6, 7, 10, 20])
@pytest.mark.parametrize("wide", [pa.decimal128, pa.decimal256])
def test_decimals_have_all_their_digits(wide: Callable[[int, int], pa.DataType], scale: int) -> None:
    unit = Decimal(1).scaleb(-scale)
    given = [Decimal(0), unit, -unit, None, Decimal("-12"), Decimal("9000000") + unit, 10 * unit]
    values = pa.array([None, *given], wide(38, scale))[1:]
    plain = [None if value is None else f"{value.quantize(unit):f}" for value in given]
    assert texts(values).to_pylist() == texts(pa.chunked_array([values[:2], values[2:]])).to_pylist() == plain


def test_differences_with_them_can_be_told() -> None:
    shape = pa.schema([("id", pa.int64()), ("until", pa.date32())])
    source = pa.table([[1, 2], pa.array([2**31 - 1, 5], pa.date32())], schema=shape)
    target = pa.table([[1], pa.array([7], pa.date32())], schema=shape)
    found = compare(source, target, ["id"])
    assert "infinity" in str(found)
