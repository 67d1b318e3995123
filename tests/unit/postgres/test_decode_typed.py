"""Messages to typed rows: every operation with every kind of old image, and every way a message can be wrong."""

from __future__ import annotations

import pickle
import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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

from tidelog.connectors.postgres.decode import PostgresDecoder
from tidelog.contracts import FAILURES
from tidelog.core import metadata
from tidelog.errors import UnsupportedChange
from tidelog.model.schema import Column, Table
from tidelog.model.selection import ColumnRule, Selection

ORDERS = table("id int8", "name text", "note text")
FULL = table("id int8", "name text", "note text", old_image="full")
DECODER = PostgresDecoder(lambda: 1)
MONEY = Column("amount", "numeric", ((5 << 16) | 2) + 4)


def typed(*changes: Change, of: Table = ORDERS, under: Selection | None = None) -> list[dict[str, Any]]:
    decoded = DECODER.typed(block(*changes), of, under or Selection())
    assert decoded.rows.schema == DECODER.schema(of, under or Selection())
    decoded.rows.validate(full=True)
    rows: list[dict[str, Any]] = decoded.rows.to_pylist()
    return rows


def values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(v for k, v in row.items() if not k.startswith("_"))


def test_insert_carries_its_change_metadata() -> None:
    [row] = typed(insert("1", "a", None))
    assert row == {
        "id": 1,
        "name": "a",
        "note": None,
        metadata.OP: "c",
        metadata.POSITION: 0x1007,
        metadata.COMMIT_TS: datetime(2024, 1, 2, 3, 4, 5, 123456, UTC),
        metadata.XID: 700,
        metadata.ORDINAL: 0,
        metadata.BEFORE: None,
        metadata.UNCHANGED: [],
    }


def test_every_field_is_nullable() -> None:
    assert all(field.nullable for field in DECODER.schema(ORDERS, Selection()))


def test_update_without_old_image() -> None:
    [row] = typed(update("1", "b", ""))
    assert (row[metadata.OP], values(row), row[metadata.BEFORE]) == ("u", (1, "b", ""), None)


def test_update_with_old_key_has_only_the_key_before() -> None:
    [row] = typed(update("2", "b", "n", key=("1", None, None)))
    assert values(row) == (2, "b", "n")
    assert row[metadata.BEFORE] == {"id": 1, "name": None, "note": None}


def test_update_with_full_old_image() -> None:
    [row] = typed(update("1", "b", "n", old=("1", "a", None)), of=FULL)
    assert row[metadata.BEFORE] == {"id": 1, "name": "a", "note": None}


def test_delete_shows_the_old_image_in_the_columns_too() -> None:
    by_key, full = typed(delete(key=("1", None, None)), delete(old=("2", "a", "n")))
    assert (by_key[metadata.OP], values(by_key)) == ("d", (1, None, None))
    assert by_key[metadata.BEFORE] == {"id": 1, "name": None, "note": None}
    assert values(full) == (2, "a", "n")
    assert full[metadata.BEFORE] == {"id": 2, "name": "a", "note": "n"}


def test_unchanged_values_are_null_and_named() -> None:
    [row] = typed(update("1", UNCHANGED, UNCHANGED))
    assert (values(row), row[metadata.UNCHANGED]) == ((1, None, None), ["name", "note"])


def test_unchanged_value_comes_from_a_full_old_image() -> None:
    [row] = typed(update("1", "b", UNCHANGED, old=("1", "a", "long")), of=FULL)
    assert (values(row), row[metadata.UNCHANGED]) == ((1, "b", "long"), [])


def test_unchanged_value_is_not_taken_from_the_nulls_of_an_old_key() -> None:
    [row] = typed(update("2", "b", UNCHANGED, key=("1", None, None)))
    assert (values(row), row[metadata.UNCHANGED]) == ((2, "b", None), ["note"])


def test_unchanged_key_is_known_from_the_old_key() -> None:
    [row] = typed(update(UNCHANGED, "b", "n", key=("1", None, None)))
    assert (values(row), row[metadata.UNCHANGED]) == ((1, "b", "n"), [])


def test_unchanged_lists_differ_by_row() -> None:
    rows = typed(update("1", UNCHANGED, "x"), insert("2", "a", "b"), update("3", "y", UNCHANGED))
    assert [row[metadata.UNCHANGED] for row in rows] == [["name"], [], ["note"]]


def test_truncate_is_a_row_of_nulls() -> None:
    [row] = typed(truncate())
    assert (row[metadata.OP], values(row), row[metadata.BEFORE], row[metadata.UNCHANGED]) == (
        "t",
        (None, None, None),
        None,
        [],
    )


def test_operations_mix_in_block_order() -> None:
    rows = typed(
        insert("1", "a", "b"),
        schema(),
        update("1", "c", UNCHANGED),
        truncate(),
        delete(key=("1", None, None)),
        update("9", "d", "e", key=("8", None, None)),
    )
    assert [(row[metadata.OP], row["id"], row[metadata.ORDINAL]) for row in rows] == [
        ("c", 1, 0),
        ("u", 1, 2),
        ("t", None, 3),
        ("d", 1, 4),
        ("u", 9, 5),
    ]


def test_schema_records_messages_and_heartbeats_are_no_rows() -> None:
    assert typed(schema(), heartbeat(), message("p", b"x")) == []


def test_skipped_operations_are_left_out() -> None:
    changes = (insert("1", "a", "b"), update("1", "a", "c"), truncate())
    assert [row[metadata.OP] for row in typed(*changes, under=Selection(skipped=("t", "u")))] == ["c"]
    assert [row[metadata.OP] for row in typed(*changes, under=Selection(skipped=("none",)))] == ["c", "u", "t"]


def test_empty_block() -> None:
    assert typed() == []
    whole = block(insert("1", "a", "b"))
    assert DECODER.typed(whole.slice(1), ORDERS, Selection()).rows.num_rows == 0


def test_sliced_blocks_decode_as_the_whole_does() -> None:
    changes = [insert(str(i), "n" * i, None) if i % 2 else delete(key=(str(i), None, None)) for i in range(20)]
    whole = block(*changes)
    rows = DECODER.typed(whole, ORDERS, Selection()).rows.to_pylist()
    for first in range(20):
        assert DECODER.typed(whole.slice(first, 7), ORDERS, Selection()).rows.to_pylist() == rows[first : first + 7]


def test_columns_are_filtered_but_the_key_stays() -> None:
    under = Selection(exclude_columns=r"public\.orders\.(id|name)")
    [row] = typed(update("1", "secret", UNCHANGED, key=("2", None, None)), under=under)
    assert values(row) == (1, None)
    assert (row[metadata.BEFORE], row[metadata.UNCHANGED]) == ({"id": 2, "note": None}, ["note"])


def test_table_without_columns() -> None:
    [row] = typed(insert(), of=table(key=()))
    assert (row[metadata.OP], values(row)) == ("c", ())


def test_rules_change_new_and_old_text() -> None:
    under = Selection(
        rules=(
            ColumnRule("mask", r"public\.orders\.name", length=4),
            ColumnRule("truncate", r"public\.orders\.note", length=2),
        )
    )
    rows = typed(update("1", "secret", "äöü", old=("1", "older", None)), insert("2", None, UNCHANGED), under=under)
    assert values(rows[0]) == (1, "****", "äö")
    assert rows[0][metadata.BEFORE] == {"id": 1, "name": "****", "note": None}
    assert (values(rows[1]), rows[1][metadata.UNCHANGED]) == ((2, None, None), ["note"])


def test_a_rule_makes_any_column_text() -> None:
    under = Selection(rules=(ColumnRule("hash", r".*\.id", algorithm="SHA-256", salt="s"),))
    [row] = typed(insert("1", "a", None), under=under)
    assert row["id"] == "e8bc163c82eee18733288c7d4ac636db3a6deb013ef2d37b68322be20edc45cc"


def test_two_rules_apply_in_order() -> None:
    both = (ColumnRule("hash", r".*\.name", algorithm="MD5"), ColumnRule("truncate", r".*\.name", length=8))
    [row] = typed(insert("1", "a", None), under=Selection(rules=both))
    assert row["name"] == "0cc175b9"


DAMAGED = {
    "empty": b"",
    "null": None,
    "only the type": b"I",
    "wrong type": b"U" + insert("1", "a", "b")[1][1:],  # type: ignore[index]
    "cut in a value": insert("1", "a", "bcdef")[1][:-1],  # type: ignore[index]
    "cut in a length": insert("1", "a", "bcdef")[1][:-7],  # type: ignore[index]
    "bytes left over": insert("1", "a", "b")[1] + b"x",  # type: ignore[operator]
    "too few columns": insert("1", "a")[1],
    "too many columns": insert("1", "a", "b", "c")[1],
    "negative length": b"I\0\0\0\1N\0\3t\xff\xff\xff\xffnn",
    "unknown kind": b"I\0\0\0\1N\0\3bnn",
    "insert with an old image": b"I" + update("1", "a", "b", old=("1", "a", "b"))[1][1:],  # type: ignore[index]
    "old image in an insert": b"I" + delete(key=("1", None, None))[1][1:],  # type: ignore[index]
}


@pytest.mark.parametrize("payload", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_message_is_a_failure_and_harms_no_other(payload: bytes | None) -> None:
    records = block(insert("1", "a", "b"), ("c", payload), insert("3", "c", "d"))
    for decode in (DECODER.typed, DECODER.envelope):
        decoded = decode(records, ORDERS, Selection(failures="dead-letter"))
        assert decoded.rows.num_rows == 2
        assert decoded.failures is not None
        assert decoded.failures.schema == FAILURES
        [letter] = decoded.failures.to_pylist()
        assert (letter["table"], letter["ordinal"], letter["op"]) == ("public.orders", 1, "c")
        assert letter["payload"] == payload


def test_delete_without_an_old_row_is_damaged() -> None:
    decoded = DECODER.typed(block(("d", b"D\0\0\0\1N\0\1n")), table("id int8"), Selection(failures="warn"))
    assert (decoded.rows.num_rows, decoded.failures.num_rows if decoded.failures else 0) == (0, 1)


def test_unknown_operation_is_a_failure() -> None:
    with pytest.raises(UnsupportedChange):
        typed(("x", insert("1", "a", "b")[1]))


def test_value_that_does_not_fit_is_a_failure_without_its_value() -> None:
    of = table("id int8", MONEY)
    records = block(insert("1", "1.23"), insert("2", "NaN"), update("3", "4.56", old=("3", "NaN")))
    decoded = DECODER.typed(records, of, Selection(failures="dead-letter"))
    assert decoded.rows.column("id").to_pylist() == [1]
    assert decoded.failures is not None
    letters = decoded.failures.to_pylist()
    assert [letter["ordinal"] for letter in letters] == [1, 2]
    assert letters[0]["reason"] == "column amount: a numeric value does not fit decimal128(5, 2)"


def test_failure_stops_by_default_and_tells_what_helps() -> None:
    with pytest.raises(UnsupportedChange) as raised:
        typed(insert("1", "1.23"), insert("2", "NaN"), of=table("id int8", MONEY))
    assert "public.orders, column amount" in raised.value.message
    assert "position 4103, change 1 of transaction 700" in raised.value.message
    assert "decimal.handling.mode" in raised.value.hint
    assert "NaN" not in str(raised.value)


def test_text_that_is_not_utf8_is_a_failure() -> None:
    decoded = DECODER.typed(block(insert("1", b"\xff", "b"), insert("2", "ä", "b")), ORDERS, Selection(failures="warn"))
    assert decoded.rows.column("id").to_pylist() == [2]
    assert decoded.failures is not None
    assert "UTF-8" in decoded.failures.column("reason")[0].as_py()


def test_decoder_travels_to_executors() -> None:
    again = pickle.loads(pickle.dumps(PostgresDecoder()))
    assert again.typed(block(insert("1", "a", "b")), ORDERS, Selection()).rows.num_rows == 1


NAMES = ("id", "name", "note")
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
CELL = st.none() | TEXT | st.just(UNCHANGED)
ROW = st.tuples(st.integers(-(2**63), 2**63 - 1).map(str), CELL, CELL)
OLD = st.tuples(st.integers(-(2**63), 2**63 - 1).map(str), st.none() | TEXT, st.none() | TEXT)
CHANGES = st.one_of(
    ROW.map(lambda r: (insert(*r), r, None)),
    ROW.map(lambda r: (update(*r), r, None)),
    st.tuples(ROW, OLD).map(lambda p: (update(*p[0], old=p[1]), p[0], p[1])),
    OLD.map(lambda r: (delete(old=r), r, r)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(CHANGES, max_size=12), st.integers(0, 3))
def test_any_mix_of_changes_decodes_to_what_was_written(changes: list[Any], skip: int) -> None:
    rows = DECODER.typed(block(*[c for c, _, _ in changes]).slice(skip), ORDERS, Selection()).rows.to_pylist()
    for row, (_, new, old) in zip(rows, changes[skip:], strict=True):
        known = [
            o if n is UNCHANGED and isinstance(o, str) else n for n, o in zip(new, old or (None,) * 3, strict=True)
        ]
        assert list(values(row)) == [int(known[0]), *(None if v is UNCHANGED else v for v in known[1:])]
        assert row[metadata.UNCHANGED] == [
            n for n, v in zip(("id", "name", "note"), known, strict=True) if v is UNCHANGED
        ]
        assert row[metadata.BEFORE] == (
            dict(zip(("id", "name", "note"), (int(old[0]), *old[1:]), strict=True)) if old else None
        )


def test_damage_anywhere_never_raises_and_never_loses_a_record() -> None:
    chance = random.Random(7)
    of = table("id int8", "at timestamptz", "tags text[]", "raw bytea", "h hstore", "ok bool", "d date", "n numeric")
    row = ("1", "2024-01-02 03:04:05+00", '{a,"b c"}', "\\x00ff", '"a"=>NULL', "t", "2024-01-02", "1.5")
    sound = [insert(*row), update(*row, old=row), delete(old=row), update(*row, key=("1", *(None,) * 7))]
    for _ in range(150):
        changes = []
        for op, payload in chance.choices(sound, k=8):
            broken = bytearray(payload or b"")
            for _ in range(chance.choice([0, 1, 1, 3])):
                broken[chance.randrange(len(broken))] = chance.randrange(256)
            changes.append((op, bytes(broken[: chance.choice([len(broken), chance.randrange(len(broken))])])))
        for decode in (DECODER.typed, DECODER.envelope):
            decoded = decode(block(*changes), of, Selection(failures="dead-letter"))
            decoded.rows.validate(full=True)
            failed = decoded.failures.num_rows if decoded.failures else 0
            assert decoded.rows.num_rows + failed >= 8


def test_torn_quotes_stay_in_their_row() -> None:
    of = table("id int8", "tags text[]", "h hstore")
    rows = [
        ("1", '{"a}', '"a"=>"1"'),
        ("2", '{"b"}', '"b"=>"2'),
        ("3", '{"c"}', '"c"=>"3"\\'),
        ("4", '{"d"}', '"d"=>"4"'),
    ]
    decoded = DECODER.envelope(block(*[insert(*row) for row in rows]), of, Selection(failures="warn"))
    assert decoded.rows.column("after").to_pylist() == ['{"id":4,"tags":["d"],"h":"{\\"d\\": \\"4\\"}"}']


def test_schema_follows_the_selection() -> None:
    names = DECODER.schema(table("id int8", MONEY), Selection(decimals="string"))
    assert names.field("amount").type == pa.string()
    assert DECODER.schema(table("id int8", MONEY), Selection()).field("amount").type == pa.decimal128(5, 2)
