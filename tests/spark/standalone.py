"""A standalone cluster of pip's Spark on this machine: a master and two workers, which die with the test."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.patience import wait_until
from tests.servers import free_port
from tests.spark_session import prepare_environment

WORKERS = 2
_SMALL = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def _die_with_parent() -> None:
    """Also where the test's process is killed, and cleans up nothing."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


@dataclass
class Cluster:
    port: int
    folder: Path
    processes: list[subprocess.Popen[bytes]]

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """For commands: the venv comes first, as where it is activated."""
        prepare_environment()
        # the guide's commands find Python and Spark in the venv; paths that tests set for themselves are no help there
        own = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_")) and k != "PYTHONPATH"}
        path = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
        loopback = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_MASTER": self.master, "MASTER_HOST": "127.0.0.1"}
        return {**own, **loopback, "PATH": path}

    def start(self, command: str, name: str, more: Mapping[str, str]) -> None:
        """In a process group of its own, as executors are children of their workers."""
        with (self.folder / f"{name}.log").open("wb") as out:
            environment = {**self.environment, **_SMALL, **more}
            started = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                env=environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self.processes.append(started)

    def wait_for(self, name: str, sentence: str, times: int = 1) -> None:
        log = self.folder / f"{name}.log"

        def output() -> str:
            return log.read_text(errors="replace")

        def require_alive() -> None:
            assert all(p.poll() is None for p in self.processes), output()

        wait_until(lambda: len(re.findall(sentence, output())) >= times, output, poll_s=0.1, check=require_alive)

    def stop(self) -> None:
        for process in reversed(self.processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def standalone(folder: Path, master: str, worker: str) -> Iterator[Cluster]:
    """Started by these commands, those of the guide."""
    cluster = Cluster(free_port(), folder, [])
    try:
        cluster.start(master.replace("7077", str(cluster.port)).replace("8080", "0"), "master", {})
        cluster.wait_for("master", "I have been elected leader")
        for number in range(WORKERS):
            own = {"SPARK_WORKER_DIR": str(folder / f"worker-{number}"), "SPARK_WORKER_WEBUI_PORT": "0"}
            cluster.start(worker, f"worker-{number}", own)
        cluster.wait_for("master", "Registering worker", WORKERS)
        yield cluster
    finally:
        cluster.stop()
