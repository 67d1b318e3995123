"""State files are written whole or not at all, whatever ends the process, and damage is one sentence with a remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.core.requirements import Obstacle
from tidelog.engine import checkpoint
from tidelog.engine.dead_letters import DeadLetters
from tidelog.engine.first_start import accept
from tidelog.engine.home import Home
from tidelog.engine.readers import Readers
from tidelog.engine.set_aside import SetAside
from tidelog.engine.state_file import write_json
from tidelog.errors import CorruptState
from tidelog.journal.files import Files
from tidelog.model.schema import Column, Table

DIE = """
import os, signal, sys
from pathlib import Path
from tidelog.engine.state_file import write_json

fatal, calls = int(sys.argv[2]), []

def counted(name, call):
    def step(*arguments, **named):
        if len(calls) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        calls.append(name)
        return call(*arguments, **named)
    return step

os.fsync = counted("fsync", os.fsync)
os.replace = counted("replace", os.replace)
os.rename = counted("rename", os.rename)
Path.open = counted("open", Path.open)
write_json(Path(sys.argv[1]), {"content": "new" * 1000})
print(*calls)
"""
OLD, NEW = {"content": "old"}, {"content": "new" * 1000}


def write_and_die(path: Path, step: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", DIE, str(path), str(step)], capture_output=True, text=True, check=False
    )


def test_a_crash_between_any_two_steps_leaves_the_old_content_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    steps = write_and_die(path, 99).stdout.split()
    assert steps[0] == "open"
    assert steps[1] == "fsync", "the content is on the disk before the file has its name"
    assert steps[2] in ("replace", "rename")
    assert steps[3] == "fsync", "the name is on the disk when the write returns"
    contents = []
    for step in range(len(steps)):
        write_json(path, OLD)
        assert write_and_die(path, step).returncode == -9
        contents.append(json.loads(path.read_text()))
        assert list(tmp_path.glob("*.json")) == [path], "a draft is not taken for a state file"
    assert contents == [OLD, OLD, OLD, NEW]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_json(path, OLD)
    with pytest.raises(TypeError):
        write_json(path, {"content": object()})
    assert json.loads(path.read_text()) == OLD
    assert list(tmp_path.iterdir()) == [path]


def test_every_state_file_is_on_the_disk_when_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, synced = Home(tmp_path), []
    sync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (synced.append(str(Path(f"/proc/self/fd/{file}").readlink())), sync(file))
    )
    accept(home)
    assert "first-start.json" in synced[0]
    assert synced[1] == str(tmp_path)
    SetAside(home).add(Table(7, "public", "t", (Column("id", "integer"),)), Obstacle("reason", "cure"))
    assert "7.json" in synced[2]


@pytest.mark.parametrize(
    "content", [b"", b'{"table": 7, "na', b"\xff\xfe", b"[]"], ids=["empty", "torn", "binary", "list"]
)
def test_a_damaged_state_file_is_a_sentence_with_a_remedy(tmp_path: Path, content: bytes) -> None:
    home = Home(tmp_path)
    home.set_aside.mkdir()
    reads = {
        home.set_aside / "7.json": lambda: SetAside(home).all(),
        home.dead_letters: lambda: DeadLetters(home).all(),
        tmp_path / "capture.json": lambda: Readers(Files(str(tmp_path))).start(),
    }
    for path, read in reads.items():
        path.write_bytes(content)
        with pytest.raises(CorruptState, match=r"The state file .* is (empty|damaged)\. .*[Dd]elete it"):
            read()
        path.unlink()
    assert SetAside(home).all() == DeadLetters(home).all() == []


@pytest.mark.parametrize("name", ["metadata", "offsets/10", "commits/9"])
@pytest.mark.parametrize("content", ["", 'v1\n{"batchWaterm'], ids=["empty", "torn"])
def test_a_damaged_checkpoint_is_a_sentence_with_a_remedy(tmp_path: Path, name: str, content: str) -> None:
    home = Home(tmp_path)
    whole = {
        "metadata": '{"id":"q"}',
        "offsets/9": 'v1\n{}\n{"a":1}',
        "offsets/10": 'v1\n{}\n{"a":2}',
        "commits/9": "v1\n{}",
    }
    for file, text in whole.items():
        (home.checkpoint / file).parent.mkdir(parents=True, exist_ok=True)
        (home.checkpoint / file).write_text(text)
    checkpoint.require_whole(home)
    (home.checkpoint / name).write_text(content)
    with pytest.raises(CorruptState, match=rf"{name} is (empty|damaged)\. Restore .*--fresh"):
        checkpoint.require_whole(home)


def test_a_first_start_has_no_checkpoint_to_be_damaged(tmp_path: Path) -> None:
    checkpoint.require_whole(Home(tmp_path))
