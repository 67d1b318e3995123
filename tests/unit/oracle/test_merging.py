"""Merging: the rows of the log that tell one change of a table with large objects."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelog.connectors.oracle import draft, payload, queries
from tidelog.connectors.oracle.dispatch import UNDO
from tidelog.connectors.oracle.merging import RowMerging
from tidelog.connectors.oracle.redo import dml
from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Change
from tidelog.contracts import Block
from tidelog.model.record import Op
from tidelog.model.schema import Column, Table

TABLE = Table(
    7,
    "S",
    "T",
    (
        Column("ID", "NUMBER"),
        Column("NAME", "VARCHAR2", 100),
        Column("C", "CLOB"),
        Column("B", "BLOB"),
        Column("X", "XMLTYPE"),
    ),
    ("ID",),
)
OTHER = Table(8, "S", "U", (Column("ID", "NUMBER"), Column("C", "CLOB")), ("ID",))
NONE, ROW, ROW2 = "A" * 18, "AAASJqAANAAAAnkAAI", "AAASJqAANAAAAnkAAJ"
_OPS = {1: Op.CREATE, 2: Op.DELETE}

Told = tuple[int, int, str, str]
"""Code, flags, row id and SQL."""


def told(code: int, sql: str, row: str = ROW, flags: int = 0) -> Told:
    return code, flags, row, sql


def insert(key: int = 1, clob: str = "EMPTY_CLOB()", row: str = ROW) -> Told:
    return told(1, f"""insert into "S"."T"("ID","NAME","C","B","X") values ('{key}','n',{clob},NULL,NULL);""", row)


def update(assigned: str, key: int = 1, row: str = ROW) -> Told:
    return told(3, f"""update "S"."T" set {assigned} where "ID" = '{key}' and "NAME" = 'n';""", row)


def delete(key: int = 1, row: str = ROW) -> Told:
    return told(2, f"""delete from "S"."T" where "ID" = '{key}' and "NAME" = 'n';""", row)


def locator(column: str = "C", key: int = 1, row: str = ROW) -> Told:
    place = "loc_b" if column == "B" else "loc_c"
    where = f""""ID" = '{key}' and "NAME" = 'n'"""
    return told(9, f'select "{column}" into {place} from "S"."T" where {where} for update;', row)


def write(text: str, at: int = 1, row: str = ROW) -> Told:
    return told(10, f" buf_c := '{text}'; \n  dbms_lob.write(loc_c, {len(text)}, {at}, buf_c);\n", row)


def trim(amount: int, row: str = ROW) -> Told:
    return told(11, f" dbms_lob.trim(loc_c, {amount});\n", row)


def undo(code: int, row: str = ROW) -> Told:
    return told(code, 'delete from "S"."T";', row, UNDO)


def block(rows: list[Told], first: int = 0, table: Table = TABLE) -> Block:
    codes, flags, rowids, sqls = zip(*rows, strict=True)
    packed = payload.pack(code=codes, flags=flags, rowid=rowids, sql=sqls)
    numbers = np.arange(first, first + len(rows))
    ops = [ord(_OPS.get(code, Op.UPDATE)) for code in codes]
    one = np.ones(len(rows), np.int64)
    return draft.block(table, key=one * 0, ordinal=numbers, xid=one * 5, scn=numbers + 100, op=ops, payload=packed)


def merged(*rows: Told, **options: Any) -> list[tuple[int, Change]]:
    merging = RowMerging(**options)
    return changes([*merging.feed(block(list(rows))), *merging.close()])


def changes(blocks: list[Block]) -> list[tuple[int, Change]]:
    found = []
    for each in blocks:
        assert each.table is not None
        payloads = payload.unpack(each.records.column("payload"))
        for row, sql, joined in zip(
            each.records.to_pylist(), payloads.sql.to_pylist(), payloads.merged.tolist(), strict=True
        ):
            change = payload.read_merged(sql) if joined else dml.parse(sql.decode(), each.table)
            assert ord(change.op) == row["op"]
            found.append((row["ordinal"], change))
    return sorted(found, key=lambda one: one[0])


def after(found: list[tuple[int, Change]], column: str = "C") -> list[Any]:
    return [change.after[column] if change.after is not None else None for _, change in found]


def test_pieces_join_the_insert() -> None:
    found = merged(insert(), locator(), write("abc"), write("def", 4))
    assert [(n, c.op) for n, c in found] == [(0, Op.CREATE)]
    assert found[0][1].after == {"ID": "1", "NAME": "n", "C": "abcdef", "B": None, "X": None}


def test_pieces_join_the_update_and_keep_what_it_set() -> None:
    found = merged(update("\"NAME\" = 'm'"), told(9, locator()[3].replace("= 'n'", "= 'm'")), write("abc"), trim(3))
    assert len(found) == 1
    change = found[0][1]
    assert change.before is not None
    assert change.after == {"ID": "1", "NAME": "m", "C": "abc", "B": UNAVAILABLE, "X": UNAVAILABLE}
    assert (change.before["NAME"], change.before["C"]) == ("n", UNAVAILABLE)


def test_a_value_alone_is_an_update() -> None:
    for rows in ([write("abc"), trim(3)], [trim(0), write("abc")], [trim(0), locator(), write("abc")]):
        found = merged(locator(), *rows)
        assert [c.op for _, c in found] == [Op.UPDATE]
        assert after(found) == ["abc"]
    assert after(merged(locator(), trim(0))) == ["EMPTY_CLOB()"]
    assert after(merged(locator(), write("abcdef"), write("xy", 3), trim(4))) == ["abxy"]


@pytest.mark.parametrize(
    "rows",
    [[write("abc")], [write("abc", 5)], [write("abc"), trim(9)], [write("abc"), write("x", 9), trim(9)], [trim(3)]],
)
def test_a_part_of_a_value_that_is_not_known_is_not_the_value(
    rows: list[Told], caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody says what else is in it: the target keeps what it has, and the log says so."""
    found = merged(locator(), *rows)
    assert after(found) == [UNAVAILABLE]
    assert "C was changed in place" in caplog.text
    assert after(merged(insert(clob="'0123456789'"), locator(), *rows)) != [UNAVAILABLE]


def test_a_locator_that_writes_nothing_is_no_change() -> None:
    assert merged(locator()) == []
    assert len(merged(insert(), locator())) == 1


def test_rows_of_the_same_table_in_between() -> None:
    """An array insert: all rows first, then their values."""
    found = merged(insert(1), insert(2, row=ROW2), locator(key=1), write("one"), locator(key=2, row=ROW2), write("two"))
    assert [n for n, _ in found] == [0, 1]
    assert after(found) == ["one", "two"]


def test_several_large_columns_of_one_change() -> None:
    xml = told(68, """XML DOC BEGIN:  select "X" from "S"."T" where "ID" = '1' and "NAME" = 'n'""")
    halves = "<a>ä</a>".encode().hex()
    parts = [told(70, f"XML_REDO := HEXTORAW('{half}'):4") for half in (halves[:8], halves[8:])]
    binary = told(10, " buf_b := HEXTORAW('0102'); \n  dbms_lob.write(loc_b, 2, 1, buf_b);\n")
    found = merged(insert(), locator(), write("abc"), locator("B"), binary, xml, *parts)
    assert len(found) == 1
    assert [after(found, column)[0] for column in "CBX"] == ["abc", "HEXTORAW('0102')", "<a>ä</a>"]


def test_a_long_string() -> None:
    table = Table(9, "S", "T", (Column("ID", "NUMBER"), Column("DATA", "VARCHAR2", 32767)), ("ID",))
    begin = """DECLARE Stmt := 'update "S"."T" a set a."DATA" = :DATA where a."ID" = ''1'';';"""
    rows = [
        told(1, """insert into "S"."T"("ID","DATA") values ('1',NULL);"""),
        told(91, begin),
        told(92, "\n buf_c := 'it''s';\n DBMS_LOB.WriteAppend(TempLob, 4, buf_c);"),
        told(92, "\n buf_c := ' long';\n DBMS_LOB.WriteAppend(TempLob, 5, buf_c);"),
    ]
    merging = RowMerging()
    found = changes([*merging.feed(block(rows, table=table)), *merging.close()])
    assert after(found, "DATA") == ["it's long"]


def test_two_updates_of_a_user_stay_two() -> None:
    found = merged(update("\"C\" = 'a'"), update("\"C\" = 'b'"))
    assert after(found) == ["a", "b"]


def test_oracle_splits_an_insert_whose_row_id_comes_later() -> None:
    found = merged(insert(row=NONE), update("\"C\" = 'late'"))
    assert [(c.op, c.after["C"]) for _, c in found if c.after] == [(Op.CREATE, "late")]
    assert len(merged(insert(row=NONE), update("\"NAME\" = 'm'"))) == 2


def test_a_value_that_is_written_anew_is_another_change() -> None:
    def told(*rows: Told) -> list[tuple[int, Op, Any]]:
        found = merged(insert(), locator(), write("long ago"), locator(), *rows)
        return [(n, c.op, c.after["C"]) for n, c in found if c.after]

    for rows in ([write("new"), trim(3)], [trim(0), write("new")]):
        assert told(*rows) == [(0, Op.CREATE, "long ago"), (3, Op.UPDATE, "new")]
    assert told(write("new")) == [(0, Op.CREATE, "long ago"), (3, Op.UPDATE, "newg ago")]


def test_a_value_may_be_begun_again_to_go_on() -> None:
    assert after(merged(insert(), locator(), write("abc"), locator(), write("def", 4))) == ["abcdef"]


def test_changes_of_one_row_in_order() -> None:
    found = merged(insert(), locator(), write("abc"), update("\"NAME\" = 'm'"), delete())
    assert [(n, c.op) for n, c in found] == [(0, Op.CREATE), (3, Op.UPDATE), (4, Op.DELETE)]
    assert after(found)[:2] == ["abc", UNAVAILABLE]


def test_a_deleted_row_takes_no_more_values() -> None:
    found = merged(insert(), delete(), insert(clob="NULL"), locator(), write("x"))
    assert [c.op for _, c in found] == [Op.CREATE, Op.DELETE, Op.CREATE]
    assert after(found)[2] == "x"


@pytest.mark.parametrize(
    ("cut", "left"),
    [
        ("dbms_lob.trim(loc_c, 2);", "ab"),
        ("dbms_lob.erase(loc_c, 2, 2);", "a  d"),
        ("dbms_lob.erase(loc_c, 9, 3);", "ab  "),
    ],
)
def test_a_known_value_can_be_cut(cut: str, left: str) -> None:
    code = queries.LOB_TRIM if "trim" in cut else queries.LOB_ERASE
    assert after(merged(insert(), locator(), write("abcd"), told(code, cut))) == [left]


def test_an_erased_value_that_is_not_known_is_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = merged(locator(), told(queries.LOB_ERASE, "dbms_lob.erase(loc_c, 2, 2);"))
    assert after(found) == [UNAVAILABLE]
    assert "changed in place" in caplog.text


def test_a_piece_in_the_middle_of_an_unknown_value(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert after(merged(locator(), write("x", 100))) == [UNAVAILABLE]
    assert "changed in place" in caplog.text


def test_a_piece_without_a_beginning_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert merged(write("x")) == []
    assert "without its beginning" in caplog.text


# -- undo ----------------------------------------------------------------------------------------------------------


def test_an_undo_takes_back_the_insert_with_its_value() -> None:
    assert merged(insert(), locator(), write("abc"), undo(2), undone=True) == []


def test_an_undo_takes_back_the_newest_update_only() -> None:
    found = merged(insert(), update("\"NAME\" = 'a'"), update("\"NAME\" = 'b'"), undo(3), undone=True)
    assert [(c.op, c.after["NAME"]) for _, c in found if c.after] == [(Op.CREATE, "n"), (Op.UPDATE, "a")]


def test_an_insert_without_a_row_id_is_found_by_the_update_that_belongs_to_it() -> None:
    assert merged(insert(row=NONE), update('"C" = NULL'), undo(2), undone=True) == []


def test_an_insert_that_nothing_gave_a_row_id_is_the_newest_of_its_kind() -> None:
    """As `EMPTY_CLOB()` is inserted: only the undo has the row id."""
    assert merged(insert(row=NONE), undo(2), undone=True) == []
    rows = [insert(1, row=NONE), insert(2, row=NONE), insert(3, row=ROW2)]
    found = merged(*rows, undo(2), undone=True)
    assert [n for n, _ in found] == [0, 2]
    assert [n for n, _ in merged(*rows, undo(2, ROW2), undo(2), undo(2), undone=True)] == []


def test_an_undo_takes_no_new_row_that_has_a_row_id_of_its_own() -> None:
    rows = [insert(row=NONE), update('"C" = NULL', row=ROW)]
    assert len(merged(*rows, undo(2, ROW2), undone=True)) == 1
    assert len(merged(insert(row=NONE), undo(1), undo(3), undone=True)) == 1


def test_what_was_written_into_a_new_row_can_be_taken_back_alone() -> None:
    found = merged(insert(clob="NULL"), locator(), write("abc"), undo(3), undone=True)
    assert after(found) == [None]


def test_an_undo_of_a_delete() -> None:
    found = merged(delete(), undo(1), undone=True)
    assert found == []
    assert len(merged(delete(), undo(1, ROW2), undone=True)) == 1


# -- order and amount ----------------------------------------------------------------------------------------------


def test_events_that_were_delivered_are_skipped_across_tables() -> None:
    merging = RowMerging(skip=2)
    other = [told(1, """insert into "S"."U"("ID","C") values ('1','x');""")]
    rows = [*merging.feed(block([insert(1)], 0)), *merging.feed(block(other, 1, OTHER))]
    rows += [*merging.feed(block([insert(2, row=ROW2)], 2)), *merging.close()]
    assert [n for n, _ in changes(rows)] == [2]


def test_a_large_transaction_is_let_go_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.connectors.oracle.merging._HELD_BYTES_MAX", 1000)
    merging = RowMerging()
    out = [list(merging.feed(block([insert(n, row=ROW), locator(key=n), write("x")], 3 * n))) for n in range(20)]
    assert any(out)
    found = changes([b for some in out for b in some] + list(merging.close()))
    assert [n for n, _ in found] == [3 * n for n in range(20)]
    assert after(found) == ["x"] * 20


def test_what_cannot_be_parsed_passes_on_to_be_told_by_decoding() -> None:
    merging = RowMerging()
    merging.feed(block([told(1, "insert of something else")]))
    (left,) = merging.close()
    assert payload.unpack(left.records.column("payload")).sql.to_pylist() == [b"insert of something else"]


def test_schema_changes_pass() -> None:
    merging = RowMerging()
    rows = block([insert(), told(5, "alter table t add x number"), locator(), write("x")])
    ops = rows.records.column("op").to_pylist()
    ops[1] = ord(Op.SCHEMA)
    columns = list(rows.records.columns)
    columns[6] = pa.array(ops, pa.uint8())
    fed = Block(TABLE, pa.record_batch(columns, schema=rows.records.schema))
    found = [*merging.feed(fed), *merging.close()]
    assert [chr(op) for b in found for op in b.records.column("op").to_pylist()] == ["c", "s", "u"]


def test_statements_that_are_no_utf_8_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """A damaged piece leaves its value unknown; a damaged change passes as it came, and decoding says so."""
    damaged = b" buf_c := 'caf\xe9'; \n  dbms_lob.write(loc_c, 4, 1, buf_c);\n"
    with caplog.at_level(logging.WARNING):
        found = merged(insert(), locator(), (10, 0, ROW, damaged))  # type: ignore[arg-type]
    assert after(found) == [UNAVAILABLE]
    assert "no valid UTF-8" in caplog.text
    change = insert()[3].encode().replace(b"'n'", b"'\xe9'")
    merging = RowMerging()
    (passed,) = [*merging.feed(block([(1, 0, ROW, change)])), *merging.close()]  # type: ignore[list-item]
    assert payload.unpack(passed.records.column("payload")).sql.to_pylist() == [change]
