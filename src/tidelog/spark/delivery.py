"""Handing a batch to the sink: without what is set aside, and with the dead letters counted."""

from __future__ import annotations

from dataclasses import replace

from tidelog.contracts import Batch, Sink
from tidelog.core.requirements import Requirements
from tidelog.engine.admission import Admission
from tidelog.engine.dead_letters import DeadLetters, names_of
from tidelog.engine.home import Home
from tidelog.engine.set_aside import SetAside
from tidelog.errors import TableRefused
from tidelog.spark.present import Present


class Delivery:
    def __init__(self, home: Home, requirements: Requirements, source: Present) -> None:
        self._set_aside = SetAside(home)
        self._admission = Admission(requirements, self._set_aside)
        self._letters = DeadLetters(home)
        self._source = source
        self._undecodable: set[str] = set()
        """Tables with such records in this run."""

    def deliver(self, batch: Batch, sink: Sink) -> None:
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
                sink.apply(batch)
            except TableRefused as exc:
                batch = self._admission.refuse(batch, exc)
            else:
                return

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is not delivered, and why."""
        waiting = [aside for aside in self._set_aside.all() if aside.waits]
        aside = [f"{one.name} is set aside, the other tables go on: {one}" for one in waiting]
        return (*aside, *(str(letters) for letters in self._letters.all() if letters.table in self._undecodable))
