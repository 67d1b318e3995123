"""Time limits that hold on any machine, busy or slow.

A limit only tells a test that hangs from one that works slowly. It is generous, and counted in the time of a quiet
machine: where four processes share one core, four seconds pass as one.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests import machine

ENOUGH_S = 300.0
"""Long enough for anything that a test waits for, in seconds of a quiet machine."""
STEP_S = 0.5

T = TypeVar("T")
Message = str | Callable[[], str]


class Patience:
    """A time limit that passes the slower, the slower or busier the machine is. Ask it often: it looks at the load."""

    def __init__(self, seconds: float = ENOUGH_S) -> None:
        self.left = seconds
        self._seen = time.monotonic()

    def is_over(self) -> bool:
        now = time.monotonic()
        self.left -= (now - self._seen) / machine.slowdown()
        self._seen = now
        return self.left <= 0


def wait_until(
    condition: Callable[[], T],
    what: Message,
    *,
    seconds: float = ENOUGH_S,
    poll_s: float = 0.05,
    check: Callable[[], object] = lambda: None,
) -> T:
    """The first true value of `condition`. `check` is called before each poll and raises when waiting is in vain."""
    patience = Patience(seconds)
    while not (value := condition()):
        check()
        if patience.is_over():
            raise AssertionError(f"Waited too long for: {_text(what)}")
        time.sleep(poll_s)
    return value


def wait_for_exit(process: subprocess.Popen[bytes], output: Message = "", *, seconds: float = ENOUGH_S) -> int:
    """The exit code of a process that ends by itself."""
    patience = Patience(seconds)
    while True:
        try:
            return process.wait(STEP_S)
        except subprocess.TimeoutExpired:
            if patience.is_over():
                raise AssertionError(f"The process {process.args!r} did not end. {_text(output)}") from None


def run(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    seconds: float = 2 * ENOUGH_S,
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with the output as text, and a limit that a busy machine does not break."""
    patience = Patience(seconds)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=cwd, env=env, stdout=pipe, stderr=pipe, text=True) as process:
        while True:
            try:
                out, err = process.communicate(timeout=STEP_S)
                return subprocess.CompletedProcess(command, process.returncode, out, err)
            except subprocess.TimeoutExpired:
                if patience.is_over():
                    process.kill()
                    raise AssertionError(f"The process {command!r} did not end. {process.communicate()}") from None


def wall_seconds(seconds: float = ENOUGH_S) -> float:
    """A limit for code that counts wall time by itself, such as Playwright: for as busy as the machine is now."""
    return seconds * machine.slowdown()


def _text(message: Message) -> str:
    return message() if callable(message) else message
