"""What a contender costs: time, CPU and memory of its whole process tree, by one rule for all.

The clock starts when the contender's replication slot becomes active on the server (it has sent START_REPLICATION; its
runtime is up), and stops when it prints `DONE <events>`, or ends if it prints nothing. What went before is `cold_s`.
CPU seconds cover all its processes, dead ones too, in the same window; `cpu_total_s` covers its life from launch to
exit. Peak memory is the largest sum of resident sizes seen in the tree, every 0.2 s; pages shared between processes
count once for each. PostgreSQL is in none of it.

`others_cpu_s` is what the rest of the machine used meanwhile, neither contender nor PostgreSQL: a run where it is not
small was disturbed, and says little.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import psycopg
from demo.embedded import Database

SAMPLE_SECONDS = 0.2
SECONDS_MAX = 1800.0
ACTIVE = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"


@dataclass(frozen=True)
class Measure:
    contender: str
    events: int
    seconds: float
    events_per_s: float
    cpu_s: float
    cpu_total_s: float
    rss_peak_mb: float
    cold_s: float
    others_cpu_s: float


class ContenderFailed(RuntimeError):
    """It ended without having delivered everything; the message is the end of its log."""


class NotReady(ContenderFailed):
    """It never began."""


@dataclass(frozen=True)
class Moment:
    """Readings at one point in time."""

    at: float
    contender_cpu: float
    server_cpu: float
    machine_cpu: float


class Watch(threading.Thread):
    """Looks at a process tree from time to time and keeps the largest memory seen."""

    def __init__(self, pid: int, server_pid: int):
        super().__init__(name="watch", daemon=True)
        self.root = psutil.Process(pid)
        self.server = psutil.Process(server_pid)
        self.rss_peak = 0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self.rss_peak = max(self.rss_peak, sum(rss(process) for process in tree(self.root)))

    def moment(self) -> Moment:
        return Moment(time.monotonic(), tree_cpu(self.root), tree_cpu(self.server), machine_cpu())

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def tree(root: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return [root, *root.children(recursive=True)]
    return []


def tree_cpu(root: psutil.Process) -> float:
    """CPU seconds of a whole tree until now: each process' own and those of the children it has buried."""
    return sum(cpu(process) for process in tree(root))


def machine_cpu() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def rss(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def cpu(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    return 0.0


class Contender:
    """A running contender. Leaving the `with` block ends it, if it still lives."""

    def __init__(self, command: list[str], log: Path):
        self.log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.reaper", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.pid = self._process.pid

    def __enter__(self) -> Contender:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self.terminate()
            self._wait()

    def ended(self) -> bool:
        """Looks without burying it: `finish` still wants its accounts."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def await_active(self, dsn: str, slot: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            while connection.execute(ACTIVE, [slot]).fetchone() != (True,):
                if self.ended():
                    raise NotReady(tail(self.log))
                time.sleep(0.01)

    def lines(self) -> Iterator[str]:
        """What it says."""
        assert self._process.stdout is not None
        for line in self._process.stdout:  # noqa: UP028 - `yield from` would close it with the generator
            yield line

    def await_word(self, word: str) -> None:
        if not any(line.strip() == word for line in self.lines()):
            raise NotReady(tail(self.log))

    def await_done(self) -> int | None:
        """How many events it says it has delivered; None if it ended without a word."""
        for line in self.lines():
            if line.startswith("DONE "):
                return int(line.split()[1])
        return None

    def finish(self) -> float:
        """Wait for its end; all the CPU seconds that it and its descendants used."""
        usage = self._wait()
        if self._process.returncode:
            raise ContenderFailed(tail(self.log))
        return usage.ru_utime + usage.ru_stime

    def _wait(self) -> resource.struct_rusage:
        assert self._process.stdout is not None
        self._process.stdout.read()
        self._process.stdout.close()
        _, status, usage = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return usage


def run(name: str, command: list[str], database: Database, slot: str, events: int, log: Path) -> Measure:
    """Run one contender to its end and measure it."""
    server_pid = database.server.pid
    assert server_pid is not None
    launched = time.monotonic()
    with (
        Contender(command, log) as contender,
        Watch(contender.pid, server_pid) as watch,
        deadline(contender, SECONDS_MAX),
    ):
        contender.await_active(database.dsn, slot)
        began = watch.moment()
        delivered = contender.await_done()
        ended = watch.moment()
        total = contender.finish()
    if delivered is None:  # it ended without a word, so the window reaches to its end
        delivered, ended = events, replace(ended, contender_cpu=total)
    if delivered < events:
        raise ContenderFailed(f"{name} delivered {delivered} of {events} events")
    return measured(name, delivered, began, ended, total, watch.rss_peak, began.at - launched)


def measured(
    name: str, events: int, began: Moment, ended: Moment, total: float, rss_peak: int, cold_s: float
) -> Measure:
    seconds = ended.at - began.at
    own = ended.contender_cpu - began.contender_cpu
    server = ended.server_cpu - began.server_cpu
    return Measure(
        contender=name,
        events=events,
        seconds=round(seconds, 2),
        events_per_s=round(events / seconds),
        cpu_s=round(own, 2),
        cpu_total_s=round(total, 2),
        rss_peak_mb=round(rss_peak / 2**20),
        cold_s=round(cold_s, 2),
        others_cpu_s=round(max(0.0, ended.machine_cpu - began.machine_cpu - own - server), 2),
    )


@contextlib.contextmanager
def deadline(contender: Contender, seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, contender.terminate)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def tail(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-1500:] or "it said nothing"


def awaken(file: Path, size: int) -> None:
    """Write a file and remove it: on a virtual machine, pages that were not in use of late can cost a writer 0.7
    instead of 5 GB/s, whoever it is."""
    block = bytes(4 << 20)
    with file.open("wb", buffering=0) as out:
        for _ in range(0, size, len(block)):
            out.write(block)
    file.unlink()
