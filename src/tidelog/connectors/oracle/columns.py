"""The columns of table reads: how each is selected as a text, and how a text comes back as a value of SQL.

Law: a column's text is what redo SQL writes for the value, without its quotes and functions, and takes the same way
from there. Formats are spelled out, so no setting of a session or a server has a say in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.connectors.oracle import decode, types
from tidelog.connectors.oracle.queries import identifier
from tidelog.contracts import Decoded
from tidelog.core.faults import Fault, read_error, read_letters
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

DATE = "'YYYY-MM-DD HH24:MI:SS'"
TIMESTAMP = "'YYYY-MM-DD HH24:MI:SS.FF9'"
ZONED = "'YYYY-MM-DD HH24:MI:SS.FF9 TZH:TZM'"

_TEXTS = {
    "NUMBER": "TO_CHAR({}, 'TM9')",
    "FLOAT": "TO_CHAR({}, 'TM9')",
    "BINARY_FLOAT": "TO_CHAR({})",
    "BINARY_DOUBLE": "TO_CHAR({})",
    "DATE": f"TO_CHAR({{}}, {DATE})",
    "TIMESTAMP": f"TO_CHAR({{}}, {TIMESTAMP})",
    "TIMESTAMP WITH LOCAL TIME ZONE": f"TO_CHAR({{}}, {TIMESTAMP})",
    "TIMESTAMP WITH TIME ZONE": f"TO_CHAR({{}}, {ZONED})",
    "INTERVAL DAY TO SECOND": "TO_CHAR({})",
    "INTERVAL YEAR TO MONTH": "TO_CHAR({})",
    "RAW": "RAWTOHEX({})",
    "ROWID": "ROWIDTOCHAR({})",
    "UROWID": "TO_CHAR({})",
    "XMLTYPE": "XMLSERIALIZE(CONTENT {} AS CLOB)",
    "JSON": "JSON_SERIALIZE({} RETURNING CLOB)",
    "BOOLEAN": "TO_CHAR({})",
}
_PLAIN = frozenset(
    ["CHAR", "NCHAR", "VARCHAR", "VARCHAR2", "NVARCHAR2", "LONG", "CLOB", "NCLOB", "BLOB", "LONG RAW"],
)
"""Selected as they are; the driver gives texts, or bytes."""

_VALUES = {
    "NUMBER": "TO_NUMBER({})",
    "FLOAT": "TO_NUMBER({})",
    "BINARY_FLOAT": "TO_BINARY_FLOAT({})",
    "BINARY_DOUBLE": "TO_BINARY_DOUBLE({})",
    "DATE": f"TO_DATE({{}}, {DATE})",
    "TIMESTAMP": f"TO_TIMESTAMP({{}}, {TIMESTAMP})",
    "TIMESTAMP WITH LOCAL TIME ZONE": f"TO_TIMESTAMP({{}}, {TIMESTAMP})",
    "TIMESTAMP WITH TIME ZONE": f"TO_TIMESTAMP_TZ({{}}, {ZONED})",
    "INTERVAL DAY TO SECOND": "TO_DSINTERVAL({})",
    "INTERVAL YEAR TO MONTH": "TO_YMINTERVAL({})",
    "RAW": "HEXTORAW({})",
    "ROWID": "CHARTOROWID({})",
    "UROWID": "CHARTOROWID({})",
    "NCHAR": "TO_NCHAR({})",
    "NVARCHAR2": "TO_NCHAR({})",
}


def text(kind: str, sql: str) -> str:
    """An expression of a type as its text. What has none, such as an object, LogMiner does not tell either: NULL."""
    if kind in _PLAIN:
        return sql
    return _TEXTS[kind].format(sql) if kind in _TEXTS else "NULL"


def value(kind: str, sql: str) -> str:
    """A text, as a bind variable, as a value of the type: only the database ever compares two of them."""
    return _VALUES.get(kind, "{}").format(sql)


def comparable(kind: str) -> bool:
    """Whether the database orders values of the type."""
    return kind in _VALUES or kind in ("CHAR", "VARCHAR", "VARCHAR2")


def selected(columns: Iterable[Column]) -> str:
    return ", ".join(f"{text(c.type, identifier(c.name))} AS {identifier(c.name)}" for c in columns)


def arrays(rows: Sequence[Sequence[Any]], columns: Sequence[Column]) -> list[pa.StringArray]:
    """The texts of rows, column by column."""
    found = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    return [pa.array(_texts(values), pa.string()) for values in found]


def canonical(texts: Sequence[pa.StringArray], columns: Sequence[Column]) -> pa.RecordBatch:
    """The texts in the form in which the log's are handed on, too."""
    found = [types.canonical(array, column) for array, column in zip(texts, columns, strict=True)]
    return pa.RecordBatch.from_arrays(found, names=[column.name for column in columns])


def _texts(values: Sequence[Any]) -> Sequence[str | None]:
    """Bytes as hexadecimal digits."""
    if any(isinstance(v, bytes) for v in values):
        return [v.hex().upper() if isinstance(v, bytes) else v for v in values]
    return [v if v is None or isinstance(v, str) else str(v) for v in values]


def typed(texts: Sequence[pa.StringArray], chosen: Sequence[Column], table: Table, selection: Selection) -> Decoded:
    """Rows as the stream would deliver them. Those that do not fit their types are dead letters, unless the selection
    wants to stop there."""
    found = [decode.values(array, table, column, selection) for array, column in zip(texts, chosen, strict=True)]
    rows = pa.RecordBatch.from_arrays([array for array, _ in found], names=[column.name for column in chosen])
    faults = [
        Fault(failed, f"column {column.name}: {types.reason(column, selection)}", types.hint(column), column.name)
        for (_, failed), column in zip(found, chosen, strict=True)
        if failed.any()
    ]
    if not faults:
        return Decoded(rows)
    raw = [not selection.rules_for(table, column) for column in chosen]
    shown = {c.name: texts[i] if raw[i] else rows.column(i) for i, c in enumerate(chosen)}
    if selection.failures == "fail":
        raise read_error(faults, shown, table)
    bad = np.logical_or.reduce([fault.rows for fault in faults])
    return Decoded(rows.filter(pa.array(~bad)), read_letters(faults, shown, table))
