"""Buffered = unbuffered = model, for dozens of seeds with crashes; and every known mistake is noticed."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.oracle.faults import FAULTS, REFUSED
from tests.oracle.model import Wrong, shown
from tests.oracle.run import BUFFERED, UNBUFFERED, Run, play

SEEDS, SEEDS_LONG, SEEDS_FAULT, PARTS = 80, 5_000, 200, 20


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Gaps in the log are part of the workload, and are warned of."""
    logging.getLogger("tidelog").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("tidelog").setLevel(logging.NOTSET)


def campaign(seeds: range) -> None:
    for seed in seeds:
        try:
            same(play(seed, BUFFERED), play(seed, UNBUFFERED))
        except Exception as exc:
            exc.add_note(f"replay it: python -m tests.oracle {seed}")
            raise


def same(buffered: Run, unbuffered: Run) -> None:
    """Each equals its model already; the models differ by their SCNs alone."""
    one, other = buffered.main, unbuffered.main
    if [e.apart for e in one] != [e.apart for e in other]:
        raise Wrong(f"buffered\n{shown(one)}\nunbuffered\n{shown(other)}")


def part(n: int, first: int, count: int) -> range:
    return range(first + n * count // PARTS, first + (n + 1) * count // PARTS)


@pytest.mark.parametrize("n", range(PARTS))
def test_both_ways_tell_what_was_committed(n: int) -> None:
    campaign(part(n, 0, SEEDS))


@pytest.mark.long
@pytest.mark.parametrize("n", range(PARTS))
def test_both_ways_tell_what_was_committed_for_many_seeds(n: int) -> None:
    campaign(part(n, SEEDS, SEEDS_LONG - SEEDS))


RARE = {"forgets-who-was-left-out": 700, "recalls-nobody": 560, "trusts-the-present-unbuffered": 60}
"""Faults that show seldom, and the seed from which they are looked for."""


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake, adapter = FAULTS[fault]
    mistake(monkeypatch)
    first = RARE.get(fault, 0)
    with pytest.raises(REFUSED.get(fault, Wrong)):
        all(play(seed, adapter) for seed in range(first, first + SEEDS_FAULT))


def test_a_seed_is_replayed_exactly() -> None:
    first, second = play(7, BUFFERED), play(7, BUFFERED)
    assert first.sink.batches == second.sink.batches
    assert first.crashes == second.crashes
