"""How the snapshots go, for whoever looks at a home: how far each table is, and which snapshots have ended.

Only read here; `notices` writes it, each time when a batch is delivered for good.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.engine.home import Home
from tidelog.engine.shell import snapshot_command

_ENDS = ("COMPLETED", "ABORTED", "SKIPPED")
_GOOD = ("SUCCEEDED", "EMPTY")
_REMARKS_MAX = 20


@dataclass(frozen=True)
class Walk:
    """How far the snapshot of one table is."""

    id: str
    """Of the signal that asked."""
    table: str
    kind: str
    rows: int
    """Delivered so far."""
    estimate: int
    """Of all rows, from the database's statistics; 0 before its turn comes, and where nobody knows."""
    rows_per_second: int
    seconds_left: int | None
    planned: int = 0
    """Chunks that are about to be read."""
    staged: int = 0
    """Chunks that are read, and wait for the log to pass them."""
    emitted: int = 0
    """Chunks that are delivered."""

    @property
    def begun(self) -> bool:
        return self.estimate > 0 or self.rows > 0 or self.planned + self.staged + self.emitted > 0


@dataclass(frozen=True)
class Walks:
    tables: tuple[Walk, ...] = ()
    paused: bool = False


@dataclass(frozen=True)
class Ended:
    """A snapshot that is over."""

    id: str
    how: str
    """COMPLETED, ABORTED (stopped), or SKIPPED (it named no captured table)."""
    tables: Mapping[str, int] = field(default_factory=dict)
    """The rows that were delivered of each."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Why a table was not read to its end."""
    ms: int | None = None
    """How long it took; None where its beginning is not known any more."""

    @property
    def rows(self) -> int:
        return sum(self.tables.values())

    @property
    def good(self) -> bool:
        return self.how == "COMPLETED" and not self.failures


def walks(home: Home) -> Walks:
    """The tables that are being read, or wait for their turn. A file that a crash tore says nothing: the next batch
    writes it anew."""
    try:
        raw = json.loads(home.snapshot.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return Walks()
    return Walks(tuple(Walk(**table) for table in raw["tables"]), raw["paused"])


class Told:
    """The notifications of a home, read as they come. What has ended before counts as known."""

    def __init__(self, home: Home) -> None:
        self._path = home.notifications
        self._file = 0
        self._read = 0
        self._open: dict[str, Ended] = {}
        self._began: dict[str, int] = {}
        self._over: set[str] = set()
        self._remarks: list[str] = []
        self.new()
        self._remarks = []

    def new(self) -> list[Ended]:
        """The snapshots that ended since the last call."""
        found = self._told()
        self._remarks = [*self._remarks, *_remarks(found)][-_REMARKS_MAX:]
        return [ended for told in found if (ended := self._take(told)) is not None]

    @property
    def remarks(self) -> tuple[str, ...]:
        """What somebody should know of what came since the beginning, the newest of it: that something which was asked
        for is not done."""
        return tuple(self._remarks)

    def missed(self, id: str) -> Mapping[str, str]:
        """What a snapshot that runs was asked for and does not read, and why."""
        return self._open.get(id, Ended(id, "")).failures

    def started(self, id: str) -> bool:
        return id in self._began

    def _told(self) -> list[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                number = os.fstat(file.fileno()).st_ino
                rest = b"" if number == self._file else self._rest()
                file.seek(self._read if number == self._file else 0)
                text = file.read()
                whole = text[: text.rfind(b"\n") + 1]
                self._read = file.tell() - len(text) + len(whole)
                self._file = number
        except FileNotFoundError:
            return []
        return [told for line in (rest + b"\n" + whole).splitlines() if (told := _parsed(line)) is not None]

    def _rest(self) -> bytes:
        """The end of a file that grew too long and gave way to a new one."""
        try:
            with self._path.with_suffix(".old.jsonl").open("rb") as file:
                file.seek(self._read)
                return file.read() if os.fstat(file.fileno()).st_ino == self._file else b""
        except FileNotFoundError:
            return b""

    def _take(self, told: dict[str, Any]) -> Ended | None:
        id, data = told["id"], told["additional_data"]
        so_far = self._open.get(id, Ended(id, ""))
        match told["type"]:
            case "STARTED":
                self._began.setdefault(id, told["timestamp"])
            case "TABLE_SCAN_COMPLETED":
                self._open[id] = _with_table(so_far, data)
            case how if how in _ENDS and id not in self._over:
                self._over.add(id)
                self._open.pop(id, None)
                began = self._began.get(id)
                if how == "SKIPPED":
                    so_far = replace(so_far, failures={data.get("data_collections", ""): data.get("reason", "")})
                return replace(so_far, how=how, ms=None if began is None else told["timestamp"] - began)
        return None


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:  # torn by a crash
        return None
    return found


def _with_table(so_far: Ended, data: Mapping[str, str]) -> Ended:
    table, status = data["scanned_collection"], data.get("status", "")
    reason, rows = data.get("reason") or status, int(data.get("total_rows_scanned", 0))
    return replace(
        so_far,
        tables=so_far.tables if status == "SKIPPED" else {**so_far.tables, table: rows},
        failures=so_far.failures if status in _GOOD else {**so_far.failures, table: reason},
    )


def _remarks(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """What nobody asked to hear, and should."""
    remarks, lost = [], []
    for told in found:
        id, data = told["id"], told["additional_data"]
        table, reason = data.get("scanned_collection", ""), data.get("reason", "")
        match told["type"], data.get("status", ""):
            case "MALFORMED", _:
                remarks.append(f"The signal {id!r} was skipped: {reason}")
            case "TABLE_SCAN_COMPLETED", "SKIPPED":
                remarks.append(f"The signal {id!r}: {reason}: {table}")
            case "TABLE_SCAN_COMPLETED", "STOPPED" if reason:
                lost.append((data["connector_name"], table, reason))
    if lost:
        name, reason, tables = lost[0][0], lost[0][2], [table for _, table, _ in lost]
        remarks.append(f"{', '.join(tables)}: {reason}; `{snapshot_command(name, tables)}` reads them")
    return remarks
