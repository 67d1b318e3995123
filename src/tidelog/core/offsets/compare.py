"""How two offsets of a connector relate: does the one lie before the other in the log, or can nobody tell?

Some logs are a line; others are several lines at once (GTID sets, redo threads, shards, tables). There an offset is
before another only if it is nowhere after it: `both` is that law.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar


class Order(Enum):
    BEFORE = "before"
    SAME = "same"
    AFTER = "after"
    UNRELATED = "unrelated"

    def reverse(self) -> Order:
        return {Order.BEFORE: Order.AFTER, Order.AFTER: Order.BEFORE}.get(self, self)

    @property
    def covers(self) -> bool:
        """What the second one has delivered, the first one has delivered too."""
        return self in (Order.AFTER, Order.SAME)


CONSEQUENCES = {
    Order.BEFORE: "It lies before the present offset: what was delivered since then is delivered again.",
    Order.SAME: "It is the place of the present offset: nothing is delivered again, and nothing is skipped.",
    Order.AFTER: "It lies after the present offset: what is between them is skipped.",
    Order.UNRELATED: "Nobody can tell whether it lies before the present offset or after it: "
    "changes may be delivered again, and changes may be skipped.",
}
"""What it means to put the first offset in the place of the second."""


def of(a: Any, b: Any) -> Order:
    """For what Python compares."""
    if a == b:
        return Order.SAME
    return Order.BEFORE if a < b else Order.AFTER


def both(orders: Iterable[Order]) -> Order:
    """Several lines at once."""
    found = set(orders) - {Order.SAME}
    if not found:
        return Order.SAME
    return found.pop() if len(found) == 1 else Order.UNRELATED


def of_sets(a_within_b: bool, b_within_a: bool) -> Order:
    """For sets of what was delivered."""
    if a_within_b:
        return Order.SAME if b_within_a else Order.BEFORE
    return Order.AFTER if b_within_a else Order.UNRELATED


_K = TypeVar("_K")
_V = TypeVar("_V")


def of_maps(a: Mapping[_K, _V], b: Mapping[_K, _V]) -> Order:
    """Lines by name; a line that only one of them has is further there."""
    return both(
        of(a[name], b[name]) if name in a and name in b else Order.AFTER if name in a else Order.BEFORE
        for name in a.keys() | b.keys()
    )
