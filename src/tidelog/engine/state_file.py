"""Small files of a state folder. Each is written whole or not at all, and is on the disk when the write returns.

The content goes into a temporary file of the same folder, then to the disk; then the file gets its name, and the name
goes to the disk. A crash or a loss of power leaves the file as it was before or as it is after. A file that is not
durable is whole after a crash of the process, and may be lost or empty after a loss of power.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidelog.errors import CorruptState


def write_json(path: Path, content: Mapping[str, Any], *, durable: bool = True) -> None:
    write_text(path, json.dumps(content), durable=durable)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


def read_json(path: Path, remedy: str) -> dict[str, Any] | None:
    """The content; None where there is no such file. Raises `CorruptState` with the remedy where it is damaged, by
    another program or another disk: tidelog itself leaves none half written."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        text = ""
    return parse_json(text, str(path), remedy)


def parse_json(text: str | bytes, where: str, remedy: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        state = "damaged" if text else "empty"
        raise CorruptState(f"The state file {where} is {state}.", hint=remedy)
    return content


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
