"""The limits of the tests themselves: a busy or slow machine does not break them, and what hangs is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests import machine, patience, schedule
from tests.patience import Patience


def slow_down(monkeypatch: pytest.MonkeyPatch, times: float) -> None:
    monkeypatch.setattr(machine, "slowdown", lambda: times)


@pytest.mark.parametrize(("times", "over"), [(1.0, True), (1e9, False)])
def test_a_limit_passes_as_slowly_as_the_machine_works(
    monkeypatch: pytest.MonkeyPatch, times: float, over: bool
) -> None:
    slow_down(monkeypatch, times)
    limit = Patience(0.01)
    time.sleep(0.02)
    assert limit.is_over() == over


def test_waiting_ends_with_the_value_a_failure_or_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    slow_down(monkeypatch, 1.0)
    answers = iter([0, 0, 7])
    assert patience.wait_until(lambda: next(answers), "seven", poll_s=0.0) == 7
    with pytest.raises(AssertionError, match="Waited too long for: nothing"):
        patience.wait_until(lambda: False, lambda: "nothing", seconds=0.01, poll_s=0.01)
    with pytest.raises(ZeroDivisionError):
        patience.wait_until(lambda: False, "nothing", check=lambda: 1 / 0)


def test_processes_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slow_down(monkeypatch, 1.0)
    done = patience.run([sys.executable, "-c", "import sys; print('out'); sys.exit('err')"])
    assert (done.returncode, done.stdout, done.stderr) == (1, "out\n", "err\n")
    with pytest.raises(AssertionError, match="did not end"):
        patience.run(["sleep", "1000"], seconds=0.01)
    with subprocess.Popen(["sleep", "1000"]) as process:
        with pytest.raises(AssertionError, match=r"did not end\. its log"):
            patience.wait_for_exit(process, "its log", seconds=0.01)
        process.kill()


@pytest.mark.parametrize(
    ("cores", "load", "gigabytes", "workers"),
    [(2, 0.5, 20, 5), (2, 9.0, 20, 2), (1, 0.0, 20, 2), (1, 5.0, 20, 1), (16, 0.0, 8, 4), (2, 0.0, 1, 1)],
)
def test_a_machine_gets_as_many_workers_as_it_bears(
    monkeypatch: pytest.MonkeyPatch, cores: int, load: float, gigabytes: int, workers: int
) -> None:
    monkeypatch.setattr(machine, "cores", lambda: float(cores))
    monkeypatch.setattr(machine, "_cpu_slowdown", lambda: 1.0)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    memory = psutil.virtual_memory()._replace(available=gigabytes << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    assert machine.worker_count() == workers


def test_a_busy_core_makes_everything_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 1.0)
    monkeypatch.setattr(machine, "_cpu_slowdown", lambda: 2.0)
    for loads, times in [((0.1, 0.0, 0.0), 2.0), ((1.0, 5.0, 0.0), 10.0)]:
        monkeypatch.setattr(os, "getloadavg", lambda loads=loads: loads)
        assert machine.slowdown() == times


def test_a_file_without_a_known_duration_starts_by_its_folder() -> None:
    folder = Path(schedule.__file__).parent
    assert schedule.seconds(folder / "spark" / "test_new.py") > schedule.seconds(folder / "unit" / "test_new.py")
