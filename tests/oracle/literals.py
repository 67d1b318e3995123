"""How LogMiner writes changes as SQL: the values, the statements, and the pieces of large values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

CSF_SIZE = 4000
"""Longer statements go on in the next row."""

LARGE = ("CLOB", "NCLOB", "BLOB", "XMLTYPE")

EMPTY = {"CLOB": "EMPTY_CLOB()", "NCLOB": "EMPTY_CLOB()", "BLOB": "EMPTY_BLOB()"}


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    length: int = 0
    precision: int | None = None
    scale: int | None = None
    nullable: bool = True
    hidden: bool = False
    """Invisible to who does not name it."""
    system: bool = False
    """Added by Oracle for itself, and hidden."""

    @property
    def extended(self) -> bool:
        """A string that is kept like a LOB, because it may be longer than 4000 bytes."""
        return self.type in ("VARCHAR2", "NVARCHAR2") and self.length > CSF_SIZE

    @property
    def large(self) -> bool:
        return self.type in LARGE or self.extended


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def literal(column: Column, value: Any) -> str:
    match column.type, value:
        case _, None:
            return "NULL"
        case "DATE", datetime():
            return f"TO_DATE('{value:%Y-%m-%d %H:%M:%S}', 'YYYY-MM-DD HH24:MI:SS')"
        case "TIMESTAMP", datetime():
            return f"TO_TIMESTAMP('{value:%Y-%m-%d %H:%M:%S.%f}')"
        case (("RAW" | "BLOB"), bytes()):
            return f"HEXTORAW('{value.hex()}')"
        case (("NVARCHAR2" | "NCLOB"), str()) if not value.isascii():
            return _unistr(value)
        case _:
            return quote(str(value))


def _unistr(text: str) -> str:
    """Whatever is no ASCII as UTF-16 units; long texts are joined from several calls."""
    units = [c if c.isascii() else _escape(c) for c in text.replace("\\", "\\005C").replace("'", "''")]
    if len(units) < 3:
        return f"UNISTR('{''.join(units)}')"
    half = len(units) // 2
    return f"UNISTR('{''.join(units[:half])}') || UNISTR('{''.join(units[half:])}')"


def _escape(character: str) -> str:
    raw = character.encode("utf-16-be")
    return "".join("\\" + raw[n : n + 2].hex().upper() for n in range(0, len(raw), 2))


def insert(owner: str, table: str, columns: Sequence[Column], row: Mapping[str, Any], empty: Iterable[str] = ()) -> str:
    names = ",".join(f'"{c.name}"' for c in columns)
    values = ",".join(EMPTY.get(c.type, "NULL") if c.name in empty else literal(c, row[c.name]) for c in columns)
    return f'insert into "{owner}"."{table}"({names}) values ({values});'


def update(
    owner: str, table: str, columns: Sequence[Column], row: Mapping[str, Any], changes: Mapping[str, Any]
) -> str:
    """`row` as it was; large values are no part of the condition."""
    assigned = ", ".join(f'"{c.name}" = {literal(c, changes[c.name])}' for c in columns if c.name in changes)
    return f'update "{owner}"."{table}" set {assigned}{where(columns, row)};'


def delete(owner: str, table: str, columns: Sequence[Column], row: Mapping[str, Any]) -> str:
    return f'delete from "{owner}"."{table}"{where(columns, row)};'


def where(columns: Sequence[Column], row: Mapping[str, Any], alias: str = "") -> str:
    terms = [_term(c, row[c.name], alias) for c in columns if not c.large]
    return f" where {' and '.join(terms)}" if terms else ""


def _term(column: Column, value: Any, alias: str) -> str:
    name = f'{alias}"{column.name}"'
    return f"{name} IS NULL" if value is None else f"{name} = {literal(column, value)}"


def locator(owner: str, table: str, columns: Sequence[Column], row: Mapping[str, Any], column: Column) -> str:
    place = {"BLOB": "loc_b", "NCLOB": "loc_nc"}.get(column.type, "loc_c")
    head = "DECLARE \n loc_c CLOB; \n buf_c VARCHAR2(6174); \n loc_b BLOB; \n buf_b RAW(6174); \n"
    head += " loc_nc NCLOB; \n buf_nc NVARCHAR2(6174); \nBEGIN\n"
    what = f'select "{column.name}" into {place} from "{owner}"."{table}"'
    return f"{head} {what}{where(columns, row)} for update;"


def lob_write(column: Column, offset: int, data: str | bytes) -> str:
    """`offset` counts from 0; the statement's counts from 1."""
    place = {"BLOB": "b", "NCLOB": "nc"}.get(column.type, "c")
    text = f"HEXTORAW('{data.hex()}')" if isinstance(data, bytes) else quote(data)
    return f" buf_{place} := {text}; \n  dbms_lob.write(loc_{place}, {len(data)}, {offset + 1}, buf_{place});\n"


def lob_trim(column: Column, amount: int) -> str:
    place = {"BLOB": "b", "NCLOB": "nc"}.get(column.type, "c")
    return f" dbms_lob.trim(loc_{place}, {amount});\n"


def string_begin(owner: str, table: str, columns: Sequence[Column], row: Mapping[str, Any], column: Column) -> str:
    head = "DECLARE\n TempLob CLOB;\n buf_c   VARCHAR2(32767);\n Stmt    CLOB;\nBEGIN\n"
    head += " DBMS_LOB.CreateTemporary(TempLob, FALSE);\n"
    text = f'update "{owner}"."{table}" a set a."{column.name}" = :{column.name}{where(columns, row, "a.")};'
    return f"{head} Stmt := {quote(text)};"


def string_write(data: str) -> str:
    return f"\n buf_c := {quote(data)};\n DBMS_LOB.WriteAppend(TempLob, {len(data)}, buf_c);"


def xml_begin(owner: str, table: str, columns: Sequence[Column], row: Mapping[str, Any], column: Column) -> str:
    return f'XML DOC BEGIN:  select "{column.name}" from "{owner}"."{table}"{where(columns, row)}'


def xml_write(data: str) -> str:
    raw = data.encode()
    return f"XML_REDO := HEXTORAW('{raw.hex()}'):{len(raw)}"


def pieces(text: str | bytes | None) -> list[tuple[int, bytes | None]]:
    """CSF and text of each row that tells one statement. Rows count bytes: a character may be cut in two."""
    raw = text.encode() if isinstance(text, str) else text
    if raw is None or len(raw) <= CSF_SIZE:
        return [(0, raw)]
    parts = [raw[n : n + CSF_SIZE] for n in range(0, len(raw), CSF_SIZE)]
    return [(int(n < len(parts) - 1), part) for n, part in enumerate(parts)]
