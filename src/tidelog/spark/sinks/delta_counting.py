"""Which columns of a Delta table have statistics: a list of names in its properties.

Law: names are only ever taken off the list, before rows come that cannot be counted; so it may be done again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa

from tidelog.core.evolve import Step
from tidelog.core.moments import distant

COUNTED = "delta.dataSkippingStatsColumns"
_MAX = 32
"""Unless the list is set, so many of the first columns are counted."""


def counted_of(told: str | None, names: Sequence[str]) -> list[str]:
    return list(names[:_MAX]) if told is None else split(told)


def joined(names: Iterable[str]) -> str:
    return ",".join(f"`{name.replace('`', '``')}`" for name in names)


def is_uncountable(step: Step, counted: Sequence[str]) -> bool:
    """Whether a column begins with days that no calendar has, or takes over one that had such days."""
    if not pa.types.is_date(step.field.type):
        return False
    if step.fill is not None:
        return distant(pa.array([step.fill]))
    return step.origin is not None and step.origin not in counted


def split(names: str) -> list[str]:
    """As people write them too: plain names among those in back ticks."""
    found = re.findall(r"`((?:[^`]|``)*)`|([^`,\s][^`,]*)", names)
    return [bare.strip() if bare else quoted.replace("``", "`") for quoted, bare in found]
