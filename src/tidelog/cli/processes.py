"""The descendants of this process: Spark's JVM, its Python workers, and the shells between them.

A worker whose JVM has been killed is no longer below this process in the process tree: init adopts it. So all
descendants carry a mark in their environment, which they inherit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PROC = Path("/proc")
_POLL_S = 0.02
_KILLED_S = 1.0
"""A killed process is gone as soon as the kernel has freed what it held."""
_MARK = f"TIDELOG_COMMAND_{uuid.uuid4().hex}"


@dataclass(frozen=True)
class Process:
    pid: int
    started: str
    """Tells two processes apart that get the same pid one after the other."""
    parent: int = field(compare=False)
    """Changes when the parent ends."""


def mark_descendants() -> None:
    """Every process that is started from now on is known as a descendant, whatever becomes of its parent."""
    os.environ[_MARK] = "1"


def descendants() -> list[Process]:
    """All processes that this one has started, directly or indirectly. Without /proc, orphans are missing."""
    children: dict[int, list[Process]] = {}
    for process in _running():
        above = os.getpid() if _is_marked(process) else process.parent
        children.setdefault(above, []).append(process)
    found = list(children.get(os.getpid(), ()))
    for process in found:  # grows meanwhile
        found += children.get(process.pid, ())
    return found


def end_descendants(seconds: float) -> None:
    """Asks the topmost processes to end, and their children once they are orphans; kills what is left after some
    seconds. What they start meanwhile ends too."""
    asked: set[Process] = set()
    deadline = time.monotonic() + seconds
    while (left := descendants()) and time.monotonic() < deadline:
        pids = {process.pid for process in left}
        for process in left:
            if process.parent not in pids and process not in asked:
                _send(process, signal.SIGTERM)
                asked.add(process)
        time.sleep(_POLL_S)
    deadline = time.monotonic() + _KILLED_S
    while (left := descendants()) and time.monotonic() < deadline:
        for process in left:
            _send(process, signal.SIGKILL)
        time.sleep(_POLL_S)


def _is_marked(process: Process) -> bool:
    if process.pid == os.getpid():
        return False
    try:
        return f"{_MARK}=".encode() in (_PROC / str(process.pid) / "environ").read_bytes()
    except OSError:  # another user's process, one that has just ended, or no /proc
        return False


def _send(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, number)


def _running() -> Iterator[Process]:
    """The processes of this machine, without those that have ended and are not reaped yet."""
    return _from_proc() if (_PROC / "self/stat").exists() else _from_ps()


def _from_proc() -> Iterator[Process]:
    for file in _PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = file.read_text(errors="replace").rpartition(")")[2].split()
            state, parent, started = fields[0], fields[1], fields[19]
            if state not in "ZX":
                yield Process(int(file.parent.name), started, int(parent))


def _from_ps() -> Iterator[Process]:
    """Where there is no /proc, as on macOS."""
    command = ["ps", "-A", "-o", "pid=,ppid=,stat=,lstart="]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for line in shown.splitlines():
        pid, parent, state, started = line.split(maxsplit=3)
        if not state.startswith("Z"):
            yield Process(int(pid), started, int(parent))
