"""The state folder: where it is, that it can be written, and that one run holds it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.engine.home import Home
from tidelog.errors import ConfigError, StateLost

HOLD = """
import sys
from tidelog.engine.home import Home
with Home.open("shop").lock():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def other() -> subprocess.Popen[str]:
    """Another process that holds the name `shop`."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
    process.send_signal(number)
    process.communicate()


def test_everything_lives_under_one_folder(folder: Path) -> None:
    home = Home.open("shop")
    parts = [home.checkpoint, home.journal, home.ledger, home.stage, home.status, home.log]
    assert {p.parent for p in parts} == {folder / "shop"}
    assert len(set(parts)) == len(parts)


def test_without_the_variable_it_is_beside_you(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TIDELOG_HOME")
    monkeypatch.chdir(tmp_path)
    assert Home.at("shop").path == tmp_path / ".tidelog" / "shop"
    assert not (tmp_path / ".tidelog").exists()


def test_an_unwritable_folder_is_told_with_the_cure(folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    with pytest.raises(ConfigError, match=r"cannot be written \(.+\)\. Set TIDELOG_HOME"):
        Home.open("shop")


def test_a_second_run_is_refused_while_the_first_lives(other: subprocess.Popen[str]) -> None:
    home = Home.open("shop")
    try:
        assert home.holder() == other.pid
        with pytest.raises(ConfigError, match=f"process {other.pid}.*kill {other.pid}"), home.lock():
            pass
    finally:
        end(other)


def test_the_kernel_frees_the_name_of_the_dead(other: subprocess.Popen[str]) -> None:
    end(other)
    home = Home.open("shop")
    assert home.holder() is None
    with home.lock():
        assert home.holder() == os.getpid()
    assert home.holder() is None


def test_run_and_capture_do_not_exclude_each_other() -> None:
    home = Home.open("shop")
    with home.lock("run"), home.lock("capture"):
        assert home.holder("capture") == os.getpid()


@pytest.mark.parametrize("what", ["deleted", "moved", "replaced", "its parent is deleted"])
def test_a_lock_notices_that_its_folder_is_gone(folder: Path, what: str) -> None:
    home = Home.open("shop")
    with home.lock() as lock:
        lock.require_kept()
        if what == "moved":
            home.path.rename(folder / "elsewhere")
        else:
            shutil.rmtree(folder if what.startswith("its parent") else home.path)
        if what == "replaced":
            again = Home.open("shop").lock()
            again.__enter__()
        with pytest.raises(StateLost, match=r"The state folder .*shop was deleted, moved or replaced.*--fresh"):
            lock.require_kept()


def test_nobody_holds_what_does_not_exist() -> None:
    assert Home.at("nothing").holder() is None
