"""Values as redo SQL writes them.

A value is a text. Redo SQL has two kinds of them, and a column of strings must tell them apart: a literal, here
without its quotes, and an expression (`Sql`), such as `TO_DATE('…')`, which only looks like one in a literal. Beside
them stand NULL, and what the log does not tell: a large object that a change left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from tidelog.model.record import Op
from tidelog.model.schema import Column


class Sql(str):
    """An expression, as it stands in the statement."""

    __slots__ = ()


class Unavailable(Enum):
    UNAVAILABLE = "unavailable"


UNAVAILABLE: Final = Unavailable.UNAVAILABLE
Value = str | Sql | Literal[Unavailable.UNAVAILABLE] | None


@dataclass(frozen=True)
class Change:
    """One statement's rows, with a value for every column of the table. `op` is CREATE, UPDATE or DELETE."""

    op: Op
    before: Mapping[str, Value] | None
    after: Mapping[str, Value] | None


LOBS = frozenset(["CLOB", "NCLOB", "BLOB"])
_LARGE = LOBS | {"XMLTYPE", "JSON"}
_EXTENDED = {"VARCHAR2": 4000, "NVARCHAR2": 4000, "RAW": 2000}
"""Bytes beyond which a string is no longer stored in its row."""


def is_large(column: Column) -> bool:
    """Whether the log leaves the column out of changes that do not touch it: large objects, XML, JSON, and strings
    that are longer than a row may hold (32K)."""
    return column.type in _LARGE or is_extended(column)


def is_extended(column: Column) -> bool:
    return column.type in _EXTENDED and column.modifier > _EXTENDED[column.type]


def quoted(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def cut(value: Value, length: int) -> Value:
    """The first characters, as UTF-16 counts them, or bytes of a `HEXTORAW('…')`."""
    if isinstance(value, Sql):
        head, mark, tail = value.partition("('")
        digits = tail.partition("'")[0]
        return Sql(f"{head}{mark}{digits[: 2 * length]}')") if len(digits) > 2 * length else value
    if not isinstance(value, str) or len(value) * 2 <= length:
        return value
    units = value.encode("utf-16-le", "surrogatepass")
    return units[: 2 * length].decode("utf-16-le", "replace") if len(units) > 2 * length else value


def to_json(value: Value) -> Any:
    """As it stands in the JSON of a merged record."""
    if value is UNAVAILABLE:
        return {"$unavailable": True}
    return {"$sql": str(value)} if isinstance(value, Sql) else value


def from_json(value: Any) -> Value:
    if isinstance(value, dict):
        return UNAVAILABLE if value.get("$unavailable") else Sql(value["$sql"])
    return None if value is None else str(value)
