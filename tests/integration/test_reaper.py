"""Nothing that the tests start outlives them, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.integration.left_behind import READY
from tests.patience import wait_until
from tests.reaper import MAKE, REPO


def _heed_interrupts() -> None:
    """A shell that starts a command in the background lets it ignore interrupts, and all its descendants."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Run:
    """A pytest with one worker whose test has started servers, and a process that stands for make."""

    def __init__(self, test: str, folder: Path) -> None:
        self._ready, self._output = folder / "ready", folder / "output"
        self._mark = f"LEFT_BEHIND_{uuid.uuid4().hex}"
        self.make = subprocess.Popen(["sleep", "100000"])
        environment = {**os.environ, self._mark: "1", READY: str(self._ready), MAKE: str(self.make.pid)}
        # Not below our own folder: the path of a socket may have 107 characters.
        environment["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"]
        words = ["-n", "1", "--max-worker-restart", "0", "-p", "no:cacheprovider", f"--basetemp={folder / 'pytest'}"]
        command = [sys.executable, "-m", "pytest", *words, f"tests/integration/left_behind.py::{test}"]
        with self._output.open("wb") as out:
            self.pytest = subprocess.Popen(
                command,
                cwd=REPO,
                env=environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=_heed_interrupts,
            )

    def await_servers(self) -> tuple[int, Path]:
        """The process id of the worker, and its folder for temporary files."""
        wait_until(self._ready.exists, self._output.read_text, check=self._require_alive)
        worker, temporary = self._ready.read_text().split(maxsplit=1)
        return int(worker), Path(temporary)

    def processes(self) -> list[str]:
        """What lives of it, with its servers; without `make`."""
        names = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess):  # it may end at any moment
                if self._is_part(process) and (process.pid != self.pytest.pid or self.pytest.poll() is None):
                    names.append(process.name())
        return names

    def _is_part(self, process: psutil.Process) -> bool:
        try:
            return self._mark in process.environ()
        except psutil.Error:  # it has just ended, or is not ours
            return False

    def _require_alive(self) -> None:
        assert self.pytest.poll() is None, self._output.read_text()


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    started: list[Run] = []
    yield started
    for run in started:
        run.make.kill()
        run.make.wait()
        run.pytest.kill()
        run.pytest.wait()


@pytest.mark.parametrize("killed", ["pytest", "worker", "make", "interrupted"])
def test_a_run_that_is_killed_leaves_no_server_behind(runs: list[Run], tmp_path: Path, killed: str) -> None:
    run = Run("test_everything" if killed == "pytest" else "test_a_server", tmp_path)
    runs.append(run)
    worker, temporary = run.await_servers()
    servers = {"postgres", "java", "chromium"} if killed == "pytest" else {"postgres"}
    assert servers <= set(run.processes())
    match killed:
        case "pytest":
            run.pytest.kill()
        case "worker":
            os.kill(worker, signal.SIGKILL)
        case "make":
            run.make.kill()
            run.make.wait()
        case "interrupted":
            os.killpg(run.pytest.pid, signal.SIGINT)
    wait_until(lambda: not run.processes(), lambda: f"the end of {run.processes()}")
    wait_until(lambda: not temporary.parent.exists(), "the end of the controller's folder, which holds the worker's")
    assert not temporary.exists()
