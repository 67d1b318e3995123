"""How long a commit takes to become visible in Delta: 10 commits a second for a minute, p50 and p95.

    python -m benchmarks.latency [--rate 10] [--seconds 60]

The clock of a commit starts when PostgreSQL has confirmed it and stops when a reader that knows nothing of tidelog sees
its row in the Delta table. That reader looks for a new table version every 10 ms and reads it. The first commits warm
everything up; the measured ones come after the first of them arrived. Written to `results/latency.json`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Protocol

from demo.embedded import Database, Postgres

from benchmarks import environment, load, measure

RESULTS = Path(__file__).parent / "results"
POLL_SECONDS = 0.01
WARM_SECONDS_MAX = 120.0
DRAIN_SECONDS_MAX = 60.0
SLOT = "latency"
INSERT = f"INSERT INTO bench SELECT {load.ROW} FROM (SELECT %s::bigint AS n) AS one".replace(" % ", " %% ")
# Replication sends only what was flushed: without this, a commit could wait for the server's background writer.
SETTINGS = {**load.SETTINGS, "synchronous_commit": "on"}
UPDATE = "UPDATE bench SET amount = amount + 1 WHERE id = %s"


class Sight(Protocol):
    """Who knows when each row was first seen."""

    seen_at: dict[int, float]
    versions: int


class Reader(threading.Thread):
    """Notes when each row was first seen in the Delta table. Rows arrive in the order of their ids."""

    def __init__(self, table: Path):
        super().__init__(name="reader", daemon=True)
        self.table = table
        self.seen_at: dict[int, float] = {}
        self.versions = 0
        self._over = threading.Event()

    def run(self) -> None:
        known = -1
        while not self._over.wait(POLL_SECONDS):
            version, noticed = self._newest(), time.monotonic()
            if version > known:
                known = version
                self.versions += 1
                self._note(version, noticed)

    def _newest(self) -> int:
        log = self.table / "_delta_log"
        return max((int(path.stem) for path in log.glob("*.json") if path.stem.isdigit()), default=-1)

    def _note(self, version: int, noticed: float) -> None:
        from deltalake import DeltaTable

        last = max(self.seen_at, default=0)
        table = DeltaTable(str(self.table), version=version)
        rows = table.to_pyarrow_table(columns=["id"], filters=[("id", ">", last)])
        self.seen_at.update(dict.fromkeys(rows.column("id").to_pylist(), noticed))

    def __enter__(self) -> Reader:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    workdir = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    try:
        with Postgres.start(18, settings=SETTINGS) as server:
            database = server.create_database("bench")
            load.prepare(database, [SLOT])
            report = race(database, workdir, options.rate, options.seconds)
            report["environment"] = environment.facts(server)
    except measure.ContenderFailed as failure:
        print(f"not run: {failure}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(workdir, ignore_errors=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n")
    line = "p50 {p50_ms} ms, p95 {p95_ms} ms, max {max_ms} ms ({commits} commits)".format(**report)
    print(f"commit to visible in Delta: {line}")
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time commits until they are visible in Delta.")
    parser.add_argument("--rate", type=float, default=10.0, help="commits a second (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS / "latency.json", help="where the results go")
    return parser.parse_args(arguments)


def race(database: Database, workdir: Path, rate: float, seconds: float) -> dict[str, Any]:
    """Run tidelog, commit at the given rate, and watch the Delta table."""
    arguments = ["latency", database.dsn, SLOT, load.PUBLICATION, str(workdir), "0"]
    command = [sys.executable, "-m", "benchmarks.tidelog_run", *arguments]
    with measure.Contender(command, workdir / "log.txt") as contender, Reader(lake_table(workdir)) as reader:
        contender.await_active(database.dsn, SLOT)
        warm = warm_up(database, reader, rate)
        committed_at = commit(database, warm + 1, rate, seconds)
        drain(reader, max(committed_at))
    return summarise(committed_at, reader, rate)


def lake_table(workdir: Path) -> Path:
    return workdir / "lake" / "public" / "bench"


def warm_up(database: Database, reader: Sight, rate: float) -> int:
    """Commit until rows arrive, and five seconds more; the last id used."""
    number, deadline, warm_at = 0, time.monotonic() + WARM_SECONDS_MAX, None
    while warm_at is None or time.monotonic() < warm_at:
        number = max(commit(database, number + 1, rate, 1 / rate))
        if warm_at is None and reader.seen_at:
            warm_at = time.monotonic() + 5
        if time.monotonic() > deadline:
            raise measure.ContenderFailed(f"nothing arrived in Delta within {WARM_SECONDS_MAX:.0f} s")
    return number


def commit(database: Database, first: int, rate: float, seconds: float) -> dict[int, float]:
    """Insert a row and update an older one per transaction; when each commit was confirmed."""
    committed_at: dict[int, float] = {}
    began = time.monotonic()
    with database.connect() as connection:
        for turn in range(round(rate * seconds)):
            time.sleep(max(0.0, began + turn / rate - time.monotonic()))
            with connection.transaction():
                connection.execute(INSERT.encode(), [first + turn])
                connection.execute(UPDATE, [max(1, first + turn - 25)])
            committed_at[first + turn] = time.monotonic()
        time.sleep(max(0.0, began + seconds - time.monotonic()))
    return committed_at


def drain(reader: Sight, last: int) -> None:
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    while last not in reader.seen_at:
        if time.monotonic() > deadline:
            raise measure.ContenderFailed(f"row {last} did not arrive within {DRAIN_SECONDS_MAX:.0f} s")
        time.sleep(POLL_SECONDS)


def summarise(committed_at: dict[int, float], reader: Sight, rate: float) -> dict[str, Any]:
    """Percentiles in ms. A row may be seen before its commit was confirmed to the writer; that counts as 0."""
    waits = [max(0.0, reader.seen_at[number] - at) * 1000 for number, at in committed_at.items()]
    centiles = statistics.quantiles(waits, n=100, method="inclusive")
    return {
        "rate_per_s": rate,
        "commits": len(waits),
        "p50_ms": round(centiles[49]),
        "p95_ms": round(centiles[94]),
        "p99_ms": round(centiles[98]),
        "max_ms": round(max(waits)),
        "delta_versions": reader.versions,
    }


if __name__ == "__main__":
    sys.exit(main())
