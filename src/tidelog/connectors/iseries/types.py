"""What the columns of IBM i are: their names in the catalog, how wide they are in a record, and what they become.

Every value passes through one form of text, the same whether it comes from the journal or from the table, and from
there takes the way to Arrow and to JSON that PostgreSQL's texts take: a type here is said in PostgreSQL's name for it.
`Column.modifier` packs two numbers: precision and scale of decimals, length and CCSID of characters (and whether that
is not the one that the catalog says); or it is one: digits of a timestamp after the point, bytes of a DECFLOAT.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.connectors.iseries import decfloat
from tidelog.connectors.postgres import render
from tidelog.connectors.postgres import types as plain_types
from tidelog.core.jsontext import Fragment
from tidelog.core.strings import Mask
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

BINARY_CCSID = 65535
_NAMES = {
    "TIMESTMP": "TIMESTAMP",
    "VARG": "VARGRAPHIC",
    "VARBIN": "VARBINARY",
    "NCHAR": "GRAPHIC",
    "NVARCHAR": "VARGRAPHIC",
    "DEC": "DECIMAL",
    "INT": "INTEGER",
    "CHARACTER": "CHAR",
}
"""The catalog's short names, and those that mean the same."""
_WHOLE = {"SMALLINT": ("int2", 2), "INTEGER": ("int4", 4), "BIGINT": ("int8", 8)}
_MICROSECONDS = 6
_RETAGGED = 1 << 32
"""In the modifier of characters: they are read in another CCSID than the catalog says."""
_CHARACTERS = ("CHAR", "VARCHAR")


def described(
    data_type: str, length: int, scale: int | None, ccsid: int | None, fraction: int | None, ccsids: Mapping[int, int]
) -> tuple[str, int]:
    """Type and modifier of a column of the catalog. Characters of a CCSID in `ccsids` are read in what it leads to."""
    meant = ccsids.get(ccsid or 0, ccsid)
    kind = name(data_type, length, meant)
    retagged = _RETAGGED if meant != ccsid and kind in _CHARACTERS else 0
    return kind, modifier(kind, length, scale, meant if kind in _CHARACTERS else ccsid, fraction) | retagged


def name(data_type: str, length: int, ccsid: int | None) -> str:
    """One name for each type. Characters that are never translated are bytes."""
    found = _NAMES.get(data_type.strip().upper(), data_type.strip().upper())
    if found in ("FLOAT", "DOUBLE", "REAL"):
        return "REAL" if found == "REAL" or (found == "FLOAT" and length == 4) else "DOUBLE"
    if ccsid == BINARY_CCSID and found in _CHARACTERS:
        return {"CHAR": "BINARY", "VARCHAR": "VARBINARY"}[found]
    return found


def modifier(kind: str, length: int, scale: int | None, ccsid: int | None, fraction: int | None) -> int:
    match kind:
        case "DECIMAL" | "NUMERIC":
            return length << 16 | (scale or 0)
        case "TIMESTAMP":
            return _MICROSECONDS if fraction is None else fraction
        case "CHAR" | "VARCHAR" | "GRAPHIC" | "VARGRAPHIC" | "BINARY" | "VARBINARY":
            return length << 16 | (ccsid or 0)
        case "DECFLOAT":
            return 8 if length == 8 else 16
    return -1


def pair(column: Column) -> tuple[int, int]:
    """Precision and scale, or length and CCSID."""
    return column.modifier >> 16 & 0xFFFF, column.modifier & 0xFFFF


def retagged(column: Column) -> bool:
    return column.type in _CHARACTERS and bool(column.modifier & _RETAGGED)


def width(column: Column) -> int | None:
    """How many bytes of a record the column takes; None for a type whose layout nobody has told us."""
    match column.type:
        case "SMALLINT" | "INTEGER" | "BIGINT":
            return _WHOLE[column.type][1]
        case "REAL":
            return 4
        case "DOUBLE":
            return 8
        case "BOOLEAN":
            return 1
        case "DECFLOAT":
            return column.modifier
        case "DECIMAL":
            return pair(column)[0] // 2 + 1
        case "NUMERIC" | "CHAR" | "BINARY":
            return pair(column)[0]
        case "VARCHAR" | "VARBINARY":
            return pair(column)[0] + 2
        case "GRAPHIC":
            return pair(column)[0] * 2
        case "VARGRAPHIC":
            return pair(column)[0] * 2 + 2
        case "DATE":
            return 10
        case "TIME":
            return 8
        case "TIMESTAMP":
            return 20 + column.modifier if column.modifier else 19
    return None


def unsupported(table: Table) -> list[Column]:
    return [column for column in table.columns if width(column) is None]


def plain(column: Column) -> Column:
    """The column in the terms of PostgreSQL's types, by which its text is read."""
    kind, packed = _plain(column)
    return replace(column, type=kind, modifier=packed)


def _plain(column: Column) -> tuple[str, int]:
    if column.type in _WHOLE:
        return _WHOLE[column.type][0], -1
    if column.type in ("DECIMAL", "NUMERIC"):
        precision, scale = pair(column)
        return "numeric", (precision << 16 | scale) + 4
    if column.type == "TIMESTAMP":  # finer than microseconds has no exact match
        return ("timestamp", -1) if column.modifier <= _MICROSECONDS else ("text", -1)
    simple = {"REAL": "float4", "DOUBLE": "float8", "DATE": "date", "TIME": "time", "BOOLEAN": "bool"}
    binary = {"BINARY": "bytea", "VARBINARY": "bytea"}
    return {**simple, **binary}.get(column.type, "text"), -1


def field_of(column: Column, selection: Selection) -> pa.Field:
    return plain_types.field_of(plain(column), selection)


def arrow_type(column: Column, selection: Selection) -> pa.DataType:
    return plain_types.arrow_type(plain(column), selection)


# -- texts of the table itself -------------------------------------------------------------------------------------


def sql_text(column: Column, identifier: str) -> str:
    """SQL that writes a value as text; `canonical` makes of it what the journal's bytes become."""
    match column.type:
        case "DATE":
            return f"CHAR({identifier}, ISO)"
        case "TIME":
            return f"CHAR({identifier}, JIS)"
        case "BINARY" | "VARBINARY":
            return f"HEX({identifier})"
        case "CHAR" | "GRAPHIC" | "VARCHAR" | "VARGRAPHIC":
            return f"CAST({_tagged(column, identifier)} AS VARCHAR({_characters(column)}) CCSID 1208)"
    return f"VARCHAR({identifier})"


def _tagged(column: Column, identifier: str) -> str:
    """Bytes that stay what they are, under another CCSID: by way of bits, which are never translated."""
    if not retagged(column):
        return identifier
    length, ccsid = pair(column)
    return f"CAST(CAST({identifier} AS VARCHAR({length}) FOR BIT DATA) AS VARCHAR({length}) CCSID {ccsid})"


def _characters(column: Column) -> int:
    """A character of a single byte may take three in UTF-8."""
    return min(32_700, pair(column)[0] * 3)


def canonical(texts: pa.StringArray, column: Column) -> pa.StringArray:
    """What Db2 writes (`.5`, `1E0`, `2026-01-31-10.20.30.5`, hexadecimal digits) as the decoder writes it."""
    match column.type:
        case "DECIMAL" | "NUMERIC":
            return pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"^(-?)\.", r"\10.")
        case "REAL":
            return texts.cast(pa.float64()).cast(pa.float32()).cast(pa.string())
        case "DOUBLE":
            return texts.cast(pa.float64()).cast(pa.string())
        case "TIMESTAMP":
            pattern = r"^(.{10})[-T ](..)[.:](..)[.:](..)"
            return pc.replace_substring_regex(texts, pattern, r"\1 \2:\3:\4")
        case "TIME":
            return pc.replace_substring_regex(texts, r"^(..)[.:](..)[.:](..)$", r"\1:\2:\3")
        case "BINARY" | "VARBINARY":
            return pc.binary_join_element_wise("\\x", pc.utf8_lower(texts), "")
        case "BOOLEAN":
            return pc.utf8_slice_codeunits(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), 0, 1)
        case "DECFLOAT":
            return pa.array([t and decfloat.canonical(Decimal(t.strip())) for t in texts.to_pylist()], pa.string())
    return texts


def parse(texts: pa.Array, column: Column, selection: Selection) -> tuple[pa.Array, Mask]:
    return plain_types.parse(texts, plain(column), selection)


def fragment(texts: pa.StringArray, column: Column, selection: Selection) -> Fragment:
    return render.fragment(texts, plain(column), selection)


def reason(column: Column, selection: Selection) -> str:
    kind = arrow_type(column, selection)
    if pa.types.is_string(kind):
        return f"a {column.type} value is damaged, or its characters are not those of its CCSID"
    return f"a {column.type} value is damaged, or does not fit {kind}"


def hint(column: Column) -> str:
    aside = "event.processing.failure.handling.mode to dead-letter to set such rows aside"
    if column.type in ("DECIMAL", "NUMERIC"):
        return f"Correct the decimal data on the system, or set {aside}."
    return f"Set {aside}, or leave the column out with column.exclude.list."
