"""`python -m tests.oracle SEED [ADAPTER] [FAULT]`: replay one seed, print what the workload does, and what differs.

The adapter is `logminer` or `logminer_unbuffered`, `-` for both; the faults are those of `tests.oracle.faults`."""

from __future__ import annotations

import sys

import pytest

from tests.oracle.faults import FAULTS
from tests.oracle.model import Wrong
from tests.oracle.run import BUFFERED, UNBUFFERED, play


def main(seed: str, adapter: str = "-", fault: str = "") -> int:
    with pytest.MonkeyPatch.context() as patch:
        if fault:
            FAULTS[fault][0](patch)
        return max(replay(int(seed), mode) for mode in (BUFFERED, UNBUFFERED) if adapter in ("-", mode))


def replay(seed: int, adapter: str) -> int:
    print(f"-- {adapter}")
    try:
        run = play(seed, adapter, print)
    except Wrong as exc:
        print(f"mismatch: {exc}")
        return 1
    print(f"-- {len(run.sink.events)} events in {len(run.sink.batches)} batches, {run.crashes} crashes: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
