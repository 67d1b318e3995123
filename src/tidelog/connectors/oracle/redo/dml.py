"""One redo statement to a change, exactly; the reference for `shapes`, and the way for tables with large objects.

    insert into "S"."T"("A","B") values ('1',TO_DATE('…'));
    update "S"."T" a set a."B" = NULL where a."A" = '1' and a."B" IS NULL;
    delete from "S"."T" where "A" = '1';

A literal loses its quotes, an expression stays what it is (`Sql`). `NULL` and `Unsupported Type` are null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Change, Sql, Unavailable, Value, is_large
from tidelog.errors import UnsupportedChange
from tidelog.model.record import Op
from tidelog.model.schema import Table

NULLS = frozenset(["NULL", "Unsupported Type"])
_IGNORED = re.compile(r"ORA_ARCHIVE_STATE|ROWID|SYS_\w+\$", re.A)
"""Of Oracle's own, such as SYS_NC00012$: no columns that a user has made."""
HEAD = re.compile(r'(insert into|update|delete from)\s+"([^"]*)"\s*\.\s*"([^"]*)"\s*', re.A)
_NAME = re.compile(r'\s*"([^"]*)"\s*([,)])', re.A)
_VALUES = re.compile(r"\s*values\s*\(\s*", re.A)
_BLANKS = re.compile(r"\s*", re.A)
_SET = re.compile(r"(?:\w+\s+)?set\s+", re.A)
_WHERE = re.compile(r"\s*(?:\w+\s+)?where\s+", re.A)
_END = re.compile(r"\s*\w*\s*;?\s*\Z", re.A)
_TARGET = re.compile(r'\s*(?:\w+\.)?(?:"([^"]*)"|(ROWID))\s*(?:=\s*|(IS NULL))', re.A)
_NUMBERED = re.compile(r"COL (\d+)", re.A)
_LITERAL = r"'[^']*+(?:''[^']*+)*+'"

T = TypeVar("T")


class Span(NamedTuple):
    """Where a value stands in its statement; of a literal, what stands between the quotes."""

    start: int
    end: int
    literal: bool

    def of(self, sql: str) -> Value:
        text = sql[self.start : self.end]
        return text.replace("''", "'") if self.literal else Sql(text)


Unknown = Literal[Unavailable.UNAVAILABLE] | None
Known = Span | Unknown


class Statement(NamedTuple):
    op: Op
    new: Mapping[str, Span | None]
    """What it inserts or sets; None for a null."""
    old: Mapping[str, Span | None]
    """What its WHERE says."""


@dataclass(frozen=True)
class Ending:
    """Where a value of some clause ends: at one of these, outside of quotes and brackets."""

    tokens: re.Pattern[str]
    relaxed: re.Pattern[str] | None = None
    """The apostrophe that ends a literal whose own apostrophes are not doubled."""

    @staticmethod
    def at(end: str, relaxed: str | None = None) -> Ending:
        """`relaxed`: what then follows the apostrophe."""
        tokens = re.compile(rf"(?P<literal>{_LITERAL})|(?P<end>{end})|(?P<open>\()|(?P<close>\))|(?P<torn>')", re.A)
        return Ending(tokens, re.compile(rf"'(?={relaxed})", re.A) if relaxed else None)


IN_VALUES = Ending.at(r"\s*[,)]", r",(?:\S|\s*(?:'|NULL\s*[,)]))|\)\s*;?\s*\Z")
"""Relaxed, a comma ends a literal where a value can follow it, and the bracket only at the end of the statement."""
IN_SET = Ending.at(r"\s*,|\s+where\s|\s*;?\s*\Z", r'\s*,\s*(?:\w+\.)?"|\s+where\s|\s*;?\s*\Z')
IN_WHERE = Ending.at(r"\s+and\s|\s*;?\s*\Z")


def parse(sql: str, table: Table, *, relaxed: bool = False, untold: Unknown = None) -> Change:
    """An `insert`, `update` or `delete` on `table`; anything else is an `UnsupportedChange`. `relaxed`: apostrophes
    inside literals of VALUES and SET are not doubled. `COL n`, where LogMiner's dictionary did not know the table's
    version, is its n-th column. `untold` is what an update leaves of a column that it does not name at all."""
    told = statement(sql, relaxed)
    before, after = images(told, table, untold)
    return Change(told.op, _row(sql, before), _row(sql, after))


def _row(sql: str, spans: Mapping[str, Known] | None) -> dict[str, Value] | None:
    return None if spans is None else values_of(sql, spans)


def values_of(sql: str, spans: Mapping[str, Known]) -> dict[str, Value]:
    return {name: span.of(sql) if isinstance(span, Span) else span for name, span in spans.items()}


def statement(sql: str, relaxed: bool = False) -> Statement:
    """Where the values stand, by the names that the statement gives them."""
    head = HEAD.match(sql)
    if head is None:
        raise wrong("it is no insert, update or delete")
    match head[1]:
        case "insert into":
            return Statement(Op.CREATE, _inserted(sql, head.end(), relaxed), {})
        case "update":
            new, at = assigned(sql, head.end(), relaxed)
            return Statement(Op.UPDATE, new, conditions(sql, at))
    return Statement(Op.DELETE, {}, conditions(sql, head.end()))


def images(
    told: Statement, table: Table, untold: Unknown = None
) -> tuple[dict[str, Known] | None, dict[str, Known] | None]:
    """The row before and after a change, all columns of it."""
    if told.op is Op.CREATE:
        values = named(table, told.new)
        return None, {column.name: values.get(column.name) for column in table.columns}
    before = _before(table, told.old)
    if told.op is Op.DELETE:
        return before, None
    kept = before if untold is None else {**before, **dict.fromkeys(before.keys() - named(table, told.old), untold)}
    return before, {**before, **kept, **named(table, told.new)}


def _before(table: Table, told: Mapping[str, Span | None]) -> dict[str, Known]:
    """A row as it was. The log tells no old large object, so a null one is not known."""
    values = named(table, told)
    found: dict[str, Known] = {column.name: values.get(column.name) for column in table.columns}
    return found | {c.name: UNAVAILABLE for c in table.columns if found[c.name] is None and is_large(c)}


def named(table: Table, told: Mapping[str, T]) -> dict[str, T]:
    """By the table's own names of the columns."""
    known = {column.name for column in table.columns}
    ours = {name: value for name, value in told.items() if name in known or not _IGNORED.fullmatch(name)}
    return {name if name in known else _numbered(name, table): value for name, value in ours.items()}


def _numbered(name: str, table: Table) -> str:
    match = _NUMBERED.fullmatch(name)
    if match is None or not 0 < int(match[1]) <= len(table.columns):
        raise UnsupportedChange(
            f"The redo SQL of {table.qualified} names a column {name[:128]!r} that the table does not have.",
            hint="The table has changed since: take a snapshot of it anew, or set log.mining.strategy to hybrid.",
        )
    return table.columns[int(match[1]) - 1].name


def _inserted(sql: str, at: int, relaxed: bool) -> dict[str, Span | None]:
    names, at = _names(sql, at)
    found: list[Span | None] = []
    opening = _VALUES.match(sql, at)
    if opening is None:
        raise wrong("the values are missing")
    at, more = opening.end(), True
    while more:
        value, end = value_at(sql, at, IN_VALUES, relaxed)
        found.append(value)
        at, more = _past_blanks(sql, end.end()), end[0].endswith(",")
    if len(found) != len(names):
        raise wrong("it has not as many values as columns")
    return dict(zip(names, found, strict=True))


def _past_blanks(sql: str, at: int) -> int:
    blanks = _BLANKS.match(sql, at)
    return blanks.end() if blanks is not None else at


def _names(sql: str, at: int) -> tuple[list[str], int]:
    names, ending = [], ","
    if sql[at : at + 1] != "(":
        raise wrong("the list of columns is missing")
    at += 1
    while ending == ",":
        name = _NAME.match(sql, at)
        if name is None:
            raise wrong("its list of columns is damaged")
        names.append(name[1])
        at, ending = name.end(), name[2]
    return names, at


def assigned(sql: str, at: int, relaxed: bool = False) -> tuple[dict[str, Span | None], int]:
    """The columns that an update sets, and where that clause ends."""
    opening = _SET.match(sql, at)
    if opening is None:
        raise wrong("what it sets is missing")
    found: dict[str, Span | None] = {}
    at, more = opening.end(), True
    while more:
        name, at, null = _target(sql, at)
        if null:
            raise wrong("what it sets is damaged")
        found[name], end = value_at(sql, at, IN_SET, relaxed)
        more = end[0].endswith(",")
        at = end.end() if more else end.start()
    return found, at


def conditions(sql: str, at: int, ending: Ending = IN_WHERE) -> dict[str, Span | None]:
    """What WHERE says of the row; there may be none."""
    found: dict[str, Span | None] = {}
    opening = _WHERE.match(sql, at)
    if opening is None:
        if _END.match(sql, at):
            return found
        raise wrong("its condition is damaged")
    at, more = opening.end(), True
    while more:
        name, at, null = _target(sql, at)
        if null:
            found[name], end = None, ending.tokens.match(sql, at)
        else:
            found[name], end = value_at(sql, at, ending)
        if end is None or end.lastgroup != "end":
            raise wrong("its condition is damaged")
        at, more = end.end(), "and" in end[0]
    return found


def _target(sql: str, at: int) -> tuple[str, int, bool]:
    """A column, where its value begins, and whether it IS NULL."""
    name = _TARGET.match(sql, at)
    if name is None:
        raise wrong("a column's name is damaged")
    return name[1] if name[2] is None else name[2], name.end(), name[3] is not None


def value_at(sql: str, at: int, ending: Ending, relaxed: bool = False) -> tuple[Span | None, re.Match[str]]:
    """The value that begins here, and what ends it."""
    if relaxed and ending.relaxed is not None and sql.startswith("'", at):
        close = ending.relaxed.search(sql, at + 1)
        end = close and ending.tokens.match(sql, close.end())
        if close is None or end is None:
            raise wrong("a literal does not end")
        return Span(at + 1, close.start(), True), end
    end, literal = _ending(sql, at, ending)
    if literal:
        return Span(at + 1, end.start() - 1, True), end
    if at == end.start():
        raise wrong("a value is missing")
    return None if sql[at : end.start()] in NULLS else Span(at, end.start(), False), end


def _ending(sql: str, at: int, ending: Ending) -> tuple[re.Match[str], bool]:
    """What ends the value, and whether the value is one literal."""
    depth, literal = 0, False
    for token in ending.tokens.finditer(sql, at):
        match token.lastgroup:
            case "end" if depth == 0:
                return token, literal
            case "literal":
                literal = token.start() == at and _ends_at(sql, token.end(), ending)
            case "open":
                depth += 1
            case "close" | "end" if token[0].endswith(")"):
                depth -= 1
            case "torn":
                raise wrong("a literal does not end")
    raise wrong("a value does not end")


def _ends_at(sql: str, at: int, ending: Ending) -> bool:
    token = ending.tokens.match(sql, at)
    return token is not None and token.lastgroup == "end"


def wrong(what: str) -> UnsupportedChange:
    return UnsupportedChange(
        f"A redo statement cannot be read: {what}.",
        hint="Set event.processing.failure.handling.mode to dead-letter to set such records aside.",
    )
