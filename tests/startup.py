"""Heavy servers start one after the other, also across pytest's workers, and JVMs start fast.

What starts alone starts quickly, and the limits that libraries have for a start (Spark gives a Python worker ten
seconds) are not reached. A class data archive, which `scripts/servers.sh` makes once, halves the start of Spark's JVM.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.reaper import REPO

ARCHIVE = REPO / ".venv" / "spark.jsa"
_FILE = "TIDELOG_TESTS_STARTUP"
_here = threading.RLock()
_depth = 0


def share(folder: Path) -> None:
    """Let all workers of this run take turns, by a lock in the folder."""
    os.environ[_FILE] = str(folder / "startup.lock")


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """The turn of this process to start something heavy. A process that dies gives it up."""
    global _depth
    with _here:
        if _depth or _FILE not in os.environ:
            yield
            return
        with Path(os.environ[_FILE]).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _depth += 1
            try:
                yield
            finally:
                _depth -= 1


def speed_up_java(temporary: str) -> None:
    """What all of Spark's JVMs take from the environment: the archive, and where temporary files go."""
    options = [f"-Djava.io.tmpdir={temporary}"]
    if ARCHIVE.exists():
        silent = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"  # another Java ignores the archive
        options += [f"-XX:SharedArchiveFile={ARCHIVE}", *silent.split()]
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(options)


def archive_classes() -> None:
    """Make the archive: of the classes that a session loads which has run a stream, with its Python workers."""
    unfinished = ARCHIVE.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:cds=off -Xlog:cds+dynamic=off"
    from tests.spark_session import local_session
    from tidelog.spark.session import warm

    with tempfile.TemporaryDirectory() as folder:
        spark = local_session(Path(folder))
        warm(spark, "postgres")
        java = spark.sparkContext._gateway.proc
        spark.stop()
        java.stdin.close()  # it ends then, and writes the archive
        java.wait()
    unfinished.replace(ARCHIVE)


if __name__ == "__main__":
    archive_classes()
