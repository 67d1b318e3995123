"""The database and the stage as the planner of snapshots asks them: `core.snapshot.world.World` over a connector."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from tidelog.contracts import Connector, Key, Scan
from tidelog.core.snapshot.state import Entry
from tidelog.core.snapshot.world import Manifest
from tidelog.engine.backoff import Backoff
from tidelog.engine.stage import Stage
from tidelog.model.schema import Table


class PlanningWorld:
    """The database and the stage as they are during one planning."""

    def __init__(
        self, connector: Connector, stage: Stage, logged: Callable[[int], str], reading: Backoff, opening: Backoff
    ) -> None:
        self._connector = connector
        self._stage = stage
        self.logged = logged
        self._reading = reading
        self._opening = opening
        self._present: dict[int, Table | None] = {}
        self._manifests: dict[str, Manifest | None] = {}

    def rests(self) -> bool:
        return not self._reading.is_due

    def present(self, entry: Entry, *, again: bool = False) -> Table | None:
        if not entry.opened and again:
            return next((t for t in self._connector.tables() if t.qualified == entry.table), None)
        if not entry.opened:
            return self._captured.get(entry.table)
        if again or entry.oid not in self._present:
            found = self._connector.present([entry.oid])
            self._present[entry.oid] = found[0] if found else None
        return self._present[entry.oid]

    @cached_property
    def _captured(self) -> dict[str, Table]:
        return {t.qualified: t for t in self._connector.tables()}

    @cached_property
    def _attempts(self) -> dict[str, list[str]]:
        return self._stage.attempts()

    def manifest(self, name: str) -> Manifest | None:
        if name not in self._manifests:
            self._manifests[name] = self._best_attempt(name)
        return self._manifests[name]

    def _best_attempt(self, name: str) -> Manifest | None:
        notes = [self._stage.note(name, attempt) for attempt in self._attempts.get(name, ())]
        found = [note.manifest for note in notes if note is not None]
        best = min(found, key=lambda m: (bool(m.failed or m.refused), m.attempt), default=None)
        if best is not None and best.failed:
            self._reading.failed(best.failed)
        elif best is not None:
            self._reading.succeeded()
        return best

    def walked(self, table: Table, surrogate: str) -> tuple[str, ...]:
        return self._connector.walked(table, surrogate)

    def maximum(self, scan: Scan) -> Key | None:
        return self._connector.maximum(scan)

    def boundaries(self, scan: Scan, low: Key | None, maximum: Key, rows: int, count: int) -> list[Key]:
        return self._connector.boundaries(scan, low, maximum, rows, count)

    def estimate(self, scan: Scan) -> int:
        return max(0, self._connector.estimate(scan))

    def row_bytes(self, table: Table) -> int:
        return self._connector.row_bytes(table)

    def settled(self, xid: int) -> bool:
        if not self._opening.is_due:
            return False
        settled = self._connector.settled(xid)
        if settled:
            self._opening.succeeded()
        else:
            self._opening.failed(f"it waits for transactions below {xid}, which are older than its table's publication")
        return settled

    def log_end(self) -> int:
        return self._connector.log_end()

    def export(self, scan: Scan) -> str:
        return self._connector.export(scan)

    def exported(self, name: str) -> bool:
        return self._connector.exported(name)
