"""What MySQL and MariaDB have in common: a place in a binary log, by file and position."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tidelog.core.offsets import compare, moments
from tidelog.core.offsets.common import INCREMENTAL, SNAPSHOT, TRANSACTION
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.document import Form
from tidelog.core.offsets.fields import Alias, Field, Kind, text, whole

_YEAR_5138 = 100_000_000_000
"""In seconds. A larger number counts milliseconds: as those, it begins in 1973."""
_FILE = re.compile(r"(.*?)\.?([0-9]{1,18})")


def _seconds(value: Any) -> int:
    number: int = whole().read(value)
    return number // 1000 if number >= _YEAR_5138 else number


MILLISECONDS = Alias(
    "ts_ms",
    "ts_sec",
    "Read as ts_sec: when the last event was written.",
    Kind("a whole number", _seconds, whole().schema),
)


def fields(gtids: Kind, example: str, file: str) -> tuple[Field, ...]:
    return (
        Field("server_id", "The server that wrote the event.", whole(0, (1 << 32) - 1), 223344, silent=(0,)),
        Field("gtids", "The transactions that were delivered; reading goes on after them.", gtids, example),
        Field(
            "file",
            "The binary log in which the current transaction begins.",
            text(r"[^/\\\s]+", file, shown="the name of a binary log"),
            file,
            required=True,
        ),
        Field("pos", "Where in that file the current transaction begins.", whole(), 154, required=True),
        Field("event", "How many events of the current transaction were delivered.", whole(), 1, silent=(0,)),
        Field("row", "How many rows of the current event were delivered.", whole(), 2, silent=(0,)),
        Field("ts_sec", "When the last event was written, in seconds since 1970.", whole(), 1600733377),
        SNAPSHOT,
        *TRANSACTION,
        *INCREMENTAL,
    )


_PLACE = ("server_id", "gtids", "file", "pos", "event", "row", "ts_sec")
FORMS = (
    Form("snapshot", "a snapshot", (*_PLACE, "snapshot"), mark="snapshot"),
    Form("streaming", "streaming", _PLACE),
)


def order(a: Mapping[str, Any], b: Mapping[str, Any], gtids: Order | None) -> Order:
    """By the delivered transactions where both tell them, else by file and position; then inside the transaction."""
    if gtids is Order.SAME:
        return compare.of(_inside(a), _inside(b))
    return gtids or _by_place(a, b)


def describe(offset: Mapping[str, Any]) -> str:
    parts = [f"{offset.get('file')}, position {offset.get('pos')}"]
    if offset.get("event"):
        parts.append(f"{offset['event']} events into the transaction")
    if offset.get("gtids"):
        parts.append(f"after the transactions {offset['gtids']}")
    if offset.get("ts_sec") is not None:
        parts.append(f"written {moments.utc(offset['ts_sec'] * 1_000_000)}")
    return ", ".join(parts)


def _by_place(a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
    (base_a, number_a), (base_b, number_b) = _numbered(a["file"]), _numbered(b["file"])
    if base_a != base_b:
        return Order.UNRELATED
    return compare.of((number_a, a["pos"], *_inside(a)), (number_b, b["pos"], *_inside(b)))


def _numbered(file: str) -> tuple[str, int]:
    """The number grows by more than six digits: as texts, `.999999` would come after `.1000000`."""
    found = _FILE.fullmatch(file)
    return (found[1], int(found[2])) if found else (file, 0)


def _inside(offset: Mapping[str, Any]) -> tuple[int, int]:
    return offset.get("event") or 0, offset.get("row") or 0
