"""What LogMiner writes in pieces: large objects, XML and strings of 32K, each begun by one row and written by others.

The rows are fragments of PL/SQL blocks:

    select "C" into loc_c from "S"."T" where "ID" = '1' for update;         SELECT_LOB_LOCATOR
    buf_c := 'abc'; dbms_lob.write(loc_c, 3, 1, buf_c);                     LOB_WRITE
    XML DOC BEGIN: select "C" from "S"."T" where "ID" = '1'                 XML_BEGIN, binary
    update "S"."T" a set a."C" = XMLType(:1) where a."ID" = '1';            XML_BEGIN, text
    XML_REDO := HEXTORAW('3c61'):2                                          XML_WRITE
    Stmt := 'update "S"."T" set "C" = :C where "ID" = ''1'';';              32K_BEGIN
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import AnyStr

from tidelog.connectors.oracle.redo import charsets, dml
from tidelog.connectors.oracle.redo.dml import Ending, wrong
from tidelog.connectors.oracle.redo.literals import hex_digits, text_of
from tidelog.connectors.oracle.redo.values import Sql, Value, cut
from tidelog.model.schema import Table

_PLACE = r'from\s+"([^"]*)"\s*\.\s*"([^"]*)"'
_LOCATOR = re.compile(rf'\bselect\s+"([^"]*)"\s+into\s+(loc_\w+)\s+{_PLACE}')
_DOCUMENT = re.compile(rf'XML DOC BEGIN:\s+select\s+"([^"]*)"\s+{_PLACE}')
_STATEMENT = re.compile(r"\bStmt\s*:=\s*('[^']*(?:''[^']*)*')")
_BUFFER = re.compile(r"\s*buf_\w+\s*:=\s*")
_WRITE = re.compile(r";\s*dbms_lob\.write\(\s*\w+\s*,\s*(\d+)\s*,\s*(\d+)\s*,", re.I)
_XML = re.compile(r"\s*XML_REDO\s*:=\s*(?:(NULL)|HEXTORAW\('([0-9A-Fa-f]*)'?\)?(?::(\d+))?)\s*;?\s*")
_IN_BUFFER = Ending.at(r"\s*;")
_LOCKED = Ending.at(r"\s+and\s|\s+for update\s*;?\s*\Z|\s*;?\s*\Z")


@dataclass(frozen=True)
class Begun:
    """A row of the log that says which column of which row the following pieces are for (codes 9, 68 and 91)."""

    schema: str
    table: str
    column: str
    binary: bool
    row: Mapping[str, Value]
    """The columns that its WHERE tells."""


@dataclass(frozen=True)
class Piece:
    data: Value
    """A text, or `HEXTORAW('…')`."""
    length: int
    """In characters of UTF-16, as Oracle counts them, or in bytes."""
    offset: int | None = None
    """From 0; pieces of XML and of 32K strings follow each other and have none."""


def join(pieces: Iterable[tuple[int, AnyStr | None]]) -> AnyStr | None:
    """(CSF, SQL_REDO) of consecutive rows to one statement: all until the first whose CSF is 0."""
    parts: list[AnyStr] = []
    for continued, part in pieces:
        if part is not None:
            parts.append(part)
        if not continued:
            break
    return parts[0][:0].join(parts) if parts else None


def locator(sql: str, table: Table) -> Begun:
    """SELECT_LOB_LOCATOR (9)."""
    found = _LOCATOR.search(sql)
    if found is None:
        raise wrong("it selects no large object")
    row = _told(sql, found.end(), table, _LOCKED)
    return Begun(found[3], found[4], _column(table, found[1]), found[2] == "loc_b", row)


def lob_write(sql: str) -> Piece:
    """LOB_WRITE (10)."""
    value, write = _buffer(sql)
    if write is None:
        raise wrong("it writes no large object")
    length = int(write[1])
    return Piece(cut(value, length), length, int(write[2]) - 1)


def _buffer(sql: str) -> tuple[Value, re.Match[str] | None]:
    """What is put into the buffer, and how it is written from there, if that is told."""
    opening = _BUFFER.match(sql)
    if opening is None:
        raise wrong("it fills no buffer")
    span, end = dml.value_at(sql, opening.end(), _IN_BUFFER)
    return plain(span and span.of(sql)), _WRITE.match(sql, end.start())


def plain(value: Value) -> Value:
    """A text for what means one; bytes stay `HEXTORAW('…')`."""
    if isinstance(value, Sql) and hex_digits(value) is None:
        return text_of(value)
    return value


def xml_begin(sql: str, table: Table) -> Begun:
    """XML_BEGIN (68), in either form."""
    found = _DOCUMENT.match(sql)
    if found is not None:
        row = _told(sql, found.end(), table)
        return Begun(found[2], found[3], _column(table, found[1]), True, row)
    return _update(sql, table)


def xml_write(sql: str, charset: str = "AL32UTF8") -> Piece:
    """XML_WRITE (70): text, or hexadecimal digits of bytes in the database's character set. A text that is written in
    several of them may be cut inside a character: see `xml_bytes`."""
    data = xml_bytes(sql)
    if isinstance(data, bytes):
        return Piece(charsets.decode(data, charset), len(data))
    return Piece(data, 0 if data is None else len(data))


def xml_bytes(sql: str) -> str | bytes | None:
    """What an XML_WRITE row writes: a text, or bytes in the database's character set."""
    found = _XML.fullmatch(sql)
    if found is None:
        return sql
    if found[1] is not None:
        return None
    return bytes.fromhex(found[2][: len(found[2]) // 2 * 2])


def string_begin(sql: str, table: Table) -> Begun:
    """EXTENDED_STRING_BEGIN (91)."""
    found = _STATEMENT.search(sql)
    if found is None:
        raise wrong("it begins no long string")
    return _update(found[1][1:-1].replace("''", "'"), table)


def string_write(sql: str) -> Piece:
    """EXTENDED_STRING_WRITE (92): what fills the buffer, up to the statement that appends it."""
    value, _ = _buffer(sql)
    text = value if isinstance(value, str) else None
    return Piece(text, len(text or ""))


def _update(sql: str, table: Table) -> Begun:
    """`update … set "C" = :bind where …`."""
    head = dml.HEAD.match(sql)
    if head is None or head[1] != "update":
        raise wrong("it begins no XML document")
    told, at = dml.assigned(sql, head.end())
    row = _told(sql, at, table)
    return Begun(head[2], head[3], _column(table, next(iter(told))), False, row)


def _told(sql: str, at: int, table: Table, ending: Ending = dml.IN_WHERE) -> dict[str, Value]:
    return dml.named(table, dml.values_of(sql, dml.conditions(sql, at, ending)))


def _column(table: Table, name: str) -> str:
    return next(iter(dml.named(table, {name: None})), name)
