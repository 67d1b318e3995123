"""Texts of keys become what Java holds for them, and texts again."""

from __future__ import annotations

import math
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.snapshot.java import JavaValue, decode, encode, key_texts, key_values
from tidelog.errors import CorruptState


@pytest.mark.parametrize(
    ("type", "text", "held"),
    [
        ("int2", "-7", ("short", -7)),
        ("int4", "7", ("int", 7)),
        ("int8", "9223372036854775807", ("long", 2**63 - 1)),
        ("oid", "4294967295", ("long", 2**32 - 1)),
        ("numeric", "1.50", ("decimal", Decimal("1.50"))),
        ("numeric", "Infinity", ("double", math.inf)),
        ("bool", "t", ("boolean", True)),
        ("bool", "f", ("boolean", False)),
        ("float8", "1.5", ("double", 1.5)),
        ("float8", "-Infinity", ("double", -math.inf)),
        ("float4", "0.1", ("float", float(np.float32(0.1)))),
        ("uuid", "d139b9b7-7777-4547-917d-111111111111", ("uuid", uuid.UUID("d139b9b777774547917d111111111111"))),
        ("bytea", "\\x0a0bff", ("bytes", b"\x0a\x0b\xff")),
        ("text", " a,'b ", ("string", " a,'b ")),
        ("timestamptz", "2020-01-02 03:04:05+00", ("string", "2020-01-02 03:04:05+00")),
    ],
)
def test_keys_become_values_and_texts_again(type: str, text: str, held: tuple[str, Any]) -> None:
    found = key_values((text, None), (type, type))
    assert found == (JavaValue(*held), None)
    assert key_texts(decode(encode(found)) or ()) == (text, None)


@given(st.decimals(allow_nan=False, allow_infinity=False).map(lambda d: format(d, "f").removeprefix("-")))
def test_numerics_keep_every_digit(text: str) -> None:
    assert key_texts(decode(encode(key_values((text,), ("numeric",)))) or ()) == (text,)


def test_moments_as_texts() -> None:
    pairs = (("timestamp", (1_600_733_377_123, 123_456_789)), ("date", -1), ("sql_date", 0), ("sql_time", 61_500))
    found = tuple(JavaValue(kind, value) for kind, value in pairs)
    assert key_texts(found) == ("2020-09-22 00:09:37.123456789", "1969-12-31 23:59:59.999", "1970-01-01", "00:01:01.5")


@pytest.mark.parametrize("type", ["int4", "bool", "numeric", "uuid", "bytea", "float8"])
def test_a_text_that_is_none_of_its_type(type: str) -> None:
    with pytest.raises(CorruptState, match=type):
        key_values(("zz",), (type,))


@pytest.mark.parametrize("value", [JavaValue("date", 2**62), JavaValue("decimal", Decimal("1E+999999999"))])
def test_what_no_database_holds(value: JavaValue) -> None:
    with pytest.raises(CorruptState, match="no database holds"):
        key_texts((value,))


def test_numbers_of_any_length() -> None:
    text = "9" * 10_000 + "." + "1" * 10_000
    assert key_texts(decode(encode(key_values((text,), ("numeric",)))) or ()) == (text,)
    assert key_texts((JavaValue("bigint", 10**10_000),)) == ("1" + "0" * 10_000,)
