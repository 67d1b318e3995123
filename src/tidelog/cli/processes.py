"""The processes below this one: Spark's JVM, its Python workers, and what a script has started on the way to them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_POLL_S = 0.02


class Process(NamedTuple):
    pid: int
    started: str
    """Tells two processes apart that get the same pid one after the other."""


def descendants() -> list[Process]:
    """All processes below this one."""
    children: dict[int, list[Process]] = {}
    for process, parent in _running():
        children.setdefault(parent, []).append(process)
    found = list(children.get(os.getpid(), ()))
    for process in found:  # grows meanwhile
        found += children.get(process.pid, ())
    return found


def end(doomed: list[Process], seconds: float) -> None:
    """Asks the direct children to end, which end their own; kills what is left after some seconds."""
    for process, parent in _running():
        if parent == os.getpid() and process in doomed:
            _send(process, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while (left := _still_running(doomed)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for process in left:
        _send(process, signal.SIGKILL)


def _still_running(doomed: list[Process]) -> list[Process]:
    return [process for process, _ in _running() if process in doomed]


def _send(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, number)


def _running() -> Iterator[tuple[Process, int]]:
    """The processes of this machine and their parents' pids, without those that have ended and are not reaped yet."""
    return _from_proc() if (_PROC / "self/stat").exists() else _from_ps()


def _from_proc() -> Iterator[tuple[Process, int]]:
    for file in _PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = file.read_text(errors="replace").rpartition(")")[2].split()
            state, parent, started = fields[0], fields[1], fields[19]
            if state not in "ZX":
                yield Process(int(file.parent.name), started), int(parent)


def _from_ps() -> Iterator[tuple[Process, int]]:
    """Where there is no /proc, as on macOS."""
    command = ["ps", "-A", "-o", "pid=,ppid=,stat=,lstart="]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for line in shown.splitlines():
        pid, parent, state, started = line.split(maxsplit=3)
        if not state.startswith("Z"):
            yield Process(int(pid), started), int(parent)
