"""The GTID of one Vitess shard: `MySQL56/host:1-4,host:2-10`, or one of the two words that are none.

An empty one asks for a copy of the tables, `current` for the log's end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.core.offsets import compare as orders
from tidelog.core.offsets import intervals
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.fields import clipped
from tidelog.core.offsets.intervals import Intervals
from tidelog.errors import ConfigError

COPY = ""
CURRENT = "current"
OVERRIDES = (COPY, CURRENT)

_OPAQUE = re.compile(r"(?:MariaDB|FilePos)/\S+")
"""Flavours whose inside is not ours to read."""


@dataclass(frozen=True)
class Gtid:
    version: str
    """The flavour; empty when it is not told."""
    sources: Mapping[str, Intervals]
    """Each host, and its transactions."""

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(self.sources)

    @property
    def sequences(self) -> tuple[str, ...]:
        """The last transaction of each host."""
        return tuple(str(parts[-1][1]) for parts in self.sources.values())

    @property
    def rank(self) -> int:
        """Grows with every transaction, as long as the hosts stay."""
        return sum(parts[-1][1] for parts in self.sources.values())

    def has_hosts_of(self, other: Gtid) -> bool:
        return self.sources.keys() >= other.sources.keys()

    def within(self, other: Gtid) -> bool:
        return not any(intervals.subtract(parts, other.sources.get(h, ())) for h, parts in self.sources.items())


def parse(text: str) -> Gtid:
    version, slash, rest = text.partition("/")
    sources: dict[str, Intervals] = {}
    for entry in (rest if slash else text).split(","):
        host, *parts = entry.strip().split(":")
        if not host or not parts:
            raise ConfigError(f"{clipped(text)!r} is no GTID of Vitess.", hint="Write it like MySQL56/uuid:1-1513.")
        sources[host] = intervals.normal([*sources.get(host, ()), *map(intervals.parse, parts)])
    return Gtid(version if slash else "", sources)


def check(text: str) -> str:
    """One that an offset may hold."""
    if text not in OVERRIDES and not _OPAQUE.fullmatch(text):
        parse(text)
    return text


def order(a: str, b: str) -> Order:
    """A copy begins before everything; where `current` is, nobody knows beforehand."""
    if a == b:
        return Order.SAME
    if COPY in (a, b):
        return Order.BEFORE if a == COPY else Order.AFTER
    if CURRENT in (a, b) or _OPAQUE.fullmatch(a) or _OPAQUE.fullmatch(b):
        return Order.UNRELATED
    these, those = parse(a), parse(b)
    return orders.of_sets(these.within(those), those.within(these))
