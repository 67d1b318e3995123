"""tidelog's side of the benchmarks: one process per run, one function per kind.

A function streams the publication's changes from the given slot and returns the number of row changes it delivered, as
soon as it has `task.events` of them; the caller prints `DONE`. Whatever it sets up before the slot becomes active (the
Spark session, warm workers) is outside the clock and shows as cold start. `latency` runs until it is terminated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Task:
    dsn: str
    slot: str
    publication: str
    workdir: Path
    events: int

    @property
    def lake(self) -> Path:
        """Delta tables go to <lake>/<schema>/<table>."""
        return self.workdir / "lake"


def capture(task: Task) -> int:
    """The capture process alone: from the server into the journal."""
    raise NotImplementedError("tidelog capture is not in the benchmark yet")


def noop(task: Task) -> int:
    """Through Spark to the noop sink."""
    raise NotImplementedError("tidelog through Spark to noop is not in the benchmark yet")


def parquet(task: Task) -> int:
    """Through Spark to parquet files: every change appended."""
    raise NotImplementedError("tidelog through Spark to parquet is not in the benchmark yet")


def delta(task: Task) -> int:
    """Through Spark into a Delta table, merged by key."""
    raise NotImplementedError("tidelog through Spark to Delta is not in the benchmark yet")


def latency(task: Task) -> int:
    """Through Spark into a Delta table, until terminated."""
    raise NotImplementedError("tidelog's latency is not in the benchmark yet")


KINDS: dict[str, Callable[[Task], int]] = {
    "capture": capture,
    "noop": noop,
    "parquet": parquet,
    "delta": delta,
    "latency": latency,
}


def main(arguments: list[str]) -> int:
    kind, dsn, slot, publication, workdir, events = arguments
    try:
        delivered = KINDS[kind](Task(dsn, slot, publication, Path(workdir), int(events)))
    except NotImplementedError as missing:
        print(missing, file=sys.stderr)
        return 1
    print(f"DONE {delivered}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
