"""Ends what the tests have started, however the tests ended: also after `kill -9` of pytest, a worker of it, or make.

Servers have sessions of their own, and many would outlive the tests. So every pytest process starts a watchdog beside
itself and puts a mark into its environment, which all its descendants inherit. Once the pytest process has gone (or
one that it depends on, such as pytest's controller), the watchdog kills every process with the mark, and the
descendants of those, and removes the folder that holds their temporary files.

    python -m tests.reaper MARK FOLDER PID ...      # the first is the pytest process
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

import psutil

REPO = Path(__file__).resolve().parent.parent
POLL_S = 0.25
FAREWELL_S = 10.0
"""PostgreSQL removes its shared memory when it may end by itself; after that it is killed too."""
STUBBORN_S = 60.0
"""Nothing outlives SIGKILL for long, unless the kernel or another user holds it."""
MAKE = "TIDELOG_TESTS_MAKE"
"""The process id of make, when the tests are run by it."""


def guard(also: Iterable[int] = ()) -> Path:
    """Start the watchdog of this process, and of those it depends on; the folder for temporary files of the run."""
    mark = f"TIDELOG_TESTS_{uuid.uuid4().hex}"
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # pytest keeps what failed tests wrote
    folder = Path(tempfile.mkdtemp(prefix="tidelog-"))  # short: paths of sockets may have 107 characters
    folder.chmod(0o755)  # PostgreSQL runs as another user when we are root
    command = [sys.executable, "-m", "tests.reaper", mark, str(folder), *map(str, [os.getpid(), *also])]
    silent = subprocess.DEVNULL
    os.environ[mark] = "1"
    watchdog = subprocess.Popen(command, cwd=REPO, stdin=silent, stdout=silent, stderr=silent, start_new_session=True)
    watchdog.returncode = 0  # else Python warns at the end that it still runs, which it should
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    return folder


def main() -> None:
    mark, folder, *pids = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    guarded = [_process(int(pid)) for pid in pids]
    while all(process is not None and _lives(process) for process in guarded):
        time.sleep(POLL_S)
    _end_all(mark, guarded[0])
    shutil.rmtree(folder, ignore_errors=True)


def _end_all(mark: str, tests: psutil.Process | None) -> None:
    began = time.monotonic()
    while (doomed := _find(mark, tests)) and time.monotonic() < began + STUBBORN_S:
        for process in doomed:
            gently = _is_postmaster(process) and time.monotonic() < began + FAREWELL_S
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGQUIT if gently else signal.SIGKILL)
        time.sleep(0.1)


def _find(mark: str, tests: psutil.Process | None) -> set[psutil.Process]:
    """Those that live: with the mark, or below one that has it, or below the pytest process itself."""
    found = {process for process in psutil.process_iter() if _has(process, mark)}
    if tests is not None:
        found.add(tests)
    for process in list(found):
        with contextlib.suppress(psutil.NoSuchProcess):
            found.update(process.children(recursive=True))
    return {process for process in found if process.pid != os.getpid() and _lives(process)}


def _has(process: psutil.Process, mark: str) -> bool:
    try:
        return mark in process.environ()
    except (psutil.Error, OSError):
        return False


def _is_postmaster(process: psutil.Process) -> bool:
    """Its children end with it. What a killed one leaves behind is shared memory."""
    try:
        parent = process.parent()
        return process.name() == "postgres" and (parent is None or parent.name() != "postgres")
    except psutil.NoSuchProcess:
        return False


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    main()
