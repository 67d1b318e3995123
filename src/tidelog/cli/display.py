"""What people see: one status line that is rewritten on a terminal, and a line every few seconds elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from tidelog.core.settings import size_text

if TYPE_CHECKING:
    from tidelog.contracts import Status
    from tidelog.spark.pipeline import Progress

EVERY_S = 5.0
_COLOURS = {"ok": "32", "warning": "33", "error": "31"}
_MARKS = {"ok": "✓", "warning": "!", "error": "✗"}


class Line:
    """The status line of one command."""

    def __init__(self, name: str, out: TextIO | None = None) -> None:
        self._name = name
        self._out = out or sys.stdout
        self._live = self._out.isatty()
        self._shown_at = float("-inf")
        self._warned: set[str] = set()
        self._ended = False

    def show(self, text: str, *, urgent: bool = False) -> None:
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"\r\x1b[2K{f'{self._name}: {text}'[:width]}")
        elif urgent or time.monotonic() - self._shown_at >= EVERY_S:
            self._shown_at = time.monotonic()
            self._write(f"{self._name}: {text}\n")

    def warn(self, warnings: Sequence[str]) -> None:
        """Each warning once, until it goes away and comes back."""
        for text in warnings:
            if text not in self._warned:
                self._write(f"{self._clear()}{mark('warning', self._out)} {text}\n")
        self._warned = set(warnings)

    def end(self, text: str = "") -> None:
        """The last words; only the first call counts."""
        if self._ended:
            return
        self._ended = True
        self._write(self._clear() + (f"{self._name}: {text}\n" if text else ""))

    def _clear(self) -> str:
        return "\r\x1b[2K" if self._live else ""

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def progress_text(progress: Progress) -> str:
    parts = [
        f"{progress.events_total:,} events",
        f"{progress.events_per_s:,.0f}/s",
        f"lag {duration(progress.lag_ms)}, {size_text(progress.lag_bytes)}",
    ]
    if progress.batch_id >= 0:
        parts.append(f"batch {progress.batch_id}: {progress.batch_events:,} in {duration(progress.batch_ms)}")
    return " · ".join(parts)


def status_text(status: Status) -> str:
    total = sum(status.events.values())
    lag = f"lag {duration(status.lag_ms)}, {size_text(status.lag_bytes)}"
    return f"{status.state} · {total:,} events captured · {lag} · journal {size_text(status.journal_bytes)}"


def mark(level: str, out: TextIO | None = None) -> str:
    sign = _MARKS[level]
    return f"\x1b[{_COLOURS[level]}m{sign}\x1b[0m" if (out or sys.stdout).isatty() else sign


def duration(ms: float) -> str:
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
