"""Runs a command so that no process it leaves behind escapes the accounts.

As a "subreaper" it inherits the orphans of its descendants (Spark's JVM, say, when its Python ends first) and waits for
them all. Linux then adds up their CPU time exactly: what a dead process used is in its parent's books.

    python -m benchmarks.reaper <command> [<argument> ...]
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading

PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 30.0


def main(command: list[str]) -> int:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    code = child.wait()
    grace = threading.Timer(GRACE_SECONDS, end_stragglers)
    grace.daemon = True
    grace.start()
    reap_all()
    return code


def reap_all() -> None:
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def end_stragglers() -> None:
    import psutil

    for process in psutil.Process().children(recursive=True):
        process.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
