"""Handing a batch to the sink: without what is set aside, and with the dead letters counted."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tidelog.contracts import Batch, Sink
from tidelog.core.requirements import Requirements
from tidelog.engine.admission import Admission
from tidelog.engine.dead_letters import DeadLetters, names_of
from tidelog.engine.filled_targets import FilledTargets
from tidelog.engine.home import Home
from tidelog.engine.set_aside import SetAside
from tidelog.errors import TableRefused, TargetLost, TransientError
from tidelog.model.schema import Table
from tidelog.model.selection import Selection
from tidelog.spark.present import Present

_LOG = logging.getLogger("tidelog.sinks")
_SLOW_WRITE_S = 30.0
_WAIT_ANNOUNCED_S = 3.0
_NAMED_MAX = 3


class Delivery:
    def __init__(self, home: Home, requirements: Requirements, source: Present) -> None:
        self._requirements = requirements
        self._set_aside = SetAside(home)
        self._admission = Admission(requirements, self._set_aside)
        self._letters = DeadLetters(home)
        self._source = source
        self.filled_targets = FilledTargets(home.filled_targets)
        self._undecodable: set[str] = set()
        """Tables with such records in this run."""
        self._returning: set[str] = set()
        """The marks of tables that were set aside before this run, and that its planner takes back."""
        self._writing: Batch | None = None
        self._writing_since_s = 0.0

    def deliver(self, batch: Batch, sink: Sink) -> None:
        self._returning.clear()  # the planner has looked at them before it planned the batch
        keeps_letters = batch.selection.failures == "dead-letter"
        wanted = batch if keeps_letters else replace(batch, failures=None)
        self._apply(self._admission.filter(wanted), sink)
        if batch.failures is not None:
            self._letters.count(batch.query, batch.id, batch.failures, kept=keeps_letters)
            self._undecodable |= set(names_of(batch.failures))

    def _apply(self, batch: Batch, sink: Sink) -> None:
        """A table that the sink cannot take is set aside; what the sink has applied it does not apply twice."""
        while True:
            self._source.after(batch.tables)
            try:
                self._write(batch, sink)
            except TargetLost as exc:
                self._set_aside_lost(batch.query, exc.table)
                self.set_aside_lost(batch.query, sink)
                batch = self._admission.filter(batch)
            except TableRefused as exc:
                batch = self._admission.refuse(batch, exc)
            except TransientError:  # also where a table disappears while it is written
                if not self.set_aside_lost(batch.query, sink):
                    raise
                batch = self._admission.filter(batch)
            else:
                return

    def _write(self, batch: Batch, sink: Sink) -> None:
        self._writing, self._writing_since_s = batch, time.monotonic()
        try:
            sink.apply(batch)
        finally:
            self._writing = None

    def expect_back(self, tables: Sequence[Table], selection: Selection) -> None:
        """Do not announce tables that this start brings back: the sink can take them again, or it is tried."""
        obstacles = {table.id: self._requirements.obstacle(table, selection) for table in tables}
        waiting = [aside for aside in self._set_aside.all() if aside.waits]
        self._returning = {aside.mark for aside in waiting if obstacles.get(aside.table) is None}

    def set_aside_lost(self, query: str, sink: Sink) -> bool:
        """Set the captured tables aside whose targets were filled and are gone; whether there are any."""
        captured = self._source.captured()
        lost = [filled.table for filled in sink.find_lost(query) if filled.table in captured]
        for table in lost:
            self._set_aside_lost(query, table)
        return bool(lost)

    def _set_aside_lost(self, query: str, table: int) -> None:
        filled = self.filled_targets.of(query, table)
        if filled is not None:
            self._set_aside.add_lost(filled)
            self.filled_targets.forget(table)  # from here on, the table is known to come back with a snapshot

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is not delivered, and why."""
        waiting = [aside for aside in self._set_aside.all() if aside.waits and aside.mark not in self._returning]
        aside = [f"{one.name} is set aside, the other tables go on: {one}" for one in waiting]
        letters = (str(letters) for letters in self._letters.all() if letters.table in self._undecodable)
        return (*aside, *letters, *self._slow_write())

    def _slow_write(self) -> Iterator[str]:
        batch = self._writing
        if batch is not None and time.monotonic() - self._writing_since_s > _SLOW_WRITE_S:
            yield (
                f"The sink has been writing {self.writing} for more than {_SLOW_WRITE_S:.0f} s. If its storage does "
                "not answer, end the command: the next run writes the batch again."
            )

    @contextmanager
    def wait_announced(self) -> Iterator[None]:
        """While the end of the run waits for the sink: says so where it takes long, since a storage may not answer."""
        timer = threading.Timer(_WAIT_ANNOUNCED_S, self._announce_wait)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _announce_wait(self) -> None:
        if tables := self.writing:
            _LOG.warning("The sink is still writing %s, and the end of the run waits for it.", tables)

    @property
    def writing(self) -> str:
        """The tables that the sink is writing now; empty between batches."""
        batch = self._writing
        names = [changes.table.qualified for changes in batch.tables] if batch is not None else []
        more = f" and {len(names) - _NAMED_MAX} more tables" if len(names) > _NAMED_MAX else ""
        return ", ".join(names[:_NAMED_MAX]) + more
