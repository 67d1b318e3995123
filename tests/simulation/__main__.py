"""`python -m tests.simulation SEED [FAULT]`: replay one seed, and tell what happens."""

from __future__ import annotations

import sys

from tests.simulation.run import Simulation
from tests.simulation.world import Wrong


def main(seed: str, fault: str = "") -> int:
    try:
        Simulation(int(seed), fault, print).run()
    except Wrong as exc:
        print(f"mismatch: {exc}")
        return 1
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
