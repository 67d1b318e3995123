"""Large objects, XML and 32K strings: the rows that begin and write them, and what they add up to."""

from __future__ import annotations

import pytest

from tidelog.connectors.oracle.redo import charsets, fragments, literals, lobs
from tidelog.connectors.oracle.redo.fragments import Piece
from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Sql, cut
from tidelog.errors import ConfigError, UnsupportedChange
from tidelog.model.schema import Column, Table

TABLE = Table(1, "S", "T", (Column("ID", "NUMBER"), Column("NAME", "VARCHAR2"), Column("DOC", "CLOB")), ("ID",))
BLOCK = "DECLARE \n loc_c CLOB; \n buf_c VARCHAR2(6174); \nBEGIN\n"


def test_a_locator_tells_the_column_and_the_row() -> None:
    sql = BLOCK + """ select "DOC" into loc_c from "S"."T" where "ID" = '2' and "NAME" = 'O''Neil' for update;"""
    found = fragments.locator(sql, TABLE)
    assert (found.schema, found.table, found.column, found.binary) == ("S", "T", "DOC", False)
    assert found.row == {"ID": "2", "NAME": "O'Neil"}


def test_a_locator_of_bytes_and_a_null_at_its_end() -> None:
    found = fragments.locator(""" select "DOC" into loc_b from "S"."T" a where a."NAME" IS NULL for update;""", TABLE)
    assert found.binary
    assert found.row == {"NAME": None}


def test_xml_begins_in_two_forms() -> None:
    binary = fragments.xml_begin("""XML DOC BEGIN:  select "DOC" from "S"."T" where "ID" = '1'""", TABLE)
    text = fragments.xml_begin("""update "S"."T" a set a."DOC" = XMLType(:1)  where a."ID" = '1';""", TABLE)
    assert (binary.column, binary.row, binary.binary) == ("DOC", {"ID": "1"}, True)
    assert (text.column, text.row, text.binary) == ("DOC", {"ID": "1"}, False)
    with pytest.raises(UnsupportedChange):
        fragments.xml_begin("""XMLDOCBEGIN:  select "DOC" from "S"."T" where "ID" = '1'""", TABLE)


def test_a_long_string_begins_inside_a_literal() -> None:
    sql = """DECLARE\n Stmt CLOB;\nBEGIN\n Stmt := 'update "S"."T" set "NAME" = :NAME where "ID" = ''it''''s'';';"""
    found = fragments.string_begin(sql, TABLE)
    assert (found.column, found.row) == ("NAME", {"ID": "it's"})
    with pytest.raises(UnsupportedChange):
        fragments.string_begin("DECLARE\n Stmt CLOB;", TABLE)


def test_a_long_strings_piece_keeps_what_looks_like_an_end() -> None:
    sql = "  buf_c := 'a''; b'; \n DBMS_LOB.WriteAppend(TempLob, 6, buf_c);"
    assert fragments.string_write(sql) == Piece("a'; b", 5)


@pytest.mark.parametrize(
    ("sql", "piece"),
    [
        (" buf_c := 'abc'; \n  dbms_lob.write(loc_c, 3, 1, buf_c);\n", Piece("abc", 3, 0)),
        (" buf_c := 'abcdef'; \n  dbms_lob.write(loc_c, 3, 11, buf_c);\n", Piece("abc", 3, 10)),
        (" buf_b := HEXTORAW('0aFF'); \n  dbms_lob.write(loc_b, 2, 1, buf_b);\n", Piece("HEXTORAW('0aFF')", 2, 0)),
        (" buf_b := HEXTORAW('0aFF'); \n  dbms_lob.write(loc_b, 1, 1, buf_b);\n", Piece("HEXTORAW('0a')", 1, 0)),
        (" buf_nc := UNISTR('\\0416'); \n  dbms_lob.write(loc_nc, 1, 1, buf_nc);\n", Piece("Ж", 1, 0)),
    ],
)
def test_a_piece_of_a_large_object(sql: str, piece: Piece) -> None:
    assert fragments.lob_write(sql) == piece


@pytest.mark.parametrize("sql", ["", "buf_c := 'abc'", " dbms_lob.write(loc_c, 3, 1, buf_c);", "buf_c := 'abc';"])
def test_what_writes_nothing_is_refused(sql: str) -> None:
    with pytest.raises(UnsupportedChange):
        fragments.lob_write(sql)


def test_xml_is_text_or_bytes_of_the_database() -> None:
    assert fragments.xml_write("<a>it's</a>") == Piece("<a>it's</a>", 11)
    assert fragments.xml_write("XML_REDO := NULL") == Piece(None, 0)
    assert fragments.xml_write("XML_REDO := HEXTORAW('c3a9'):2") == Piece("é", 2)
    assert fragments.xml_write("XML_REDO := HEXTORAW('e9'):1", "WE8ISO8859P1") == Piece("é", 1)
    assert fragments.xml_write("XML_REDO := HEXTORAW('e9", "WE8MSWIN1252") == Piece("é", 1)
    assert fragments.xml_bytes("XML_REDO := HEXTORAW('c3'):1") == b"\xc3"


def test_character_sets() -> None:
    assert charsets.decode("Ж".encode("cp1251"), "CL8MSWIN1251") == "Ж"
    assert charsets.decode("日".encode("cp932"), "JA16SJIS") == "日"
    assert [charsets.decode(b"\xd5", name) for name in ("WE8PC850", "WE8PC858", "EE8PC852")] == ["\u0131", "€", "Ň"]
    assert charsets.decode(b"\x80\xfe", "RU8PC866") == "\u0410■"


@pytest.mark.parametrize(
    "name", ["EE8EBCDIC870C", "WE8EBCDIC500", "ET8MSWIN923", "US8PC437", "WE8DEC", "JA16EUCTILDE", "XX8ISO8859P12"]
)
def test_character_sets_that_python_does_not_have_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        charsets.codec(name)


def test_rows_are_joined_until_the_last() -> None:
    assert fragments.join([(1, "a"), (1, "b"), (0, "c"), (0, "d")]) == "abc"
    assert fragments.join([(1, "a"), (0, None)]) == "a"
    assert fragments.join([(0, None)]) is None


def test_unistr() -> None:
    assert literals.text_of("UNISTR('\\0416\\044B') || 'a''b'||UNISTR('\\\\')") == "Жыa'b\\"
    assert literals.text_of("UNISTR('\\D83D\\DE00')") == "😀"
    assert literals.text_of("UNISTR('\\D83D') || UNISTR('\\DE00')") == "😀"
    for wrong in ("TO_DATE('x')", "UNISTR('a'", "'a' ||", "'a')"):
        with pytest.raises(UnsupportedChange):
            literals.text_of(wrong)


def test_a_text_is_cut_as_utf16_counts() -> None:
    assert cut("a😀b", 3) == "a😀"
    assert cut("abc", 5) == "abc"
    assert cut(None, 1) is None


def test_pieces_add_up() -> None:
    assert lobs.written(Sql("EMPTY_CLOB()"), [Piece("abc", 3, 0), Piece("XY", 2, 1)]) == "aXY"
    assert lobs.written("abc", [Piece("Z", 1, 1)]) == "aZc"
    assert lobs.written("😀", [Piece("x", 1, 2)]) == "😀x"
    assert lobs.written("a", [Piece("b", 1, 3)]) == "a  b"
    assert lobs.written(Sql("HEXTORAW('01')"), [Piece(Sql("HEXTORAW('02')"), 1, 2)]) == "HEXTORAW('010002')"
    assert lobs.written(None, [Piece("a", 1), Piece(None, 0), Piece("b", 1)]) == "ab"


def test_without_pieces_a_value_stays() -> None:
    for value in (None, UNAVAILABLE, "a", Sql("EMPTY_BLOB()"), Sql("HEXTORAW('01')")):
        assert lobs.written(value, []) == value


def test_a_piece_of_the_unknown_leaves_it_unknown() -> None:
    assert lobs.written(UNAVAILABLE, [Piece("x", 1, 5)]) is UNAVAILABLE
    assert lobs.written(UNAVAILABLE, [Piece("abc", 3, 0), Piece("d", 1, 3)]) is UNAVAILABLE
    assert lobs.written(UNAVAILABLE, [Piece("abc", 3), Piece("d", 1)]) == "abcd"  # a string is written as a whole


def test_pieces_may_tell_the_beginning() -> None:
    pieces = [Piece("abc", 3, 0), Piece("d", 1, 3)]
    assert lobs.beginning(pieces, 4) == "abcd"
    assert lobs.beginning(pieces, 5) is UNAVAILABLE
    assert lobs.beginning([Piece("abc", 3, 0), Piece("d", 1, 4)], 3) is UNAVAILABLE
