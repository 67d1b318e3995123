"""Notifications on their way from a connector's home into the store.

Whoever plans a query writes them into a file of the home; the store keeps each once. What could not be stored is read
again the next time, so none is lost while a store is away.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from tidelog.contracts import ControlStore
from tidelog.engine.home import Home
from tidelog.model.control import Told

NOTIFICATION, SIGNAL = "notification", "signal"


class News:
    """The notifications of one connector."""

    def __init__(self, name: str, home: Home, store: ControlStore) -> None:
        self._name = name
        self._path = home.notifications
        self._store = store
        self._lock = threading.Lock()
        self._file = 0
        self._read = 0

    def take(self) -> list[Told]:
        """Store what is new, and return it."""
        with self._lock:
            file, text = self._unread()
            whole = text[: text.rfind(b"\n") + 1]
            found = [told for line in whole.splitlines() if (told := self._told(line)) is not None]
            stored = [self._store.tell(NOTIFICATION, told) for told in found]
            self._read = (self._read if file == self._file else 0) + len(whole)
            self._file = file
            return stored

    def _unread(self) -> tuple[int, bytes]:
        try:
            with self._path.open("rb") as file:
                number = os.fstat(file.fileno()).st_ino  # a file that grew too long gives way to a new one
                file.seek(self._read if number == self._file else 0)
                return number, file.read()
        except FileNotFoundError:
            return self._file, b""

    def _told(self, line: bytes) -> Told | None:
        try:
            raw: dict[str, Any] = json.loads(line)
        except ValueError:  # torn by a crash
            return None
        data = {"aggregate_type": raw["aggregate_type"], "additional_data": raw["additional_data"]}
        return Told(self._name, str(raw["id"]), raw["type"], data, int(raw["timestamp"]) * 1000)


def shown(told: Told) -> dict[str, Any]:
    """In the form that users know, with its number."""
    return {
        "number": told.number,
        "id": told.id,
        "type": told.type,
        **dict(told.data),
        "timestamp": told.at_us // 1000,
    }
