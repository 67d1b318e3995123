"""The offset documents of Spanner connectors: one for each partition of the change stream, which is a moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.core.offsets import compare as orders
from tidelog.core.offsets import moments
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.document import Document, Form
from tidelog.core.offsets.fields import Field, Kind, parsed, text
from tidelog.core.offsets.partition import Partition

_MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?Z$"


def _moment() -> Kind:
    def check(value: str) -> str:
        moments.instant(value)
        return value

    return parsed("a moment in UTC", check, _MOMENT)


DOCUMENT = Document(
    title="Spanner",
    fields=(
        Field("offset", "The commit of the last delivered change.", _moment(), "2023-01-01T00:00:00.000000000Z"),
        Field("startTime", "From when on the partition is read; for people.", _moment(), "2023-01-01T00:00:00Z"),
        Field("queryStartedAt", "When the running query began; for people.", _moment(), "2023-01-01T00:00:01Z"),
    ),
    partition=Partition(
        "one for each partition token of the change stream.",
        fields=(Field("partitionToken", "The token of the change stream's partition.", text(), "Parent0"),),
        shapes=(("partitionToken",),),
        older=(),
        several="a change stream splits and merges its partitions",
    ),
    forms=(Form("streaming", "streaming", ("offset", "startTime", "queryStartedAt"), ("offset",)),),
    empty="nothing was delivered of this partition yet",
)


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
    """A partition of which nothing was delivered is before all others."""
    return orders.of(_moments(DOCUMENT.read(a)), _moments(DOCUMENT.read(b)))


def describe(offset: Mapping[str, Any]) -> str:
    read = DOCUMENT.read(offset)
    return f"Changes up to the commit at {read['offset']}" if read else "Nothing delivered yet"


def _moments(offset: Mapping[str, Any]) -> list[Any]:
    return [moments.instant(offset["offset"])] if "offset" in offset else []
