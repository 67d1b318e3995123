"""Hundreds of seeds end well, and every known mistake is noticed within the first few hundred."""

from __future__ import annotations

import pytest

from tests.simulation.run import Simulation
from tests.simulation.world import FAULTS, Wrong

SEEDS, SEEDS_LONG, SEEDS_FAULT, PARTS = 700, 20_000, 600, 10


def play(seeds: range, fault: str = "") -> None:
    for seed in seeds:
        try:
            Simulation(seed, fault).run()
        except Exception as exc:
            exc.add_note(f"replay it: make sim SEED={seed}")
            raise


@pytest.mark.parametrize("part", range(PARTS))
def test_target_equals_source(part: int) -> None:
    play(range(part * SEEDS // PARTS, (part + 1) * SEEDS // PARTS))


@pytest.mark.parametrize("seed", [8536])
def test_what_was_wrong_once_is_right(seed: int) -> None:
    play(range(seed, seed + 1))


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_target_equals_source_for_many_seeds(part: int) -> None:
    play(range(SEEDS + part * SEEDS_LONG // PARTS, SEEDS + (part + 1) * SEEDS_LONG // PARTS))


RARE = {
    "no-after": 250,
    "other-watermark": 270,
    "lost-is-empty": 330,
    "reads-first": 700,
    "trust-origin": 2_190,
    "trust-absence": 3_570,
    "trust-answers": 8_530,
}
"""Faults that show seldom, and the seed from which they are looked for."""


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_noticed(fault: str) -> None:
    first = RARE.get(fault, 0)
    with pytest.raises(Wrong):
        play(range(first, first + SEEDS_FAULT), fault)
