"""Signals: what people ask of a running pipeline, in the words they know, from whatever channel.

The law: a signal never fails a pipeline. What cannot be understood is a `Malformed` value, to be reported and skipped;
and nothing is guessed, because a stop that was not understood must not stop everything.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.core.settings import nearest
from tidelog.model.pattern import compiled

KINDS = ("incremental", "blocking")
_EVERY = ".*"
_TABLES, _CONDITIONS, _CONDITION, _SURROGATE = (
    "data-collections",
    "additional-conditions",
    "additional-condition",
    "surrogate-key",
)
_MEMBERS = ("type", _TABLES, _CONDITIONS, _CONDITION, _SURROGATE)
_STOP_MEMBERS = ("type", _TABLES)
_CONDITION_MEMBERS = ("data-collection", "filter")
_TOO_DEEP = "its JSON is nested too deeply"


@dataclass(frozen=True)
class Execute:
    """Take a snapshot of the tables whose names match."""

    id: str
    collections: tuple[str, ...]
    kind: str = "incremental"
    conditions: tuple[tuple[str, str], ...] = ()
    """(pattern of tables, SQL): the first one that matches a table counts."""
    surrogate: str = ""


@dataclass(frozen=True)
class Stop:
    id: str
    collections: tuple[str, ...] | None = None
    """None: all of them."""
    kind: str = "incremental"


@dataclass(frozen=True)
class Pause:
    id: str


@dataclass(frozen=True)
class Resume:
    id: str


@dataclass(frozen=True)
class Log:
    id: str
    message: str


@dataclass(frozen=True)
class WindowOpen:
    id: str
    """Of the window: that of its row, without what says which row it is."""


@dataclass(frozen=True)
class WindowClose:
    id: str


@dataclass(frozen=True)
class Malformed:
    id: str
    reason: str


Signal = Execute | Stop | Pause | Resume | Log | WindowOpen | WindowClose | Malformed
Row = tuple[str, str, str | None]
"""(id, type, data) as in the table of signals."""


def parse(id: str, type: str, data: str | Mapping[str, Any] | None) -> Signal:
    """`data` is an object, or its JSON text."""
    if type not in _BUILD:
        near = nearest(type, tuple(_BUILD))
        known = f"did you mean {near!r}?" if near else f"known are: {', '.join(_BUILD)}"
        return Malformed(id, f"there is no signal {type!r}; {known}")
    try:
        return _BUILD[type](id, data)
    except ValueError as exc:
        return Malformed(id, f"{type}: {exc}")
    except RecursionError:
        return Malformed(id, f"{type}: {_TOO_DEEP}")


def of_row(values: Sequence[str | None] | None) -> Row | None:
    """A row of the table of signals. Its columns may have any names: they count by their place. A table with more or
    fewer than three is none of signals."""
    if values is None or len(values) != 3:
        return None
    id, type, data = values
    return id or "", type or "", data


def of_values(values: Sequence[str | None]) -> Signal:
    """A row of the table of signals, however many columns that has."""
    row = of_row(values)
    if row is None:
        reason = f"the table of signals has {len(values)} columns, and a signal has an id, a type and data"
        return Malformed((values[0] if values else "") or "", reason)
    return parse(*row)


def of_lines(lines: Iterable[str]) -> list[Signal]:
    """Of a file: one JSON object a line."""
    return [_of_line(line.strip()) for line in lines if line.strip()]


def _of_line(line: str) -> Signal:
    try:
        return of_object(json.loads(line))
    except ValueError:
        return Malformed(_nameless(line), f"this line is not JSON: {line[:100]}")
    except RecursionError:
        return Malformed(_nameless(line), _TOO_DEEP)


def of_object(raw: Any) -> Signal:
    """`{"id", "type", "data"}`, as files, messages and requests carry it."""
    if not isinstance(raw, dict):
        return Malformed(_nameless(raw), "a signal is a JSON object with id, type and data")
    id, type = raw.get("id"), raw.get("type")
    if isinstance(id, bool) or not isinstance(id, str | int) or id == "":
        return Malformed(_nameless(raw), "the signal has no id")
    if not _sound(str(id)):
        return Malformed(_nameless(raw), "the signal's id is no text that can be written down")
    if not isinstance(type, str):
        return Malformed(str(id), "the signal has no type")
    return parse(str(id), type, raw.get("data"))


def _nameless(raw: Any) -> str:
    """The same for the same content, so that each is reported once."""
    return f"nameless-{hashlib.sha256(json.dumps(raw, default=str).encode()).hexdigest()[:12]}"


def _members(data: Any) -> dict[str, Any]:
    if data is None or (isinstance(data, str) and not data.strip()):
        return {}
    try:
        raw = json.loads(data) if isinstance(data, str) else data
    except ValueError:
        raise ValueError("its data is not JSON") from None
    if not isinstance(raw, Mapping):
        raise ValueError("its data is not a JSON object")  # noqa: TRY004
    return dict(raw)


def _request(raw: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """An unknown member is refused: to ignore it would mean more tables, or more rows, than were asked for."""
    for name in raw:
        if name not in known:
            near = nearest(name, known)
            meant = f"did you mean {near!r}? " if near else ""
            raise ValueError(f"there is no {name!r}; {meant}known are: {', '.join(known)}")
    return raw


def _execute(id: str, data: Any) -> Signal:
    raw = _request(_members(data), _MEMBERS)
    tables = _tables(raw)
    if not tables:
        raise ValueError(f"{_TABLES} names no table")
    return Execute(id, tables, _kind(raw), _conditions(raw), _optional(raw, _SURROGATE))


def _stop(id: str, data: Any) -> Signal:
    raw = _request(_members(data), _STOP_MEMBERS)
    return Stop(id, _tables(raw) or None, _kind(raw))


def _tables(raw: Mapping[str, Any]) -> tuple[str, ...]:
    found = raw.get(_TABLES)
    if found is None:
        return ()
    if not isinstance(found, list):
        raise ValueError(f"{_TABLES} is not a list")  # noqa: TRY004
    return tuple(_pattern(name, _TABLES) for name in found)


def _pattern(name: Any, member: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"{member} has {json.dumps(name, default=str)}, which is not a table's name or pattern")
    try:
        compiled(_written(name, member), re.DOTALL)
    except re.error as exc:
        raise ValueError(f"{name!r} is not a regular expression ({exc})") from exc
    return name.strip()


def _kind(raw: Mapping[str, Any]) -> str:
    found = raw.get("type") or "incremental"
    if not isinstance(found, str) or found.lower() not in KINDS:
        raise ValueError(f"its type is {found!r}, which is not one of {', '.join(KINDS)}")
    return found.lower()


def _conditions(raw: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    found = raw.get(_CONDITIONS) or []
    if not isinstance(found, list):
        raise ValueError(f"{_CONDITIONS} is not a list")  # noqa: TRY004
    everywhere = _filter({"filter": raw.get(_CONDITION)})
    return (*map(_condition, found), *(((_EVERY, everywhere),) if everywhere else ()))


def _condition(entry: Any) -> tuple[str, str]:
    if not isinstance(entry, dict):
        raise ValueError(f"{_CONDITIONS} has an entry that is no object")  # noqa: TRY004
    if "filter" not in entry:
        raise ValueError(f"{_CONDITIONS} has an entry without a filter")
    _request(entry, _CONDITION_MEMBERS)
    return _pattern(entry.get("data-collection"), _CONDITIONS), _filter(entry)


def _filter(entry: Mapping[str, Any]) -> str:
    found = _optional(entry, "filter")
    if re.match(r"select\b", found, re.IGNORECASE):
        raise ValueError("a filter is a condition, what stands behind WHERE, and not a whole SELECT")
    return found


def _optional(raw: Mapping[str, Any], name: str) -> str:
    found = raw.get(name)
    if not isinstance(found, str | None):
        raise ValueError(f"{name} is {found!r}, not a text")  # noqa: TRY004
    return _written(found or "", name)


def _written(text: str, member: str) -> str:
    if not _sound(text):
        raise ValueError(f"{member} has {text!r}, which no database can hold as text")
    return text.strip()


def _sound(text: str) -> bool:
    """JSON can spell what is no text: half a character, or the end of one."""
    return not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text)


def _log(id: str, data: Any) -> Signal:
    message = _members(data).get("message")
    if not isinstance(message, str):
        raise ValueError("it has no message")  # noqa: TRY004
    return Log(id, _written(message, "message"))


def told(message: str, position: str) -> str:
    """What a `log` signal says."""
    return message.replace("{}", position)


OPEN, CLOSE = "snapshot-window-open", "snapshot-window-close"
_BUILD: dict[str, Callable[[str, Any], Signal]] = {
    "execute-snapshot": _execute,
    "stop-snapshot": _stop,
    "pause-snapshot": lambda id, _: Pause(id),
    "resume-snapshot": lambda id, _: Resume(id),
    "log": _log,
    OPEN: lambda id, _: WindowOpen(id.removesuffix("-open")),
    CLOSE: lambda id, _: WindowClose(id.removesuffix("-close")),
}


def tables_of(execute: Execute, captured: Iterable[str]) -> list[str]:
    """The captured tables (`schema.table`) that are asked for."""
    return matching(execute.collections, captured)


def matching(collections: Iterable[str], names: Iterable[str]) -> list[str]:
    """The names that a pattern matches as a whole: in the patterns' order, then by name; each once."""
    names = sorted(names)
    return list(dict.fromkeys(name for pattern in collections for name in names if _means(pattern, name)))


def unmatched(collections: Iterable[str], names: Sequence[str]) -> list[str]:
    """The patterns that match none of the names."""
    return [pattern for pattern in dict.fromkeys(collections) if not matching([pattern], names)]


def condition_for(execute: Execute, table: str) -> str:
    """Empty for all rows."""
    return next((sql for pattern, sql in execute.conditions if _means(pattern, table)), "")


def _means(pattern: str, name: str) -> bool:
    """A name counts as itself too: a `$` in it is no pattern."""
    return pattern == name or compiled(pattern, re.DOTALL).fullmatch(name) is not None


@dataclass(frozen=True)
class Window:
    """A chunk's window, as it is told in the table of signals. Who asked, and for which table, is fixed when it opens:
    its closing row says the same, though the snapshot may have gone on to another table."""

    chunk: str
    """Unique; the ids of both rows begin with it."""
    opened: str
    """When, as ISO text in UTC."""
    asked_by: str = ""
    table: str = ""

    def open_row(self) -> Row:
        return f"{self.chunk}-open", OPEN, window_data(self.opened, "", self.asked_by, self.table)

    def close_row(self, closed: str) -> Row:
        return f"{self.chunk}-close", CLOSE, window_data(self.opened, closed, self.asked_by, self.table)


def closed_by(opening: str) -> Row:
    """The closing row that says what the deletion of a window's opening row does."""
    return f"{opening.removesuffix('-open')}-close", CLOSE, None


def window_data(opened: str, closed: str = "", asked_by: str = "", table: str = "") -> str:
    """The data of a window's row; what is not known is left out."""
    found = {
        "openWindowTimestamp": opened,
        "closeWindowTimestamp": closed,
        "correlationId": asked_by,
        "dataCollectionId": table,
    }
    return json.dumps({name: value for name, value in found.items() if value}, ensure_ascii=False)
