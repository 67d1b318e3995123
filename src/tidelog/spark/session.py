"""A Spark session for a pipeline: quiet, in UTC, sized for small batches, on this machine unless another is chosen.

The console belongs to the pipeline. Log4j writes warnings to the home's log by a configuration of our own, and what
the JVM prints before and beside log4j goes to a file next to it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tidelog.engine.home import Home
from tidelog.errors import ConfigError
from tidelog.spark import open_files, spark_conf
from tidelog.spark.interpreter import worker_python
from tidelog.spark.liveness import silence_accumulator_server
from tidelog.spark.versions import require_supported

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
"""Spark's own choice starts a process whenever it looks at a file of a local checkpoint (`readlink`): 60 ms of each
batch. Either gives a file its name when it is complete."""
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"
"""Rows pass by the JVM, or once through it: what it runs is much code, each piece a few times a batch. There the
optimising compiler takes more than it gives, and so does a collector that works beside the program (docs/decisions)."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.authenticate.socketTimeout": "120s",  # 15 s are too short where many processes start at once
    **CHECKPOINTS,
}


def session(name: str, home: Home, wanted: Mapping[str, str] | None = None) -> SparkSession:
    """The session that lives already, or a new one. `wanted` are settings of Spark that the pipeline asks for."""
    from pyspark.sql import SparkSession

    wanted = wanted or {}
    alive = SparkSession.getActiveSession()
    if alive is not None:
        spark_conf.require_as_wanted(alive, wanted)
        return alive
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local(spark_conf.expected_master(wanted)):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # workers elsewhere could not reach that
    return _start(name, home, wanted)


def _defaults(name: str, home: Home) -> dict[str, str]:
    """For whatever the user leaves open."""
    return {
        **SETTINGS,
        "spark.app.name": f"tidelog {name}",
        "spark.sql.warehouse.dir": str(home.path / "warehouse"),
    }


def _java_options(home: Home, wanted: Mapping[str, str]) -> str:
    with as_file(files("tidelog.spark") / "log4j2.properties") as log4j:
        log = f'"-Dlog4j2.configurationFile={log4j.as_uri()}" "-Dtidelog.log={home.log}"'
    return f"{log} {_compiler_and_collector(wanted)}"


def _compiler_and_collector(wanted: Mapping[str, str]) -> str:
    """Ours, unless somebody else chooses: the JVM refuses to start with two collectors."""
    by_environment = [os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")]
    names = (spark_conf.JAVA_OPTIONS, "spark.driver.defaultJavaOptions")
    by_settings = [settings.get(name, "") for settings in (wanted, spark_conf.spark_defaults()) for name in names]
    return JAVA if not re.search(r"Tiered|Use\w+GC", " ".join(by_environment + by_settings)) else ""


def _start(name: str, home: Home, wanted: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    open_files.require_enough()
    open_files.warn_if_few()
    defaults = _defaults(name, home)
    launch = spark_conf.launch_settings(defaults, _java_options(home, wanted), wanted)
    output = home.path / "spark.out"
    try:
        with output.open("wb") as out, _deferred_interrupts():
            launched_by = SparkConf(loadDefaults=False).setAll(list(launch.items()))
            launched = SparkContext._gateway is None and not spark_conf.is_submitted()
            gateway = SparkContext._gateway or launch_gateway(launched_by, _silent(out.fileno()))  # type: ignore[no-untyped-call]
            conf = SparkConf(_jvm=gateway.jvm)
            spark_conf.complete(conf, defaults, wanted, launched=launched)
            SparkContext(conf=conf, gateway=gateway)
    except (PySparkRuntimeError, FileNotFoundError) as exc:
        raise ConfigError(f"Spark did not start: {_complaint(output)}.", hint=_JAVA_CURE) from exc
    except Py4JJavaError as exc:
        lines = str(exc.java_exception.getMessage()).splitlines() or ["no reason was given"]
        reason = lines[0].rstrip(".")
        raise ConfigError(
            f"Spark did not start at {spark_conf.expected_master(wanted)}: {reason}.",
            hint=f"Is the master right, and reachable from here? {home.log} says more.",
        ) from exc
    spark = SparkSession.builder.getOrCreate()
    silence_accumulator_server(spark)
    return spark


@contextmanager
def _deferred_interrupts() -> Iterator[None]:
    """Python's own reaction to a signal waits until Spark has started: a KeyboardInterrupt would leave a JVM half
    started, which never ends by itself. Handlers of the program, such as those of the command line, stay in place.
    Spark's handler is removed again: it calls the JVM in the middle of another call."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread is interrupted
        yield
        return
    received: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in handlers.items():
        if handler in (signal.default_int_handler, signal.SIG_DFL):
            signal.signal(number, lambda number, _: received.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if received:
            signal.raise_signal(received[0])


_JAVA_CURE = "Spark needs Java 17 or 21: install it, and set JAVA_HOME to its folder."


def _silent(file: int) -> dict[str, int]:
    return {"stdout": file, "stderr": subprocess.STDOUT}


def _complaint(path: Path) -> str:
    """The first thing the JVM, or the script that should start it, was unhappy about."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    told = [line for line in lines if line.strip() and not line.startswith("WARNING: Using incubator")]
    return told[0].strip().rstrip(".") if told else "Java was not found"


_PUT_BY_SPARK = ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME")


def is_local(master: str) -> bool:
    """Whether its executors share this machine, and its folders."""
    return master == "local" or master.startswith("local[")


def local_uri(path: Path | str) -> str:
    """A folder of this machine, also where Spark's default file system is another (fs.defaultFS)."""
    return f"file://{path}"


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Make a source known to a session, safe for several queries at once.

    Spark keeps one map of environment variables for a registered source, puts these four into it when a query starts,
    and serialises it with every task: a query that starts would tear the tasks of another (`OptionalDataException`).
    When the names are there from the beginning, the map keeps its size and nothing tears.
    """
    require_supported(spark.version)
    for name in _PUT_BY_SPARK:
        spark.sparkContext.environment.setdefault(name, "")
    with _worker_python(spark):
        spark.dataSource.register(source)


def _worker_python(spark: SparkSession) -> AbstractContextManager[None]:
    context = spark.sparkContext
    return worker_python(context) if is_local(context.master or "") else nullcontext()


def warm(spark: SparkSession, connector: str) -> None:
    """Run the whole path once without a database: the JVM loads its classes, the Python workers their modules, and
    the first real batch does not pay for it. Spark starts one Python process after the other to plan a query: meanwhile
    the workers get ready beside them."""
    from tidelog.spark.warmup import Warmup

    register(spark, Warmup)
    with ThreadPoolExecutor(1) as beside, TemporaryDirectory(prefix="tidelog-warm-") as folder:
        workers = beside.submit(_warm_workers, spark, connector)
        query = (
            spark.readStream.format("tidelog-warmup")
            .option("connector", connector)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", local_uri(folder))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        workers.result()


def _warm_workers(spark: SparkSession, connector: str) -> None:
    from tidelog.spark.warmup import load

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        load(connector)
        yield from batches

    count = spark.sparkContext.defaultParallelism
    numbers = spark.range(0, count, 1, count)
    with _worker_python(spark):
        rows = numbers.mapInArrow(read, "id long")
    rows.write.format("noop").mode("overwrite").save()
