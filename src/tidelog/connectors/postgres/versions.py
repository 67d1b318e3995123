"""Which version of a table a row is told under.

The log describes a table in a relation message before its first row, and again after it changed. A transaction that is
streamed while it is open has relations of its own, because it may see what nobody else sees yet, and may take it
back: they become everybody's when it commits, and are forgotten when it, or a part of it, is rolled back.

The catalog shows nothing of DDL that is not committed. So a table that is locked as DDL locks it is described in two
steps: by the message alone while the transaction is open, and by the catalog once it has committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from tidelog.connectors.postgres.wire import Relation
from tidelog.contracts import Block
from tidelog.model.schema import Column, Table

Describe = Callable[[Relation, Table | None], Table]
"""The version that a relation message announces, by the version before it."""
Locked = Callable[[], Collection[int]]
"""The tables that somebody may be changing now."""

_VISIBLE_S, _LOOK_S = 1.0, 0.01
"""A commit is in the log a moment before others see it."""


class Versions:
    """What everybody sees: the versions of committed transactions.

    A relation that is told again, in the same words, may be another one all the same: a column can take the name and
    the type of one that was dropped. So the catalog is asked each time, but once for one log that was read."""

    def __init__(self, describe: Describe, tables: Sequence[Table]) -> None:
        self._describe = describe
        self._answers: dict[tuple[Relation, Table | None], Table] = {}
        self.tables: dict[int, Table] = {t.id: t for t in tables}
        self._told: dict[int, int] = {}
        self._moment = 0

    def refresh(self) -> None:
        """More of the log has come: the catalog may have other answers."""
        self._answers = {}

    def moment(self) -> int:
        """Grows with everything that is told."""
        self._moment += 1
        return self._moment

    def relate(self, relation: Relation) -> Table:
        """The table version of a relation message."""
        table = self.describe(relation, None)
        self.take(table, self.moment())
        return table

    def describe(self, relation: Relation, known: Table | None) -> Table:
        known = known or self.tables.get(relation.oid)
        if (relation, known) not in self._answers:
            table = self._describe(relation, known)
            self._answers[relation, known] = self._answers[relation, table] = table
        return self._answers[relation, known]

    def take(self, table: Table, moment: int) -> None:
        """Unless something was told of the table since."""
        if moment > self._told.get(table.id, 0):
            self.tables[table.id] = table
            self._told[table.id] = moment

    def replace(self, table: Table) -> None:
        """The catalog knows better."""
        self.take(table, self.moment())


@dataclass(frozen=True)
class _Told:
    table: Table
    moment: int


@dataclass
class Own:
    """What one streamed transaction sees."""

    told: dict[int, _Told] = field(default_factory=dict)
    drafts: dict[str, Relation] = field(default_factory=dict)
    """By fingerprint, the versions that only the commit makes sure of."""

    def table(self, oid: int) -> Table | None:
        return self.told[oid].table if oid in self.told else None

    def relate(self, relation: Relation, versions: Versions, locked: Collection[int]) -> Table:
        oid, known = relation.oid, self.table(relation.oid)
        if oid in locked or any(one.oid == oid for one in self.drafts.values()):
            table = draft(relation)
            self.drafts[table.fingerprint] = relation
        else:
            table = versions.describe(relation, known)
        self.told[oid] = _Told(table, versions.moment())
        return table

    def undo(self) -> None:
        """A part was rolled back: the server will describe everything again."""
        self.told = {}

    def commit(self, versions: Versions, locked: Locked) -> dict[str, Table]:
        """Make what is told here everybody's; returns what the drafts turn out to be."""
        sure = self._sure(versions, locked) if self.drafts else {}
        for told in self.told.values():
            versions.take(sure.get(told.table.fingerprint, told.table), told.moment)
        return sure

    def _sure(self, versions: Versions, locked: Locked) -> dict[str, Table]:
        oids, deadline = {relation.oid for relation in self.drafts.values()}, time.monotonic() + _VISIBLE_S
        while oids & set(locked()) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        versions.refresh()
        sure: dict[str, Table] = {}
        known: dict[int, Table] = {}
        for fingerprint, relation in self.drafts.items():
            known[relation.oid] = sure[fingerprint] = versions.describe(relation, known.get(relation.oid))
        return sure


def draft(relation: Relation) -> Table:
    """A version by the message alone: nothing of it is resolved, so it is no version that anybody decodes."""
    columns = (Column(c.name, f"#{c.type_oid}", c.modifier, not c.in_identity) for c in relation.columns)
    return Table(relation.oid, relation.schema, relation.name, tuple(columns), (), relation.identity)


@dataclass(frozen=True)
class Surely:
    """A `Merging` that gives the records of a transaction the versions that its commit made sure of."""

    versions: dict[str, Table]

    def feed(self, block: Block) -> Sequence[Block]:
        known = self.versions.get(block.table.fingerprint) if block.table is not None else None
        return [Block(known or block.table, block.records)]

    def close(self) -> Sequence[Block]:
        return []
