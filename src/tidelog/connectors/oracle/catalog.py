"""What the catalog knows of tables: columns, keys, and the numbers by which the log names them.

The catalog tells tables as they are *now*. The log names a table by owner and name, or, when the catalog of its mining
session did not know it, by its number alone: `by_object` finds it then. Asked in the pluggable database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from tidelog.connectors.oracle import types
from tidelog.connectors.oracle.client import Row, Session
from tidelog.connectors.oracle.queries import Statement, literal
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

NAME_LENGTH_MAX = 30
"""LogMiner tells nothing of tables and columns whose names are longer."""
_NAMES_PER_QUERY = 400

Name = tuple[str, str]
"""Owner and table."""

TABLES = """
SELECT /* tidelog tables */ O.OWNER, O.OBJECT_NAME, O.OBJECT_ID
  FROM ALL_OBJECTS O, ALL_TABLES T
 WHERE O.OBJECT_TYPE = 'TABLE' AND T.OWNER = O.OWNER AND T.TABLE_NAME = O.OBJECT_NAME
   AND T.TEMPORARY = 'N' AND T.NESTED = 'NO' AND T.SECONDARY = 'N' AND (T.IOT_TYPE IS NULL OR T.IOT_TYPE = 'IOT')
   AND O.ORACLE_MAINTAINED = 'N' AND O.OBJECT_NAME NOT LIKE 'BIN$%'
"""
"""Tables of users: OWNER, OBJECT_NAME, OBJECT_ID."""


def table_named(schema: str, name: str) -> Statement:
    """As `TABLES`, of one table."""
    return Statement(f"{TABLES} AND O.OWNER = :owner AND O.OBJECT_NAME = :name", {"owner": schema, "name": name})


def tables_of(ids: Iterable[int]) -> Statement:
    """As `TABLES`, of some tables."""
    return Statement(f"{TABLES} AND O.OBJECT_ID IN ({', '.join(str(int(i)) for i in ids)}) ORDER BY 1, 2")


def columns(names: Iterable[Name]) -> Statement:
    """Columns of tables, in the order of COLUMN_ID, then the invisible ones, which have none: OWNER, TABLE_NAME,
    COLUMN_NAME, DATA_TYPE, DATA_LENGTH, DATA_PRECISION, DATA_SCALE, NULLABLE, DEFAULT_LENGTH. What Oracle has added for
    itself is not among them, although the log tells it."""
    return Statement(
        "SELECT /* tidelog columns */ OWNER, TABLE_NAME, COLUMN_NAME, DATA_TYPE, DATA_LENGTH, DATA_PRECISION, "
        "DATA_SCALE, NULLABLE, DEFAULT_LENGTH FROM ALL_TAB_COLS WHERE VIRTUAL_COLUMN = 'NO' "
        "AND (HIDDEN_COLUMN = 'NO' OR USER_GENERATED = 'YES') AND COLUMN_NAME <> 'ORA_ARCHIVE_STATE' "
        f"AND {_among(names)} ORDER BY OWNER, TABLE_NAME, COLUMN_ID NULLS LAST, INTERNAL_COLUMN_ID"
    )


def keys(names: Iterable[Name]) -> Statement:
    """Columns of primary keys, in their order: OWNER, TABLE_NAME, COLUMN_NAME."""
    return Statement(
        "SELECT /* tidelog keys */ K.OWNER, K.TABLE_NAME, C.COLUMN_NAME FROM ALL_CONSTRAINTS K, ALL_CONS_COLUMNS C "
        "WHERE K.CONSTRAINT_TYPE = 'P' AND C.OWNER = K.OWNER AND C.CONSTRAINT_NAME = K.CONSTRAINT_NAME "
        f"AND {_among(names, 'K.')} ORDER BY K.OWNER, K.TABLE_NAME, C.POSITION"
    )


def unique(names: Iterable[Name]) -> Statement:
    """Columns of unique indexes, in their order: TABLE_OWNER, TABLE_NAME, INDEX_NAME, COLUMN_NAME."""
    return Statement(
        "SELECT /* tidelog unique */ I.TABLE_OWNER, I.TABLE_NAME, I.INDEX_NAME, C.COLUMN_NAME "
        "FROM ALL_INDEXES I, ALL_IND_COLUMNS C WHERE I.UNIQUENESS = 'UNIQUE' AND C.INDEX_OWNER = I.OWNER "
        f"AND C.INDEX_NAME = I.INDEX_NAME AND {_among(names, 'I.', 'TABLE_OWNER')} "
        "ORDER BY I.TABLE_OWNER, I.TABLE_NAME, I.INDEX_NAME, C.COLUMN_POSITION"
    )


def supplemental(names: Iterable[Name]) -> Statement:
    """What the log tells of tables beyond the changed columns: OWNER, TABLE_NAME, LOG_GROUP_TYPE."""
    return Statement(
        "SELECT /* tidelog supplemental */ OWNER, TABLE_NAME, LOG_GROUP_TYPE FROM ALL_LOG_GROUPS "
        f"WHERE {_among(names)} ORDER BY 1, 2, 3"
    )


def object_name(number: int) -> Statement:
    """Of an object, by its number or by that of its data: OWNER, OBJECT_NAME, OBJECT_ID."""
    return Statement(
        "SELECT /* tidelog object */ OWNER, OBJECT_NAME, OBJECT_ID FROM ALL_OBJECTS WHERE OBJECT_TYPE LIKE 'TABLE%' "
        "AND (OBJECT_ID = :id OR DATA_OBJECT_ID = :id) ORDER BY CASE WHEN OBJECT_ID = :id THEN 0 ELSE 1 END",
        {"id": number},
    )


def _among(names: Iterable[Name], prefix: str = "", owner: str = "OWNER") -> str:
    listed = ", ".join(f"({literal(schema)}, {literal(name)})" for schema, name in names)
    return f"({prefix}{owner}, {prefix}TABLE_NAME) IN ({listed})"


class Catalog:
    """Asks over one session, which stands in the database of the tables."""

    def __init__(self, session: Session, selection: Selection) -> None:
        self._session = session
        self._selection = selection

    def captured(self) -> list[Table]:
        """Every table that the selection takes, as it is now."""
        found = self._session.query(f"{TABLES} ORDER BY 1, 2")
        return self._tables([row for row in found if self._selection.has_table(row[0], row[1])])

    def present(self, ids: Sequence[int]) -> list[Table]:
        """These tables as they are now, captured or not; what is gone is left out."""
        return self._tables([row for some in _portions(list(ids)) for row in self._session.query(tables_of(some))])

    def named(self, schema: str, name: str) -> Table | None:
        """A table by its name, captured or not."""
        return next(iter(self._tables(self._session.query(table_named(schema, name)))), None)

    def by_object(self, number: int) -> Table | None:
        """The table that the log calls `OBJ# number`, or knows by the number of its data."""
        found = self._session.query(object_name(number))
        return self.named(found[0][0], found[0][1]) if found else None

    def logged(self, tables: Sequence[Table]) -> dict[Name, set[str]]:
        """The supplemental log groups of tables, by their types such as `ALL COLUMN LOGGING`."""
        groups: dict[Name, set[str]] = {(t.schema, t.name): set() for t in tables}
        for some in _portions(list(groups)):
            for schema, name, kind in self._session.query(supplemental(some)):
                groups[schema, name].add(kind)
        return groups

    def _tables(self, found: Sequence[Row]) -> list[Table]:
        described: list[Table] = []
        for some in _portions(found):
            described += self._described(some)
        return described

    def _described(self, found: Sequence[Row]) -> list[Table]:
        names = [(row[0], row[1]) for row in found]
        known = _columns(self._session.query(columns(names)))
        primary = _keys(self._session.query(keys(names)))
        lacking = [name for name in names if name not in primary]
        others = _unique(self._session.query(unique(lacking)), known) if lacking else {}
        return [
            Table(
                id=int(number),
                schema=schema,
                name=name,
                columns=known.get((schema, name), ()),
                key=primary.get((schema, name)) or others.get((schema, name), ()),
                old_image="full",
            )
            for schema, name, number in found
        ]


T = TypeVar("T")


def _portions(names: Sequence[T]) -> Iterator[Sequence[T]]:
    """A list in SQL has at most a thousand entries."""
    return (names[at : at + _NAMES_PER_QUERY] for at in range(0, len(names), _NAMES_PER_QUERY))


def _columns(rows: Iterable[Row]) -> dict[Name, tuple[Column, ...]]:
    found: dict[Name, tuple[Column, ...]] = {}
    for owner, table, name, kind, length, precision, scale, nullable, default in rows:
        plain = types.column(name, kind, length=length, precision=precision, scale=scale, nullable=nullable == "Y")
        # Old rows take a new column's default without a word in the log.
        found[owner, table] = (*found.get((owner, table), ()), replace(plain, rewritten=bool(default)))
    return found


def _keys(rows: Iterable[Row]) -> dict[Name, tuple[str, ...]]:
    found: dict[Name, tuple[str, ...]] = {}
    for owner, table, column in rows:
        found[owner, table] = (*found.get((owner, table), ()), column)
    return found


def _unique(rows: Iterable[Row], known: dict[Name, tuple[Column, ...]]) -> dict[Name, tuple[str, ...]]:
    """The first unique index by name whose columns are all NOT NULL: only such a one identifies every row."""
    indexes: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for owner, table, index, column in rows:
        indexes[owner, table, index] = (*indexes.get((owner, table, index), ()), column)
    found: dict[Name, tuple[str, ...]] = {}
    for (owner, table, _), names in indexes.items():
        filled = {c.name for c in known.get((owner, table), ()) if not c.nullable}
        if filled.issuperset(names):
            found.setdefault((owner, table), names)
    return found
