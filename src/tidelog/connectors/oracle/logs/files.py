"""Log files as the views tell of them: an online log, or the copies of one in the archive.

A file holds the SCNs [first, next) of one redo thread. A log is known by its thread and sequence: of several files with
the same ones, any will do. An archived file wins over an online one, which may be reused at any moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

SCN_MAX = 2**64 - 1
"""`next` of a log that is still written."""


@dataclass(frozen=True)
class LogFile:
    name: str
    first: int
    next: int
    sequence: int
    thread: int
    archived: bool
    current: bool = False
    bytes: int = 0
    dictionary_begin: bool = False
    dictionary_end: bool = False
    destination: str = ""

    def holds(self, scn: int) -> bool:
        return self.first <= scn < self.next

    @property
    def log(self) -> tuple[int, int]:
        return self.thread, self.sequence


def of_row(row: Sequence[Any]) -> LogFile:
    """From a row of `queries.logs`."""
    name, first, following, _, status, kind, sequence, begin, end, thread, size, destination = row
    return LogFile(
        name=name,
        first=int(first),
        next=SCN_MAX if following is None else int(following),
        sequence=int(sequence),
        thread=int(thread),
        archived=kind == "ARCHIVED",
        current=status == "CURRENT",
        bytes=int(size or 0),
        dictionary_begin=begin == "YES",
        dictionary_end=end == "YES",
        destination=destination or "",
    )


def merged(by_destination: Mapping[str, Iterable[LogFile]], order: Sequence[str]) -> list[LogFile]:
    """Of several destinations, the first in `order` that has a log gives its file."""
    found: dict[tuple[int, int], LogFile] = {}
    for destination in order:
        for file in by_destination.get(destination, ()):
            found.setdefault(file.log, file)
    return list(found.values())


def collected(files: Iterable[LogFile], scn: int, destinations: Sequence[str] = ()) -> list[LogFile]:
    """One file for each log that reaches beyond `scn`, by thread and sequence."""
    files = [file for file in files if file.next > scn]
    archived: dict[str, list[LogFile]] = {}
    for file in files:
        if file.archived:
            archived.setdefault(file.destination, []).append(file)
    order = list(dict.fromkeys([*destinations, *archived]))
    return deduplicated(merged(archived, order), [file for file in files if not file.archived])


def deduplicated(archived: Iterable[LogFile], online: Iterable[LogFile]) -> list[LogFile]:
    found: dict[tuple[int, int], LogFile] = {}
    for file in (*archived, *online):
        found.setdefault(file.log, file)
    return sorted(found.values(), key=lambda file: (file.sequence, file.thread))


def gap(files: Iterable[LogFile]) -> int | None:
    """The first sequence that is missing among the logs of one thread."""
    sequences = sorted(file.sequence for file in files)
    return next((a + 1 for a, b in pairwise(sequences) if b > a + 1), None)


def has_dictionary(files: Sequence[LogFile]) -> bool:
    """Whether a whole dictionary lies in these logs: where it begins, and at or after that where it ends."""
    for thread in {file.thread for file in files}:
        begins = [f.sequence for f in files if f.thread == thread and f.dictionary_begin]
        ends = [f.sequence for f in files if f.thread == thread and f.dictionary_end]
        if begins and ends and min(begins) <= max(ends):
            return True
    return False
