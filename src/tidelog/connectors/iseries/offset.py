"""The offset document of IBM i connectors: a place in a journal, by receiver and sequence number. All of it is text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tidelog.connectors.iseries.range import Spot
from tidelog.core.offsets import compare as orders
from tidelog.core.offsets import moments
from tidelog.core.offsets.common import INCREMENTAL, TRANSACTION
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.document import Document, Form
from tidelog.core.offsets.fields import Field, Kind, expected, parsed
from tidelog.core.offsets.partition import Partition
from tidelog.core.offsets.problem import Problem

SEQUENCE = "offset.event_sequence"
TIME = "offset.time"
RECEIVER = "offset.receiver"
LIBRARY = "offset.receiver_library"
PROCESSED = "offset.processed"

UNSET = "null"
"""The sequence number before the first entry was read: a text, not JSON's null."""


def _digits(value: str) -> str:
    if not re.fullmatch(r"[0-9]{1,20}", value):
        raise expected("the digits of a sequence number", value, hint='Write it like "82", or "null" at the beginning.')
    return str(int(value))


def _sequence(value: str) -> str:
    return value if value == UNSET else _digits(value)


def _time(value: str) -> str:
    if value and not re.fullmatch(r"-?[0-9]{1,12}", value):
        raise expected("seconds since 1970, in quotes", value, hint='Write it like "1600733377", or "".')
    return value


def _name(value: str) -> str:
    if value and not re.fullmatch(r"[A-Z$#@_\"*][A-Z0-9$#@_.\"]{0,9}", value.upper()):
        raise expected("a name of up to ten characters", value, hint="Write it like RECV008.")
    return value


def _flag() -> Kind:
    def read(value: Any) -> str:
        shown = str(value).lower() if isinstance(value, bool) else value
        if shown not in ("true", "false"):
            raise expected('"true" or "false"', value)
        return str(shown)

    return Kind('"true" or "false"', read, {"enum": ["true", "false", True, False]})


def _whole_place(offset: Mapping[str, Any]) -> Iterator[Problem]:
    if offset.get(SEQUENCE, UNSET) != UNSET and not offset.get(RECEIVER):
        yield Problem(RECEIVER, "A sequence number counts in a receiver, but none is named.", "Give its name.")


DOCUMENT = Document(
    title="IBM i",
    fields=(
        Field(
            SEQUENCE,
            "The sequence number of the journal entry; the text null at the beginning.",
            parsed("a sequence number in quotes", _sequence, "^(?:[0-9]{1,20}|null)$"),
            "82",
            required=True,
        ),
        Field(
            TIME, "When that entry was written, in seconds since 1970.", parsed("seconds in quotes", _time), "123456"
        ),
        Field(RECEIVER, "The journal receiver that has the entry.", parsed("the name of a receiver", _name), "RECV008"),
        Field(LIBRARY, "The library of the receiver.", parsed("the name of a library", _name), "RCV_LIB"),
        Field(PROCESSED, "Whether the entry itself was delivered.", _flag(), "true"),
        Field("snapshot_completed", "Whether the snapshot had read all of its tables.", _flag(), "false"),
        Field(
            "table.include.list", "The tables that were captured.", parsed("a text", lambda value: value), "LIB.ORDERS"
        ),
        *TRANSACTION,
        *INCREMENTAL,
    ),
    partition=Partition("one for the whole journal, by its topic prefix."),
    forms=(Form("streaming", "streaming", (SEQUENCE, TIME, RECEIVER, LIBRARY, PROCESSED, "snapshot_completed")),),
    rules=(_whole_place,),
)


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
    """Sequence numbers may begin anew with a receiver, so the receiver's number comes first; it compares only with
    receivers of the same name and library."""
    a, b = DOCUMENT.read(a), DOCUMENT.read(b)
    if UNSET in (a[SEQUENCE], b[SEQUENCE]):
        return orders.of(a[SEQUENCE] != UNSET, b[SEQUENCE] != UNSET)
    (chain_a, number_a), (chain_b, number_b) = _receiver(a), _receiver(b)
    return orders.of((number_a, _entry(a)), (number_b, _entry(b))) if chain_a == chain_b else Order.UNRELATED


def describe(offset: Mapping[str, Any]) -> str:
    read = DOCUMENT.read(offset)
    if read[SEQUENCE] == UNSET:
        return "The beginning of the journal"
    receiver = "/".join(part for part in (read.get(LIBRARY), read.get(RECEIVER)) if part)
    state = "delivered" if read.get(PROCESSED) == "true" else "not delivered yet"
    parts = [f"Journal receiver {receiver}, entry {read[SEQUENCE]}, {state}"]
    return ", ".join([*parts, f"written {moments.utc(int(read[TIME]) * 1_000_000)}"] if read.get(TIME) else parts)


def _receiver(offset: Mapping[str, Any]) -> tuple[tuple[str, str], int]:
    name: str = offset.get(RECEIVER, "")
    digits = re.search(r"[0-9]*$", name)
    number = digits[0] if digits else ""
    return (offset.get(LIBRARY, ""), name.removesuffix(number)), int(number or 0)


def _entry(offset: Mapping[str, Any]) -> tuple[int, bool]:
    return int(offset[SEQUENCE]), offset.get(PROCESSED) == "true"


def document(spot: Spot | None, time_s: int | None = None, *, snapshot_completed: bool | None = None) -> dict[str, str]:
    """All values are texts, as its users know them. No spot is the beginning of the journal."""
    written = {
        SEQUENCE: str(spot.sequence) if spot else UNSET,
        RECEIVER: spot.receiver if spot else "",
        LIBRARY: spot.library if spot else "",
        PROCESSED: "true" if spot and spot.processed else "false",
    }
    written |= {TIME: str(time_s)} if time_s is not None else {}
    return written | ({"snapshot_completed": str(snapshot_completed).lower()} if snapshot_completed is not None else {})


def spot_of(offset: Mapping[str, Any]) -> Spot | None:
    """The entry that a document speaks of; None for the beginning of the journal, whose numbers begin with 1. It may be
    one that stands in a checkpoint, among our own keys."""
    sequence = str(offset.get(SEQUENCE, UNSET))
    if sequence == UNSET or not int(_digits(sequence)):
        return None
    names = (str(offset.get(RECEIVER, "")), str(offset.get(LIBRARY, "")))
    return Spot(int(sequence), *names, processed=str(offset.get(PROCESSED, "false")).lower() == "true")
