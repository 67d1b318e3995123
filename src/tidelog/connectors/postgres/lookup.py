"""Rows of a table by key: queries that find what the stream left out.

Keys come typed, as the stream delivers them, and go to the database as one JSON document: its own input functions read
the values as what the key's columns are, so an index serves and every type that has a text works.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tidelog.connectors.postgres import walk
from tidelog.connectors.postgres.client import Session
from tidelog.connectors.postgres.names import identifier, literal
from tidelog.core.moments import written
from tidelog.model.schema import Table

KEYS_PER_QUERY = 10_000
_TYPES = "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s AND attnum > 0"


def portions(keys: pa.Table) -> Iterator[pa.Table]:
    """As many keys as a query takes."""
    for start in range(0, keys.num_rows, KEYS_PER_QUERY):
        yield keys[start : start + KEYS_PER_QUERY]


def statement(session: Session, now: Table, columns: Sequence[str | None], key: Sequence[str], keys: pa.Table) -> str:
    """A query of `columns` under `keys`. `columns` and `key` are named as in `now`, the table of today; a column that
    is gone is None and reads as NULL. The key must not be masked: the database would not know its values."""
    types = dict(session.query(_TYPES, [now.id]))
    steps = {row[0]: walk.Step(*row) for row in session.query(walk.DESCRIBE, [now.id])}
    chosen = ", ".join("NULL" if name is None else f"t.{identifier(name)}" for name in columns)
    shape = ", ".join(f"{identifier(name)} {types[name]}" for name in key)
    same = " AND ".join(_same(steps[name], nulls=keys.column(i).null_count > 0) for i, name in enumerate(key))
    rows = f"json_to_recordset({literal(_document(keys, now, key))}::json) AS k({shape})"
    return f"SELECT {chosen} FROM {walk.source(session, now)} t JOIN {rows} ON {same}"


def _same(step: walk.Step, *, nulls: bool) -> str:
    name = identifier(step.name)
    equal = f"t.{name} {step.operator('=')} k.{name}"
    return f"({equal} OR t.{name} IS NULL AND k.{name} IS NULL)" if nulls else equal


def _document(keys: pa.Table, now: Table, key: Sequence[str]) -> str:
    columns = [_values(keys.column(i), now.column(name).type) for i, name in enumerate(key)]
    rows = [dict(zip(key, values, strict=True)) for values in zip(*columns, strict=True)]
    return json.dumps(rows, ensure_ascii=False, default=_text)


def _values(column: pa.ChunkedArray, kind: str) -> list[Any]:
    """An array comes as JSON text already."""
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        return written(column)
    found: list[Any] = column.to_pylist()
    return [v and json.loads(v) for v in found] if kind.endswith("[]") else found


def _text(value: Any) -> str:
    return "\\x" + value.hex() if isinstance(value, bytes) else str(value)
