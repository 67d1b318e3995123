"""The SQL of Db2 for i, as far as the connector asks the journal in it: what a SELECT list and a WHERE say, evaluated.

Only columns that IBM documents for QSYS2.DISPLAY_JOURNAL are known. Functions do what the reference says also where it
is awkward: SUBSTR with a length pads, strings compare without their trailing blanks, NULL spreads. A BLOB, a decimal or
a timestamp that is not cast does not pass through JSON, and fails there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from mapepire_python import DatabaseError

_COLUMNS = """ENTRY_TIMESTAMP SEQUENCE_NUMBER JOURNAL_CODE JOURNAL_ENTRY_TYPE COUNT_OR_RRN ENTRY_DATA
    NULL_VALUE_INDICATORS
    OBJECT OBJECT_TYPE OBJECT_TYPE_INDICATOR FILE_TYPE_INDICATOR JOURNAL_IDENTIFIER CURRENT_USER USER_NAME JOB_NAME
    JOB_USER JOB_NUMBER THREAD PROGRAM_NAME PROGRAM_LIBRARY PROGRAM_LIBRARY_ASP_DEVICE PROGRAM_LIBRARY_ASP_NUMBER
    COMMIT_CYCLE NESTED_COMMIT_LEVEL XID LOGICAL_UNIT_OF_WORK REFERENTIAL_CONSTRAINT TRIGGER IGNORE_ON_APPLY
    MINIMIZED_ENTRY_DATA MINIMIZED_ON_FIELD_BOUNDARY INDICATOR_FLAG RECEIVER_NAME RECEIVER_LIBRARY
    RECEIVER_ASP_DEVICE RECEIVER_ASP_NUMBER ARM_NUMBER REMOTE_PORT REMOTE_ADDRESS ADDRESS_FAMILY SYSTEM_NAME
    SYSTEM_SEQUENCE_NUMBER SYSLOG_EVENT SYSLOG_FACILITY SYSLOG_SEVERITY SYSLOG_PRIORITY"""
COLUMNS = frozenset(_COLUMNS.split())
_ARGUMENTS = """JOURNAL_LIBRARY JOURNAL_NAME STARTING_RECEIVER_LIBRARY STARTING_RECEIVER_NAME STARTING_TIMESTAMP
    STARTING_SEQUENCE JOURNAL_CODES JOURNAL_ENTRY_TYPES OBJECT_LIBRARY OBJECT_NAME OBJECT_OBJTYPE OBJECT_MEMBER USER
    JOB PROGRAM ENDING_RECEIVER_LIBRARY ENDING_RECEIVER_NAME ENDING_TIMESTAMP ENDING_SEQUENCE GENERATE_SYSLOG
    EOF_DELAY"""
ARGUMENTS = frozenset(_ARGUMENTS.split())
HEX_MAX = 16_336
"""HEX takes no more bytes at once."""
_TOKEN = re.compile(r"\s*('(?:[^']|'')*'|\d+|\w+|<=|>=|<>|[-+(),<>=])")

Row = Mapping[str, Any]
Expression = Callable[[Row], Any]


def told(text: str, state: str) -> DatabaseError:
    """An error as the driver hands it on: the text alone, and everything that the server said behind it."""
    error = DatabaseError(text)
    error.__cause__ = RuntimeError({"error": text, "sql_state": state, "sql_rc": -443})
    return error


@lru_cache(maxsize=256)
def selected(text: str) -> tuple[Expression, ...]:
    """The expressions of a SELECT list, in order; the names behind AS are nobody's business but the client's."""
    return tuple(_Parser(text).list())


@lru_cache(maxsize=4096)
def condition(text: str) -> Expression:
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [*_TOKEN.findall(text), ""]
        assert "".join(self._tokens) == re.sub(r"\s+(?=(?:[^']*'[^']*')*[^']*$)", "", text), f"not understood: {text}"
        self._at = 0

    def whole(self) -> Expression:
        found = self._either()
        assert self._next == "", f"{self._next} was not expected"
        return found

    def list(self) -> list[Expression]:
        found = [self._named()]
        while self._next == ",":
            self._take()
            found.append(self._named())
        assert self._next == "", f"{self._next} was not expected"
        return found

    def _named(self) -> Expression:
        found = self._either()
        if self._next == "AS":
            self._take()
            self._take()
        return found

    @property
    def _next(self) -> str:
        return self._tokens[self._at]

    def _take(self, wanted: str = "") -> str:
        token = self._next
        assert not wanted or token == wanted, f"{wanted} was expected, not {token}"
        self._at += 1
        return token

    # -- from the loosest to the tightest ----------------------------------------------------------------------

    def _either(self) -> Expression:
        parts = [self._both()]
        while self._next == "OR":
            self._take()
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda row: any(part(row) for part in parts)

    def _both(self) -> Expression:
        parts = [self._compared()]
        while self._next == "AND":
            self._take()
            parts.append(self._compared())
        return parts[0] if len(parts) == 1 else lambda row: all(part(row) for part in parts)

    def _compared(self) -> Expression:
        left = self._sum()
        if self._next == "IN":
            self._take()
            among = self._arguments()
            return lambda row: _plain(left(row)) in [_plain(one(row)) for one in among] and left(row) is not None
        if self._next in _SIGNS:
            compare, right = _SIGNS[self._take()], self._sum()
            return _strict(lambda a, b: compare(_plain(a), _plain(b)), [left, right])
        return left

    def _sum(self) -> Expression:
        left = self._term()
        while self._next in ("+", "-"):
            sign, right = 1 if self._take() == "+" else -1, self._term()
            left = _strict(lambda a, b, sign=sign: a + sign * b, [left, right])
        return left

    def _term(self) -> Expression:
        token = self._take()
        if token == "(":
            inner = self._either()
            self._take(")")
            return inner
        if token == "CASE":
            return self._case()
        if token == "CAST":
            return self._cast()
        if token.startswith("'"):
            return _constant(token[1:-1].replace("''", "'"))
        if token.isdigit():
            return _constant(int(token))
        if self._next == "(":
            return _strict(_FUNCTIONS[token], self._arguments()) if token != "COALESCE" else _first(self._arguments())
        if token not in COLUMNS:
            raise told(f"[SQL0206] Column or global variable {token} not found.", "42703")
        return lambda row: row[token]

    def _arguments(self) -> list[Expression]:
        self._take("(")
        found = [self._either()]
        while self._next == ",":
            self._take()
            found.append(self._either())
        self._take(")")
        return found

    def _case(self) -> Expression:
        branches = []
        while self._next == "WHEN":
            self._take()
            when = self._either()
            self._take("THEN")
            branches.append((when, self._either()))
        self._take("ELSE")
        otherwise = self._either()
        self._take("END")
        return lambda row: next((then for when, then in branches if when(row)), otherwise)(row)

    def _cast(self) -> Expression:
        self._take("(")
        inner = self._either()
        self._take("AS")
        kind, length = self._take(), 0
        if self._next == "(":
            self._take()
            length = int(self._take())
            self._take(")")
        bits = self._next == "FOR"
        for word in ("FOR", "BIT", "DATA") if bits else ():
            self._take(word)
        self._take(")")
        return _strict(lambda value: _CASTS[kind](value, length, bits), [inner])


def _constant(value: Any) -> Expression:
    return lambda _: value


def _strict(function: Callable[..., Any], arguments: list[Expression]) -> Expression:
    """NULL if one of the arguments is."""

    def evaluate(row: Row) -> Any:
        values = [argument(row) for argument in arguments]
        return None if None in values else function(*values)

    return evaluate


def _first(arguments: list[Expression]) -> Expression:
    return lambda row: next((v for v in (argument(row) for argument in arguments) if v is not None), None)


def _plain(value: Any) -> Any:
    return value.rstrip(" ") if isinstance(value, str) else value


# -- functions -----------------------------------------------------------------------------------------------------


def _substr(value: Any, start: int, length: int | None = None) -> Any:
    """Padded so that what is asked for exists: by blanks, and by zeros where bytes are asked for."""
    if length is not None and length < 0:
        raise told("[SQL0138] Argument 3 of substringing function not valid.", "22011")
    pad = b"\0" if isinstance(value, bytes) else " "
    taken = value[start - 1 :] if length is None else value[start - 1 : start - 1 + length]
    return taken if length is None else taken.ljust(length, pad)


def _hex(value: Any) -> str:
    assert isinstance(value, bytes), "the letters of a text depend on its CCSID"
    if len(value) > HEX_MAX:
        raise told("[SQL0171] Argument 1 of function HEX not valid.", "42815")
    return value.hex().upper()


def _varchar(value: Any, length: int, bits: bool) -> Any:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d-%H.%M.%S.%f")
    assert bits == isinstance(value, bytes), "bytes become text FOR BIT DATA, and nothing else does"
    return value[:length]


_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"SUBSTR": _substr, "LENGTH": len, "HEX": _hex, "MIN": min, "MAX": max}
_CASTS: dict[str, Callable[[Any, int, bool], Any]] = {"VARCHAR": _varchar, "BIGINT": lambda value, *_: int(value)}
