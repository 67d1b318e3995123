"""Expressions of redo SQL that mean a text or bytes: UNISTR, HEXTORAW, and literals joined by ||."""

from __future__ import annotations

import re

from tidelog.connectors.oracle.redo.values import Sql
from tidelog.errors import UnsupportedChange

EMPTY = re.compile(r"(?:/\*.*?\*/\s*)?EMPTY_[CB]LOB\(\)", re.S)
_HEX = re.compile(r"(?:/\*.*?\*/\s*)?HEXTORAW\('([0-9A-Fa-f]*)'\)", re.S)
_TERM = re.compile(r"\s*(?:(UNISTR)\s*\(\s*)?'([^']*(?:''[^']*)*)'\s*(\)?)\s*(\|\||\Z)")
_ESCAPE = re.compile(r"\\(\\|[0-9A-Fa-f]{4})")


def is_empty(sql: str) -> bool:
    """`EMPTY_CLOB()` or `EMPTY_BLOB()`."""
    return EMPTY.fullmatch(sql) is not None


def hex_digits(sql: str) -> str | None:
    """The digits of a `HEXTORAW('…')`; None for anything else."""
    found = _HEX.fullmatch(sql)
    return found and found[1]


def text_of(sql: Sql | str) -> str:
    """`UNISTR('\\\\0412') || UNISTR('…')`, or literals in its place, as the text it means."""
    parts: list[str] = []
    at, more = 0, True
    while more:
        term = _TERM.match(sql, at)
        if term is None or bool(term[1]) != bool(term[3]):
            hint = "Leave the column out with column.exclude.list."
            raise UnsupportedChange("A value of the redo SQL is no text.", hint=hint)
        text = term[2].replace("''", "'")
        parts.append(_ESCAPE.sub(_unescaped, text) if term[1] else text)
        at, more = term.end(), bool(term[4])
    # A character beyond the first 65,536 is written as two, which only now stand side by side.
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _unescaped(escape: re.Match[str]) -> str:
    return "\\" if escape[1] == "\\" else chr(int(escape[1], 16))
