"""Spark's checkpoint, only read: the last committed batch is the truth about how far a query is.

A store repeats it, and may be behind: the driver died between the two, or the store is a new one. So whoever is about
to change offsets, or to start, brings the store up to date first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tidelog.engine.home import Home
from tidelog.errors import CorruptState
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


def require_whole(home: Home) -> None:
    """Refuse a checkpoint in which the files of the last batch are empty or cut off, as a loss of power leaves them:
    Spark does not write them through to the disk, and fails at them with a text of its own."""
    files = [home.checkpoint / "metadata"] if (home.checkpoint / "metadata").exists() else []
    for folder in (home.checkpoint / "offsets", home.checkpoint / "commits"):
        files += [folder / str(number) for number in _numbers(folder)[-1:]]
    for file in files:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        if not lines or not _is_json(lines[-1]):
            raise CorruptState(
                f"The checkpoint's file {file} is {'damaged' if lines else 'empty'}.",
                hint=f"Restore the state folder from a copy. Or delete {home.checkpoint} and start with `tidelog run "
                "--fresh` (a service: stream: {start: fresh}), which reads every table again.",
            )


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
