"""tidelog's side of the snapshot benchmark: one process per run.

It streams in a warm session, says `WARM` when changes came through, `READY` when no more of them come, and `DONE
<rows>` as soon as the rows of the snapshot that was asked of it have arrived at the sink. Then it leaves in
`progress.json` what Spark says of each batch since. `serve` streams until it is terminated.

    python -m benchmarks.tidelog_snapshot <kind> <dsn> <slot> <workdir> <table,…> <rows> <settings as JSON>
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg.conninfo

from benchmarks import rows
from tidelog.engine.home import Home

NAME = "bench"
LOOK_SECONDS = 0.02
WARM_BATCHES = 3
SLOW_SECONDS = 1.0
STREAM = ("maxEventsPerTrigger", "maxBytesPerTrigger", "trigger")


@dataclass(frozen=True)
class Task:
    dsn: str
    slot: str
    workdir: Path
    tables: tuple[str, ...]
    """The first is the one to be read."""
    rows: int
    settings: dict[str, str]

    @property
    def lake(self) -> Path:
        return self.workdir / "lake"

    @property
    def source(self) -> dict[str, str]:
        where = psycopg.conninfo.conninfo_to_dict(self.dsn)
        return {
            "database.hostname": str(where["host"]),
            "database.port": str(where["port"]),
            "database.user": str(where["user"]),
            "database.password": str(where["password"]),
            "database.dbname": str(where["dbname"]),
            "slot.name": self.slot,
            "snapshot.mode": "no_data",
            "publication.name": rows.PUBLICATION,
            "publication.autocreate.mode": "disabled",
            "table.include.list": ",".join(table.replace(".", "\\.") for table in (rows.WARM, *self.tables)),
            **{name: value for name, value in self.settings.items() if name not in STREAM},
        }

    @property
    def stream(self) -> dict[str, str]:
        return {name: value for name, value in self.settings.items() if name in STREAM}


def home_of(workdir: Path) -> Home:
    """Where a run with this folder keeps its state: whoever asks for a snapshot leaves word there."""
    return Home(workdir / "home" / NAME)


class Progress:
    """What Spark has told of each batch, and how many rows went into the sink."""

    def __init__(self, query: Any) -> None:
        self._query = query
        self.batches: dict[int, dict[str, Any]] = {}

    def look(self) -> int:
        """The rows so far; raises what the query died of."""
        if not self._query.isActive:
            self._query.awaitTermination(timeout=0)
        for told in self._query.recentProgress:
            if "addBatch" in told["durationMs"]:  # else nothing was there to be done
                self.batches[told["batchId"]] = {"rows": told["numInputRows"], "ms": dict(told["durationMs"])}
        return sum(batch["rows"] for batch in self.batches.values())


def noop(task: Task) -> None:
    """Through Spark to its noop sink: the table's typed columns."""
    watch(task, rows_of(task).writeStream.format("noop"))


def slow(task: Task) -> None:
    """The same, and each batch takes a second longer than it has to."""

    def apply(frame: Any, _: int) -> None:
        frame.write.format("noop").mode("append").save()
        time.sleep(SLOW_SECONDS)

    watch(task, rows_of(task).writeStream.foreachBatch(apply))


def rows_of(task: Task) -> Any:
    import tidelog

    spark = warm_session()
    tidelog.register(spark)
    options = {**task.source, **task.stream, "name": NAME, "table": task.tables[0]}
    return spark.readStream.format("tidelog").options(**options).load()


def watch(task: Task, writer: Any) -> None:
    progress = Progress(writer.option("checkpointLocation", str(task.workdir / "checkpoint")).start())
    deliver(task, progress, progress.look)


def delta(task: Task) -> None:
    """Through Spark into a Delta table: what `tidelog run` does."""
    with pipeline(task) as running:
        progress = Progress(running.query)
        deliver(task, progress, lambda: delivered(running, progress))


def serve(task: Task) -> None:
    """Into Delta tables, until terminated."""
    with pipeline(task) as running:
        while True:
            running.raise_failure()
            time.sleep(0.5)


def delivered(running: Any, progress: Progress) -> int:
    progress.look()
    running.raise_failure()
    return int(running.progress().events_total)


def deliver(task: Task, progress: Progress, count: Callable[[], int]) -> None:
    """Until all rows arrived. What the stream delivered while it got warm is not among them."""
    base = settled(progress, count)
    known = set(progress.batches)
    print("READY", flush=True)
    while (arrived := count() - base) < task.rows:
        time.sleep(LOOK_SECONDS)
    print(f"DONE {arrived}", flush=True)
    time.sleep(0.5)
    progress.look()
    since = [batch for number, batch in sorted(progress.batches.items()) if number not in known]
    (task.workdir / "progress.json").write_text(json.dumps(since))


def settled(progress: Progress, count: Callable[[], int]) -> int:
    """The count once a few batches have gone through, and no more come."""
    while len(progress.batches) < WARM_BATCHES:
        count()
        time.sleep(LOOK_SECONDS)
    print("WARM", flush=True)
    for _ in steady(count):
        time.sleep(LOOK_SECONDS)
    return count()


def steady(count: Callable[[], int], seconds: float = 2.0) -> Iterator[None]:
    """Until the count has not changed for a while."""
    last, since = count(), time.monotonic()
    while time.monotonic() < since + seconds:
        yield
        if (now := count()) != last:
            last, since = now, time.monotonic()


def warm_session() -> Any:
    from tidelog.spark.session import session, warm

    spark = session(NAME, Home.open(NAME))
    warm(spark, "postgres")
    return spark


def pipeline(task: Task) -> Any:
    import tidelog

    spark = warm_session()
    source, sink = {"connector": "postgres", **task.source}, {"type": "delta", "path": str(task.lake)}
    return tidelog.Pipeline(source, sink, name=NAME, stream=task.stream).start(spark)


KINDS: dict[str, Callable[[Task], None]] = {"noop": noop, "slow": slow, "delta": delta, "serve": serve}


def main(arguments: list[str]) -> int:
    kind, dsn, slot, workdir, tables, count, settings = arguments
    os.environ["TIDELOG_HOME"] = str(home_of(Path(workdir)).path.parent)
    KINDS[kind](Task(dsn, slot, Path(workdir), tuple(tables.split(",")), int(count), json.loads(settings)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
