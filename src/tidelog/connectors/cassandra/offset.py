"""The offset document of Cassandra connectors: a map from tables to places, to which keys come and from which they go.

A key is `<keyspace>.<table>`; where snapshots and logs stand side by side it ends in `.snapshot` or `.commitlog`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidelog.connectors.cassandra import position, properties
from tidelog.core.offsets import compare as orders
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.document import Document, Form
from tidelog.core.offsets.fields import Field, parsed
from tidelog.core.offsets.partition import SERVER, Partition
from tidelog.core.offsets.problem import Problem

_SNAPSHOT, _LOG = ".snapshot", ".commitlog"
_NAME = r"[^.\s]+"


def _once(offset: Mapping[str, Any]) -> Iterator[Problem]:
    seen: set[tuple[str, str]] = set()
    for key, place in offset.items():
        if _parts(key, place) in seen:
            yield Problem(key, "It says the same of this table as another key.", "Leave one of them out.")
        seen.add(_parts(key, place))


DOCUMENT = Document(
    title="Cassandra",
    fields=(
        Field(
            "<keyspace>.<table>",
            "How far the commit log of this table was processed, as file:position.",
            parsed("a place in a commit log", lambda value: str(position.parse(value)), r"^.*:(?:-1|[0-9]+)$"),
            "CommitLog-6-12345.log:100",
            keys=rf"(?:{_NAME}\.)?{_NAME}|{_NAME}\.{_NAME}\.(?:snapshot|commitlog)",
        ),
    ),
    partition=Partition(
        "none: a node keeps its own offsets.", fields=(SERVER,), shapes=((), ("server",)), older=("server",)
    ),
    forms=(Form("streaming", "streaming", ("<keyspace>.<table>",)),),
    rules=(_once,),
    empty="no table was processed yet",
)


def amend(offset: Mapping[str, Any], changes: Mapping[str, str | None]) -> dict[str, Any]:
    """Add and modify keys; None removes one."""
    given = {key: value for key, value in changes.items() if value is not None}
    kept = {key: value for key, value in offset.items() if key not in changes}
    return DOCUMENT.read({**kept, **given})


def files(offset: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The same as entries of the files that a node has, by file name."""
    found: dict[str, dict[str, str]] = {}
    for key, place in DOCUMENT.read(offset).items():
        table, kind = _parts(key, place)
        name = properties.SNAPSHOTS if kind == _SNAPSHOT else properties.LOGS
        found.setdefault(name, {})[table] = place
    return found


def of_files(entries: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The other way round."""
    suffixes = {properties.SNAPSHOTS: _SNAPSHOT, properties.LOGS: _LOG}
    return DOCUMENT.read({f"{k}{suffixes[file]}": v for file, kept in entries.items() for k, v in kept.items()})


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
    """Table by table; a table that only one of them has is further there."""
    return orders.of_maps(_places(a), _places(b))


def describe(offset: Mapping[str, Any]) -> str:
    read = DOCUMENT.read(offset)
    if not read:
        return "No table processed yet"
    first, *others = read
    kept = f" and {len(others)} more" if others else ""
    return f"{first} at {read[first]}{kept}"


def _parts(key: str, place: str) -> tuple[str, str]:
    """The table, and whether a snapshot or a log is meant; a bare key tells it by its place."""
    for suffix in (_SNAPSHOT, _LOG):
        if key.endswith(suffix) and key.count(".") == 2:
            return key.removesuffix(suffix), suffix
    return key, _LOG if position.parse(place).file else _SNAPSHOT


def _places(offset: Mapping[str, Any]) -> dict[tuple[str, str], tuple[int, int, int]]:
    read = DOCUMENT.read(offset)
    return {_parts(key, place): position.parse(place).key for key, place in read.items()}
