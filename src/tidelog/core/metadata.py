"""The columns that travel beside a table's own: inside tidelog, and as users see them.

Inside, they have names that no database allows for a column, so a table may have columns of any name: `_op`, `_before`
or `__tidelog_delete` among them. Where rows leave tidelog, the metadata columns that are asked for get a prefix and
their plain name, such as `_op`; the setting `metadata.prefix` changes that prefix where a table has such a column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

_LONGEST_NAME = 128
"""Oracle, Db2 and SQL Server allow the longest names of columns: 128 bytes."""

PREFIX = "_"
_PREFIX = re.compile(r"[a-z_][a-z0-9_]*")


def hidden(name: str) -> str:
    """A column name that is too long for every database."""
    return f"__tidelog{'_' * _LONGEST_NAME}{name}"


NAMES = ("op", "position", "commit_ts", "xid", "ordinal", "before", "unchanged")
META = tuple(hidden(name) for name in NAMES)
OP, POSITION, COMMIT_TS, XID, ORDINAL, BEFORE, UNCHANGED = META
STAMPS = META[:5]
"""The part of the metadata that a folded row keeps from its last change."""
DELETED = hidden("deleted")
UNDECODABLE = hidden("undecodable")
"""Marks rows of the source that do not fit their types, where the selection sets such rows aside."""


def visible(prefix: str = PREFIX) -> Mapping[str, str]:
    """What users call each metadata column."""
    return {own: f"{prefix}{name}" for own, name in zip(META, NAMES, strict=True)}


def shown(rows: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """The rows with the metadata columns under the names that users know."""
    return rows.rename_columns([names.get(name, name) for name in rows.column_names])


def shown_schema(schema: pa.Schema, names: Mapping[str, str]) -> pa.Schema:
    return pa.schema([field.with_name(names.get(field.name, field.name)) for field in schema])


def prefix(text: str) -> str:
    """A prefix as a user writes it; capitals are left out because not all engines keep them."""
    if not _PREFIX.fullmatch(text):
        raise ValueError("use small letters, digits and underscores, and no digit first")
    return text


def clash(columns: Sequence[str], names: Sequence[str]) -> str:
    """The first column that has one of these names, in whatever case; empty if none has."""
    taken = {name.lower() for name in names}
    return next((column for column in columns if column.lower() in taken), "")
