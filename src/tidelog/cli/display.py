"""What people see: a status line, under a bar for each table that is being read.

On a terminal they are drawn over and over in place; elsewhere they are written every few seconds, and once a minute
while nothing changes.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from tidelog.core.settings import counted, size_text, utc_text
from tidelog.engine.startup import is_waiting

if TYPE_CHECKING:
    from tidelog.contracts import Status
    from tidelog.engine.watching import Ended, Walk, Walks
    from tidelog.spark.progress import Progress

EVERY_S = 5.0
REPEAT_S = 60.0
"""Between two lines that say the same, where they are not drawn in place."""
BARS_MAX = 8
_BAR = 10
_COLOURS = {"ok": "32", "warning": "33", "error": "31"}
_MARKS = {"ok": "✓", "warning": "!", "error": "✗"}


class Line:
    """The status line of one command, and what stands over it."""

    def __init__(self, name: str, out: TextIO | None = None) -> None:
        self._name = name
        self._out = out or sys.stdout
        self._live = self._out.isatty()
        self._shown_at = float("-inf")
        self._shown = ""
        self._warned: set[str] = set()
        self._over = 0
        self._ended = False

    def show(self, text: str, over: Sequence[str] = (), *, urgent: bool = False) -> None:
        """The line, and the lines over it."""
        if self._live:
            self._draw([*over, f"{self._name}: {text}"])
            return
        shown = "".join(f"{part}\n" for part in (*over, f"{self._name}: {text}"))
        every_s = REPEAT_S if shown == self._shown else EVERY_S
        if urgent or time.monotonic() - self._shown_at >= every_s:
            self._shown, self._shown_at = shown, time.monotonic()
            self._write(shown)

    def say(self, text: str) -> None:
        """Something that stays."""
        self._write(f"{self._clear()}{self._name}: {text}\n")

    def warn(self, warnings: Sequence[str]) -> None:
        """Each warning once, until it goes away and comes back."""
        for text in warnings:
            if text not in self._warned:
                self._write(f"{self._clear()}{mark('warning', self._out)} {text}\n")
        self._warned = set(warnings)

    def end(self, text: str = "") -> None:
        """Writes the last line; only the first call counts."""
        if self._ended:
            return
        self._ended = True
        self._write(self.last(text) if text else self._clear())

    def last(self, text: str) -> str:
        """What takes the place of the status line at the end."""
        return f"{self._clear()}{self._name}: {text}\n"

    def _draw(self, parts: Sequence[str]) -> None:
        width, height = shutil.get_terminal_size()
        shown = [part[: width - 1] for part in parts[-max(1, height - 1) :]]  # what wraps or scrolls can't be redrawn
        cleared = self._clear()
        self._over = len(shown) - 1
        self._write(cleared + "\n".join(shown))

    def _clear(self) -> str:
        if not self._live:
            return ""
        over, self._over = self._over, 0
        return "\r\x1b[2K" + "\x1b[1A\x1b[2K" * over

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


class Board:
    """How a run goes: its progress, and a line for each snapshot that ended."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._told = 0

    def show(self, progress: Progress, *, urgent: bool = False) -> None:
        for ended in progress.ended[self._told :]:
            self._line.say(ended_text(ended))
        self._told = len(progress.ended)
        self._line.warn(progress.warnings)
        text = progress.state if is_waiting(progress.state) else progress_text(progress)
        self._line.show(text, walk_lines(progress.snapshots), urgent=urgent)


def progress_text(progress: Progress) -> str:
    parts = [
        counted(progress.events_total, "event"),
        f"{progress.events_per_s:,.0f}/s",
        _lag_text(progress),
    ]
    if progress.batch_id >= 0:
        parts.append(f"batch {progress.batch_id}: {progress.batch_events:,} in {duration(progress.batch_ms)}")
    return " · ".join(parts)


def walk_lines(walks: Walks) -> list[str]:
    """A bar for each table that is being read, and how many wait."""
    begun = [walk for walk in walks.tables if walk.begun]
    wide = max((len(walk.table) for walk in begun[:BARS_MAX]), default=0)
    shown = [
        f"  {walk.table:<{wide}} {_bar(walk)} {walk_text(walk, 'paused' if walks.paused else '')}"
        for walk in begun[:BARS_MAX]
    ]
    waiting = len(walks.tables) - len(shown)
    return [*shown, f"  {tables_text(waiting)} {'waits' if waiting == 1 else 'wait'} to be read"] if waiting else shown


def walk_text(walk: Walk, still: str = "") -> str:
    """How far a table is, and how fast it goes, or why it does not."""
    share = f"{_share(walk):4.0%}" if walk.estimate else "   ?"
    more = f" of ~{walk.estimate:,}" if walk.estimate > walk.rows else ""
    rows = f"{walk.rows:,}{more} rows" if more else counted(walk.rows, "row")
    if still:
        return f"{share} · {rows} · {still}"
    left = f" · {_seconds(walk.seconds_left)} left" if walk.seconds_left else ""
    return f"{share} · {rows} · {walk.rows_per_second:,}/s{left}"


def ended_text(ended: Ended) -> str:
    """`snapshot of 5 tables: 3,000 rows in 4.0 s`"""
    what = tables_text(len(ended.tables)) if len(ended.tables) != 1 else next(iter(ended.tables))
    took = f" in {duration(ended.ms)}" if ended.ms is not None else ""
    if ended.how == "SKIPPED":
        why = [part for table, reason in ended.failures.items() for part in (reason, table) if part]
        return ": ".join([f"snapshot {ended.id} was not taken", *why])
    if ended.how == "ABORTED":
        return f"snapshot of {what} stopped after {counted(ended.rows, 'row')}{took}"
    wrong = [_failure(table, why, ended.tables.get(table, 0)) for table, why in ended.failures.items()]
    read = [] if wrong and not ended.rows else [f"{counted(ended.rows, 'row')}{took}"]
    return f"snapshot of {what}: {'; '.join([*read, *wrong])}"


def _failure(table: str, why: str, rows: int) -> str:
    return f"{table} was not read{' to its end' if rows else ''}: {why.rstrip('.')}"


def _bar(walk: Walk) -> str:
    full = int(_share(walk) * _BAR)
    return "█" * full + "░" * (_BAR - full)


def _share(walk: Walk) -> float:
    """The estimate may be too low: a table that is still read is not yet whole."""
    return min(0.99, walk.rows / walk.estimate) if walk.estimate else 0.0


def _seconds(number: int) -> str:
    return f"{number} s" if number < 120 else duration(number * 1000)


def tables_text(number: int) -> str:
    return counted(number, "table")


def status_text(status: Status) -> str:
    total = sum(status.events.values())
    captured, journal = counted(total, "event"), size_text(status.journal_bytes)
    return f"{status.state} · {captured} captured · {_lag_text(status)} · journal {journal}"


def _lag_text(now: Progress | Status) -> str:
    if now.unreachable_since_us:
        return f"the database has not answered since {utc_text(now.unreachable_since_us)}"
    if now.waits_for:
        return f"lag not known: waiting for {now.waits_for}"
    return f"lag {duration(now.lag_ms)}, {size_text(now.lag_bytes)}"


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
