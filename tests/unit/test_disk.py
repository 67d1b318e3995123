"""A full disk is one sentence that names the folder, and no stack trace."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.test_capture import Stage, captured, committed, until
from tidelog.engine import disk
from tidelog.engine.capture import write_status
from tidelog.engine.notices import LogFile
from tidelog.errors import ConfigError


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    """With all the bytes that are free."""
    with (folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def test_a_capture_on_a_full_disk_names_the_folder(small_disk: Path) -> None:
    stage = Stage([[lambda: fill(small_disk), committed(99, 100, None)]])
    capture = captured(stage, small_disk, publish=write_status(small_disk / "status.json"))
    capture.start(50)
    with pytest.raises(ConfigError, match=rf"^The disk is full: {small_disk} cannot be written\. Free some space"):
        until(lambda: bool(capture.raise_failure()))
    (small_disk / "filler").unlink()
    again = captured(Stage([[committed(99, 100, None)]]), small_disk)
    again.start(50)
    until(lambda: again.journal.end() == 100)
    again.stop()


def test_the_folder_whose_disk_is_full_is_named(tmp_path: Path, small_disk: Path) -> None:
    fill(small_disk)
    assert f"full: {small_disk} cannot" in str(disk.full_error([tmp_path, small_disk / "not/there/yet"])).replace(
        "/not/there/yet", ""
    )
    assert disk.is_full(RuntimeError("java.io.IOException: No space left on device"))
    assert not disk.is_full(OSError(2, "No such file"))


def test_a_log_on_a_full_disk_prints_no_stack_trace(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)  # a command that ran in this process may have turned it off
    record = logging.LogRecord("tidelog", logging.WARNING, __file__, 1, "said", None, None)
    handler = LogFile("/dev/full", encoding="utf-8", delay=True)
    handler.emit(record)
    assert capfd.readouterr().err == ""
    python = logging.FileHandler("/dev/full", delay=True)
    python.emit(record)
    assert "Logging error" in capfd.readouterr().err
    for each in (handler, python):
        with pytest.raises(OSError, match="No space left"):
            each.close()
