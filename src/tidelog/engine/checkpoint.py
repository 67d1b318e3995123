"""Spark's checkpoint, only read: the last committed batch is the truth about how far a query is.

A store repeats it, and may be behind: the driver died between the two, or the store is a new one. So whoever is about
to change offsets, or to start, brings the store up to date first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tidelog.engine.home import Home
from tidelog.model.control import Committed


def committed(home: Home) -> Committed | None:
    """What was delivered for good; None when nothing was, or when it cannot be read."""
    numbers = _numbers(home.checkpoint / "commits")
    if not numbers:
        return None
    batch = max(numbers)
    offset = _offset(home.checkpoint / "offsets" / str(batch))
    query = _json(home.checkpoint / "metadata")
    if offset is None or query is None:
        return None
    at = (home.checkpoint / "commits" / str(batch)).stat().st_mtime_ns // 1000
    return Committed(str(query["id"]), batch, offset, at)


def _numbers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()]


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
