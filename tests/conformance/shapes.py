"""Two answers, compared: status, headers, and the body's members and types. Values only where both must agree.

A body is flattened into paths (`$.tasks[].state`), each with the JSON types seen there. Ours must have the same paths
and no type that theirs has not: a client that reads theirs then reads ours. A difference is a short text, `theirs →
ours`, so that a list of known ones can be written and read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAPS = ("config", "partition", "offset")
"""Members whose own names belong to the connector, not to the API."""
_INSIDE = "config"
"""Of which all values still have one type."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    """None when there is none; a JSON null does not occur."""
    content_type: str = ""
    location: str = ""


def differences(theirs: Answer, ours: Answer, values: tuple[str, ...] = (), *, is_map: bool = False) -> set[str]:
    """What a client would notice; `values` must agree at these paths, and `is_map` is said of the whole body."""
    found = {f"status {theirs.status} → {ours.status}"} if theirs.status != ours.status else set()
    if theirs.location != ours.location:
        found.add(f"location {theirs.location or 'none'} → {ours.location or 'none'}")
    if theirs.content_type and theirs.content_type != ours.content_type:
        found.add(f"content type {theirs.content_type} → {ours.content_type or 'none'}")
    if (theirs.status < 400) != (ours.status < 400):
        return found  # one is an error and the other is not: that says it all
    name = "config" if is_map else ""
    left, right = _types(theirs.body, name), _types(ours.body, name)
    return found | set(_of_types(left, right)) | set(_of_values(theirs.body, ours.body, values))


def _of_types(left: dict[str, set[str]], right: dict[str, set[str]]) -> Iterator[str]:
    for path in sorted(left.keys() | right.keys()):
        if _parent(path) in left.keys() ^ right.keys():
            continue  # told already
        if path not in right:
            yield f"{path} missing"
        elif path not in left:
            yield f"{path} added"
        elif right[path] - left[path]:
            yield f"{path} {_list(left[path])} → {_list(right[path])}"


def _of_values(theirs: Any, ours: Any, paths: tuple[str, ...]) -> Iterator[str]:
    for path in paths:
        left, right = sorted(_values(theirs, path)), sorted(_values(ours, path))
        if left != right:
            yield f"{path} {_list(left)} → {_list(right)}"


def _parent(path: str) -> str:
    return path[:-2] if path.endswith("[]") else path.rpartition(".")[0]


def _list(words: Any) -> str:
    return "|".join(sorted(words)) or "nothing"


def _types(body: Any, name: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path, kind, _ in _flat(body, "$", name):
        found.setdefault(path, set()).add(kind)
    return found


def _values(body: Any, path: str) -> set[str]:
    return {str(value) for place, kind, value in _flat(body, "$", "") if place == path and kind not in _CONTAINERS}


_CONTAINERS = ("object", "array")


def _flat(value: Any, path: str, name: str) -> Iterator[tuple[str, str, Any]]:
    yield path, _kind(value), value
    match value:
        case dict() if name == _INSIDE:
            for inner in value.values():
                yield from _flat(inner, f"{path}.*", "")
        case dict() if name not in MAPS:
            for key, inner in value.items():
                yield from _flat(inner, f"{path}.{key}", key)
        case list():
            for inner in value:
                yield from _flat(inner, f"{path}[]", name)
        case _:
            return


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            raise TypeError(f"{value!r} is not JSON")
