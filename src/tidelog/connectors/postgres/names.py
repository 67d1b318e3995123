"""Names and texts as SQL writes them."""

from __future__ import annotations

from tidelog.model.schema import Table


def identifier(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def quoted(table: Table) -> str:
    return f"{identifier(table.schema)}.{identifier(table.name)}"


def literal(text: str) -> str:
    """Safe whatever `standard_conforming_strings` says: a backslash is written in the one form that never changes."""
    plain = text.replace("'", "''")
    return " E'" + plain.replace("\\", "\\\\") + "'" if "\\" in plain else f"'{plain}'"
