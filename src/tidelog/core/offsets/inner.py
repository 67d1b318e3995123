"""JSON in a text: some fields hold a document of their own."""

from __future__ import annotations

import json
from typing import Any

from tidelog.core.offsets.fields import expected


def loads(text: str, shown: str, *, hint: str) -> Any:
    """`shown` says what is expected; a constant that JSON does not have (NaN) is refused."""
    try:
        found = json.loads(text, parse_constant=_refuse)
        dumps(found).encode()
    except (ValueError, RecursionError):
        raise expected(shown, text, hint=hint) from None
    return found


def dumps(value: Any, *, sort: bool = False) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort)


def _refuse(name: str) -> None:
    raise ValueError(name)
