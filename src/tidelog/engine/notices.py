"""Telling how it goes: notifications into the log, a file and the home, and progress for whoever watches."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, replace
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from tidelog.core import notifications
from tidelog.core.notifications import Notification
from tidelog.core.snapshot.settings import SnapshotSettings
from tidelog.core.snapshot.state import Entry, News, Snapshot
from tidelog.engine.home import Home
from tidelog.engine.state_file import write_json
from tidelog.journal.buffer import Abandoned

_LOG = logging.getLogger("tidelog.notifications")
_KEPT_BYTES = 1 << 20


@dataclass(frozen=True)
class Pace:
    """How fast a table goes, as seen since its turn came, or since it went on."""

    began_s: float
    rows: int

    def rate(self, rows: int, now_s: float) -> float:
        return (rows - self.rows) / max(0.001, now_s - self.began_s)


class LogFile(RotatingFileHandler):
    """A log file that is silent where it cannot be written, as on a full disk: Python would print a stack trace."""

    def handleError(self, record: logging.LogRecord) -> None:
        """The record is lost; what cannot be written elsewhere says so there."""


class Notices:
    def __init__(self, settings: SnapshotSettings, home: Home, name: str) -> None:
        self._settings = settings
        self._home = home
        self._name = name
        self._paces: dict[tuple[str, str], Pace] = {}
        self._told = _told(home.snapshot)

    def tell(self, snapshot: Snapshot, digest: str = "") -> None:
        """What is new in a committed state. Its `digest` is kept: whoever starts from the same state once more has
        told it already, unless the last one died in the middle of telling."""
        now_s = time.monotonic()
        if not digest or digest != self._told:
            for news in snapshot.news:
                self._publish(self._notification(news, snapshot.tables_of(news.id), now_s))
        self._told = digest
        self._time(snapshot, now_s)
        write_json(self._home.snapshot, {**self.progress(snapshot, now_s), "told": digest})

    def _time(self, snapshot: Snapshot, now_s: float) -> None:
        """Only of tables that are being read: those that wait their turn, or rest, have no pace. Where a walk began
        anew, so does its pace."""
        paces = {}
        for entry in () if snapshot.paused else snapshot.entries:
            key = (entry.id, entry.table)
            pace = self._paces.get(key)
            if entry.chunks:
                paces[key] = pace if pace and pace.rows <= entry.rows else Pace(now_s, entry.rows)
        self._paces = paces

    def abandoned(self, one: Abandoned) -> None:
        """Of an open transaction that was given up."""
        now_ms = time.time_ns() // 1_000_000
        self._publish(
            notifications.abandoned(
                f"{one.xid:x}", one.reason, one.events, one.bytes, connector=self._name, timestamp_ms=now_ms
            )
        )

    def progress(self, snapshot: Snapshot, now_s: float) -> dict[str, Any]:
        tables = [self._of_entry(entry, now_s) for entry in snapshot.entries]
        return {"paused": snapshot.paused, "tables": tables, "updated_us": time.time_ns() // 1000}

    def _of_entry(self, entry: Entry, now_s: float) -> dict[str, Any]:
        pace = self._paces.get((entry.id, entry.table), Pace(now_s, entry.rows))
        rate = pace.rate(entry.rows, now_s)
        total = max(entry.estimate, entry.rows) if entry.estimate else 0
        return {
            "id": entry.id,
            "table": entry.table,
            "kind": entry.kind,
            "rows": entry.rows,
            "estimate": total,
            "rows_per_second": round(rate),
            "seconds_left": round((total - entry.rows) / rate) if rate > 0 and total > entry.rows else None,
            "planned": sum(not chunk.staged for chunk in entry.chunks),
            "staged": sum(chunk.staged for chunk in entry.chunks),
            "emitted": entry.emitted,
        }

    def _notification(self, news: News, tables: tuple[str, ...], now_s: float) -> Notification:
        pace = self._paces.get((news.id, news.table))
        rate = pace.rate(news.rows, now_s) if pace else 0.0
        news = replace(news, tables=news.tables or tables)
        return notifications.of_news(news, connector=self._name, rate=rate, timestamp_ms=time.time_ns() // 1_000_000)

    def _publish(self, told: Notification) -> None:
        text = told.to_json()
        if "log" in self._settings.notifications:
            _LOG.info("%s", text)
        if "file" in self._settings.notifications and self._settings.notification_file:
            _append(Path(self._settings.notification_file), text)
        if "in-process" in self._settings.notifications:
            _append(self._home.notifications, text, _KEPT_BYTES)


def log_into(path: Path) -> None:
    """Write what tidelog logs in this process into a file, once: the planner of a query has no console."""
    logger = logging.getLogger("tidelog")
    if any(isinstance(h, logging.FileHandler) and h.baseFilename == str(path) for h in logger.handlers):
        return
    handler = LogFile(path, maxBytes=10 * _KEPT_BYTES, backupCount=1, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _append(path: Path, text: str, most: int | None = None) -> None:
    """One more line; a file that has grown too long gives way to a new one."""
    if most is not None and path.exists() and path.stat().st_size > most:
        path.replace(path.with_suffix(".old.jsonl"))
    with path.open("a", encoding="utf-8") as file:
        file.write(text + "\n")


def _told(path: Path) -> str:
    """Which state was told last; none when nobody knows."""
    try:
        return str(json.loads(path.read_text(encoding="utf-8")).get("told", ""))
    except (FileNotFoundError, ValueError):
        return ""
