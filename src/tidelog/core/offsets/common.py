"""The attributes that connectors share: the phase, the open transaction, the running incremental snapshot."""

from __future__ import annotations

import json
from typing import Any

from tidelog.core.offsets import inner
from tidelog.core.offsets.fields import Field, Kind, expected, flag, parsed, text, whole
from tidelog.core.offsets.problem import stranger
from tidelog.core.snapshot import document, java
from tidelog.errors import ConfigError

_PHASES = ("INITIAL", "BLOCKING", "INCREMENTAL")
_OLD = {"true": "INITIAL", "false": None}
"""Older documents said only whether a snapshot is running."""


def _phase(value: Any) -> str | None:
    shown = str(value).lower() if isinstance(value, bool) else value
    if isinstance(shown, str) and shown in (*_PHASES, *_OLD):
        return _OLD.get(shown, shown)
    raise expected(f"one of {', '.join(_PHASES)}", value, hint="Leave it out when no snapshot is running.")


_PHASE_KIND = Kind(f"one of {', '.join(_PHASES)}", _phase, {"enum": [*_PHASES, True, False, *_OLD]})

SNAPSHOT = Field(
    "snapshot", "Which snapshot was running; without it the connector was streaming.", _PHASE_KIND, "INITIAL"
)
SNAPSHOT_COMPLETED = Field(
    "snapshot_completed", "Whether the snapshot had read all of its tables.", flag(in_quotes=True), False
)

TRANSACTION = (
    Field("transaction_id", "The transaction that was open, when its metadata is provided.", text(), "571"),
    Field(
        "transaction_data_collection_order_<table>",
        "How many events of this table the open transaction had so far.",
        whole(),
        3,
        keys="transaction_data_collection_order_.+",
    ),
)


def _key(value: str) -> str:
    java.decode(value)
    return value.lower()


def _collections(value: str, *, surrogates: bool = True) -> str | None:
    entries = _entries(value)
    found = document.read({document.COLLECTIONS: inner.dumps([_renamed(entry) for entry in entries])})
    if found is None:
        return None
    written: list[dict[str, Any]] = json.loads(document.write(found.queue)[document.COLLECTIONS])
    kept = written if surrogates else [{k: v for k, v in e.items() if k != _SURROGATE} for e in written]
    return inner.dumps(kept)


_SURROGATE = f"{document.COLLECTIONS}_surrogate_key"
_RENAMED = {
    "incremental_snapshot_collection_surrogate_key": _SURROGATE,
    f"{document.COLLECTIONS}_additional_condication": f"{document.COLLECTIONS}_additional_condition",
}
"""Names under which the members of a collection are read, too."""
_MEMBERS = tuple(f"{document.COLLECTIONS}_{name}" for name in ("id", "additional_condition", "surrogate_key"))
_KNOWN = (*_MEMBERS, f"{document.COLLECTIONS}_correlation_id")


def _entries(value: str) -> list[Any]:
    found = inner.loads(value or "[]", "the text of a JSON list", hint="Write [] when no table is waiting.")
    if not isinstance(found, list):
        raise expected("the text of a JSON list", found)
    return found


def _renamed(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    named = {_RENAMED.get(key, key): value for key, value in entry.items()}
    for key in named:
        if key not in _KNOWN:
            wrong = stranger(key, _KNOWN, "A collection")
            raise ConfigError(wrong.message, hint=wrong.hint)
    if len(named) < len(entry):
        raise ConfigError("A collection has a member twice, under two names.", hint="Leave one of them out.")
    return named


def _incremental(*, surrogates: bool) -> tuple[Field, ...]:
    example = f'[{{"{_KNOWN[0]}":"public.orders","{_KNOWN[1]}":null,"{_KNOWN[2]}":null,"{_KNOWN[3]}":"1"}}]'
    keys = parsed("a key as Java serialises it, in hexadecimal", _key, r"^(?:[0-9a-fA-F]{2})+$")
    queue = parsed("the text of a JSON list", lambda value: _collections(value, surrogates=surrogates))
    return (
        Field(document.SENT, "The key of the last row that an incremental snapshot sent.", keys, "aced000570"),
        Field(document.MAXIMUM, "The key of the last row that it will read of this table.", keys, "aced000570"),
        Field(
            document.COLLECTIONS,
            "The tables that wait for their incremental snapshot; the first one is in progress.",
            queue,
            _collections(example, surrogates=surrogates),
        ),
        Field(document.CORRELATION, "The signal that asked for the incremental snapshot.", text(), "1"),
    )


INCREMENTAL = _incremental(surrogates=True)
INCREMENTAL_WITHOUT_SURROGATE = _incremental(surrogates=False)
