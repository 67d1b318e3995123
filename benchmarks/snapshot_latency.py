"""What a snapshot does to the stream beside it: the same commits, timed with and without one.

Ten commits a second go to one table of the stream. In the race "with", the snapshot of the big table is asked once
everything is warm, and again if it was over too soon; only commits that fell into it count. tidelog's clock stops when
a reader sees the row in Delta (as in `latency`), Debezium's when its consumer has it: compare with and without, not
one with the other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks import latency, load, measure, rows
from benchmarks.snapshot_contenders import Job, debezium_ask, debezium_command, tidelog_ask, tidelog_command
from benchmarks.tidelog_snapshot import home_of
from tidelog.engine.watching import Told

RATE = 10.0
PIECE_SECONDS = 0.5
SNAPSHOT_SECONDS_MAX = 600.0

Race = Callable[[Job, float], dict[str, Any]]


def races(tuned: dict[str, str] | None) -> dict[str, Race]:
    found: dict[str, Race] = {
        "tidelog without": lambda job, seconds: race_tidelog(job, seconds, beside=False),
        "tidelog with": lambda job, seconds: race_tidelog(job, seconds, beside=True),
    }
    if tuned is not None:
        found["debezium without"] = lambda job, seconds: race_debezium(job, seconds, tuned, beside=False)
        found["debezium with"] = lambda job, seconds: race_debezium(job, seconds, tuned, beside=True)
    return found


class Heard(threading.Thread):
    """Notes when the consumer said that it has seen a row, and when it has all rows of the snapshot."""

    versions = 0

    def __init__(self, contender: measure.Contender):
        super().__init__(name="heard", daemon=True)
        self._contender = contender
        self.seen_at: dict[int, float] = {}
        self.done = threading.Event()

    def run(self) -> None:
        for line in self._contender.lines():
            word, _, rest = line.strip().partition(" ")
            if word == "SEEN":
                self.seen_at[int(rest)] = time.monotonic()
            elif word == "DONE":
                self.done.set()


def race_tidelog(job: Job, seconds: float, *, beside: bool) -> dict[str, Any]:
    job.database.execute(f"TRUNCATE {load.TABLE}")
    lake = job.workdir / "lake" / load.TABLE.replace(".", "/")
    command = tidelog_command("serve", job, [rows.BIG, load.TABLE], 0, {})
    with (
        rows.slot(job.database, job.slot),
        measure.Contender(command, job.workdir / "log.txt") as contender,
        latency.Reader(lake) as reader,
    ):
        contender.await_active(job.database.dsn, job.slot)
        warm = latency.warm_up(job.database, reader, RATE)
        ended = ended_of(job) if beside else None
        committed_at, snapshots = commit(job, warm + 1, seconds, ended)
        latency.drain(reader, max(committed_at))
    return {**latency.summarise(committed_at, reader, RATE), **snapshots}


def ended_of(job: Job) -> Callable[[], Callable[[], bool]]:
    """Ask for the snapshot; what is returned tells whether it is over."""
    told = Told(home_of(job.workdir))

    def ask() -> Callable[[], bool]:
        id = tidelog_ask(job, rows.BIG)
        return lambda: any(ended.id == id for ended in told.new())

    return ask


def race_debezium(job: Job, seconds: float, settings: dict[str, str], *, beside: bool) -> dict[str, Any]:
    job.database.execute(f"TRUNCATE {load.TABLE}")
    tables = [rows.WARM, rows.BIG, load.TABLE]
    with rows.slot(job.database, job.slot):
        command = [*debezium_command(settings, job, tables), str(job.rows), "latency"]
        with measure.Contender(command, job.workdir / "log.txt") as contender:
            contender.await_active(job.database.dsn, job.slot)
            heard = Heard(contender)
            heard.start()
            warm = latency.warm_up(job.database, heard, RATE)
            committed_at, snapshots = commit(job, warm + 1, seconds, asked(job, heard) if beside else None)
            latency.drain(heard, max(committed_at))
            contender.terminate()
            heard.join()
    return {**latency.summarise(committed_at, heard, RATE), **snapshots}


def asked(job: Job, heard: Heard) -> Callable[[], Callable[[], bool]]:
    def once() -> Callable[[], bool]:
        if heard.done.is_set():  # it counts to the number of rows once
            return lambda: True
        debezium_ask(job, rows.BIG)
        return heard.done.is_set

    return once


def commit(
    job: Job, first: int, seconds: float, ask: Callable[[], Callable[[], bool]] | None
) -> tuple[dict[int, float], dict[str, Any]]:
    """Commit for so long, and while a snapshot runs; when each commit was confirmed, and how the snapshots went."""
    if ask is None:
        return latency.commit(job.database, first, RATE, seconds), {}
    committed_at: dict[int, float] = {}
    lasted: list[float] = []
    while sum(lasted) < seconds:
        began = time.monotonic()
        found, first = commit_until(job, first, ask())
        if not found:
            break
        lasted.append(time.monotonic() - began)
        committed_at |= found
    if not committed_at:
        raise measure.ContenderFailed("the snapshot was over before a commit fell into it: take more rows")
    return committed_at, {"snapshots": len(lasted), "snapshot_s": [round(s, 1) for s in lasted]}


def commit_until(job: Job, first: int, over: Callable[[], bool]) -> tuple[dict[int, float], int]:
    """The commits before the snapshot was over, and the next id. Those of the last piece may have come after it."""
    committed_at: dict[int, float] = {}
    deadline = time.monotonic() + SNAPSHOT_SECONDS_MAX
    while time.monotonic() < deadline:
        piece = latency.commit(job.database, first, RATE, PIECE_SECONDS)
        first = max(piece) + 1
        if over():
            return committed_at, first
        committed_at |= piece
    raise measure.ContenderFailed(f"the snapshot was not over within {SNAPSHOT_SECONDS_MAX:.0f} s")
