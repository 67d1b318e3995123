"""Records as a file lays them out, to typed rows and to the envelope: every type, NULLs, and what is damaged."""

from __future__ import annotations

import json
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.iseries.records import Field, floating, image, nulls
from tidelog.connectors.iseries import decfloat, payload, types
from tidelog.connectors.iseries.catalog import _column
from tidelog.connectors.iseries.decode import IseriesDecoder
from tidelog.connectors.iseries.entries import Entry
from tidelog.contracts import RECORDS, Decoded
from tidelog.core import metadata
from tidelog.errors import UnsupportedChange
from tidelog.model.schema import Column, Table
from tidelog.model.selection import ColumnRule, Selection

FIELDS = (
    Field("ID", "INTEGER", 4),
    Field("SMALL", "SMALLINT", 2, nullable=True),
    Field("BIG", "BIGINT", 8, nullable=True),
    Field("PACKED", "DECIMAL", 7, 2, nullable=True),
    Field("EVEN", "DECIMAL", 6, 0, nullable=True),
    Field("FRACTION", "DECIMAL", 3, 3, nullable=True),
    Field("WIDE", "DECIMAL", 38, 10, nullable=True),
    Field("ZONED", "NUMERIC", 5, 1, nullable=True),
    Field("R4", "FLOAT", 4, nullable=True),
    Field("R8", "FLOAT", 8, nullable=True),
    Field("CH", "CHAR", 6, ccsid=37, nullable=True),
    Field("GERMAN", "VARCHAR", 12, ccsid=273, nullable=True),
    Field("EURO", "CHAR", 3, ccsid=1140, nullable=True),
    Field("U8", "VARCHAR", 16, ccsid=1208, nullable=True),
    Field("U16", "VARG", 6, ccsid=1200, nullable=True),
    Field("FIXED16", "GRAPHIC", 3, ccsid=1200, nullable=True),
    Field("DAY", "DATE", 4, nullable=True),
    Field("HOUR", "TIME", 3, nullable=True),
    Field("STAMP", "TIMESTMP", 10, fraction=6, nullable=True),
    Field("STAMP0", "TIMESTMP", 7, fraction=0, nullable=True),
    Field("RAW", "BINARY", 3, nullable=True),
    Field("VRAW", "VARBIN", 5, nullable=True),
    Field("BITS", "CHAR", 2, ccsid=65535, nullable=True),
    Field("FLAG", "BOOLEAN", 1, nullable=True),
    Field("DF16", "DECFLOAT", 8, nullable=True),
    Field("DF34", "DECFLOAT", 16, nullable=True),
)
TABLE = Table(1, "SHOP", "ALL_TYPES", tuple(_column(*f.described()) for f in FIELDS), ("ID",), old_image="full")
ROW: tuple[Any, ...] = (
    -7,
    -32768,
    2**62,
    Decimal("-12345.67"),
    Decimal("000123"),
    Decimal("-0.007"),
    Decimal("1234567890123456789012345678.0123456789"),
    Decimal("-1.5"),
    1.5,
    -1e300,
    "Ab{}[]",
    "Grüße ß@",
    "5 €",
    "naïve €",
    "añ€",
    "xyz",
    date(2026, 2, 28),
    time(23, 59, 1),
    datetime(2026, 2, 28, 1, 2, 3, 45),
    datetime(1999, 12, 31, 23, 59, 59),
    b"\0\xff\x10",
    b"",
    b"\x01\x02",
    True,
    "-98.0123456789",
    "9.999999999999999999999999999999999E+6144",
)
NOTHING = (0, *(None for _ in FIELDS[1:]))
PLAIN = Selection(topic_prefix="ibmi", connector="db2as400", database="ibmi")


def entry(type: str, row: tuple[Any, ...] | None, data: bytes | None = None) -> Entry:
    raw = data if data is not None else image(FIELDS, row) if row is not None else b""
    null = nulls(FIELDS, row).encode() if row is not None else b""
    return Entry(5, 5, "RCV1", "RLIB", "R", type, "SHOP", "ALLTYPES", "ALLTYPES", 9, 3, 1_000_000, null, raw)


def block(*payloads: tuple[str, bytes]) -> pa.RecordBatch:
    rows = [
        {
            "position": 77,
            "ordinal": i,
            "table_ordinal": i,
            "xid": 3 if i % 2 == 0 else -5,
            "committed": 2_000_000,
            "lsn": 70 + i,
            "op": ord(op),
            "payload": content,
        }
        for i, (op, content) in enumerate(payloads)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORDS)


def typed(records: pa.RecordBatch, selection: Selection = PLAIN) -> Decoded:
    return IseriesDecoder(lambda: 0).typed(records, TABLE, selection)


def values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[f.name] for f in FIELDS)


def shown(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A time of day stays text: Spark has no such type."""
    return tuple(v.isoformat() if isinstance(v, time) else v for v in row)


def test_every_type_comes_back() -> None:
    records = block(
        ("c", payload.pack(entry("PT", ROW))),
        ("u", payload.pack(entry("UP", NOTHING), entry("UB", ROW))),
        ("d", payload.pack(entry("DL", ROW))),
        ("t", payload.pack(entry("CR", None))),
    )
    created, updated, deleted, cleared = typed(records).rows.to_pylist()
    assert values(created) == shown(ROW)
    assert created[metadata.BEFORE] is None
    assert values(updated) == NOTHING
    assert values(updated[metadata.BEFORE]) == shown(ROW)
    assert values(deleted[metadata.BEFORE]) == shown(ROW)
    assert [row[metadata.OP] for row in (created, updated, deleted, cleared)] == ["c", "u", "d", "t"]
    assert cleared[metadata.BEFORE] is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.decimals(-99999, 99999, places=2, allow_nan=False),
            st.none() | st.decimals(-9999, 9999, places=1, allow_nan=False),
            st.none()
            | st.text(st.characters(codec="cp273", exclude_categories=["Cc"], exclude_characters="‾"), max_size=12),
            st.none() | st.binary(max_size=5),
            st.none() | st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_values_of_all_kinds_come_back(rows: list[tuple[Any, ...]]) -> None:
    places = [
        next(i for i, f in enumerate(FIELDS) if f.name == n) for n in ("PACKED", "ZONED", "GERMAN", "VRAW", "STAMP")
    ]
    whole = [list(NOTHING) for _ in rows]
    for row, some in zip(whole, rows, strict=True):
        for place, value in zip(places, some, strict=True):
            row[place] = value
    records = block(*(("c", payload.pack(entry("PT", tuple(row)))) for row in whole))
    assert [values(row) for row in typed(records).rows.to_pylist()] == [tuple(row) for row in whole]


@given(st.decimals(allow_nan=False, allow_infinity=False).filter(lambda d: len(d.as_tuple().digits) <= 16))
def test_decimal_floating_point_keeps_every_digit(value: Decimal) -> None:
    for size, least, most in ((8, -398, 369), (16, -6176, 6111)):
        sign, digits, exponent = value.as_tuple()
        fitting = Decimal((sign, digits, max(least, min(most, int(exponent)))))
        assert Decimal(decfloat.text(floating(fitting, size))) == fitting


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("A2300000000003D0", "-7.5"),
        ("2238000000000001", "1"),
        ("77FCFF3FCFF3FCFF", "9.999999999999999E+384"),
        ("A20780000000000000000000000003D0", "-7.5"),
        ("7800000000000000", "Infinity"),
        ("FC00000000000000", "-NaN"),
    ],
)
def test_decimal_floating_point_as_ieee_shows_it(raw: str, text: str) -> None:
    assert decfloat.text(bytes.fromhex(raw)) == text


@pytest.mark.parametrize("zeros", ["7.5", "7.50", "75E-1", "0.0750E2"])
def test_one_value_of_decimal_floating_point_has_one_text(zeros: str) -> None:
    column = Column("D", "DECFLOAT", 8)
    assert decfloat.text(floating(Decimal(zeros), 8)) == "7.5"
    assert types.canonical(pa.array([zeros, None]), column).to_pylist() == ["7.5", None]


def test_what_the_table_says_of_truth_is_what_the_journal_says() -> None:
    assert types.canonical(pa.array(["TRUE", "false", None]), Column("B", "BOOLEAN")).to_pylist() == ["t", "f", None]


def test_what_was_not_recorded_is_unchanged() -> None:
    partly = entry("UP", ROW)
    marks = bytearray(partly.nulls)
    marks[3] = ord("9")
    (row,) = typed(block(("u", payload.pack(_with(partly, nulls=bytes(marks)))))).rows.to_pylist()
    assert row[metadata.UNCHANGED] == ["PACKED"]
    assert row["PACKED"] is None


def _with(one: Entry, **changes: Any) -> Entry:
    fields = {name: getattr(one, name) for name in Entry.__slots__}
    return Entry(**{**fields, **changes})


def _damaged() -> dict[str, bytes]:
    whole = image(FIELDS, ROW)
    packed = whole[:14] + b"\xaa" + whole[15:]
    place = 4 + 2 + 8 + 4 + 4 + 2 + 20 + 5 + 4 + 8 + 6
    length = whole[:place] + b"\xff\xff" + whole[place + 2 :]
    truth = whole[:-25] + b"\x01" + whole[-24:]
    padded = whole.ljust(16_000, b"\0")
    return {
        "too short": whole[:-1],
        "too long": whole + b"\0",
        "padded": padded,
        "digits": packed,
        "length": length,
        "truth": truth,
    }


@pytest.mark.parametrize("what", ["too short", "too long", "padded", "digits", "length", "truth"])
def test_a_damaged_record_never_becomes_a_row(what: str) -> None:
    bad = payload.pack(entry("PT", ROW, _damaged()[what]))
    records = block(("c", payload.pack(entry("PT", ROW))), ("c", bad), ("c", b"short"))
    with pytest.raises(UnsupportedChange, match=r"SHOP\.ALL_TYPES"):
        typed(records)
    found = typed(records, Selection(failures="dead-letter"))
    assert found.rows.num_rows == 1
    assert found.failures is not None
    assert found.failures.num_rows == 2
    assert "12345" not in " ".join(found.failures.column("reason").to_pylist())


def test_a_value_that_is_null_is_never_looked_at() -> None:
    """The bytes of a NULL field may be anything."""
    marks = b"0" + b"1" * (len(FIELDS) - 1)
    garbage = image(FIELDS, ROW)[:4] + b"\xee" * (len(image(FIELDS, ROW)) - 4)
    (row,) = typed(block(("c", payload.pack(_with(entry("PT", ROW), image=garbage, nulls=marks))))).rows.to_pylist()
    assert values(row) == (-7, *NOTHING[1:])


def test_the_envelope_tells_the_same() -> None:
    other = (8, *ROW[1:])
    records = block(
        ("c", payload.pack(entry("PT", ROW))),
        ("u", payload.pack(entry("UP", other), entry("UB", ROW))),
        ("d", payload.pack(entry("DL", ROW))),
    )
    events = IseriesDecoder(lambda: 5_000).envelope(records, TABLE, PLAIN).rows.to_pylist()
    assert [event["op"] for event in events] == ["c", "d", "c", "d"]  # a changed key is two events
    assert [json.loads(event["key"]) for event in events] == [{"ID": -7}, {"ID": -7}, {"ID": 8}, {"ID": -7}]
    after = json.loads(events[0]["after"], parse_float=Decimal)
    assert after["PACKED"] == Decimal("-12345.67")
    assert after["FRACTION"] == Decimal("-0.007")
    assert after["GERMAN"] == "Grüße ß@"
    assert after["RAW"] == "AP8Q"
    source = json.loads(events[0]["source"])
    assert source["receiver"] == "RCV1"
    assert source["event_sequence"] == 70
    assert source["txId"] == 3
    assert json.loads(events[1]["source"])["txId"] is None
    assert source["table"] == "ALL_TYPES"
    assert events[0]["topic"] == "ibmi.SHOP.ALL_TYPES"


def test_texts_are_what_a_read_of_the_table_gives() -> None:
    """A chunk's rows as texts, and the window's, tell one value in one way."""
    decoder = IseriesDecoder(lambda: 0)
    records = block(("c", payload.pack(entry("PT", ROW))))
    texts = decoder.texts(records, TABLE, PLAIN).rows
    assert texts.column("PACKED")[0].as_py() == "-12345.67"
    assert texts.column("STAMP")[0].as_py() == "2026-02-28 01:02:03.000045"
    read = decoder.read_envelope(texts, TABLE, PLAIN, snapshot="incremental", position=9, ts_us=1).rows.to_pylist()[0]
    told = decoder.envelope(records, TABLE, PLAIN).rows.to_pylist()[0]
    assert read["op"] == "r"
    assert read["after"] == told["after"]
    assert read["key"] == told["key"]
    assert json.loads(read["source"])["snapshot"] == "incremental"


def test_masks_hide_and_renderings_apply() -> None:
    rule = ColumnRule("mask", r"SHOP\.ALL_TYPES\.PACKED", length=3)
    selection = Selection(rules=(rule,), exclude_columns=r".*\.(R4|R8)", decimals="string", skipped=("d",))
    records = block(("c", payload.pack(entry("PT", ROW))), ("d", payload.pack(entry("DL", ROW))))
    (row,) = typed(records, selection).rows.to_pylist()
    assert row["PACKED"] == "***"
    assert row["ZONED"] == "-1.5"
    assert "R4" not in row


def test_nothing_comes_of_nothing() -> None:
    assert typed(block()).rows.num_rows == 0
    assert IseriesDecoder(lambda: 0).envelope(block(), TABLE, PLAIN).rows.num_rows == 0
