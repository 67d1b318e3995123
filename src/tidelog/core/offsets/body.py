"""The body that is asked for and sent: `{"offsets": [{"partition": {…}, "offset": {…} or null}]}`.

An offset of null takes its partition's offset away.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.core.offsets.document import Document
from tidelog.core.offsets.fields import came
from tidelog.core.offsets.problem import Problem, refused, stranger

_FORM = '{"offsets": [{"partition": {…}, "offset": {…}}]}'


@dataclass(frozen=True)
class Entry:
    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None
    """None removes it."""


def problems(document: Document, body: Any) -> tuple[Problem, ...]:
    if not isinstance(body, Mapping):
        return (Problem("", f"The body is an object, but {came(body)} came.", f"Write {_FORM}."),)
    found = [stranger(key, ["offsets"], "The body") for key in body if key != "offsets"]
    entries = body.get("offsets")
    if not isinstance(entries, list):
        said = "It is missing." if "offsets" not in body else f"It is a list, but {came(entries)} came."
        return (*found, Problem("offsets", said, f"Write {_FORM}."))
    if not entries:
        found.append(Problem("offsets", "It is empty.", "Give at least one partition with its offset."))
    return (*found, *_of_entries(document, entries), *_twice(entries))


def read(document: Document, body: Any) -> tuple[Entry, ...]:
    refused(problems(document, body))
    return tuple(_entry(document, raw) for raw in body["offsets"])


def write(entries: Sequence[Entry]) -> dict[str, Any]:
    return {"offsets": [{"partition": dict(e.partition), "offset": e.offset and dict(e.offset)} for e in entries]}


def parse(text: str | bytes) -> Any:
    """JSON as it was sent; a constant that JSON does not have (NaN) and a key that comes twice are refused."""
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as wrong:
        said = wrong.args[0] if wrong.args else "it is nested too deeply"
        refused([Problem("", f"The body is no JSON: {said}.", f"Write {_FORM}.")])
        raise AssertionError from wrong


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} is given twice")
    return found


def _entry(document: Document, raw: Mapping[str, Any]) -> Entry:
    offset = raw["offset"]
    return Entry(document.partition.read(raw["partition"]), None if offset is None else document.read(offset))


def _of_entries(document: Document, entries: list[Any]) -> Iterator[Problem]:
    for number, entry in enumerate(entries):
        place = f"offsets[{number}]"
        if not isinstance(entry, Mapping):
            yield Problem(place, f"It is an object, but {came(entry)} came.", f"Write {_FORM}.")
            continue
        yield from (p.under(place) for p in _of_entry(document, entry))


def _of_entry(document: Document, entry: Mapping[str, Any]) -> Iterator[Problem]:
    for key in entry:
        if key not in ("partition", "offset"):
            yield stranger(key, ["partition", "offset"], "An entry")
    if "partition" in entry:
        yield from (p.under("partition") for p in document.partition.problems(entry["partition"]))
    else:
        yield Problem("partition", "It is missing.", f"Give it: {document.partition.meaning}")
    if "offset" not in entry:
        yield Problem("offset", "It is missing.", "Give the offset, or null to remove it.")
    elif entry["offset"] is not None:
        yield from (p.under("offset") for p in document.problems(entry["offset"]))


def _twice(entries: list[Any]) -> Iterator[Problem]:
    seen: list[Any] = []
    for number, entry in enumerate(entries):
        partition = entry.get("partition") if isinstance(entry, Mapping) else None
        if partition is not None and partition in seen:
            yield Problem(f"offsets[{number}].partition", "This partition comes twice.", "Give it once.")
        seen.append(partition)
