"""tidelog's side of the benchmarks: one process per run, one function per kind.

A function streams the publication's changes from the given slot and returns the number of row changes it delivered, as
soon as it has `task.events` of them; the caller prints `DONE`. Whatever it sets up before the slot becomes active (the
Spark session, warm workers) is outside the clock and shows as cold start. `latency` runs until it is terminated.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg.conninfo

from benchmarks.load import TABLE


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
    from tidelog import connectors
    from tidelog.engine.capture import Capture
    from tidelog.journal.files import Files
    from tidelog.journal.journal import SegmentJournal
    from tidelog.journal.ledger import Ledger

    connector = connectors.create("postgres", source(task))
    files = Files(str(task.workdir / "journal"))
    running = Capture(connector, SegmentJournal(files, Ledger(str(task.workdir / "ledger.sqlite"))), files)
    running.start(connector.prepare())
    while (delivered := sum(running.status().events.values())) < task.events:
        running.raise_failure()
        time.sleep(0.05)
    return delivered


def noop(task: Task) -> int:
    """Through Spark to the noop sink: the table's typed columns."""
    return query(task, lambda stream: stream.writeStream.format("noop"))


def parquet(task: Task) -> int:
    """Through Spark to parquet files: every change appended."""
    return query(task, lambda stream: stream.writeStream.format("parquet").option("path", str(task.workdir / "out")))


def query(task: Task, write: Callable[[Any], Any]) -> int:
    """A streaming query in default settings until the last event came through."""
    import tidelog
    from tidelog.engine.home import Home
    from tidelog.spark.session import session, warm

    spark = session("bench", Home.open("bench"))
    tidelog.register(spark)
    warm(spark, "postgres")
    stream = spark.readStream.format("tidelog").options(**source(task)).option("table", TABLE).load()
    running = write(stream).option("checkpointLocation", str(task.workdir / "checkpoint")).start()
    seen: dict[int, int] = {}
    while (delivered := sum(seen.values())) < task.events:
        running.awaitTermination(timeout=0) if not running.isActive else time.sleep(0.05)
        seen |= {p["batchId"]: p["numInputRows"] for p in running.recentProgress}
    return delivered


def delta(task: Task) -> int:
    """Through Spark into a Delta table, merged by key: what `tidelog run` does."""
    with pipeline(task) as running:
        while (delivered := running.progress().events_total) < task.events:
            running.raise_failure()
            time.sleep(0.05)
        return delivered


def latency(task: Task) -> int:
    """Through Spark into a Delta table, until terminated."""
    with pipeline(task) as running:
        while True:
            running.raise_failure()
            time.sleep(0.5)


def pipeline(task: Task) -> Any:
    import tidelog
    from tidelog.engine.home import Home
    from tidelog.spark.session import session, warm

    spark = session("bench", Home.open("bench"))
    warm(spark, "postgres")
    settings = {"connector": "postgres", **source(task)}
    return tidelog.Pipeline(settings, {"type": "delta", "path": str(task.lake)}, name="bench").start(spark)


def source(task: Task) -> dict[str, str]:
    where = psycopg.conninfo.conninfo_to_dict(task.dsn)
    return {
        "database.hostname": str(where["host"]),
        "database.port": str(where["port"]),
        "database.user": str(where["user"]),
        "database.password": str(where["password"]),
        "database.dbname": str(where["dbname"]),
        "slot.name": task.slot,
        "snapshot.mode": "no_data",
        "publication.name": task.publication,
        "publication.autocreate.mode": "disabled",
        "table.include.list": TABLE.replace(".", "\\."),
    }


KINDS: dict[str, Callable[[Task], int]] = {
    "capture": capture,
    "noop": noop,
    "parquet": parquet,
    "delta": delta,
    "latency": latency,
}


def main(arguments: list[str]) -> int:
    kind, dsn, slot, publication, workdir, events = arguments
    os.environ["TIDELOG_HOME"] = f"{workdir}/home"
    delivered = KINDS[kind](Task(dsn, slot, publication, Path(workdir), int(events)))
    print(f"DONE {delivered}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
