"""Tables that the sink cannot take: they are set aside, and the others stream on.

Law: nothing is lost without a word. A table that is set aside has a file in the pipeline's state folder, from before
the first batch that leaves out its events until its rows were asked for again. When the sink can take it once more,
the planner asks for a snapshot that also ends the rows which the source no longer has. Everything that the log tells up
to that moment (`until`) is visible to each chunk of that snapshot, so these events stay left out; later ones are
delivered.

The pipeline's driver and the planner's process both use these files, never at the same time: Spark plans and runs
batches in turn.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tidelog.contracts import FilledTarget
from tidelog.core.requirements import Obstacle
from tidelog.engine.home import Home
from tidelog.engine.state_file import read_json, write_json
from tidelog.model.schema import Table

_LOG = logging.getLogger("tidelog.sinks")
IN_PROGRESS = {"is_in_progress": True}
"""Marks a record whose text a run's progress shows as well, as long as it is true."""
_CLOCK_STEP_NS = 2_000_000_000
"""Two changes within this time may bear the same time, depending on the file system."""
_REMEDY = (
    "It says which changes of one table are left out. Restore it from a copy of the state folder; or delete it, start "
    "again, and read the tables that tidelog.log names as set aside: tidelog snapshot PIPELINE TABLE."
)


@dataclass(frozen=True)
class SetAsideTable:
    """A table that is set aside."""

    table: int
    name: str
    reason: str
    cure: str
    mark: str
    """Unique to this time that the table is set aside: the id of the snapshot that ends it."""
    until: int | None = None
    """Its snapshot is asked for, and the log's events up to this position stay left out; None while the sink cannot
    take it."""
    confirmed: bool = False
    """The request for its snapshot is in a committed offset."""
    hidden: bool = False
    """It is not among the captured tables just now."""
    sticky: bool = False
    """It depends on the target whether the sink can take it, so this is tried again at a start only."""
    returns: bool = False
    """Its target was lost: its snapshot is asked for at once, and nobody has to act."""

    @property
    def request(self) -> str:
        return f"set-aside-{self.mark}"

    @property
    def waits(self) -> bool:
        """Whether a user has to act."""
        return self.until is None and not self.hidden and not self.returns

    def leaves_out(self, position: int) -> bool:
        return self.until is None or position <= self.until

    def __str__(self) -> str:
        return f"{self.reason} {self.cure}"


class SetAside:
    """The tables of one pipeline that are set aside."""

    def __init__(self, home: Home) -> None:
        self._folder = home.set_aside
        self._known: tuple[SetAsideTable, ...] = ()
        self._changed_ns: int | None = None
        """When the folder had changed last as it was read; None while it has to be read again."""

    def all(self) -> list[SetAsideTable]:
        """By name. The files are read only if one came, went or was replaced."""
        changed_ns = self._folder_changed_ns()
        if changed_ns is None or changed_ns != self._changed_ns:
            self._known = tuple(sorted(self._read(), key=lambda aside: aside.name))
            is_settled = changed_ns is not None and time.time_ns() - changed_ns > _CLOCK_STEP_NS
            self._changed_ns = changed_ns if is_settled else None
        return list(self._known)

    def of(self, table: int) -> SetAsideTable | None:
        return next((aside for aside in self.all() if aside.table == table), None)

    def _folder_changed_ns(self) -> int | None:
        try:
            return self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def add(self, table: Table, obstacle: Obstacle, *, sticky: bool = False) -> None:
        """Set a table aside; if it is already, only the reason is brought up to date."""
        known = self.of(table.id)
        mark = known.mark if known is not None and known.until is None else uuid.uuid4().hex[:12]
        aside = SetAsideTable(table.id, table.qualified, obstacle.reason, obstacle.cure, mark, sticky=sticky)
        if aside != known:
            _LOG.warning("%s is set aside, the other tables go on: %s", aside.name, aside, extra=IN_PROGRESS)
            self.put(aside)

    def add_lost(self, filled: FilledTarget) -> None:
        """Set a table aside whose target is gone: it comes back with a snapshot. One that the sink cannot take, and
        that would come back with a snapshot anyway, stays as it is."""
        known = self.of(filled.table)
        if known is not None and known.until is None:
            return
        reason = f"The target table of {filled.name} is gone."
        cure = "It is created again, and its rows are read from the source."
        _LOG.warning("%s %s", reason, cure)
        self.put(SetAsideTable(filled.table, filled.name, reason, cure, uuid.uuid4().hex[:12], returns=True))

    def put(self, aside: SetAsideTable) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        write_json(self._path(aside), asdict(aside))

    def remove(self, aside: SetAsideTable) -> None:
        self._path(aside).unlink(missing_ok=True)

    def _path(self, aside: SetAsideTable) -> Path:
        return self._folder / f"{aside.table}.json"

    def _read(self) -> Iterator[SetAsideTable]:
        for path in self._folder.glob("*.json"):
            if (content := read_json(path, _REMEDY)) is not None:  # else it was removed meanwhile
                yield SetAsideTable(**content)
