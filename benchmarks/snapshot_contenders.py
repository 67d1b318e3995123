"""Who reads the snapshot: `pg_dump | psql`, Debezium's engine, and tidelog, each in its own process.

The clock of a run starts when the snapshot is asked of a contender that streams already, and stops when the last row
has arrived at its sink. `pg_dump` has nothing to warm, its clock starts with it; Debezium's initial snapshot starts
with its task. Contenders of one `group` are settings of the same thing, and only the fastest of them counts.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from demo.embedded import Database

from benchmarks import contenders, measure, rows
from benchmarks.measure import Measure
from benchmarks.tidelog_snapshot import home_of
from tidelog.engine import requests

SETTLE_SECONDS = 1.0
SECONDS_MAX = 600.0
BUSY_SECONDS = 0.02
AWAKE_BYTES = 1 << 30
COPY = "snapshot_copy"
SIGNAL = "execute-snapshot"

# For throughput, as the documentation offers; defaults in comments.
BUFFERS = {
    **contenders.DEBEZIUM_TUNED,
    "snapshot.fetch.size": "20480",  # 10240
}
READ_ONLY = {"read.only": "true"}


@dataclass(frozen=True)
class Job:
    database: Database
    rows: int
    slot: str
    workdir: Path


@dataclass(frozen=True)
class Entrant:
    """A contender: how it is run, with which settings, on which table."""

    run: Callable[[Entrant, Job], Measure]
    group: str
    settings: dict[str, str] = field(default_factory=dict)
    table: str = rows.BIG
    kind: str = ""
    note: str = ""
    busy: bool = False
    """Others commit meanwhile: without them its windows never close."""
    commits: str = "on"
    """The source's `synchronous_commit`."""
    once: bool = False
    """It takes part in the first round only."""

    def rows_of(self, job: Job) -> int:
        most = {rows.SMALL: rows.ROWS_SMALL, rows.MEDIUM: rows.ROWS_MEDIUM}
        return min(job.rows, most.get(self.table, job.rows))


def run_pg_dump(entrant: Entrant, job: Job) -> Measure:
    server = job.database.server
    server.execute(f"DROP DATABASE IF EXISTS {COPY}")
    copy = server.create_database(COPY)
    dump = server.command("pg_dump", "--no-publications", "-t", entrant.table, job.database.dsn)
    restore = server.command("psql", "-q", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null", copy.dsn)
    command = ["bash", "-c", f"set -o pipefail; {shlex.join(dump)} | {shlex.join(restore)}"]
    result = clock("pg_dump | psql", command, job, entrant.rows_of(job), warm=False)
    arrived = copy.execute(f"SELECT count(*) FROM {entrant.table}")[0][0]
    server.execute(f"DROP DATABASE {COPY}")
    if arrived != entrant.rows_of(job):
        raise measure.ContenderFailed(f"pg_dump | psql copied {arrived} rows")
    return result


def run_debezium(entrant: Entrant, job: Job) -> Measure:
    with rows.slot(job.database, job.slot):
        command = debezium_command(entrant.settings, job, [rows.WARM, entrant.table])
        count = entrant.rows_of(job)
        if entrant.kind == "initial":
            return clock("debezium", [*command, str(count), "initial"], job, count, settle_s=0.0)
        with rows.nudging(job.database, BUSY_SECONDS) if entrant.busy else contextlib.nullcontext():
            command += [str(count), "incremental"]
            return clock("debezium", command, job, count, lambda: debezium_ask(job, entrant.table))


def debezium_command(settings: dict[str, str], job: Job, tables: list[str]) -> list[str]:
    values = {
        **contenders.DEBEZIUM,
        "publication.name": rows.PUBLICATION,
        "table.include.list": ",".join(table.replace(".", "\\.") for table in tables),
        "signal.data.collection": rows.SIGNALS,
        **settings,
        **contenders.connection(job.database, job.slot),
    }
    return contenders.engine("SnapshotConsumer", values, job.workdir)


def debezium_ask(job: Job, table: str) -> None:
    """By the signal table: in a read-only run we write there, not Debezium."""
    data = {"type": "incremental", "data-collections": [table]}
    job.database.execute(f"INSERT INTO {rows.SIGNALS} VALUES (%s, %s, %s)", [job.slot, SIGNAL, json.dumps(data)])


def run_tidelog(entrant: Entrant, job: Job) -> Measure:
    with rows.slot(job.database, job.slot):
        count = entrant.rows_of(job)
        command = tidelog_command(entrant.kind, job, [entrant.table], count, entrant.settings)
        result = clock("tidelog", command, job, count, lambda: tidelog_ask(job, entrant.table))
    if entrant.kind == "delta":
        require_rows(job.workdir / "lake" / entrant.table.replace(".", "/"), count)
    return result


def tidelog_command(kind: str, job: Job, tables: list[str], count: int, settings: dict[str, str]) -> list[str]:
    arguments = [kind, job.database.dsn, job.slot, str(job.workdir), ",".join(tables), str(count), json.dumps(settings)]
    return [sys.executable, "-m", "benchmarks.tidelog_snapshot", *arguments]


def tidelog_ask(job: Job, table: str) -> str:
    return requests.snapshot(home_of(job.workdir), [table])


def require_rows(table: Path, count: int) -> None:
    from deltalake import DeltaTable

    found = DeltaTable(str(table)).to_pyarrow_dataset().count_rows()
    if found != count:
        raise measure.ContenderFailed(f"the Delta table has {found} rows, not {count}")


def clock(
    name: str,
    command: list[str],
    job: Job,
    count: int,
    ask: Callable[[], object] = lambda: None,
    *,
    warm: bool = True,
    settle_s: float = SETTLE_SECONDS,
) -> Measure:
    """Run a contender: let it get warm, ask, and measure until it is done."""
    server_pid = job.database.server.pid
    assert server_pid is not None
    launched = time.monotonic()
    waits = warm and settle_s > 0  # it does nothing before it is asked
    if not waits:
        measure.awaken(job.workdir / "asleep", AWAKE_BYTES)
    with (
        measure.Contender(command, job.workdir / "log.txt") as contender,
        measure.Watch(contender.pid, server_pid) as watch,
        measure.deadline(contender, SECONDS_MAX),
    ):
        if warm:
            get_warm(contender, job.database, settle_s)
        if waits:
            measure.awaken(job.workdir / "asleep", AWAKE_BYTES)
        began = watch.moment()
        ask()
        delivered = contender.await_done()
        ended = watch.moment()
        total = contender.finish()
    if delivered is None and not warm:  # its end is its word
        delivered, ended = count, replace(ended, contender_cpu=total)
    if delivered is None or delivered < count:
        raise measure.ContenderFailed(f"{delivered} of {count} rows were delivered; {measure.tail(contender.log)}")
    return measure.measured(name, delivered, began, ended, total, watch.rss_peak, began.at - launched)


def get_warm(contender: measure.Contender, database: Database, settle_s: float) -> None:
    with rows.nudging(database):
        contender.await_word("WARM")
    contender.await_word("READY")
    time.sleep(settle_s)


def spent(workdir: Path) -> dict[str, Any] | None:
    """Where the time of tidelog's batches went, as Spark tells it; None for others."""
    path = workdir / "progress.json"
    if not path.exists():
        return None
    batches = json.loads(path.read_text())
    phases = sorted({phase for batch in batches for phase in batch["ms"]})
    return {
        "batches": len(batches),
        "ms": {phase: sum(batch["ms"].get(phase, 0) for batch in batches) for phase in phases},
        "batch_ms": [batch["ms"].get("triggerExecution") for batch in batches],
    }


def tuned(chunk: int, more: dict[str, str]) -> dict[str, str]:
    return {**BUFFERS, **more, "incremental.snapshot.chunk.size": str(chunk)}


def parallel(parallelism: int) -> dict[str, str]:
    return {"incremental.snapshot.parallelism": str(parallelism)}


THROUGHPUT = {
    "2 s chunks": {"incremental.snapshot.chunk.target.ms": "2000"},
    "250k chunks": {"incremental.snapshot.chunk.size": "250000", "maxEventsPerTrigger": "0"},
    "170k chunks, two at once": {
        "incremental.snapshot.chunk.size": "170000",
        "incremental.snapshot.parallelism": "2",
        "maxEventsPerTrigger": "0",
    },
}
PARALLELISM = (1, 2, 4)
TUNED, DEFAULT, INITIAL, FAST = "debezium tuned", "debezium default", "debezium initial", "tidelog throughput"
OURS_ASYNC, DEFAULT_ASYNC = "tidelog noop async", "debezium default async"
SMALL_CHUNKS, DEFAULT_CHUNKS = "small chunks, tidelog", "small chunks, debezium"
CHUNKS_OF_1024 = {"incremental.snapshot.chunk.size": "1024"}
SLOW = "slow batches, tidelog"
SLOW_NOTE = "each batch sleeps one second when it is done"
SMALL_NOTE = f"measured on {rows.ROWS_SMALL:,} rows: with asynchronous commits, all would take many minutes"
BUSY_NOTE = "beside 50 commits a second to another table: on an idle database it does not end"

ENTRANTS: dict[str, Entrant] = {
    "pg_dump | psql": Entrant(run_pg_dump, "pg_dump | psql"),
    **{f"tidelog noop p{n}": Entrant(run_tidelog, f"tidelog noop p{n}", parallel(n), kind="noop") for n in PARALLELISM},
    **{
        f"tidelog delta p{n}": Entrant(run_tidelog, f"tidelog delta p{n}", parallel(n), kind="delta")
        for n in PARALLELISM
    },
    **{f"{FAST}, {name}": Entrant(run_tidelog, FAST, values, kind="noop") for name, values in THROUGHPUT.items()},
    f"{TUNED}, table 20k": Entrant(run_debezium, TUNED, tuned(20_480, {})),
    f"{TUNED}, table 50k": Entrant(run_debezium, TUNED, tuned(51_200, {})),
    f"{TUNED}, read-only 20k": Entrant(run_debezium, TUNED, tuned(20_480, READ_ONLY), busy=True, note=BUSY_NOTE),
    f"{TUNED}, read-only 50k": Entrant(run_debezium, TUNED, tuned(51_200, READ_ONLY), busy=True, note=BUSY_NOTE),
    DEFAULT: Entrant(run_debezium, DEFAULT, {}, rows.SMALL, note=SMALL_NOTE),
    OURS_ASYNC: Entrant(run_tidelog, OURS_ASYNC, kind="noop", commits="off"),
    DEFAULT_ASYNC: Entrant(run_debezium, DEFAULT_ASYNC, {}, rows.SMALL, note=SMALL_NOTE, commits="off"),
    SMALL_CHUNKS: Entrant(run_tidelog, SMALL_CHUNKS, CHUNKS_OF_1024, rows.MEDIUM, kind="noop", once=True),
    DEFAULT_CHUNKS: Entrant(run_debezium, DEFAULT_CHUNKS, CHUNKS_OF_1024, rows.MEDIUM, once=True),
    SLOW: Entrant(run_tidelog, SLOW, kind="slow", note=SLOW_NOTE, once=True),
    INITIAL: Entrant(run_debezium, INITIAL, {**BUFFERS, "snapshot.mode": "initial"}, kind="initial"),
}
