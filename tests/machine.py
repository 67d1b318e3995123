"""What the machine under the tests can bear: its cores and memory, how slow it is and how busy."""

from __future__ import annotations

import math
import os
import time
from functools import cache
from pathlib import Path

import psutil

REFERENCE_S = 0.009
"""The CPU time of `_work` on the machine that the limits were chosen on."""
WORKER_BYTES = 2 << 30
"""The memory of one pytest worker with its servers: a JVM with Python workers, PostgreSQL, maybe Kafka."""
WORKERS_MAX = 12


def cores() -> float:
    """The cores that this process may use: those of its affinity, or less where its container has a quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(float(count), _quota())


def slowdown() -> float:
    """How many times longer everything takes here and now than on a quiet machine of today; at least 1."""
    return _cpu_slowdown() * max(1.0, load() / cores())


def load() -> float:
    """Processes that run or want to: the highest of the averages over 1, 5 and 15 minutes."""
    try:
        return max(os.getloadavg())
    except OSError:  # not known here
        return 0.0


def worker_count() -> int:
    """How many pytest workers to start. Tests wait more than they compute, so a quiet machine bears more workers than
    it has cores (on two cores, four leave time unused and six leave none); a busy or slow one does not, and each worker
    needs memory for its servers."""
    recent_load = os.getloadavg()[0] if load() else 0.0
    spare = 3 if cores() >= 2 else 1
    if _cpu_slowdown() > 2 or recent_load > 1.5 * cores():
        spare = 0
    by_memory = psutil.virtual_memory().available // WORKER_BYTES
    return max(1, min(math.ceil(cores()) + spare, by_memory, WORKERS_MAX))


@cache
def _cpu_slowdown() -> float:
    return max(1.0, min(_work() for _ in range(3)) / REFERENCE_S)


def _work() -> float:
    began = time.thread_time()
    sum(i * i for i in range(300_000))
    return time.thread_time() - began


@cache
def _quota() -> float:
    """The cores that the container's cgroup grants; infinite without a limit."""
    modern, old = Path("/sys/fs/cgroup/cpu.max"), Path("/sys/fs/cgroup/cpu")
    try:
        if modern.exists():
            quota, period = modern.read_text().split()
        else:
            quota, period = ((old / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
    except OSError:
        return math.inf
    return math.inf if quota in ("max", "-1") else max(0.1, int(quota) / int(period))
