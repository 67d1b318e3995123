"""The offset's attributes of a running incremental snapshot, with the names that users and other connectors know.

The key that is written is that of the last row *sent*, never the end of a chunk that is still on its way: whoever
reads the document goes on after what was delivered. When nothing is asked for, nothing is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.core.snapshot import java
from tidelog.core.snapshot.java import Values
from tidelog.errors import CorruptState

_PREFIX = "incremental_snapshot"
SENT = f"{_PREFIX}_primary_key"
MAXIMUM = f"{_PREFIX}_maximum_key"
COLLECTIONS = f"{_PREFIX}_collections"
CORRELATION = f"{_PREFIX}_correlation_id"

_TABLE = f"{COLLECTIONS}_id"
_CONDITION = f"{COLLECTIONS}_additional_condition"
_MISSPELT = f"{COLLECTIONS}_additional_condication"
_SURROGATE = f"{COLLECTIONS}_surrogate_key"
_ID = f"{COLLECTIONS}_correlation_id"

_PIECES = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|.", re.DOTALL)
"""A condition's quoted parts, and its other characters one by one."""


@dataclass(frozen=True)
class Asked:
    """A table that waits for its snapshot, or is in the middle of it."""

    table: str
    condition: str = ""
    """As the user wrote it."""
    surrogate: str = ""
    id: str | None = None
    """The signal that asked; documents of older versions don't tell."""


@dataclass(frozen=True)
class Document:
    queue: tuple[Asked, ...]
    """The first one is in progress."""
    sent: Values | None = None
    """The key of the last row that was sent."""
    maximum: Values | None = None
    id: str | None = None
    """The last signal that asked."""

    def asked_by(self, asked: Asked) -> str | None:
        """The signal to name in notifications."""
        return asked.id if asked.id is not None else self.id


def write(queue: Sequence[Asked], sent: Values | None = None, maximum: Values | None = None) -> dict[str, str]:
    if not queue:
        return {}
    entries = json.dumps([_entry(asked) for asked in queue], separators=(",", ":"), ensure_ascii=False)
    written = {SENT: java.encode(sent), MAXIMUM: java.encode(maximum), COLLECTIONS: entries}
    last = next((asked.id for asked in reversed(queue) if asked.id), None)
    return written if last is None else {**written, CORRELATION: last}


def _entry(asked: Asked) -> dict[str, str | None]:
    return {
        _TABLE: asked.table,
        _CONDITION: wrapped(asked.condition) or None,
        _SURROGATE: asked.surrogate or None,
        _ID: asked.id or None,
    }


def read(offset: Mapping[str, Any]) -> Document | None:
    """None when the offset tells of no snapshot."""
    queue = tuple(_asked(entry) for entry in _entries(offset.get(COLLECTIONS)))
    if not queue:
        return None
    return Document(queue, _key(offset, SENT), _key(offset, MAXIMUM), _text(offset, CORRELATION))


def wrapped(condition: str) -> str:
    """So that an `or` in it stays on its own."""
    return f"({condition})" if condition.strip() else ""


def unwrapped(condition: str) -> str:
    """Without the parentheses around the whole, if there are any."""
    depth, pieces = 0, _PIECES.findall(condition)
    for at, piece in enumerate(pieces):
        depth += (piece == "(") - (piece == ")")
        if depth <= 0 and at < len(pieces) - 1:
            return condition
    return condition[1:-1] if pieces and depth == 0 and pieces[-1] == ")" else condition


def _entries(text: Any) -> list[Any]:
    if text is None or text == "":
        return []
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        raise _corrupt(COLLECTIONS, "is not the text of a JSON list") from None
    if not isinstance(found, list):
        raise _corrupt(COLLECTIONS, "is not a list")
    return found


def _asked(entry: Any) -> Asked:
    if not isinstance(entry, dict) or not _text(entry, _TABLE):
        raise _corrupt(COLLECTIONS, "has an entry without a table")
    condition = _text(entry, _CONDITION) or _text(entry, _MISSPELT) or ""
    return Asked(str(entry[_TABLE]), unwrapped(condition), _text(entry, _SURROGATE) or "", _text(entry, _ID) or None)


def _text(raw: Mapping[str, Any], name: str) -> str | None:
    found = raw.get(name)
    if not isinstance(found, str | None):
        raise _corrupt(name, f"is {found!r}, not a text")
    return found


def _key(offset: Mapping[str, Any], name: str) -> Values | None:
    text = _text(offset, name)
    return java.decode(text) if text else None


def _corrupt(name: str, reason: str) -> CorruptState:
    return CorruptState(
        f"The offset's {name} {reason}.",
        hint=f"Correct it, or remove the attributes that begin with {_PREFIX}_, and ask for the snapshot again.",
    )
