"""A command ends with everything that it has started, also where nobody reads what it prints."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest

from tests.patience import wait_for_exit

FILLS_ITS_PIPE = """
import os, sys
from tidelog.cli import shutdown
shutdown.end_on_signals()
os.set_blocking(2, False)
try:
    while os.write(2, b"x" * 4096): pass
except BlockingIOError:
    os.set_blocking(2, True)
print("full", flush=True)
sys.stderr.write("blocks until the signal comes")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_full_pipe_does_not_hold_up_the_end(number: signal.Signals) -> None:
    command = [sys.executable, "-u", "-c", FILLS_ITS_PIPE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"full\n"
            process.send_signal(number)
            assert wait_for_exit(process) == 128 + number
        finally:
            process.kill()


LEAVES_AN_ORPHAN = """
import subprocess, sys
from tidelog.cli import shutdown
shutdown.end_on_signals()
starts_another = "import subprocess; p = subprocess.Popen({sleep}); print(p.pid, flush=True); p.wait()"
parent = subprocess.Popen([sys.executable, "-c", starts_another], stdout=subprocess.PIPE)
print(parent.stdout.readline().decode(), end="", flush=True)
parent.kill()
parent.wait()
sys.stdin.readline()
shutdown.end_descendants()
"""
IGNORES_SIGTERM = [sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"]


@pytest.mark.skipif(sys.platform != "linux", reason="only /proc tells the environment of an orphan")
@pytest.mark.parametrize("command", [["sleep", "1000"], IGNORES_SIGTERM], ids=["sleep", "ignores SIGTERM"])
def test_a_process_whose_parent_was_killed_ends_too(command: list[str]) -> None:
    """Such as Spark's Python workers after `kill -9` of the JVM."""
    script = [sys.executable, "-c", LEAVES_AN_ORPHAN.format(sleep=command)]
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        orphan = psutil.Process(int(process.stdout.readline()))
        assert orphan.is_running()
        process.stdin.write(b"\n")
        process.stdin.flush()
        wait_for_exit(process)
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
