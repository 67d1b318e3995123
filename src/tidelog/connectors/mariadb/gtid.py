"""MariaDB's global transaction identifiers, `domain-server-sequence`.

In a domain the sequence grows whoever writes, so after a failover the server's number says nothing: a position is
within another one when each of its domains has come no further.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidelog.errors import ConfigError

_GTID = re.compile(r"([0-9]{1,10})-([0-9]{1,10})-([0-9]{1,20})")


@dataclass(frozen=True, order=True)
class Gtid:
    domain: int
    server: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.sequence}"


@dataclass(frozen=True)
class GtidSet:
    gtids: tuple[Gtid, ...] = ()

    @staticmethod
    def of(gtids: Iterable[Gtid]) -> GtidSet:
        return GtidSet(tuple(sorted(set(gtids))))

    def __str__(self) -> str:
        return ",".join(map(str, self.gtids))

    def sequences(self, domain: int) -> tuple[int, ...] | None:
        """All that are named of a domain; None when it is not."""
        return tuple(sorted({g.sequence for g in self.gtids if g.domain == domain})) or None

    def reached(self) -> dict[int, int]:
        """How far each domain has come."""
        return {domain: max(self.sequences(domain) or ()) for domain in {g.domain for g in self.gtids}}

    def contains(self, gtid: Gtid) -> bool:
        """Whether it names exactly this one."""
        return gtid in self.gtids

    def within(self, other: GtidSet) -> bool:
        theirs = other.reached()
        return all(domain in theirs and far <= theirs[domain] for domain, far in self.reached().items())

    def subtract(self, other: GtidSet) -> GtidSet:
        """What lies beyond the other position."""
        theirs = other.reached()
        return GtidSet(tuple(g for g in self.gtids if g.domain not in theirs or g.sequence > theirs[g.domain]))

    def union(self, other: GtidSet) -> GtidSet:
        """The position that has come as far as both."""
        furthest: dict[int, Gtid] = {}
        for gtid in (*self.gtids, *other.gtids):
            if gtid.domain not in furthest or gtid.sequence > furthest[gtid.domain].sequence:
                furthest[gtid.domain] = gtid
        return GtidSet.of(furthest.values())

    def retain(self, wanted: Callable[[str], bool]) -> GtidSet:
        """Only some sources, each `domain-server`."""
        return GtidSet(tuple(g for g in self.gtids if wanted(f"{g.domain}-{g.server}")))


def parse(text: str) -> GtidSet:
    entries = ("".join(entry.split()) for entry in text.split(","))
    return GtidSet.of(parse_one(entry) for entry in entries if entry)


def parse_one(text: str) -> Gtid:
    found = _GTID.fullmatch(text)
    if not found or max(int(found[1]), int(found[2])) >= 1 << 32 or int(found[3]) >= 1 << 64:
        raise ConfigError(f"{text[:60]!r} is no GTID of MariaDB.", hint="Write domain-server-sequence, such as 0-1-42.")
    return Gtid(int(found[1]), int(found[2]), int(found[3]))


def normal(text: str) -> str | None:
    """As we write it; None for an empty one."""
    return str(parse(text)) or None
