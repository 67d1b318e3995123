"""The SQL of walks: where a table ends, where a chunk ends, and which rows belong to it. Pure text.

Each span is `low < key <= high` in the database's own order. Db2 for i compares rows of values only for equality, so a
composite key is compared column by column. NULL is the greatest value. Keys are texts, as `types.canonical` writes
them; nothing here ever compares two of them. A chunk has no limit: an insert would push rows past it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.connectors.iseries import ccsid, types
from tidelog.connectors.iseries.queries import identifier, literal
from tidelog.contracts import Key, Scan, Span
from tidelog.errors import ConfigError
from tidelog.model.schema import Column, Table

STEADY = " WITH CS WAIT FOR OUTCOME"
"""Rows that somebody is changing are waited for: neither what is not committed, nor what was before."""
ESTIMATE = "SELECT SUM(CAST(NUMBER_ROWS AS BIGINT)) FROM QSYS2.SYSTABLESTAT WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?"
GONE = "Leave it out of the snapshot, or name the table that took its place."


@dataclass(frozen=True)
class Walk:
    table: Table
    key: tuple[Column, ...]
    condition: str = ""

    @property
    def source(self) -> str:
        return quoted(self.table)


def plan(scan: Scan, now: Table) -> Walk:
    """`now` is the table as it is."""
    require(now, scan.key)
    return Walk(now, tuple(now.column(name) for name in scan.key), scan.condition)


def require(table: Table, key: Sequence[str]) -> None:
    for name in key:
        if name not in {column.name for column in table.columns}:
            raise ConfigError(
                f'Surrogate key "{name}" doesn\'t exist in table "{table.qualified}"',
                hint="Name a column of the table, or none: then it is walked by its key.",
            )


def quoted(table: Table) -> str:
    return f"{identifier(table.schema)}.{identifier(table.name)}"


def value(text: str, column: Column) -> str:
    """A text of ours as a value of the column's type."""
    match column.type:
        case "SMALLINT" | "INTEGER" | "BIGINT" | "DECIMAL" | "NUMERIC":
            return text
        case "REAL" | "DOUBLE":
            return f"CAST({literal(text)} AS DOUBLE)"
        case "DATE" | "TIME" | "TIMESTAMP":
            return f"CAST({literal(text)} AS {column.type})"
        case "BINARY" | "VARBINARY":
            return f"BX{literal(text.removeprefix(chr(92) + 'x').upper())}"
        case "BOOLEAN":
            return "TRUE" if text == "t" else "FALSE"
        case "DECFLOAT":
            return f"CAST({literal(text)} AS DECFLOAT)"
    if types.retagged(column):  # compared as the bytes that they are: a literal would be translated
        return f"X{literal(ccsid.encode(text, types.pair(column)[1]).hex().upper())}"
    return literal(text)


# -- bounds --------------------------------------------------------------------------------------------------------


def above(walk: Walk, key: Key) -> str:
    return _beyond(walk, key, ">", inclusive=False)


def below(walk: Walk, key: Key) -> str:
    """Up to the key, and at it."""
    return _beyond(walk, key, "<", inclusive=True)


def _beyond(walk: Walk, key: Key, sign: str, *, inclusive: bool) -> str:
    """Equal in all columns before, and beyond in this one. Unknown counts as false, so there is no NOT."""
    equal: list[str] = []
    cases = []
    for column, text in zip(walk.key, key, strict=True):
        cases.append(" AND ".join([*equal, _past(column, text, sign)]))
        equal.append(same(column, text))
    cases += [" AND ".join(equal)] if inclusive else []
    return "(" + " OR ".join(f"({case})" for case in cases) + ")"


def same(column: Column, text: str | None) -> str:
    name = identifier(column.name)
    return f"{name} IS NULL" if text is None else f"{name} = {value(text, column)}"


def _past(column: Column, text: str | None, sign: str) -> str:
    name = identifier(column.name)
    if text is None:
        return "1 = 0" if sign == ">" else f"{name} IS NOT NULL"
    plain = f"{name} {sign} {value(text, column)}"
    return f"({plain} OR {name} IS NULL)" if sign == ">" and column.nullable else plain


# -- queries -------------------------------------------------------------------------------------------------------


def within(walk: Walk, span: Span) -> str:
    """The rows of a chunk, as WHERE has them."""
    bounds = [above(walk, span.low)] if span.low is not None else []
    bounds += [below(walk, span.high)] if span.high is not None else []
    return _where(walk, bounds)


def _where(walk: Walk, bounds: Sequence[str]) -> str:
    # The line break ends a comment that the user's condition may end with.
    conditions = [*bounds, *([f"({walk.condition}\n)"] if walk.condition else [])]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def maximum(walk: Walk) -> str:
    return _texts(walk, _where(walk, []), " DESC", "FETCH FIRST 1 ROW ONLY")


def boundary(walk: Walk, low: Key | None, high: Key, rows: int) -> str:
    """The key that ends a span of `rows` rows after `low`, if there are so many up to `high`."""
    return _texts(walk, within(walk, Span(low, high)), "", f"OFFSET {int(rows) - 1} ROWS FETCH FIRST 1 ROW ONLY")


def _texts(walk: Walk, where: str, direction: str, limit: str) -> str:
    columns = ", ".join(identifier(column.name) for column in walk.key)
    order = ", ".join(identifier(column.name) + direction for column in walk.key)
    inner = f"SELECT {columns} FROM {walk.source}{where} ORDER BY {order} {limit}"
    return f"SELECT {selected(walk.key)} FROM ({inner}) AS K"


def selected(columns: Sequence[Column]) -> str:
    """Columns as texts; each gets a name, because rows come with names."""
    return ", ".join(f"{types.sql_text(c, identifier(c.name))} AS C{i}" for i, c in enumerate(columns))


def ends(found: Sequence[Key], reached: bool, maximum: Key) -> list[Key]:
    """The ends of spans: those that were found, and the maximum when the walk has reached it."""
    return [*(key for key in found if key != maximum), maximum] if reached or maximum in found else list(found)
