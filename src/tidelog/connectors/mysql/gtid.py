"""Sets of MySQL's global transaction identifiers: `uuid:1-191:193,uuid:tag:1-5`.

A source is a server's UUID, or a UUID and a tag (MySQL 8.3). Each source is written on its own, in order; intervals
that touch are joined, so that equal sets are equal texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tidelog.core.offsets import intervals
from tidelog.core.offsets.intervals import Interval, Intervals
from tidelog.errors import ConfigError

_UUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_HINT = "Write it like 24bc7850-2c16-11e6-a073-0242ac110002:1-191."


@dataclass(frozen=True)
class GtidSet:
    sources: Mapping[str, Intervals] = field(default_factory=dict)
    """`uuid` or `uuid:tag`, and its transactions."""

    @staticmethod
    def of(found: Iterable[tuple[str, Iterable[Interval]]]) -> GtidSet:
        gathered: dict[str, list[Interval]] = {}
        for source, parts in found:
            gathered.setdefault(source, []).extend(parts)
        return GtidSet({s: intervals.normal(gathered[s]) for s in sorted(gathered) if gathered[s]})

    def __str__(self) -> str:
        return ",".join(f"{source}:{intervals.shown(parts)}" for source, parts in self.sources.items())

    def within(self, other: GtidSet) -> bool:
        return not self.subtract(other).sources

    def contains(self, gtid: str) -> bool:
        """One identifier, `uuid:42` or `uuid:tag:42`."""
        return parse(gtid).within(self)

    def subtract(self, other: GtidSet) -> GtidSet:
        return GtidSet.of((s, intervals.subtract(parts, other.sources.get(s, ()))) for s, parts in self.sources.items())

    def union(self, other: GtidSet) -> GtidSet:
        return GtidSet.of([*self.sources.items(), *other.sources.items()])

    def intersect(self, other: GtidSet) -> GtidSet:
        return self.subtract(self.subtract(other))

    def retain(self, wanted: Callable[[str], bool]) -> GtidSet:
        """Only what comes from some servers; a tag does not matter."""
        return GtidSet.of((s, parts) for s, parts in self.sources.items() if wanted(s.partition(":")[0]))

    def retain_known(self, known: GtidSet) -> GtidSet:
        """Only the sources, with their tags, that the other set knows."""
        return GtidSet.of((s, parts) for s, parts in self.sources.items() if s in known.sources)


def parse(text: str) -> GtidSet:
    """Line breaks and blanks do not matter; a UUID may come more than once."""
    entries = ("".join(entry.split()).lower() for entry in text.split(","))
    return GtidSet.of(found for entry in entries if entry for found in _sources(entry))


def normal(text: str) -> str | None:
    """As we write it; None for the empty set."""
    return str(parse(text)) or None


def _sources(entry: str) -> Iterator[tuple[str, list[Interval]]]:
    uuid, *parts = entry.split(":")
    if not _UUID.fullmatch(uuid):
        raise ConfigError(f"{uuid[:60]!r} in the GTID set is no UUID of a server.", hint=_HINT)
    if not parts or not parts[-1][:1].isdigit():
        raise ConfigError(f"The GTID set names no transactions of {entry[:60]!r}.", hint=_HINT)
    source = _dashed(uuid)
    tag = ""
    for part in parts:
        if part[:1].isdigit():
            yield f"{source}:{tag}" if tag else source, [intervals.parse(part)]
        elif _TAG.fullmatch(part):
            tag = part
        else:
            raise ConfigError(f"{part[:60]!r} in the GTID set is neither an interval nor a tag.", hint=_HINT)


def _dashed(uuid: str) -> str:
    plain = uuid.replace("-", "")
    return "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))
