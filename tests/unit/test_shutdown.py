"""A signal ends a command also where nobody reads what it prints."""

from __future__ import annotations

import signal
import subprocess
import sys

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
