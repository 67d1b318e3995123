"""Tables as the catalog has them now, and the journal that each of them writes to.

IBM i has no number for a table: its identity is the file and the library under their system names, which the journal's
entries use, and of which we make a number. SQL names are what people see.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

from tidelog.connectors.iseries import types
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

TABLES = """
SELECT TABLE_SCHEMA, TABLE_NAME, SYSTEM_TABLE_SCHEMA, SYSTEM_TABLE_NAME
  FROM QSYS2.SYSTABLES
 WHERE TABLE_TYPE IN ('P', 'T') AND FILE_TYPE = 'D' AND SYSTEM_TABLE = 'N'
 ORDER BY TABLE_SCHEMA, TABLE_NAME
"""

TABLE = """
SELECT TABLE_SCHEMA, TABLE_NAME, SYSTEM_TABLE_SCHEMA, SYSTEM_TABLE_NAME
  FROM QSYS2.SYSTABLES
 WHERE TABLE_TYPE IN ('P', 'T') AND FILE_TYPE = 'D' AND SYSTEM_TABLE_SCHEMA = ? AND SYSTEM_TABLE_NAME = ?
"""

COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, LENGTH, NUMERIC_SCALE, IS_NULLABLE, CCSID, DATETIME_PRECISION
  FROM QSYS2.SYSCOLUMNS
 WHERE SYSTEM_TABLE_SCHEMA = ? AND SYSTEM_TABLE_NAME = ?
 ORDER BY ORDINAL_POSITION
"""

KEYS = """
SELECT C.CONSTRAINT_TYPE, C.CONSTRAINT_NAME, K.COLUMN_NAME
  FROM QSYS2.SYSCST C
  JOIN QSYS2.SYSKEYCST K ON K.CONSTRAINT_SCHEMA = C.CONSTRAINT_SCHEMA AND K.CONSTRAINT_NAME = C.CONSTRAINT_NAME
 WHERE C.CONSTRAINT_TYPE IN ('PRIMARY KEY', 'UNIQUE') AND C.TABLE_SCHEMA = ? AND C.TABLE_NAME = ?
 ORDER BY C.CONSTRAINT_TYPE, C.CONSTRAINT_NAME, K.ORDINAL_POSITION
"""
"""The primary key comes first."""

JOURNALED = """
SELECT OBJECT_LIBRARY, OBJECT_NAME, JOURNAL_LIBRARY, JOURNAL_NAME, JOURNAL_IMAGES
  FROM QSYS2.JOURNALED_OBJECTS
 WHERE OBJECT_TYPE = '*FILE'
"""

BOTH = "*BOTH"


class Asked(Protocol):
    """What we use of a session."""

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...


@dataclass(frozen=True)
class File:
    """A table, by the names that the journal's entries use, and where its changes go."""

    table: Table
    library: str
    name: str
    journal: tuple[str, str] | None = None
    """Library and name; None when it is not journaled."""
    images: str = ""


def identity(library: str, file: str) -> int:
    """48 bits: such a number is exact wherever JSON goes."""
    return int.from_bytes(blake2b(f"{library}/{file}".encode(), digest_size=6).digest(), "big")


class Catalog:
    def __init__(
        self, session: Asked, selection: Selection, signals: str = "", ccsids: Mapping[int, int] | None = None
    ) -> None:
        """`signals` is the table of signals, which is read whatever the selection says. `ccsids` says in which set
        columns of another are read."""
        self._session = session
        self._selection = selection
        self._signals = signals
        self._ccsids = ccsids or {}

    def takes(self, schema: str, name: str) -> bool:
        return f"{schema}.{name}" == self._signals or self._selection.has_table(schema, name)

    def files(self) -> list[File]:
        """Every table that the selection takes, as it is now."""
        rows = self._session.query(TABLES)
        chosen = [row for row in map(_names, rows) if self.takes(row[0], row[1])]
        journals = self._journals() if chosen else {}
        return [self._file(*row, *journals.get((row[2], row[3]), (None, ""))) for row in chosen]

    def captured(self) -> list[Table]:
        """What is delivered: the table of signals is not, whatever the lists say."""
        return [file.table for file in self.files() if file.table.qualified != self._signals]

    def present(self, ids: Collection[int]) -> list[Table]:
        """These tables as they are now, captured or not; what is gone is left out."""
        rows = [_names(row) for row in self._session.query(TABLES)] if ids else []
        return [self._file(*row).table for row in rows if identity(row[2], row[3]) in set(ids)]

    def describe(self, library: str, file: str) -> Table | None:
        """The table of a file, if it exists and the selection takes it."""
        for row in map(_names, self._session.query(TABLE, [library, file])):
            if self.takes(row[0], row[1]):
                return self._file(*row).table
        return None

    def _journals(self) -> dict[tuple[str, str], tuple[tuple[str, str], str]]:
        found = (tuple(str(part or "").strip() for part in row) for row in self._session.query(JOURNALED))
        return {(row[0], row[1]): ((row[2], row[3]), row[4]) for row in found}

    def _file(
        self,
        schema: str,
        name: str,
        library: str,
        file: str,
        journal: tuple[str, str] | None = None,
        images: str = "",
    ) -> File:
        columns = tuple(_column(*row, ccsids=self._ccsids) for row in self._session.query(COLUMNS, [library, file]))
        key = self._key(schema, name, columns)
        table = Table(identity(library, file), schema, name, columns, key, old_image="full")
        return File(table, library, file, journal, images)

    def _key(self, schema: str, name: str, columns: Sequence[Column]) -> tuple[str, ...]:
        """The primary key; else the first unique constraint that has no nullable column."""
        nullable = {column.name for column in columns if column.nullable}
        by_name: dict[tuple[str, str], list[str]] = {}
        for kind, constraint, column in self._session.query(KEYS, [schema, name]):
            by_name.setdefault((str(kind), str(constraint)), []).append(str(column).strip())
        keys = [tuple(names) for names in by_name.values() if not nullable.intersection(names)]
        return keys[0] if keys else ()


def _names(row: Sequence[Any]) -> tuple[str, str, str, str]:
    schema, name, library, file = (str(part).strip() for part in row)
    return schema, name, library, file


def _column(
    name: str,
    data_type: str,
    length: int,
    scale: int | None,
    nullable: str,
    ccsid: int | None,
    fraction: int | None,
    *,
    ccsids: Mapping[int, int] | None = None,
) -> Column:
    kind, packed = types.described(data_type, int(length), scale, ccsid, fraction, ccsids or {})
    return Column(str(name).strip(), kind, packed, nullable=str(nullable).strip() == "Y")
