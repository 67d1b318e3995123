"""The SQL of walks: where a table ends, where a chunk ends, and which rows belong to it. Pure text.

A walk visits every row once because each of its spans is `low < key <= high` in the database's own order: its
collations, its NaN, its NULLs. Keys are texts, cast back to the column's type; nothing here ever compares two of them.
A chunk has no LIMIT: an insert would push rows past it.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tidelog.connectors.postgres.names import identifier, literal
from tidelog.contracts import Key, Scan, Span
from tidelog.errors import ConfigError
from tidelog.model.schema import Table

DESCRIBE = """
WITH RECURSIVE chain AS (
    SELECT a.attname::text AS name, a.attnotnull AS filled, a.atttypid AS type
      FROM pg_attribute a
     WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT c.name, c.filled, t.typbasetype FROM chain c JOIN pg_type t ON t.oid = c.type AND t.typtype = 'd'
)
SELECT c.name, format_type(c.type, -1), NOT c.filled, coalesce((
       SELECT n.nspname::text
         FROM pg_opclass o JOIN pg_am m ON m.oid = o.opcmethod AND m.amname = 'btree'
         JOIN pg_amop a ON a.amopfamily = o.opcfamily AND a.amopstrategy = 3
                       AND a.amoplefttype = o.opcintype AND a.amoprighttype = o.opcintype
         JOIN pg_operator p ON p.oid = a.amopopr JOIN pg_namespace n ON n.oid = p.oprnamespace
        WHERE o.opcintype = c.type AND o.opcdefault AND n.nspname <> 'pg_catalog' LIMIT 1), '')
  FROM chain c JOIN pg_type t ON t.oid = c.type AND t.typtype <> 'd'
"""
"""The columns of a table: name, base type without its modifier (a cast to `character(1)` would cut), nullable, and the
schema of the operators by which its values are sorted, if PostgreSQL does not bring them itself."""

_SOURCE = """
SELECT CASE WHEN c.relkind = 'p' THEN '' ELSE 'ONLY ' END || quote_ident(n.nspname) || '.' || quote_ident(c.relname)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = %s
"""
BLOCKS = """
SELECT coalesce(max(pg_relation_size(c.oid)), 0) / current_setting('block_size')::bigint,
       coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint, coalesce(sum(c.relpages), 0)::bigint
  FROM pg_class c
 WHERE c.relkind = 'r' AND (c.oid = %s OR c.oid IN (SELECT relid FROM pg_partition_tree(%s)))
"""
"""Blocks of the largest part of a table, and, as the statistics know them, rows and blocks of all."""

ESTIMATE = """
SELECT coalesce(sum(CASE
           WHEN c.reltuples > 0 THEN c.reltuples
           WHEN pg_stat_get_live_tuples(c.oid) > 0 THEN pg_stat_get_live_tuples(c.oid)
           WHEN c.reltuples < 0 THEN pg_relation_size(c.oid) / 100
           ELSE 0 END), 0)::bigint
  FROM pg_class c
 WHERE c.relkind = 'r' AND (c.oid = %s OR c.oid IN (SELECT relid FROM pg_partition_tree(%s)))
"""
"""Rows of a table and its partitions; where nobody has analyzed it, as many as were counted when they were written, or,
where that was lost, by its size."""

TABLE_BYTES = """
SELECT coalesce(sum(pg_table_size(c.oid)), 0)::bigint
  FROM pg_class c
 WHERE c.relkind = 'r' AND (c.oid = %s OR c.oid IN (SELECT relid FROM pg_partition_tree(%s)))
"""
"""Bytes of a table and its partitions, with the long values that lie beside the rows, compressed."""

GONE = "Leave it out of the snapshot, or name the table that took its place."

_ROWS_PER_BLOCK = 50
"""What a block is taken to hold where the statistics do not know."""


@dataclass(frozen=True)
class Step:
    """A column of the walk's key."""

    name: str
    type: str
    """As SQL names it."""
    nullable: bool = False
    schema: str = ""
    """Of the operators of an extension's type. The role may not have it in its search_path; another operator of that
    name may then apply, which sorts otherwise (as `text` does for `citext`), or none."""

    def operator(self, sign: str) -> str:
        return f"OPERATOR({identifier(self.schema)}.{sign})" if self.schema else sign

    @property
    def sql(self) -> str:
        return "ctid" if self == PLACE else identifier(self.name)

    def value(self, text: str) -> str:
        return f"{literal(text)}::{self.type}"


PLACE = Step("ctid", "tid")
"""Where a row stands: what a table without a key is walked by."""


@dataclass(frozen=True)
class Walk:
    source: str
    """The table, as FROM names it."""
    key: tuple[Step, ...]
    condition: str = ""
    nulls_last: bool | None = True
    """How the database sorts NULLs in ascending order; None if nobody knows."""

    def __post_init__(self) -> None:
        if self.nulls_last is None and any(step.nullable for step in self.key):
            raise ConfigError(
                "The sort order of NULL values in the incremental snapshot key is unknown.",
                hint="Name a surrogate key that is NOT NULL.",
            )

    @property
    def by_place(self) -> bool:
        return self.key == (PLACE,)


class Asked(Protocol):
    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...


def source(session: Asked, table: Table) -> str:
    """A table as FROM names it: with its partitions, but without tables that merely inherit from it."""
    found = find_source(session, table)
    if not found:
        raise ConfigError(f"The table {table.qualified} does not exist any more.", hint=GONE)
    return found


def find_source(session: Asked, table: Table) -> str:
    """The same; empty if the table is gone."""
    found = session.query(_SOURCE, [table.id])
    return str(found[0][0]) if found else ""


def plan(scan: Scan, source: str, columns: Sequence[tuple[str, str, bool]]) -> Walk:
    """`columns` is the answer to `DESCRIBE`."""
    known = {row[0]: Step(*row) for row in columns}
    require(scan.table, scan.key, known.keys())
    return Walk(source, tuple(known[column] for column in scan.key) or (PLACE,), scan.condition)


def require(table: Table, key: Sequence[str], known: Container[str]) -> None:
    """That the columns of a walk exist: `known` holds the names there are."""
    for column in key:
        if column not in known:
            raise ConfigError(
                f'Surrogate key "{column}" doesn\'t exist in table "{table.qualified}"',
                hint="Name a column of the table, or none: then it is walked by its key.",
            )


# -- bounds --------------------------------------------------------------------------------------------------------


def above(walk: Walk, key: Key, *, inclusive: bool = False) -> str:
    """Rows after `key`, or, if `inclusive`, also at it."""
    return _beyond(walk, key, ">", inclusive)


def below(walk: Walk, key: Key, *, inclusive: bool = True) -> str:
    """Rows up to `key`; at it only if `inclusive`."""
    return _beyond(walk, key, "<", inclusive)


def _beyond(walk: Walk, key: Key, sign: str, inclusive: bool) -> str:
    if any(step.nullable for step in walk.key) or None in key or (len(key) > 1 and any(s.schema for s in walk.key)):
        return _expanded(walk, key, sign, inclusive)
    ours = ", ".join(step.sql for step in walk.key)
    theirs = ", ".join(step.value(text or "") for step, text in zip(walk.key, key, strict=True))
    operator = walk.key[0].operator(sign + "=" * inclusive)
    return f"{ours} {operator} {theirs}" if len(key) == 1 else f"({ours}) {operator} ({theirs})"


def _expanded(walk: Walk, key: Key, sign: str, inclusive: bool) -> str:
    """Column by column: equal in all before, and beyond in this one. Unknown counts as false, so there is no NOT."""
    equal: list[str] = []
    cases = []
    for step, text in zip(walk.key, key, strict=True):
        cases.append(" AND ".join([*equal, _past(step, text, sign, walk.nulls_last)]))
        equal.append(f"{step.sql} IS NULL" if text is None else f"{step.sql} {step.operator('=')} {step.value(text)}")
    cases += [" AND ".join(equal)] if inclusive else []
    return "(" + " OR ".join(f"({case})" for case in cases) + ")"


def _past(step: Step, text: str | None, sign: str, nulls_last: bool | None) -> str:
    """One column beyond a value; NULL is the greatest or the least of all."""
    null_is_past = (sign == ">") == bool(nulls_last)
    if text is None:
        return "FALSE" if null_is_past else f"{step.sql} IS NOT NULL"
    plain = f"{step.sql} {step.operator(sign)} {step.value(text)}"
    return f"({plain} OR {step.sql} IS NULL)" if null_is_past and step.nullable else plain


# -- queries -------------------------------------------------------------------------------------------------------


def within(walk: Walk, span: Span) -> str:
    """The rows of a chunk, as WHERE has them."""
    walk = _without_nulls(walk, span.high)
    bounds = [above(walk, span.low)] if span.low is not None else []
    bounds += [below(walk, span.high)] if span.high is not None else []
    return _where(walk, bounds)


def _without_nulls(walk: Walk, high: Key | None) -> Walk:
    """What lies below a value in the first column has no NULL there: saying so lets an index find both ends."""
    if high is None or high[0] is None or not walk.nulls_last:
        return walk
    return replace(walk, key=(replace(walk.key[0], nullable=False), *walk.key[1:]))


def _where(walk: Walk, bounds: Sequence[str]) -> str:
    # The line break ends a comment that the user's condition may end with.
    conditions = [*bounds, *([f"({walk.condition}\n)"] if walk.condition else [])]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def maximum(walk: Walk) -> str:
    """The last key. An inner query gives it: casts outside cost nothing for rows that are skipped, and cannot be
    mistaken for what ORDER BY means."""
    return _texts(walk, _where(walk, []), " DESC", "LIMIT 1")


def expected(walk: Walk) -> str:
    """What the planner thinks of the condition; nothing is read."""
    return f"EXPLAIN (FORMAT JSON) SELECT 1 FROM {walk.source}{_where(walk, [])}"


def boundary(walk: Walk, low: Key | None, high: Key | None, rows: int) -> str:
    """The key that ends a span of `rows` rows after `low`, if there are so many up to `high`.

    With one column, NULLs are left out, all of them have one key: the last span takes them. Where they come last, a
    NULL as `high` bounds nothing; where they come first, it leaves nothing but them."""
    if len(walk.key) == 1 and low is not None and walk.nulls_last:
        walk = replace(walk, key=(replace(walk.key[0], nullable=False),))
    walk = _without_nulls(walk, high)
    bounds = [above(walk, low)] if low is not None else []
    bounds += [below(walk, high)] if high is not None and not (walk.nulls_last and high == (None,)) else []
    return _texts(walk, _where(walk, bounds), "", f"OFFSET {int(rows) - 1} LIMIT 1")


def _texts(walk: Walk, where: str, direction: str, limit: str) -> str:
    columns = ", ".join(step.sql for step in walk.key)
    order = ", ".join(step.sql + direction for step in walk.key)
    inner = f"SELECT {columns} FROM {walk.source}{where} ORDER BY {order} {limit}"
    return f"SELECT {', '.join(f'{step.sql}::text' for step in walk.key)} FROM ({inner}) k"


def ends(found: Sequence[Key], reached: bool, maximum: Key) -> list[Key]:
    """The ends of spans: those that were found, and the maximum when the walk has reached it."""
    return [*(key for key in found if key != maximum), maximum] if reached or maximum in found else list(found)


# -- by place ------------------------------------------------------------------------------------------------------


def place(block: int) -> Key:
    """Before the first row of a block."""
    return (f"({block},0)",)


def places(low: Key | None, maximum: Key, rows: int, count: int, density: float) -> list[Key]:
    """Ends of spans of about `rows` rows, where a block holds `density` of them."""
    step = max(1, round(rows / (density or _ROWS_PER_BLOCK)))
    start, last = _block(low) if low is not None else 0, _block(maximum)
    blocks = [min(start + step * (i + 1), last) for i in range(count)]
    return [place(block) for block in dict.fromkeys(blocks) if block > start]


def _block(key: Key) -> int:
    return int((key[0] or "").strip("(").partition(",")[0])
