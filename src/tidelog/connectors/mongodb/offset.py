"""The offset document of MongoDB connectors: the resume token, and its cluster time for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.connectors.mongodb import token
from tidelog.core.offsets import compare as orders
from tidelog.core.offsets import moments
from tidelog.core.offsets.common import INCREMENTAL_WITHOUT_SURROGATE, TRANSACTION
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.document import Document, Form
from tidelog.core.offsets.fields import Field, flag, parsed, text, whole
from tidelog.core.offsets.partition import Partition

_INT = (1 << 32) - 1
_EXAMPLE = token.encode({"_data": "82647A41A6000000012B0229296E04"})
_PLACE = ("sec", "ord", "resume_token", "lsid", "txnNumber")

UNKNOWN = (-1, -1)
"""The cluster time when only a cursor's token is known."""
NOWHERE = (0, 0)
"""The cluster time before anything was read."""

DOCUMENT = Document(
    title="MongoDB",
    fields=(
        Field(
            "sec",
            "The cluster time of the last event, in seconds since 1970; -1 when only a token is known.",
            whole(-1, _INT),
            1666193824,
            required=True,
        ),
        Field("ord", "Which operation of that second it was.", whole(-1, _INT), 1, required=True),
        Field(
            "resume_token",
            "Where the change stream goes on: the token's document in base64.",
            parsed("a resume token in base64", token.normal),
            _EXAMPLE,
        ),
        Field("lsid", "The logical session of the last event's transaction.", text(), '{"id": "7c0d1f6e"}'),
        Field("txnNumber", "The number of that transaction in its session.", whole(), 1),
        Field("initsync", "Whether the initial snapshot was running.", flag(in_quotes=True), True, silent=(False,)),
        *TRANSACTION,
        *INCREMENTAL_WITHOUT_SURROGATE,
    ),
    partition=Partition(
        "one for the whole cluster, by its topic prefix.",
        fields=(
            Field("server_id", "The pipeline's topic prefix: the logical name of the cluster.", text(), "server1"),
            Field("rs", "The replica set; only in documents of older connectors.", text(), "rs0"),
        ),
        shapes=(("server_id",), ("server_id", "rs")),
        older=("rs",),
    ),
    forms=(
        Form("snapshot", "a snapshot", ("sec", "ord", "initsync", "resume_token"), mark="initsync"),
        Form("streaming", "streaming", _PLACE),
    ),
)


def cluster_time(event: tuple[int, int] | None, cursor: Mapping[str, Any] | None) -> dict[str, int]:
    """`sec` and `ord` after an event, or after a batch that had none."""
    seconds, number = event if event is not None else UNKNOWN if cursor is not None else NOWHERE
    return {"sec": seconds, "ord": number}


def snapshot_running(offset: Mapping[str, Any]) -> bool:
    return DOCUMENT.form(offset).name == "snapshot"


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
    """By the tokens where both have one: they tell more than the cluster time."""
    a, b = DOCUMENT.read(a), DOCUMENT.read(b)
    if "resume_token" in a and "resume_token" in b:
        return orders.of(_key(a), _key(b))
    if UNKNOWN in (_time(a), _time(b)):
        return Order.SAME if a == b else Order.UNRELATED
    return orders.of(_time(a), _time(b))


def describe(offset: Mapping[str, Any]) -> str:
    read = DOCUMENT.read(offset)
    seconds, number = _time(read)
    state = ", in the initial snapshot" if snapshot_running(read) else ""
    if seconds <= 0:
        return f"Not positioned yet{state}"
    token_said = "" if "resume_token" in read else ", without a resume token"
    return f"Cluster time {moments.utc(seconds * 1_000_000)}, operation {number}{token_said}{state}"


def _time(offset: Mapping[str, Any]) -> tuple[int, int]:
    """What the document says, or its token."""
    said = offset["sec"], offset["ord"]
    return token.timestamp(token.decode(offset["resume_token"])) if said[0] <= 0 and "resume_token" in offset else said


def _key(offset: Mapping[str, Any]) -> bytes:
    return token.data(token.decode(offset["resume_token"]))
