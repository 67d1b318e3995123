"""Cases of IBM i: ranges and chains of receivers, what entries mean, and the offset's document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidelog.connectors.iseries import entries, offset, range, receivers
from tidelog.connectors.iseries.range import Spot
from tidelog.connectors.iseries.receivers import Receiver

Given = Mapping[str, Any]

DECIDED_AGAINST: dict[str, str] = {}
"""`file/name` of a case, and why we answer differently."""


def run(file: str, case: Mapping[str, Any]) -> object:  # noqa: ARG001
    return OPS[case["input"]["op"]](case["input"])


def _range(given: Given) -> Any:
    found = range.find([_receiver(r) for r in given["receivers"]], _spot(given["position"]), given["max_entries"])
    if found is None:
        return None
    start = found.start
    return {
        "start": {
            "sequence": start.sequence,
            "receiver": start.receiver,
            "library": start.library,
            "processed": start.processed,
        },
        "end": {"sequence": found.end, "receiver": start.receiver},
        "call_needed": found.call_needed,
    }


def _chain(given: Given) -> Any:
    return [r.name for r in receivers.chain([_receiver(r) for r in given["receivers"]], given["attached"])]


def _receiver(raw: Given) -> Receiver:
    return Receiver(
        name=raw["name"],
        library=raw.get("lib", ""),
        first=raw.get("start", 0),
        last=raw.get("end", 0),
        next=raw.get("next"),
        status=raw.get("status", "Online"),
    )


def _spot(raw: Given | None) -> Spot | None:
    """None for the beginning: nothing is known, or the number before the first one."""
    return _entry(raw) if raw and raw["sequence"] else None


def _entry(raw: Given) -> Spot:
    return Spot(raw["sequence"], raw.get("receiver") or "", raw.get("library") or "", raw.get("processed", False))


def _document(given: Given) -> Any:
    where = given["position"]
    return offset.document(_spot(where), where["time_epoch_s"], snapshot_completed=given["snapshot_completed"])


OPS: dict[str, Callable[[Given], Any]] = {
    "range": _range,
    "chain": _chain,
    "offset": _document,
    "skip_first": lambda g: _entry(g["position"]).skips(_entry(g["first_entry"])),
    "entry": lambda g: str(entries.kind(*g["code"].split("."))),
}
