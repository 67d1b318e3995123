"""The SQL that cuts a table into ranges of its first key column: by rows, and by bytes where rows are wide.

A range is read into memory whole, so a few rows of many megabytes are a range as well as many small ones.
"""

from __future__ import annotations

from tidelog.connectors.postgres.names import identifier
from tidelog.model.schema import Column, Table

_BYTES_PER_RANGE = 128 << 20
_WITH_LENGTH = frozenset({"text", "varchar", "bytea"})
"""Types whose length the server knows without reading a value that lies outside of its row."""
_FIXED = frozenset(
    {"bool", "int2", "int4", "int8", "oid", "float4", "float8", "date", "timestamp", "timestamptz", "uuid"}
)
"""Types that never make a row wide."""


def boundaries(table: Table, source: str, key: str, rows: int, size: int = _BYTES_PER_RANGE) -> str:
    """A query of the keys that end a range, in order: after every `rows` rows, and wherever another `size` bytes are
    full. `source` and `key` are SQL."""
    count = f"row_number() OVER (ORDER BY {key}) AS n"
    width = _width(table)
    if not width:
        counted = f"SELECT {key} AS k, {count} FROM {source}"
        return f"SELECT format('%s', k) FROM ({counted}) s WHERE n % {rows} = 0 ORDER BY n"
    measured = f"SELECT {key} AS k, {count}, {width} AS w FROM {source}"
    summed = f"SELECT k, n, w, sum(w) OVER (ORDER BY n) AS total FROM ({measured}) r"
    fills = f"div(total, {size}) > div(total - w, {size})"
    return f"SELECT format('%s', k) FROM ({summed}) s WHERE n % {rows} = 0 OR {fills} ORDER BY n"


def _width(table: Table) -> str:
    """About how many bytes a row has in memory, as SQL; empty where no column is wide. Of types without a known length
    it is what they take on disk, maybe compressed."""
    return " + ".join(_measure(column) for column in table.columns if column.type not in _FIXED)


def _measure(column: Column) -> str:
    function = "octet_length" if column.type in _WITH_LENGTH else "pg_column_size"
    return f"coalesce({function}({identifier(column.name)}), 0)::bigint"
