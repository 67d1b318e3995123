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

import json
import logging
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tidelog.core.requirements import Obstacle
from tidelog.engine.home import Home
from tidelog.model.schema import Table

_LOG = logging.getLogger("tidelog.sinks")


@dataclass(frozen=True)
class Aside:
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

    @property
    def request(self) -> str:
        return f"set-aside-{self.mark}"

    @property
    def waits(self) -> bool:
        """Whether a user has to act."""
        return self.until is None and not self.hidden

    def leaves_out(self, position: int) -> bool:
        return self.until is None or position <= self.until

    def __str__(self) -> str:
        return f"{self.reason} {self.cure}"


class SetAside:
    """The tables of one pipeline that are set aside."""

    def __init__(self, home: Home) -> None:
        self._folder = home.set_aside

    def all(self) -> list[Aside]:
        return sorted(self._read(), key=lambda aside: aside.name)

    def of(self, table: int) -> Aside | None:
        return next((aside for aside in self._read() if aside.table == table), None)

    def add(self, table: Table, obstacle: Obstacle, *, sticky: bool = False) -> None:
        """Set a table aside; if it is already, only the reason is brought up to date."""
        known = self.of(table.id)
        mark = known.mark if known is not None and known.until is None else uuid.uuid4().hex[:12]
        aside = Aside(table.id, table.qualified, obstacle.reason, obstacle.cure, mark, sticky=sticky)
        if aside != known:
            _LOG.warning("%s is set aside, the other tables go on: %s", aside.name, aside)
            self.put(aside)

    def put(self, aside: Aside) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = self._folder / f".{aside.table}.{os.getpid()}"
        with draft.open("w", encoding="utf-8") as file:
            json.dump(asdict(aside), file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path(aside))

    def remove(self, aside: Aside) -> None:
        self._path(aside).unlink(missing_ok=True)

    def _path(self, aside: Aside) -> Path:
        return self._folder / f"{aside.table}.json"

    def _read(self) -> Iterator[Aside]:
        for path in self._folder.glob("*.json"):
            try:
                yield Aside(**json.loads(path.read_text(encoding="utf-8")))
            except FileNotFoundError:  # removed meanwhile
                continue
