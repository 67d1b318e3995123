"""Where signals come from: a file that people edit, the home's own folder (`tidelog snapshot`), and the log itself.

A signal counts as followed when the offset that remembers its id is committed; only then does it leave its channel. So
a crash repeats it at most, and a repeated id does nothing.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tidelog.contracts import Decoder, Slice
from tidelog.core import signals
from tidelog.core.metadata import BEFORE, OP, POSITION
from tidelog.core.signals import Signal
from tidelog.core.snapshot.settings import SnapshotSettings
from tidelog.core.snapshot.state import Heard
from tidelog.engine.state_file import write_json, write_text
from tidelog.journal import segment
from tidelog.journal.files import Files
from tidelog.model.selection import Selection

_LOG = logging.getLogger("tidelog.signals")
_HALF_LINE_S = 2.0
"""After so long nobody will write the rest of a line."""


def send(folder: Path, type: str, data: Mapping[str, object], id: str = "") -> str:
    """Leave a signal for whoever runs the pipeline; returns its id."""
    id = id or str(uuid.uuid4())
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{time.time_ns():020d}.json", {"id": id, "type": type, "data": dict(data)})
    return id


class Channels:
    """The channels outside the log."""

    def __init__(self, settings: SnapshotSettings, folder: Path) -> None:
        self._folder = folder if "in-process" in settings.signals else None
        file = settings.signal_file if "file" in settings.signals else ""
        self._file = SignalFile(Path(file)) if file else None

    def waiting(self) -> list[Signal]:
        """Every signal that has not left its channel, oldest first."""
        found: list[Signal] = []
        for path in self._sent():
            found += signals.of_lines(_lines(path))
        if self._file is not None:
            found += signals.of_lines(self._file.lines())
        return found

    def settle(self, ids: Collection[str]) -> None:
        """Take out what was followed."""
        for path in self._sent():
            if _ids(_lines(path)) <= {*ids, ""}:
                path.unlink(missing_ok=True)
        if self._file is not None:
            self._file.drop({*ids, ""})

    def _sent(self) -> list[Path]:
        return sorted(self._folder.glob("*.json")) if self._folder is not None else []


class SignalFile:
    """A file that people append to. It is taken away whole, by its name, before anything in it is followed: a line that
    comes meanwhile lies in a new file, and what was taken is ours alone to rewrite. A crash finds it where it was."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._taken = path.with_name(f"{path.name}.taken")
        self._refused = ""

    def lines(self) -> list[str]:
        """Those that were not dropped yet; nothing new is taken before that."""
        try:
            if not self._taken.exists() and self._path.exists() and _complete(self._path):
                mode = self._path.stat().st_mode
                self._path.rename(self._taken)
                self._path.touch()
                with suppress(PermissionError):  # somebody else made a new one at this moment
                    self._path.chmod(mode)
        except OSError as exc:
            self._tell(f"{self._path} cannot be taken away ({exc.strerror}), so its signals are not followed")
        return _lines(self._taken)

    def drop(self, ids: Collection[str]) -> None:
        lines = _lines(self._taken)
        left = [line for line in lines if not _ids([line]) <= set(ids)]
        if not left:
            self._taken.unlink(missing_ok=True)
        elif left != lines:
            write_text(self._taken, "".join(f"{line}\n" for line in left))

    def _tell(self, why: str) -> None:
        """Once: it is looked at several times a second."""
        if why != self._refused:
            _LOG.warning("%s", why)
        self._refused = why


def _complete(path: Path) -> bool:
    """Whether it has lines, and nobody is in the middle of one: the last ends, is JSON as it stands, or is old."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if not text.strip():
        return False
    return text.endswith("\n") or _is_json(text.split("\n")[-1]) or time.time() - path.stat().st_mtime > _HALF_LINE_S


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").rstrip("\n").split("\n")
    except FileNotFoundError:
        return []


def _ids(lines: Sequence[str]) -> set[str]:
    return {signal.id for signal in signals.of_lines(lines)}


def in_log(pieces: Sequence[Slice], files: Files, decoder: Decoder) -> list[Heard]:
    """What the log tells of the table of signals: rows that were put into it; the end of an open window may also be
    told by the deletion of its row. Whatever is filtered or masked elsewhere, signals are not."""
    heard: list[Heard] = []
    for piece in pieces:
        assert piece.table is not None
        rows = decoder.typed(segment.load(files, piece), piece.table, Selection()).rows
        for row in rows.to_pylist():
            values = _of_change(row, [c.name for c in piece.table.columns])
            if values is not None:
                heard.append((row[POSITION], values))
    return heard


def _of_change(row: dict[str, Any], names: Sequence[str]) -> tuple[str | None, ...] | None:
    if row[OP] == "c":
        return tuple(None if row[name] is None else str(row[name]) for name in names)
    if row[OP] == "d" and row[BEFORE]:
        id = str(row[BEFORE].get(names[0]) or "")
        return signals.closed_by(id) if id.endswith("-open") else None
    return None
