"""The SQL of walks: where a table ends, where a chunk ends, and which rows belong to it.

A walk visits every row once because each of its spans is `low < key <= high` in the database's own order: its
collations, its NULLs, which come last. Keys are texts, bound as variables and made values of their type again by the
database; nothing here ever compares two of them, and the statement stays the same from chunk to chunk. Oracle has no
comparison of several columns at once, so it is written out.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace

from tidelog.connectors.oracle import columns
from tidelog.connectors.oracle.queries import Statement, identifier
from tidelog.contracts import Key, Scan, Span
from tidelog.errors import ConfigError
from tidelog.model.schema import Column, Table

GONE = "Leave it out of the snapshot, or name the table that took its place."


@dataclass(frozen=True)
class Step:
    """A column of the walk's key."""

    name: str
    type: str
    nullable: bool = False

    @property
    def sql(self) -> str:
        return "ROWID" if self == PLACE else identifier(self.name)


PLACE = Step("ROWID", "ROWID")
"""Where a row stands: what a table without a key is walked by."""


@dataclass(frozen=True)
class Walk:
    source: str
    """The table, as FROM names it."""
    key: tuple[Step, ...]
    condition: str = ""
    scn: int | None = None
    """The moment as of which all is read; None for the present."""

    @property
    def by_place(self) -> bool:
        return self.key == (PLACE,)


def plan(scan: Scan, table: Table) -> Walk:
    """`table` is what the scan's table is today. A walk by place is as of the moment that was exported: rows move."""
    known = {column.name: column for column in table.columns}
    require(scan.table, scan.key, known)
    steps = tuple(_step(known[name], table) for name in scan.key)
    return Walk(quoted(table), steps or (PLACE,), scan.condition, int(scan.export) if scan.export else None)


def _step(column: Column, table: Table) -> Step:
    if not columns.comparable(column.type):
        raise ConfigError(
            f"The table {table.qualified} can't be walked by its column {column.name} of type {column.type}.",
            hint="Name a surrogate key: a column whose values have an order.",
        )
    return Step(column.name, column.type, column.nullable)


def require(table: Table, key: Sequence[str], known: Container[str]) -> None:
    """That the columns of a walk exist: `known` holds the names there are."""
    for column in key:
        if column not in known:
            raise ConfigError(
                f'Surrogate key "{column}" doesn\'t exist in table "{table.qualified}"',
                hint="Name a column of the table, or none: then it is walked by its key.",
            )


def quoted(table: Table) -> str:
    return f"{identifier(table.schema)}.{identifier(table.name)}"


# -- bounds --------------------------------------------------------------------------------------------------------


@dataclass
class Binds:
    """The variables of a statement that is being written."""

    values: dict[str, object] = field(default_factory=dict)

    def put(self, value: object, prefix: str = "k") -> str:
        name = f"{prefix}{len(self.values)}"
        self.values[name] = value
        return f":{name}"


def above(walk: Walk, key: Key, binds: Binds) -> str:
    """Rows after `key`."""
    return _beyond(walk, key, ">", binds, inclusive=False)


def below(walk: Walk, key: Key, binds: Binds) -> str:
    """Rows up to `key`, itself included."""
    return _beyond(walk, key, "<", binds, inclusive=True)


def _beyond(walk: Walk, key: Key, sign: str, binds: Binds, *, inclusive: bool) -> str:
    """Column by column: equal in all before, and beyond in this one. Unknown counts as false, so there is no NOT."""
    values = [
        None if text is None else columns.value(step.type, binds.put(text))
        for step, text in zip(walk.key, key, strict=True)
    ]
    if len(values) == 1 and inclusive and values[0] is not None and not walk.key[0].nullable:
        return f"{walk.key[0].sql} {sign}= {values[0]}"
    equal: list[str] = []
    cases = []
    for step, value in zip(walk.key, values, strict=True):
        cases.append(" AND ".join([*equal, _past(step, value, sign)]))
        equal.append(f"{step.sql} IS NULL" if value is None else f"{step.sql} = {value}")
    cases += [" AND ".join(equal)] if inclusive else []
    written = " OR ".join(f"({case})" for case in cases) if len(cases) > 1 else cases[0]
    return f"{_start(walk.key[0], values[0], sign)}({written})" if len(cases) > 1 else written


def _start(step: Step, value: str | None, sign: str) -> str:
    """What the first column says anyway: said by itself, it gives an index its range."""
    return "" if value is None or (step.nullable and sign == ">") else f"{step.sql} {sign}= {value} AND "


def _past(step: Step, value: str | None, sign: str) -> str:
    """One column beyond a value; NULL is the greatest of all."""
    if value is None:
        return "1 = 0" if sign == ">" else f"{step.sql} IS NOT NULL"
    plain = f"{step.sql} {sign} {value}"
    return f"({plain} OR {step.sql} IS NULL)" if sign == ">" and step.nullable else plain


# -- queries -------------------------------------------------------------------------------------------------------


def rows(walk: Walk, chosen: str, span: Span, scn: int) -> Statement:
    """A chunk, as of an SCN. It has no limit: its rows are what lies between its keys."""
    binds = Binds()
    source = f"{walk.source} AS OF SCN {binds.put(scn, 'scn')}"
    return Statement(
        f"SELECT /* tidelog chunk */ {chosen} FROM {source}{_where(walk, _within(walk, span, binds))}", binds.values
    )


def _within(walk: Walk, span: Span, binds: Binds) -> list[str]:
    bounds = [above(_without_nulls(walk, span.high), span.low, binds)] if span.low is not None else []
    return bounds + ([below(walk, span.high, binds)] if span.high is not None else [])


def _without_nulls(walk: Walk, high: Key | None) -> Walk:
    """What lies below a value in the first column has no NULL there: saying so lets an index find both ends."""
    if high is None or high[0] is None:
        return walk
    return replace(walk, key=(replace(walk.key[0], nullable=False), *walk.key[1:]))


def _where(walk: Walk, bounds: Sequence[str]) -> str:
    # The line break ends a comment that the user's condition may end with.
    conditions = [*bounds, *([f"({walk.condition}\n)"] if walk.condition else [])]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def maximum(walk: Walk) -> Statement:
    """The last key."""
    return _texts(walk, "maximum", Binds(), [], "FETCH FIRST 1 ROWS ONLY", backwards=True)


def boundary(walk: Walk, low: Key | None, high: Key | None, count: int) -> Statement:
    """The key that ends a span of `count` rows after `low`, if there are so many up to `high`.

    With one column, NULLs are left out, all of them have one key: the last span takes them."""
    if len(walk.key) == 1 and low is not None:
        walk = replace(walk, key=(replace(walk.key[0], nullable=False),))
    binds = Binds()
    known = None if high == (None,) else high
    bounds = _within(walk, Span(low, known), binds)
    return _texts(walk, "boundary", binds, bounds, f"OFFSET {int(count) - 1} ROWS FETCH NEXT 1 ROWS ONLY")


def _texts(
    walk: Walk, name: str, binds: Binds, bounds: Sequence[str], limit: str, *, backwards: bool = False
) -> Statement:
    """An inner query finds the key: conversions outside cost nothing for rows that are skipped, and cannot be mistaken
    for what ORDER BY means."""
    inner = ", ".join(f"{step.sql} AS K{n}" for n, step in enumerate(walk.key))
    order = ", ".join(_order(step, backwards) for step in walk.key)
    chosen = ", ".join(columns.text(step.type, f"K{n}") for n, step in enumerate(walk.key))
    source = f"{walk.source}{_as_of(walk, binds)}"
    query = f"SELECT {inner} FROM {source}{_where(walk, bounds)} ORDER BY {order} {limit}"
    return Statement(f"SELECT /* tidelog {name} */ {chosen} FROM ({query})", binds.values)


def _order(step: Step, backwards: bool) -> str:
    nulls = f" NULLS {'FIRST' if backwards else 'LAST'}" if step.nullable else ""
    return f"{step.sql}{' DESC' if backwards else ''}{nulls}"


def places(walk: Walk, low: Key | None, rows_each: int, count: int) -> Statement:
    """By place: every `rows_each`-th row after `low`, `count` of them, in one pass over the table."""
    binds = Binds()
    bounds = [above(walk, low, binds)] if low is not None else []
    source = f"{walk.source}{_as_of(walk, binds)}"
    numbered = f"SELECT ROWID AS K0, ROW_NUMBER() OVER (ORDER BY ROWID) AS N FROM {source}{_where(walk, bounds)}"
    return Statement(
        f"SELECT /* tidelog places */ {columns.text('ROWID', 'K0')} FROM ({numbered}) "
        f"WHERE MOD(N, {int(rows_each)}) = 0 ORDER BY N FETCH FIRST {int(count)} ROWS ONLY",
        binds.values,
    )


def _as_of(walk: Walk, binds: Binds) -> str:
    return "" if walk.scn is None else f" AS OF SCN {binds.put(walk.scn, 'scn')}"


def ends(found: Sequence[Key], reached: bool, maximum: Key) -> list[Key]:
    """The ends of spans: those that were found, and the maximum when the walk has reached it."""
    return [*(key for key in found if key != maximum), maximum] if reached or maximum in found else list(found)


def estimate(table: Table) -> Statement:
    """About how many rows the table has, as the statistics know it; NULL where nobody has gathered any."""
    return Statement(
        "SELECT /* tidelog estimate */ NUM_ROWS FROM ALL_TABLES WHERE OWNER = :owner AND TABLE_NAME = :name",
        {"owner": table.schema, "name": table.name},
    )
