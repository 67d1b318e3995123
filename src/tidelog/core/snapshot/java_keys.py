"""Keys: the texts of a database, and what a driver for Java holds for them.

Our state keeps texts, because only the database compares keys; the offset's document keeps what Java would have held.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from tidelog.contracts import Key
from tidelog.core.snapshot import java_time
from tidelog.core.snapshot.java_classes import JavaValue, Values
from tidelog.core.snapshot.java_stream import HINT, corrupt
from tidelog.errors import CorruptState

_DIGITS_MAX = 200_000
"""More than any database's number has before or behind its point."""


def key_values(key: Key, types: Sequence[str]) -> Values:
    """What Java holds for the texts of a key, by PostgreSQL's names of its columns' types."""
    return tuple(None if text is None else _held(text, kind) for text, kind in zip(key, types, strict=True))


def key_texts(values: Values) -> Key:
    """The texts that a database reads as these values. Moments without a zone are told in UTC."""
    try:
        return tuple(None if value is None else _told(value) for value in values)
    except ValueError as exc:
        raise corrupt(f"it has a value that no database holds ({exc})") from exc


def _held(text: str, type: str) -> JavaValue:
    kind, parse = _HELD.get(type, ("string", str))
    if type == "numeric" and text.lstrip("-") in ("NaN", "Infinity"):
        return JavaValue("double", float(text))
    try:
        return JavaValue(kind, parse(text))
    except (ValueError, KeyError, ArithmeticError) as exc:
        raise CorruptState(f"A snapshot's key has a text that is no {type}.", hint=HINT) from exc


def _truth(text: str) -> bool:
    return {"t": True, "true": True, "f": False, "false": False}[text]


_HELD: dict[str, tuple[str, Callable[[str], Any]]] = {
    "int2": ("short", int),
    "int4": ("int", int),
    "int8": ("long", int),
    "oid": ("long", int),
    "numeric": ("decimal", Decimal),
    "bool": ("boolean", _truth),
    "float4": ("float", lambda text: float(np.float32(text))),
    "float8": ("double", float),
    "uuid": ("uuid", uuid.UUID),
    "bytea": ("bytes", lambda text: bytes.fromhex(text.removeprefix("\\x"))),
}


def _told(value: JavaValue) -> str:
    plain: Any = value.value
    match value.kind:
        case "boolean":
            return "t" if plain else "f"
        case "decimal" | "bigint":
            return _decimal_text(Decimal(plain))
        case "double":
            return _float_text(repr(plain))
        case "float":
            return _float_text(str(np.float32(plain)))
        case "bytes":
            return f"\\x{plain.hex()}"
        case "timestamp":
            return java_time.instant(plain[0] // 1000, plain[1])
        case "date":
            return java_time.instant(plain // 1000, plain % 1000 * 1_000_000)
        case "sql_date":
            return java_time.instant(plain // 1000, 0)[:10]
        case "sql_time":
            return java_time.instant(plain // 1000, plain % 1000 * 1_000_000)[11:]
        case _:
            return str(plain)


def _decimal_text(number: Decimal) -> str:
    if abs(number.adjusted()) > _DIGITS_MAX:
        raise ValueError("it has too many digits")
    return f"{number:f}"


def _float_text(text: str) -> str:
    return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text.removesuffix(".0"))
