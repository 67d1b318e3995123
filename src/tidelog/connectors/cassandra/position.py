"""Places in Cassandra's commit logs, `file:position`, and which of them were processed.

A log is named `CommitLog-<version>-<milliseconds>.log`; a later one has a larger number. A table whose snapshot is
done stands at `:-1`: no file, and before every position.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidelog.core.offsets.fields import clipped
from tidelog.errors import ConfigError

_LOG = re.compile(r"CommitLog-([0-9]{1,9})-([0-9]{1,19})(?:_cdc\.idx|\.log)", re.IGNORECASE)
_HINT = "Write it like CommitLog-6-12345.log:100, or :-1 for a snapshot that is done."


@dataclass(frozen=True)
class Position:
    file: str
    """Empty for a snapshot."""
    at: int

    def __str__(self) -> str:
        return f"{self.file}:{self.at}"

    @property
    def key(self) -> tuple[int, int, int]:
        """Sorts as the logs were written."""
        return (*_numbers(self.file), self.at)


DONE = Position("", -1)


def parse(text: str) -> Position:
    file, colon, at = text.rpartition(":")
    if not colon or not re.fullmatch(r"-1|[0-9]{1,18}", at) or (not file) != (at == "-1"):
        raise ConfigError(f"{clipped(text)!r} is no place in a commit log.", hint=_HINT)
    _numbers(file)
    return Position(file, int(at))


def compare_logs(a: str, b: str) -> int:
    """-1, 0 or 1: whether the first log is older, the same, or newer."""
    first, second = _numbers(a), _numbers(b)
    return (first > second) - (first < second)


def _numbers(file: str) -> tuple[int, int]:
    """When a log was begun comes before its version: a version does not order logs of one moment's upgrade."""
    if not file:
        return -1, -1
    found = _LOG.fullmatch(file)
    if not found:
        raise ConfigError(f"{clipped(file)!r} is no name of a commit log.", hint=_HINT)
    return int(found[2]), int(found[1])


@dataclass(frozen=True)
class Marks:
    """How far each table was processed, in snapshots and in logs; a mark never goes back."""

    snapshots: Mapping[str, Position] = field(default_factory=dict)
    logs: Mapping[str, Position] = field(default_factory=dict)

    def mark(self, table: str, position: Position) -> Marks:
        if self.processed(table, position):
            return self
        if position.file:
            return replace(self, logs={**self.logs, table: position})
        return replace(self, snapshots={**self.snapshots, table: position})

    def processed(self, table: str, position: Position) -> bool:
        known = (self.logs if position.file else self.snapshots).get(table)
        return known is not None and position.key <= known.key
