"""Hundreds of seeds end well, and every known mistake is noticed within the first few dozen."""

from __future__ import annotations

import pytest

from tests.iseries.faults import FAULTS
from tests.iseries.run import Wrong, run
from tidelog.errors import UnsupportedChange

SEEDS, SEEDS_LONG, SEEDS_FAULT, PARTS = 200, 5_000, 400, 10


def play(first: int, last: int, fault: str = "") -> None:
    for seed in range(first, last):
        run(seed, fault)


@pytest.mark.parametrize("part", range(PARTS))
def test_each_event_once_and_in_commit_order(part: int) -> None:
    play(part * SEEDS // PARTS, (part + 1) * SEEDS // PARTS)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS * 4))
def test_each_event_once_for_many_seeds(part: int) -> None:
    many = PARTS * 4
    play(SEEDS + part * SEEDS_LONG // many, SEEDS + (part + 1) * SEEDS_LONG // many)


RARE = {"kept-is-all": 60, "pairs-split": 70, "old-image-unsought": 140, "layout-of-today": 60}
"""Faults that show seldom, and the seed from which they are looked for."""


NOTICED: dict[str, tuple[type[Exception], str]] = {
    "rollback-unseen": (Wrong, "two events at one place"),
    "last-entry-again": (Wrong, "two events at one place"),
    "early-end-unseen": (Wrong, "that have ended are kept as open"),
    "layout-stays": (UnsupportedChange, "does not match the table's columns"),
    "layout-of-today": (UnsupportedChange, "does not match the table's columns"),
    "padded": (UnsupportedChange, "does not match the table's columns"),
}
"""How a fault shows, if not by events that are wrong, missing or too many."""


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_noticed(fault: str) -> None:
    kind, says = NOTICED.get(fault, (Wrong, "events expected"))
    with pytest.raises(kind, match=says):
        play(RARE.get(fault, 0), SEEDS_FAULT, fault)
