"""What a pipeline remembers of tables that are not delivered: announced once, and kept in memory."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from tests.contract.sink_rig import ORDERS
from tidelog.cli.logs import warnings_shown
from tidelog.contracts import FAILURES, FilledTarget
from tidelog.core.requirements import Obstacle
from tidelog.engine.dead_letters import DeadLetters
from tidelog.engine.filled_targets import FilledTargets
from tidelog.engine.home import Home
from tidelog.engine.set_aside import SetAside
from tidelog.errors import CorruptState

OBSTACLE = Obstacle("public.orders has no key.", "Give it one.")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_the_console_announces_a_table_once(
    home: Home, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A run's progress names it as long as it waits, so the log record goes into the file only."""
    with warnings_shown():
        SetAside(home).add(ORDERS, OBSTACLE)
        assert capsys.readouterr().err == ""
        assert "public.orders is set aside" in caplog.text
        SetAside(home).add_lost(FilledTarget(2, "public.fine", "public/fine"))
    assert capsys.readouterr().err.startswith("The target table of public.fine is gone.")


def test_files_are_read_only_when_they_changed(home: Home) -> None:
    aside = SetAside(home)
    aside.add(ORDERS, OBSTACLE)
    os.utime(home.set_aside, (1, 1))  # the change is long past
    assert [one.name for one in aside.all()] == ["public.orders"]
    (file,) = home.set_aside.glob("*.json")
    file.write_text("not read")
    assert [one.name for one in aside.all()] == ["public.orders"]
    file.unlink()
    assert aside.all() == []


def test_dead_letters_are_counted_in_memory(home: Home) -> None:
    letters = DeadLetters(home)
    letters.count("q", 1, pa.Table.from_pylist([{"table": "public.t", "reason": "why"}], FAILURES), kept=True)
    home.dead_letters.unlink()
    assert [one.records for one in letters.all()] == [1]


def test_filled_targets_are_those_of_one_query(home: Home) -> None:
    filled = FilledTarget(1, "public.t", "public/t", "id")
    FilledTargets(home.filled_targets).add("q", [filled])
    assert FilledTargets(home.filled_targets).of("q", 1) == filled
    assert FilledTargets(home.filled_targets).of("another", 1) is None
    other = FilledTargets(home.filled_targets)
    other.add("another", [filled])
    assert FilledTargets(home.filled_targets).all("q") == []
    other.forget(1)
    assert FilledTargets(home.filled_targets).all("another") == []
    home.filled_targets.write_text('{"query": "q", "tab')
    with pytest.raises(CorruptState, match=r"targets\.json.*delete it"):
        FilledTargets(home.filled_targets)
