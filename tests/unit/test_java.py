"""Keys as Java writes them. `data/java_keys.txt` was made by a JDK: what we write must be the same, byte for byte."""

from __future__ import annotations

import math
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.snapshot import java
from tidelog.core.snapshot.java import JavaValue, decode, encode, key_texts
from tidelog.errors import CorruptState

_FILE = Path(__file__).parents[1] / "data" / "java_keys.txt"
JDK = dict(line.split() for line in _FILE.read_text(encoding="ascii").splitlines())


def values(*pairs: tuple[str, Any]) -> java.Values:
    return tuple(JavaValue(kind, value) for kind, value in pairs)


SAME = {
    "byte": values(("byte", 5)),
    "float": values(("float", 1.5)),
    "bool3": values(("boolean", True), ("boolean", False), ("boolean", True)),
    "int_cached": values(("int", 5), ("int", 5)),
    "int_big": values(("int", 1000), ("int", 1000)),
    "two_types": values(("int", 5), ("long", 6), ("short", 7), ("int", 8)),
    "dec_two": values(("decimal", Decimal("1.5")), ("decimal", Decimal("2.50")), ("bigint", 7), ("bytes", b"\x01")),
    "bi_dec": values(("bigint", 7), ("decimal", Decimal("2.50"))),
    "bytes_bi": values(("bytes", b"\x01"), ("bigint", -7), ("bytes", b"\x01")),
    "nul": values(("string", "a\0b😀")),
    "lone": values(("string", "\ud83dx")),
    "date": values(("date", 123)),
    "sqldate": values(("sql_date", 123)),
    "sqltime": values(("sql_time", 123)),
    "ts": values(("timestamp", (123, 123_000_000)), ("timestamp", (-1, 999_000_000)), ("date", 5)),
    "uuid2": values(("uuid", uuid.UUID(int=1 << 64 | 2)), ("uuid", uuid.UUID(int=3 << 64 | 4))),
}

READ = {
    "str_same": values(("string", "a"), ("string", "a")),
    "int_same_big": values(("int", 1000), ("int", 1000)),
    "dec_zero": values(*[("decimal", Decimal(n)) for n in (0, 0, 1, 1)]),
    "chr": values(("string", "x")),
    "strarr_top": values(("string", "a"), ("string", "a")),
    "pgobject": values(("string", "Ab")),
    "ld": values(("local_date", "2020-01-02"), ("local_date", "-0005-01-02")),
    "lt": values(*[("local_time", t) for t in ("01:02", "01:02:03", "01:02:03.000000004", "01:00")]),
    "lt_milli": values(("local_time", "10:20:30.005")),
    "ldt": values(("local_date_time", "2020-01-02T03:04:05.000000006")),
    "ldt_midnight": values(("local_date_time", "2020-09-22T00:00")),
    "zdt": values(
        ("zoned_date_time", "2020-01-02T03:04:05.000000006+01:00"),
        ("zoned_date_time", "2020-01-02T03:04:05.000000006Z"),
        ("zoned_date_time", "2020-01-02T03:04:05.000000006Z"),
    ),
    "odt": values(
        ("offset_date_time", "2020-01-02T03:04:05.000000006+02:00"),
        ("offset_date_time", "2020-01-02T03:04:05.000000006+02:03:04"),
    ),
    "odt_milli": values(("offset_date_time", "2020-09-22T00:09:37.120+02:00")),
    "odt_utc": values(("offset_date_time", "2020-09-22T00:09:37Z")),
    "inst": values(("instant", "1970-01-01T00:00:05.000000006Z")),
    "inst_milli": values(("instant", "2020-09-22T00:09:37.123Z")),
    "inst_micro": values(("instant", "2020-09-22T00:09:37.000120Z")),
    "ot": values(("offset_time", "01:02:03-03:00")),
}


@pytest.mark.parametrize("name", SAME)
def test_we_read_and_write_what_java_writes(name: str) -> None:
    assert decode(JDK[name]) == SAME[name]
    assert encode(SAME[name]) == JDK[name]


@pytest.mark.parametrize("name", READ)
def test_more_is_read_than_written(name: str) -> None:
    assert decode(JDK[name]) == READ[name]


def test_null_and_empty() -> None:
    assert decode(JDK["null"]) is None
    assert encode(None) == JDK["null"] == "aced000570"
    assert decode(encode(())) == ()


def test_floats_that_are_no_numbers() -> None:
    found = decode(JDK["nan"])
    assert found is not None
    double, single, zero, infinite = (v.value for v in found if v)
    assert math.isnan(double)
    assert math.isnan(single)
    assert math.copysign(1, zero) == -1
    assert infinite == -math.inf
    assert encode(found) == JDK["nan"]


def test_decimals_that_may_be_special() -> None:
    found = decode(JDK["special"])
    assert found is not None
    assert str(found[0]) == "JavaValue(kind='decimal', value=Decimal('7.50'))"
    assert key_texts(found) == ("7.50", "NaN", "-Infinity")


@pytest.mark.parametrize(
    ("name", "named"), [("list", "java.util.CollSer"), ("nested", "java.lang.Object"), ("dur", "java.time.Duration")]
)
def test_a_class_that_is_not_known_is_named(name: str, named: str) -> None:
    with pytest.raises(CorruptState, match=named):
        decode(JDK[name])


@pytest.mark.parametrize("text", ["", "zz", "aced", "aced0005", "aced000571007e0000", "aced000574000161", "aced000579"])
def test_damage_is_told(text: str) -> None:
    with pytest.raises(CorruptState, match="cannot be read"):
        decode(text)


@pytest.mark.parametrize("name", [*SAME, *READ, "special"])
def test_a_cut_anywhere_is_told(name: str) -> None:
    for end in range(0, len(JDK[name]), 2):
        with pytest.raises(CorruptState):
            decode(JDK[name][:end])


@given(st.sampled_from(sorted(JDK)), st.data())
def test_any_damage_is_read_or_told(name: str, data: st.DataObject) -> None:
    raw = bytearray.fromhex(JDK[name])
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode(raw.hex())
    except CorruptState:
        return
    assert found is None or all(isinstance(value, JavaValue | None) for value in found)


def test_nesting_without_end_is_told() -> None:
    with pytest.raises(CorruptState, match="deeply"):
        decode("aced0005" + "73" * 100_000)


def test_long_texts() -> None:
    for length in (65_535, 65_536):
        found = values(("string", " " * length))
        assert decode(encode(found)) == found
    assert "7c0000000000010000" in encode(values(("string", " " * 65_536)))


def test_what_cannot_be_written_is_told() -> None:
    with pytest.raises(CorruptState, match="local_date"):
        encode(values(("local_date", "2020-01-02")))
    with pytest.raises(CorruptState, match="NaN"):
        encode(values(("decimal", Decimal("NaN"))))


def _whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


PLAIN = st.one_of(
    st.tuples(st.just("int"), _whole(32)),
    st.tuples(st.just("long"), _whole(64)),
    st.tuples(st.just("short"), _whole(16)),
    st.tuples(st.just("byte"), _whole(8)),
    st.tuples(st.just("boolean"), st.booleans()),
    st.tuples(st.just("double"), st.floats(allow_nan=False)),
    st.tuples(st.just("float"), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just("string"), st.text()),
    st.tuples(st.just("bytes"), st.binary()),
    st.tuples(st.just("uuid"), st.uuids()),
    st.tuples(st.just("bigint"), st.integers()),
    st.tuples(st.just("decimal"), st.decimals(allow_nan=False, allow_infinity=False)),
    st.tuples(st.just("date"), _whole(64)),
)
VALUES = st.lists(st.none() | PLAIN.map(lambda pair: JavaValue(*pair))).map(tuple)


@given(VALUES)
def test_round_trip(found: java.Values) -> None:
    again = decode(encode(found))
    assert again == found
    assert encode(again) == encode(found)


@given(st.integers(-(10**12), 10**12), st.integers(0, 999_999_999))
def test_timestamps_round_trip(second: int, nanos: int) -> None:
    found = values(("timestamp", (second * 1000 + nanos // 1_000_000, nanos)))
    assert decode(encode(found)) == found


@pytest.mark.parametrize(("kind", "bits"), [("long", 64), ("int", 32), ("short", 16), ("byte", 8)])
def test_a_number_that_its_class_cannot_hold_is_named(kind: str, bits: int) -> None:
    with pytest.raises(CorruptState, match=f"no {kind}"):
        encode(values((kind, 1 << (bits - 1))))
