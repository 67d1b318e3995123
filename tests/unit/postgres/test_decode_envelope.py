"""Messages to Debezium's envelope: each field, each operation, and what a change of key becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.postgres.pgoutput import (
    UNCHANGED,
    Change,
    block,
    delete,
    heartbeat,
    insert,
    message,
    schema,
    table,
    truncate,
    update,
)

from tidelog import __version__
from tidelog.connectors.postgres.decode import PostgresDecoder
from tidelog.contracts import ENVELOPE
from tidelog.errors import UnsupportedChange
from tidelog.model.schema import Column, Table
from tidelog.model.selection import ColumnRule, Selection

ORDERS = table("id int8", "name text", "note text")
NOW = 1_704_200_000_111_222
DECODER = PostgresDecoder(lambda: NOW)
SHOP = Selection(topic_prefix="shop", database="store", connector="postgresql")


def events(*changes: Change, of: Table | None = ORDERS, under: Selection = SHOP, **more: Any) -> list[dict[str, Any]]:
    decoded = DECODER.envelope(block(*changes, **more), of, under)
    assert decoded.rows.schema == ENVELOPE
    decoded.rows.validate(full=True)
    return [
        {k: json.loads(v) if k in ("key", "before", "after", "source") and v else v for k, v in row.items()}
        for row in decoded.rows.to_pylist()
    ]


def test_create() -> None:
    [event] = events(insert("1", "a", None))
    source = event.pop("source")
    assert event == {
        "topic": "shop.public.orders",
        "key": {"id": 1},
        "before": None,
        "after": {"id": 1, "name": "a", "note": None},
        "op": "c",
        "ts_ms": NOW // 1000,
        "ts_us": NOW,
        "ts_ns": NOW * 1000,
        "transaction": None,
    }
    assert source == {
        "version": __version__,
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": 1_704_164_645_123,
        "ts_us": 1_704_164_645_123_456,
        "ts_ns": 1_704_164_645_123_456_000,
        "snapshot": "false",
        "db": "store",
        "sequence": '["4096","2048"]',
        "schema": "public",
        "table": "orders",
        "txId": 700,
        "lsn": 2048,
        "xmin": None,
    }


def test_origin_is_told_where_there_is_one() -> None:
    [event] = events(insert("1", "a", None), origin='o"1')
    assert event["source"]["origin"] == 'o"1'


def test_update_with_and_without_old_image() -> None:
    first, second = events(update("1", "b", "n"), update("1", "b", "n", old=("1", "a", None)))
    assert (first["op"], first["before"], first["after"]) == ("u", None, {"id": 1, "name": "b", "note": "n"})
    assert second["before"] == {"id": 1, "name": "a", "note": None}


def test_delete() -> None:
    by_key, full = events(delete(key=("1", None, None)), delete(old=("2", "a", "n")))
    assert (by_key["op"], by_key["key"], by_key["after"]) == ("d", {"id": 1}, None)
    assert by_key["before"] == {"id": 1, "name": None, "note": None}
    assert (full["key"], full["before"]) == ({"id": 2}, {"id": 2, "name": "a", "note": "n"})


def test_truncate() -> None:
    [event] = events(truncate())
    assert (event["op"], event["key"], event["before"], event["after"]) == ("t", None, None, None)


@pytest.mark.parametrize("image", ["key", "old"])
def test_key_change_is_a_delete_and_a_create(image: str) -> None:
    old = ("1", None, None) if image == "key" else ("1", "a", "n")
    rows = events(insert("0", "x", "y"), update("2", "b", "n", **{image: old}), insert("3", "x", "y"))  # type: ignore[arg-type]
    assert [(r["op"], r["key"]["id"]) for r in rows] == [("c", 0), ("d", 1), ("c", 2), ("c", 3)]
    gone, new = rows[1], rows[2]
    assert (gone["before"], gone["after"]) == ({"id": 1, "name": old[1], "note": old[2]}, None)
    assert (new["before"], new["after"]) == (None, {"id": 2, "name": "b", "note": "n"})
    assert gone["source"] == new["source"]


def test_same_key_in_the_old_image_is_an_update() -> None:
    [event] = events(update("1", "b", "n", key=("1", None, None)))
    assert event["op"] == "u"


def test_key_columns_that_the_user_names() -> None:
    under = Selection(message_keys="public.orders:name,id")
    [first] = events(insert("1", "a", None), under=under)
    assert list(first["key"].items()) == [("name", "a"), ("id", 1)]
    gone, new = events(update("1", "b", "n", old=("1", "a", "n")), under=under)
    assert (gone["op"], gone["key"], new["op"], new["key"]) == (
        "d",
        {"name": "a", "id": 1},
        "c",
        {"name": "b", "id": 1},
    )
    gone, new = events(update("2", "b", "n", key=("1", None, None)), under=under)
    assert (gone["key"], new["key"]) == ({"name": "b", "id": 1}, {"name": "b", "id": 2})


def test_table_without_key() -> None:
    [event] = events(insert("1"), of=table("id int8", key=()))
    assert event["key"] is None


def test_key_change_beside_a_failed_row() -> None:
    rows = DECODER.envelope(
        block(("c", b"I"), update("2", "b", "n", key=("1", None, None)), ("u", b"")),
        ORDERS,
        Selection(failures="dead-letter"),
    )
    assert rows.rows.column("op").to_pylist() == ["d", "c"]
    assert rows.failures is not None
    assert rows.failures.column("ordinal").to_pylist() == [0, 2]


def test_unchanged_value_is_the_placeholder() -> None:
    of = table("id int8", "n int4", "note text")
    [first] = events(update("1", UNCHANGED, UNCHANGED), of=of)
    assert first["after"] == {"id": 1, "n": "__debezium_unavailable_value", "note": "__debezium_unavailable_value"}
    [second] = events(update("1", "2", UNCHANGED), of=of, under=Selection(placeholder='"?"'))
    assert second["after"] == {"id": 1, "n": 2, "note": '"?"'}


def test_placeholder_does_not_touch_nulls_and_values() -> None:
    rows = events(update("1", "a", UNCHANGED), insert("2", None, None), update("3", UNCHANGED, 'x"y'))
    missing = "__debezium_unavailable_value"
    assert [(r["after"]["name"], r["after"]["note"]) for r in rows] == [
        ("a", missing),
        (None, None),
        (missing, 'x"y'),
    ]


def test_transaction_numbers_events() -> None:
    rows = events(insert("1", "a", None), insert("2", "b", None), under=Selection(transactions=True))
    assert [r["transaction"] for r in rows] == [
        {"id": "700:4103", "total_order": 1, "data_collection_order": 1},
        {"id": "700:4103", "total_order": 2, "data_collection_order": 2},
    ]


def test_filters_rules_and_skipped_operations() -> None:
    under = Selection(
        exclude_columns=r".*\.note",
        rules=(ColumnRule("mask", r".*\.name", length=3),),
        skipped=("t",),
    )
    [event] = events(truncate(), schema(), update("1", "x", "y", old=("1", None, "z")), under=under)
    assert (event["before"], event["after"]) == ({"id": 1, "name": None}, {"id": 1, "name": "***"})


def test_names_that_need_escapes() -> None:
    of = Table(1, "s", 't"x', (Column('a"b\\', "int4"), Column("ü", "text")), key=('a"b\\',))
    [event] = events(insert("1", "ö"), of=of)
    assert event["after"] == {'a"b\\': 1, "ü": "ö"}
    assert (event["topic"], event["source"]["table"]) == ('shop.s.t"x', 't"x')


def test_every_control_character_survives() -> None:
    every = "".join(map(chr, range(1, 0x80))) + "ä😀\u2028"
    rows = events(insert("1", every, "plain"), insert("2", '\\"\n', every))
    assert [(r["after"]["name"], r["after"]["note"]) for r in rows] == [(every, "plain"), ('\\"\n', every)]


def test_empty_block() -> None:
    assert events() == []
    assert events(of=None) == []


def test_logical_message() -> None:
    [event] = events(message('out"box', b"\x00\xffhi"), of=None)
    assert (event["topic"], event["op"], event["key"]) == ("shop.message", "m", {"prefix": 'out"box'})
    assert (event["before"], event["after"]) == (None, {"prefix": 'out"box', "content": "AP9oaQ=="})
    assert (event["source"]["table"], event["source"]["txId"]) == ("", 700)


def test_message_content_as_asked() -> None:
    [event] = events(message("p", b"\xff"), of=None, under=Selection(binaries="hex"))
    assert event["after"]["content"] == "ff"


def test_heartbeat() -> None:
    beat, note = events(heartbeat(), message("p", b""), of=None, under=SHOP)
    assert (beat["topic"], beat["op"], beat["source"]) == ("__debezium-heartbeat.shop", None, None)
    assert (beat["key"], beat["after"]) == ({"serverName": "shop"}, {"ts_ms": NOW // 1000})
    assert note["op"] == "m"


def test_skipped_messages() -> None:
    assert events(message("p", b""), of=None, under=Selection(skipped=("m",))) == []


@pytest.mark.parametrize(
    "payload", [b"", b"M", b"M\1" + bytes(8) + b"p\0\0\0\0\5x", b"M\1" + bytes(8) + b"\xff\0\0\0\0\0"]
)
def test_damaged_message(payload: bytes) -> None:
    decoded = DECODER.envelope(block(("m", payload), heartbeat()), None, Selection(failures="dead-letter"))
    assert decoded.rows.num_rows == 1
    assert decoded.failures is not None
    assert decoded.failures.column("table").to_pylist() == [None]
    with pytest.raises(UnsupportedChange):
        DECODER.envelope(block(("m", payload)), None, Selection())
