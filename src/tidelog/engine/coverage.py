"""Tables whose changes the log left out for a while: they are read again, and rows that went meanwhile go.

A table leaves the log when somebody takes it out of the publication, and comes back when it is put in again; what
changed in between is in no log. The offset keeps, per table, the marks that the source gave when it was last asked
(`Connector.log_coverage`). A table without a mark that was there before has, or may have, lost changes.

Law: the marks are taken before anything is read, and stand in the offset that asks for the reading. So whatever the
log left out before that moment is in the rows that are read, and whatever it leaves out later shows in other marks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from dataclasses import replace

from tidelog.contracts import Connector
from tidelog.core.snapshot import requests
from tidelog.core.snapshot.requests import Wanted
from tidelog.core.snapshot.state import INITIAL, Snapshot
from tidelog.engine.admission import can_be_swept
from tidelog.engine.shell import snapshot_command
from tidelog.model.schema import Table

_LOG = logging.getLogger("tidelog.snapshots")
_LOOK_AGAIN_S = 5.0

LEFT = (
    "%s: changes of this table are not captured any more. `tidelog check` prints what is missing; once they are "
    "captured again, the table is read again."
)
READ_AGAIN = "%s: changes of this table may not have been captured for a while, so it is read again."
KEEPS_DELETED = "%s: rows that were deleted meanwhile stay in the target, because the table has no key of its own."
NOT_READ = (
    "%s: changes of this table may not have been captured for a while, and with snapshot.mode no_data it is not read "
    "again. `%s` reads its rows; those that were deleted meanwhile stay in the target."
)


class Coverage:
    """Compares the marks of today with those in the offset. Used by one thread."""

    def __init__(self, connector: Connector, *, pipeline: str, reads_again: bool) -> None:
        self._connector = connector
        self._pipeline = pipeline
        self._reads_again = reads_again
        self._looked_s: float | None = None

    def begin(self, snapshot: Snapshot) -> Snapshot:
        """With the marks of today; for a state whose tables are all about to be read."""
        return replace(snapshot, coverage=self._marks_of(snapshot.known))

    def resume(self, snapshot: Snapshot, captured: Collection[int]) -> Snapshot:
        """At a start: tables that are not captured by now are without marks."""
        coverage = tuple((id, marks if id in captured else ()) for id, marks in snapshot.coverage)
        return replace(snapshot, coverage=coverage)

    def leave_out(self, snapshot: Snapshot, tables: Collection[int]) -> Snapshot:
        """The log told changes of these tables under names that are not captured: they were renamed, or moved to
        another schema, and are read again once they have a captured name."""
        if not any(id in tables and marks for id, marks in snapshot.coverage):
            return snapshot
        self._looked_s = None  # they may have come back already
        coverage = [(id, () if id in tables else marks) for id, marks in snapshot.coverage]
        return replace(snapshot, coverage=tuple(coverage))

    def follow(self, snapshot: Snapshot, aside: Collection[str]) -> Snapshot:
        """Asks every few seconds; requests the tables that came back, except those that are set aside."""
        now_s = time.monotonic()
        if self._looked_s is not None and now_s - self._looked_s < _LOOK_AGAIN_S:
            return snapshot
        before = dict(snapshot.coverage)
        coverage = self._marks_of({*snapshot.known, *before})
        self._looked_s = now_s  # not before the source has answered
        if coverage == snapshot.coverage:
            return snapshot
        left = [id for id, marks in coverage if before.get(id) and not marks]
        returned = [id for id, marks in coverage if id in before and marks and not set(marks) & set(before[id])]
        self._tell_left(left)
        snapshot = replace(snapshot, coverage=coverage)
        return self._read_again(snapshot, returned, aside) if returned else snapshot

    def _marks_of(self, ids: Iterable[int]) -> tuple[tuple[int, tuple[str, ...]], ...]:
        wanted = sorted(ids)
        marks = self._connector.log_coverage(wanted) if wanted else {}
        return tuple((id, tuple(sorted(marks.get(id, ())))) for id in wanted)

    def _tell_left(self, ids: Collection[int]) -> None:
        existing = self._connector.present(sorted(ids)) if ids else []
        if existing:
            _LOG.warning(LEFT, _names(existing))

    def _read_again(self, snapshot: Snapshot, ids: Collection[int], aside: Collection[str]) -> Snapshot:
        tables = [t for t in self._connector.tables() if t.id in ids and t.qualified not in aside]
        if not tables:
            return snapshot
        if not self._reads_again:
            names = [table.qualified for table in tables]
            _LOG.warning(NOT_READ, ", ".join(names), snapshot_command(self._pipeline, names))
            return snapshot
        _LOG.warning(READ_AGAIN, _names(tables))
        selection = self._connector.selection()
        if unswept := [table for table in tables if not can_be_swept(table, selection)]:
            _LOG.warning(KEEPS_DELETED, _names(unswept))
        after = self._connector.next_xid()  # younger transactions write what the log tells
        wanted = [Wanted(t.qualified, sweep=can_be_swept(t, selection), after=after) for t in tables]
        snapshot = requests.stop(snapshot, [table.qualified for table in tables])
        snapshot = requests.ask(snapshot, f"read-again-{after}", wanted, INITIAL)
        return replace(snapshot, known=tuple(dict.fromkeys((*snapshot.known, *(t.id for t in tables)))))


def _names(tables: Iterable[Table]) -> str:
    return ", ".join(table.qualified for table in tables)
