"""Spark's checkpoint: the last committed batch is the truth about how far a query is. Batches are only ever read.

A store repeats it, and may be behind: the driver died between the two, or the store is a new one. So whoever is about
to change offsets, or to start, brings the store up to date first.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from tidelog.engine.home import Home, identity_of, is_same
from tidelog.errors import CorruptState, StateLost
from tidelog.model.control import Committed


def committed(home: Home) -> Committed | None:
    """What was delivered for good; None when nothing was, or when it cannot be read."""
    numbers = _numbers(home.checkpoint / "commits")
    if not numbers:
        return None
    batch = max(numbers)
    offset = _offset(home.checkpoint / "offsets" / str(batch))
    query = query_id(home)
    if offset is None or not query:
        return None
    at = (home.checkpoint / "commits" / str(batch)).stat().st_mtime_ns // 1000
    return Committed(query, batch, offset, at)


def query_id(home: Home) -> str:
    """The id of the pipeline's streaming query; empty before its first start."""
    query = _json(home.checkpoint / "metadata")
    return str(query["id"]) if query is not None else ""


class CheckpointWatch:
    """Notices that the checkpoint of a running query was deleted, moved or replaced.

    Spark reads the file `metadata` only when a query starts, and writes the next batch into whatever folder lies at the
    path. A batch that stands in another folder must not be delivered: the checkpoint that comes back would plan another
    one under its number, and the sink would take that for done.

    What is watched is kept open: otherwise the file system could give its inode to what takes its place."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._opened: dict[Path, int] = {}
        self._opening = threading.Lock()
        self.require_kept()

    def require_kept(self) -> None:
        """`StateLost` unless all that was there at an earlier call is still there."""
        folder = self._home.checkpoint
        for path in (folder, folder / "metadata", folder / "offsets", folder / "commits"):
            file = self._open(path)
            if file is not None and not is_same(path, identity_of(file)):
                raise self._lost()

    def close(self) -> None:
        with self._opening:
            for file in self._opened.values():
                os.close(file)
            self._opened.clear()

    def _open(self, path: Path) -> int | None:
        """The file or folder as the first call found it; None as long as Spark has not created it."""
        with self._opening:
            if path not in self._opened:
                try:
                    self._opened[path] = os.open(path, os.O_RDONLY)
                except OSError:
                    return None
            return self._opened[path]

    def _lost(self) -> StateLost:
        folder = self._home.checkpoint
        return StateLost(
            f"The checkpoint {folder} was deleted, moved or replaced while {self._home.path.name!r} was running.",
            hint="Delete what lies there now, bring the whole folder back and start again; that goes on after the last "
            f"committed batch. If it is lost, {_start_over(folder)}.",
        )


def require_whole(home: Home) -> None:
    """Refuse a checkpoint that lacks a file, or in which the files of the last batch are empty or cut off, as a loss of
    power leaves them: Spark does not write them through to the disk, and fails at either with a text of its own."""
    if missing := _find_missing(home):
        raise CorruptState(
            f"The checkpoint {home.checkpoint} is incomplete: {missing.relative_to(home.checkpoint)} is missing.",
            hint=f"Restore the state folder from a copy. Or {_start_over(home.checkpoint)}.",
        )
    files = [home.checkpoint / "metadata"] if (home.checkpoint / "metadata").exists() else []
    for folder in (home.checkpoint / "offsets", home.checkpoint / "commits"):
        files += [folder / str(number) for number in _numbers(folder)[-1:]]
    for file in files:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        if not lines or not _is_json(lines[-1]):
            raise CorruptState(
                f"The checkpoint's file {file} is {'damaged' if lines else 'empty'}.",
                hint=f"Restore the state folder from a copy. Or {_start_over(home.checkpoint)}.",
            )


def discard_unused(home: Home) -> None:
    """Removes the query id of a checkpoint without any batch. If its batches were deleted, a sink knows their numbers
    under this id, and would take the first batches of a new start for done."""
    if not home.has_begun:
        for name in ("metadata", ".metadata.crc"):
            (home.checkpoint / name).unlink(missing_ok=True)


def _start_over(folder: Path) -> str:
    """The remedy for a checkpoint that is lost, as the end of a sentence."""
    return (
        f"delete {folder} and start with `tidelog run --fresh` (a connector of the service: with stream.start: fresh), "
        "which reads every table again"
    )


def _find_missing(home: Home) -> Path | None:
    """A file without which Spark does not go on. Each batch has a file in `offsets`, and one in `commits` when it is
    done; those of the last two batches are never cleaned up."""
    offsets, commits = _numbers(home.checkpoint / "offsets"), _numbers(home.checkpoint / "commits")
    if not offsets and not commits:
        return None
    if not (home.checkpoint / "metadata").exists():
        return home.checkpoint / "metadata"
    last = max(offsets[-1:] + commits[-1:])
    needed = [number for number in (last, last - 1) if number >= 0 and number not in offsets]
    return home.checkpoint / "offsets" / str(needed[0]) if needed else None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit())


def _offset(path: Path) -> dict[str, Any] | None:
    """The file holds a version, the batch's settings, and one line for each source; we have one."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        found: dict[str, Any] = json.loads(lines[2])
    except (FileNotFoundError, IndexError, ValueError):  # cleaned up, or torn: Spark itself deals with that
        return None
    return found if isinstance(found, dict) else None


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found
