"""Which captured tables the sink can take: asked by the planner at a start, and by the driver for every batch.

A table that the sink cannot take is set aside (see `engine.set_aside`), and comes back with a snapshot.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.contracts import Batch, Connector, TableChanges
from tidelog.core.metadata import OP, POSITION
from tidelog.core.requirements import Obstacle, Requirements
from tidelog.core.snapshot import requests
from tidelog.core.snapshot.requests import Wanted
from tidelog.core.snapshot.state import INITIAL, Snapshot
from tidelog.engine.set_aside import SetAside, SetAsideTable
from tidelog.errors import ConfigError, TableRefused
from tidelog.model.schema import Table
from tidelog.model.selection import Selection

_LOG = logging.getLogger("tidelog.sinks")
_LOOK_AGAIN_S = 5.0


def can_be_swept(table: Table, selection: Selection) -> bool:
    """Whether rows of the target can be told apart by the key that the source is read by."""
    return bool(table.key) and selection.key_of(table) == table.key


def require_some(requirements: Requirements, tables: Sequence[Table], selection: Selection) -> None:
    """A pipeline of which no table can be delivered is a mistake, and stops."""
    obstacles = [requirements.obstacle(table, selection) for table in tables]
    if obstacles and all(obstacles):
        first = obstacles[0]
        assert first is not None
        others = f" And {len(obstacles) - 1} more cannot be delivered either." if len(obstacles) > 1 else ""
        raise ConfigError(f"{first.reason}{others}", hint=first.cure)


class AdmitEverything:
    """A user's own sink: it gets every table."""

    def admit(self, tables: Sequence[Table], selection: Selection, *, anew: bool = False) -> list[Table]:  # noqa: ARG002
        return list(tables)

    def readmit(self, snapshot: Snapshot, connector: Connector) -> Snapshot:  # noqa: ARG002
        return snapshot

    def waiting(self) -> list[str]:
        return []


class Admission:
    """Decides which tables a pipeline's sink gets, and requests a snapshot when one can return."""

    def __init__(self, requirements: Requirements, set_aside: SetAside) -> None:
        self._requirements = requirements
        self._set_aside = set_aside
        self._is_starting = True
        """Until it is known for the first time which tables can return."""
        self._next_look_s = -math.inf
        self._looked_at: set[str] = set()
        """The marks of the tables that were waiting at the last look."""

    # -- the planner -----------------------------------------------------------------------------------------------

    def admit(self, tables: Sequence[Table], selection: Selection, *, anew: bool = False) -> list[Table]:
        """Returns the captured tables that the sink can take and that are not set aside; sets the others aside. With
        `anew`, every returned table is about to be read in full."""
        if anew:
            self._forget_positions()
        require_some(self._requirements, tables, selection)
        self._hide_uncaptured({table.id for table in tables})
        for table in tables:
            if obstacle := self._requirements.obstacle(table, selection):
                self._set_aside.add(table, obstacle)
        aside = {one.table for one in self._set_aside.all() if not one.confirmed}
        return [table for table in tables if table.id not in aside]

    def _hide_uncaptured(self, captured: Collection[int]) -> None:
        for aside in self._set_aside.all():
            hidden = aside.table not in captured
            if aside.hidden != hidden:
                self._set_aside.put(replace(aside, hidden=hidden))

    def _forget_positions(self) -> None:
        """Forgets tables whose `until` may be a position in another log. Tables that the sink cannot take stay set
        aside."""
        for aside in self._set_aside.all():
            if aside.until is not None:
                self._set_aside.remove(aside)

    def waiting(self) -> list[str]:
        """The names of the captured tables that are set aside."""
        return [aside.name for aside in self._set_aside.all() if aside.waits]

    def readmit(self, snapshot: Snapshot, connector: Connector) -> Snapshot:
        """Ask for the snapshots of the tables that the sink can take again; looks every few seconds, and at once where
        a target was lost."""
        now_s = time.monotonic()
        if now_s < self._next_look_s and not self._has_newly_lost():
            return snapshot
        selection = connector.selection()
        unconfirmed = [aside for aside in self._set_aside.all() if not aside.confirmed]
        tables = connector.tables() if unconfirmed else []
        starts, self._is_starting = self._is_starting, False  # not before the source has answered
        self._next_look_s = now_s + _LOOK_AGAIN_S
        self._looked_at = {aside.mark for aside in unconfirmed}
        returning = self._returning(tables, selection, snapshot.handled, starts=starts)
        unpublished = {table.id for table in connector.untold([table for _, table in returning])} if returning else ()
        for aside, table in returning:
            if table.id in unpublished:
                continue
            # In this order: what is committed up to `until` got its id before `after`, and the snapshot waits for it.
            until = connector.through(connector.log_end())
            after = connector.next_xid()
            self._set_aside.put(replace(aside, until=until))
            wanted = Wanted(table.qualified, sweep=can_be_swept(table, selection), after=after)
            snapshot = requests.handle(requests.stop(snapshot, [table.qualified]), aside.request)
            snapshot = requests.ask(snapshot, aside.request, [wanted], INITIAL)
            _LOG.info("%s was set aside and comes back: its rows are read", table.qualified)
        return snapshot

    def _has_newly_lost(self) -> bool:
        return any(aside.returns and aside.mark not in self._looked_at for aside in self._set_aside.all())

    def _returning(
        self, tables: Sequence[Table], selection: Selection, handled: Collection[str], *, starts: bool
    ) -> list[tuple[SetAsideTable, Table]]:
        """The tables that the sink can take again, and whose snapshot is not asked for yet."""
        by_id = {table.id: table for table in tables}
        waiting = [aside for aside in self._set_aside.all() if not aside.confirmed and aside.request not in handled]
        return [
            (aside, by_id[aside.table])
            for aside in waiting
            if aside.table in by_id
            and (starts or not aside.sticky)
            and self._requirements.obstacle(by_id[aside.table], selection) is None
        ]

    def committed(self, position: int, handled: Collection[str]) -> None:
        """What an offset asks for is certain once it is committed; past `until`, nothing is left out any more."""
        for aside in self._set_aside.all():
            if aside.until is None or not (aside.confirmed or aside.request in handled):
                continue
            if position >= aside.until:
                self._set_aside.remove(aside)
            elif not aside.confirmed:
                self._set_aside.put(replace(aside, confirmed=True))

    # -- the driver ------------------------------------------------------------------------------------------------

    def filter(self, batch: Batch) -> Batch:
        """The batch without what is set aside."""
        aside = {one.table: one for one in self._set_aside.all()}
        found = [self._of_table(each, aside.get(each.table.id), batch.selection) for each in batch.tables]
        return replace(batch, tables=[changes for changes in found if changes is not None])

    def refuse(self, batch: Batch, refused: TableRefused) -> Batch:
        """The batch without a table that the sink, as it wrote, found that it cannot take."""
        changes = next(changes for changes in batch.tables if changes.table.id == refused.table)
        self._set_aside.add(changes.table, Obstacle(refused.message, refused.hint), sticky=True)
        return replace(batch, tables=[other for other in batch.tables if other is not changes])

    def _of_table(
        self, changes: TableChanges, aside: SetAsideTable | None, selection: Selection
    ) -> TableChanges | None:
        left = changes if aside is None else _after(changes, aside)
        if left is None:
            return None
        if obstacle := self._obstacle(left, selection):
            self._set_aside.add(left.table, obstacle)
            return None
        return left

    def _obstacle(self, changes: TableChanges, selection: Selection) -> Obstacle | None:
        met = [version for version, rows in changes.rows if rows.num_rows]
        versions = [changes.table, *(met if self._requirements.every_version else ())]
        found = (self._requirements.obstacle(version, selection) for version in versions)
        return next(filter(None, found), None)


def _after(changes: TableChanges, aside: SetAsideTable) -> TableChanges | None:
    """The rows to deliver of a table that was set aside: rows read by its returning snapshot, and log events after
    `until`. None if nothing is left."""
    if aside.until is None:
        return None
    runs = [(version, _rows_after(rows, aside.until)) for version, rows in changes.rows]
    runs = [(version, rows) for version, rows in runs if rows.num_rows]
    if not runs and changes.keep is None and aside.leaves_out(changes.told[0]):
        return None
    versions = tuple(dict.fromkeys([*(version for version, _ in runs), changes.table]))
    return replace(changes, rows=runs, versions=versions)


def _rows_after(rows: pa.Table, position: int) -> pa.Table:
    is_read = pc.equal(rows[OP], "r").to_numpy()
    is_later = rows[POSITION].to_numpy() > position
    return rows.filter(pa.array(np.logical_or(is_read, is_later)))
