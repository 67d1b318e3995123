"""The channels outside the log: nothing is lost there, whoever writes meanwhile and whenever somebody dies."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tidelog.core.snapshot.settings import SnapshotSettings
from tidelog.engine import signals
from tidelog.engine.signals import Channels


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "signals.jsonl"


def open_channels(file: Path) -> Channels:
    return Channels(SnapshotSettings(signal_file=str(file)), file.parent / "signals")


def append(file: Path, *ids: str, end: str = "\n") -> None:
    with file.open("a", encoding="utf-8") as out:
        lines = [{"id": id, "type": "log", "data": {"message": "\u2028 \x85"}} for id in ids]
        out.write("\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + end)


def waiting(channels: Channels) -> list[str]:
    return [signal.id for signal in channels.waiting()]


def test_what_was_followed_leaves_the_file(file: Path) -> None:
    channels = open_channels(file)
    assert waiting(channels) == []
    append(file, "a", "b", "c")
    assert waiting(channels) == ["a", "b", "c"]
    channels.settle(["a", "c"])
    assert waiting(channels) == ["b"]
    channels.settle(["b"])
    assert waiting(channels) == []
    assert sorted(p.name for p in file.parent.iterdir()) == ["signals.jsonl"]
    assert file.read_text() == ""


def test_lines_that_come_meanwhile_stay(file: Path) -> None:
    """Also those of somebody who had opened the file before it was taken away."""
    channels = open_channels(file)
    append(file, "a")
    with file.open("a", encoding="utf-8") as slow:
        assert waiting(channels) == ["a"]
        append(file, "c")
        slow.write('{"id": "b", "type": "pause-snapshot"}\n')
    channels.settle(["a"])
    assert waiting(channels) == ["b"]
    channels.settle(["a", "b"])
    assert waiting(channels) == ["c"]


def test_whoever_comes_after_a_crash_finds_what_was_taken(file: Path) -> None:
    append(file, "a", "b")
    assert waiting(open_channels(file)) == ["a", "b"]
    append(file, "c")
    channels = open_channels(file)
    assert waiting(channels) == ["a", "b"]
    channels.settle(["a", "b"])
    assert waiting(open_channels(file)) == ["c"]


def test_half_a_line_is_not_taken_at_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_HALF_LINE_S", 30.0)
    channels = open_channels(file)
    file.write_text('{"id": "a", "ty')
    assert waiting(channels) == []
    with file.open("a") as out:
        out.write('pe": "pause-snapshot"}')
    assert waiting(channels) == ["a"]
    channels.settle(["a"])
    file.write_text("nobody goes on with this")
    os.utime(file, (time.time() - 60, time.time() - 60))
    assert [id[:9] for id in waiting(channels)] == ["nameless-"]


def test_who_may_write_stays_so(file: Path) -> None:
    append(file, "a")
    file.chmod(0o666)
    assert waiting(open_channels(file)) == ["a"]
    assert file.stat().st_mode & 0o777 == 0o666


def test_a_file_that_cannot_be_taken_is_told_once(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    append(file, "a")
    channels = open_channels(file)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", refuse)
        assert waiting(channels) == waiting(channels) == []
    assert caplog.text.count("cannot be taken away (Permission denied)") == 1
    assert waiting(channels) == ["a"]
