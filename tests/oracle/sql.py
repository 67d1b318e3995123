"""Oracle's SELECT, run by SQLite: the words are translated one by one, and the tables filled with what is asked for.

Only what both mean alike is used, and what differs is put in its place here: names with `#` and `$`, FETCH FIRST, AS OF
SCN, dates, Oracle's functions. Nothing knows the connector's statements as such, so a statement that is written
differently but means the same has the same answer.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from tests.oracle import redo

_TOKEN = re.compile(
    r"""(?P<space>\s+|/\*.*?\*/|--[^\n]*)|(?P<text>[nN]?'(?:[^']|'')*')|(?P<quoted>"(?:[^"]|"")*")|(?P<bind>:\w+)"""
    r"""|(?P<number>\d+(?:\.\d+)?)|(?P<word>[A-Za-z_][\w$\#]*)|(?P<sign>\|\||<=|>=|<>|!=|=>|.)""",
    re.S,
)
_EPOCH = datetime(1970, 1, 1)
_TIMES = (
    "TIMESTAMP START_TIMESTAMP COMMIT_TIMESTAMP FIRST_TIME NEXT_TIME RESETLOGS_TIME COMPLETION_TIME START_TIME "
    "START_DATE CREATED LAST_DDL_TIME SYSDATE SYSTIMESTAMP CHECKPOINT_TIME ENABLE_TIME LAST_REDO_TIME"
)
_DATES = frozenset(_TIMES.split())
_DATED = ("SCN_TO_TIMESTAMP", "SYSDATE", "SYSTIMESTAMP", "MIN(FIRST_TIME)", "MAX(NEXT_TIME)")
_HUGE = 2**63

Rows = Sequence[Sequence[Any]]


class Unknown(Exception):
    """ORA-00942: there is no such table."""


@dataclass(frozen=True)
class Token:
    kind: str
    text: str

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind == "word" else ""


@dataclass(frozen=True)
class From:
    """A table of the statement: its name in SQLite, what it is called, and as of which SCN it is read."""

    name: str
    owner: str
    table: str
    scn: Token | None = None


@dataclass(frozen=True)
class Select:
    sql: str
    tables: tuple[From, ...]
    binds: tuple[str, ...]


@lru_cache(maxsize=4096)
def tokens(sql: str) -> tuple[Token, ...]:
    found = []
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup or "sign"
        if kind != "space":
            found.append(Token(kind, match.group()))
    return tuple(found)


@lru_cache(maxsize=4096)
def translate(sql: str) -> Select:
    """Of each FROM or JOIN the tables are taken; all other words are carried over."""
    words = [t for t in tokens(sql) if t.text != ";"]
    out: list[str] = []
    tables: list[From] = []
    n, expecting, depths = 0, False, [False]
    while n < len(words):
        token = words[n]
        if token.upper in ("FROM", "JOIN"):
            expecting = depths[-1] = True
            out.append(token.upper)
            n += 1
        elif expecting and token.kind in ("word", "quoted"):
            table, n = _table(words, n)
            tables.append(table)
            out.append(f'"{table.name}"')
            expecting = False
        elif token.upper == "IN" and [w.text for w in words[n + 1 : n + 3]] == ["(", "("]:
            depths.append(False)
            out.append("IN ( VALUES")  # SQLite's way to list rows
            n += 2
        elif token.upper in ("FETCH", "OFFSET"):
            limit, n = _limit(words, n)
            out.append(limit)
        else:
            expecting = _next(token, expecting, depths)
            text, n = _word(words, n)
            out.append(text)
    binds = tuple(dict.fromkeys(t.text[1:] for t in words if t.kind == "bind"))
    return Select(" ".join(out), tuple(tables), binds)


def _next(token: Token, expecting: bool, depths: list[bool]) -> bool:
    """Whether a table comes next: after a comma of the FROM list, or inside its brackets."""
    match token.text:
        case "(":
            depths.append(False)
            return False
        case ")":
            depths.pop()
            return False
        case ",":
            return depths[-1]
    if token.upper in ("WHERE", "SELECT", "ORDER", "GROUP", "ON", "UNION", "HAVING"):
        depths[-1] = False
    return False if token.upper else expecting and token.kind == "space"


def _table(words: Sequence[Token], n: int) -> tuple[From, int]:
    parts = [_name(words[n])]
    n += 1
    while n + 1 < len(words) and words[n].text == ".":
        parts.append(_name(words[n + 1]))
        n += 2
    owner, name = (parts[-2], parts[-1]) if len(parts) > 1 else ("", parts[0])
    scn = None
    if [w.upper for w in words[n : n + 3]] == ["AS", "OF", "SCN"]:
        scn, n = words[n + 3], n + 4
    shown = ".".join(filter(None, ["" if owner in ("SYS", "PUBLIC") else owner, name]))
    return From(shown if scn is None else f"{shown}@{scn.text}", owner, name, scn), n


def _name(token: Token) -> str:
    return token.text[1:-1].replace('""', '"') if token.kind == "quoted" else token.text.upper()


def _limit(words: Sequence[Token], n: int) -> tuple[str, int]:
    """`OFFSET a ROWS FETCH NEXT b ROWS ONLY`, either part alone as well."""
    offset = count = ""
    if words[n].upper == "OFFSET":
        offset, n = _plain(words[n + 1]), n + 3
    if n < len(words) and words[n].upper == "FETCH":
        one = words[n + 2].kind == "word"
        count = "1" if one else _plain(words[n + 2])
        n += 4 if one else 5
    return f"LIMIT {count or -1}" + (f" OFFSET {offset}" if offset else ""), n


def _plain(token: Token) -> str:
    return token.text


def _word(words: Sequence[Token], n: int) -> tuple[str, int]:
    token = words[n]
    called = n + 1 < len(words) and words[n + 1].text == "("
    if token.kind == "word" and token.upper in ("SYSDATE", "SYSTIMESTAMP"):
        return f"{token.upper}()", n + 1
    if token.upper in ("MINUS", "ROWID"):
        return {"MINUS": "EXCEPT", "ROWID": '"ROWID_"'}[token.upper], n + 1
    if token.upper == "CONTENT" or [w.upper for w in words[n : n + 2]] == ["AS", "CLOB"]:
        return "", n + (1 if token.upper == "CONTENT" else 2)  # of XMLSERIALIZE(CONTENT … AS CLOB)
    if token.kind == "text" and token.text[0] in "nN":
        return token.text[1:], n + 1
    if token.kind == "word" and ("#" in token.text or "$" in token.text):
        return f'"{token.upper}"', n + 1
    if token.upper in ("TIMESTAMP", "NAME", "TYPE", "INDEX", "VALUE") and not called:
        return f'"{token.upper}"', n + 1
    return (token.text.upper() if token.kind == "word" else token.text), n + 1


class Engine:
    """One SQLite for a database; tables are filled anew for each statement. Times are days since 1970, and what is no
    SQLite integer is a float."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._db = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512, check_same_thread=False)
        self._made: dict[str, tuple[str, ...]] = {}
        self._db.execute("PRAGMA case_sensitive_like = ON")
        for name, arguments, function in _functions(now):
            self._db.create_function(name, arguments, function, deterministic=False)

    def fill(self, name: str, columns: Sequence[str], rows: Rows) -> None:
        names = tuple(columns)
        if self._made.get(name) != names:
            self._db.execute(f'DROP TABLE IF EXISTS "{name}"')
            self._db.execute(f'CREATE TABLE "{name}" ({", ".join(f"{chr(34)}{c}{chr(34)}" for c in names)})')
            self._made[name] = names
        else:
            self._db.execute(f'DELETE FROM "{name}"')
        marks = ", ".join("?" * len(names))
        self._db.execute("BEGIN")
        self._db.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
        self._db.execute("COMMIT")

    def run(self, select: Select, binds: Mapping[str, Any]) -> tuple[list[str], list[tuple[Any, ...]]]:
        given = {name: _stored(binds[name]) for name in select.binds}
        cursor = self._db.execute(select.sql, given)
        names = [d[0] for d in cursor.description]
        times = [n for n, name in enumerate(names) if name.upper() in _DATES or name.upper().startswith(_DATED)]
        return names, [_shown(row, times) for row in cursor]


def _stored(value: Any) -> Any:
    """A bind variable."""
    if isinstance(value, datetime):
        return (value - _EPOCH) / timedelta(days=1)
    return float(value) if isinstance(value, int) and value >= _HUGE else value


def _shown(row: tuple[Any, ...], times: Sequence[int]) -> tuple[Any, ...]:
    """As the driver hands it over."""
    if not times and redo.FOREVER_STORED not in row:
        return row
    found = [redo.FOREVER if value == redo.FOREVER_STORED else value for value in row]
    for n in times:
        found[n] = None if row[n] is None else _date(row[n])
    return tuple(found)


@lru_cache(maxsize=4096)
def _date(days: float) -> datetime:
    return _EPOCH + timedelta(milliseconds=round(days * 86_400_000))


def _functions(now: Callable[[], float]) -> list[tuple[str, int, Callable[..., Any]]]:
    def timestamp_to_scn(days: float) -> int:
        return redo.scn_of(_date(days))

    def interval(count: float, unit: str) -> float:
        return count / {"SECOND": 86_400, "MINUTE": 1_440, "HOUR": 24, "DAY": 1}[unit.upper()]

    return [
        ("SYSDATE", 0, now),
        ("SYSTIMESTAMP", 0, now),
        ("NVL", 2, lambda a, b: b if a is None else a),
        ("NVL2", 3, lambda a, b, c: c if a is None else b),
        ("RAWTOHEX", 1, lambda raw: None if raw is None else raw.hex().upper()),
        ("HEXTORAW", 1, lambda text: None if text is None else bytes.fromhex(text)),
        ("TO_CHAR", -1, _to_char),
        ("TO_NUMBER", 1, lambda v: None if v is None else float(v) if "." in str(v) else int(v)),
        ("TO_NCHAR", 1, lambda v: None if v is None else str(v)),
        ("TO_DATE", -1, _to_time),
        ("TO_TIMESTAMP", -1, _to_time),
        ("XMLSERIALIZE", 1, lambda v: v),
        ("TO_CLOB", 1, lambda v: v),
        ("REGEXP_LIKE", -1, _regexp_like),
        ("GREATEST", -1, lambda *v: None if None in v else max(v)),
        ("LEAST", -1, lambda *v: None if None in v else min(v)),
        ("DECODE", -1, _decode),
        ("BITAND", 2, lambda a, b: a & b),
        ("NUMTODSINTERVAL", 2, interval),
        ("SCN_TO_TIMESTAMP", 1, redo.day_of),
        ("TIMESTAMP_TO_SCN", 1, timestamp_to_scn),
        ("SYS_CONTEXT", 2, lambda _, name: {"CON_NAME": "CDB$ROOT", "SESSION_USER": "C##TIDE"}.get(name)),
        ("ROWIDTOCHAR", 1, lambda v: v),
        ("CHARTOROWID", 1, lambda v: v),
    ]


def _to_char(value: Any, form: str | None = None, *_: Any) -> Any:
    if value is None:
        return None
    if form == "TZH:TZM":
        return "+00:00"
    if form == "YYYY-MM-DD HH24:MI:SS":
        return value[:19]
    if form == "TM9":
        return re.sub(r"^(-?)0\.", r"\1.", str(value)).removesuffix(".0")
    return value.hex() if isinstance(value, bytes) else str(value)


def _to_time(text: str | None, *_forms: str) -> str | None:
    """All times have one form, so that they compare."""
    if text is None:
        return None
    seconds, _, fraction = text.partition(".")
    return f"{seconds}.{fraction:0<9}"


def _regexp_like(text: str | None, pattern: str, _: str = "") -> bool:
    return text is not None and re.search(pattern, text) is not None


def _decode(value: Any, *rest: Any) -> Any:
    for known, result in zip(rest[::2], rest[1::2], strict=False):
        if value == known:
            return result
    return rest[-1] if len(rest) % 2 else None
