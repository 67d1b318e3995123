"""Which columns of a Delta table have statistics: a list of names in its properties.

Law: before rows come that cannot be counted, names are taken off the list; only a name that no column has yet is put on
it, for one that is renamed. So it may be done again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

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


def relisted(
    told: str | None, names: Sequence[str], steps: Sequence[Step], distant_names: Collection[str] = ()
) -> list[str] | None:
    """The list before the columns `names` become `steps`; None where it stays as it is. As long as there is none, what
    stands too far behind is not counted anyway. The columns `distant_names` get days that no calendar has."""
    counted = counted_of(told, names)
    near = steps[:_MAX] if told is None else steps
    without = {s.field.name for s in near if s.field.name in distant_names or _is_uncountable(s, counted)}
    if told is None and not without:
        return None
    renamed = [s.field.name for s in steps if s.origin in counted and s.field.name not in names]
    listed = [name for name in dict.fromkeys((*counted, *renamed)) if name not in without]
    return None if told is not None and listed == counted else listed


def _is_uncountable(step: Step, counted: Sequence[str]) -> bool:
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
