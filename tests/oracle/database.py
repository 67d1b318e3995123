"""A database that writes redo: tables with their past, and transactions that change them.

Whatever a transaction does stands in the redo the moment it does it, as LogMiner tells it; what it did becomes visible
to readers (`as_of`) when it commits. Rows are locked by the transaction that changes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.oracle import literals, redo, telling
from tests.oracle.literals import Column
from tests.oracle.redo import Redo, Work

Row = dict[str, Any]


@dataclass(frozen=True)
class Layout:
    """A table's columns from some SCN on."""

    scn: int
    version: int
    columns: tuple[Column, ...]


@dataclass(eq=False)
class Relation:
    object: int
    owner: str
    name: str
    key: tuple[str, ...]
    layouts: list[Layout]
    past: dict[str, list[tuple[int, Row | None]]] = field(default_factory=dict)
    """Row id -> what the row is since each commit; None when it is gone."""
    now: dict[str, Row] = field(default_factory=dict)
    """Rows as their writers see them, not committed ones included."""
    locked: dict[str, Transaction] = field(default_factory=dict)
    temporary: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.layouts[-1].columns

    @property
    def version(self) -> int:
        return self.layouts[-1].version

    @property
    def has_large(self) -> bool:
        return any(c.large for c in self.columns)

    def column(self, name: str) -> Column:
        return next(c for c in self.columns if c.name == name)

    def as_of(self, scn: int) -> list[tuple[str, Row]]:
        found = []
        for row_id, versions in self.past.items():
            row = next((row for since, row in reversed(versions) if since <= scn), None)
            if row is not None:
                found.append((row_id, row))
        return found

    def free(self, mine: Transaction | None = None) -> list[str]:
        return [r for r in self.now if self.locked.get(r) in (None, mine)]


@dataclass(frozen=True)
class Change:
    """What a transaction did to a row, and the redo entries that tell it."""

    relation: Relation
    op: str
    row_id: str
    before: Row | None
    after: Row | None
    orders: tuple[int, ...]
    columns: tuple[Column, ...]
    keyed: str
    """The row id under which an undo finds it."""


@dataclass(eq=False)
class Transaction:
    database: Database
    work: Work
    changes: list[Change] = field(default_factory=list)
    over: bool = False

    # -- changes -------------------------------------------------------------------------------------------------

    def insert(self, relation: Relation, row: Row) -> str:
        place = self.database.place(relation)
        relation.locked[place] = self
        return self._change(relation, "c", place, None, row)

    def update(self, relation: Relation, place: str, changes: Row) -> str:
        before = relation.now[place]
        return self._change(relation, "u", place, before, {**before, **changes})

    def delete(self, relation: Relation, place: str) -> str:
        return self._change(relation, "d", place, relation.now[place], None)

    def fail(self, relation: Relation, row: Row) -> None:
        """An insert that a constraint refuses: it is in the redo, and so is its undo."""
        self.insert(relation, row)
        self._undo(1)

    def savepoint(self) -> int:
        return len(self.changes)

    def rollback_to(self, savepoint: int, nameless: bool = False) -> None:
        self._undo(len(self.changes) - savepoint, nameless)

    def commit(self, scn: int | None = None, wait: bool = True, loose: bool = False) -> int:
        """Past any SCN that somebody was told. `scn` is one that another commit just took; who does not `wait` leaves
        it to time when his commit is on disk. A `loose` one tells no redo thread."""
        redo_ = self.database.redo
        scn = redo_.advance(max(1, self.database.step())) if scn is None else scn
        self.work.commit_scn = scn
        redo_.write(self.work.thread, redo.COMMIT, self.work, scn=scn, sql="commit;", loose=loose)
        redo_.last_commit = scn
        if wait:
            redo_.flush(self.work.thread, quiet=True)
        for change in self.changes:
            versions = change.relation.past.setdefault(change.row_id, [])
            versions.append((scn, change.after))
        self._end()
        self.database.committed.append(self)
        return scn

    def rollback(self, nameless: bool = False) -> None:
        self._undo(len(self.changes), nameless)
        self.database.redo.advance(self.database.step())
        self.database.redo.write(self.work.thread, redo.ROLLBACK, self.work, sql="rollback;", nameless=nameless)
        self._end()

    def mark(self) -> None:
        """A replication product leaves a marker; such a transaction is not heard of again."""
        self.work.hidden = True
        self.database.redo.advance(self.database.step())
        self.database.redo.write(self.work.thread, redo.REPLICATION_MARKER, self.work)
        self.over = True
        self.database.open.remove(self)
        self.database.abandoned.append(self)

    def note(self, code: int, relation: Relation | None = None, **more: object) -> None:
        """An entry that changes nothing."""
        self.database.redo.advance(self.database.step())
        self.database.write(self, code, relation, **more)

    def _end(self) -> None:
        for change in self.changes:
            change.relation.locked.pop(change.row_id, None)
        self.over = True
        self.database.open.remove(self)

    # -- the redo of a change ------------------------------------------------------------------------------------

    def _change(self, relation: Relation, op: str, place: str, before: Row | None, after: Row | None) -> str:
        self.database.redo.advance(self.database.step())
        relation.locked[place] = self
        told = telling.tell(self, relation, op, place, before, after)
        self.changes.append(Change(relation, op, place, before, after, told, relation.columns, place))
        _set(relation, place, after)
        return place

    def _undo(self, count: int, nameless: bool = False) -> None:
        """The last changes, backwards. The statement of an undo says little; its row id and flag say what it takes
        back."""
        for _ in range(count):
            change = self.changes.pop()
            self.database.redo.advance(self.database.step())
            order = self._take_back(change, nameless)
            self.work.undone.update((*change.orders, order))
            _set(change.relation, change.row_id, change.before)
            if not any(c.row_id == change.row_id for c in self.changes):
                change.relation.locked.pop(change.row_id, None)

    def _take_back(self, change: Change, nameless: bool) -> int:
        relation, columns = change.relation, change.columns
        more = {"row_id": change.keyed, "rollback": 1, "nameless": nameless}
        owner, name = relation.owner, relation.name
        if change.op == "c":
            sql = f'delete from "{owner}"."{name}";'
            return self.database.write(self, redo.DELETE, relation, sql=sql, **more)
        assert change.before is not None
        if change.op == "d":
            sql = literals.insert(owner, name, columns, change.before)
            return self.database.write(self, redo.INSERT, relation, sql=sql, **more)
        assert change.after is not None
        old = {c.name: change.before[c.name] for c in columns if change.before[c.name] != change.after[c.name]}
        sql = literals.update(owner, name, (), change.before, {}) if not old else ""
        sql = sql or f'update "{owner}"."{name}" set ' + ", ".join(
            f'"{c.name}" = {literals.literal(c, old[c.name])}' for c in columns if c.name in old
        )
        return self.database.write(self, redo.UPDATE, relation, sql=sql + ";", **more)


class Database:
    def __init__(self, rng: Random, *, threads: int = 1, destinations: int = 1, first: int = 1_000_000) -> None:
        self.rng = rng
        self.redo = Redo(first, destinations)
        self.resetlogs = first - 500
        self.relations: dict[str, Relation] = {}
        self.open: list[Transaction] = []
        self.abandoned: list[Transaction] = []
        self.committed: list[Transaction] = []
        self.shows_undone = True
        """Whether LogMiner, when asked for committed data only, still tells what was taken back, and its undo."""
        self._slots: dict[bytes, int] = {}
        self._object = 70_000
        self._row = 0
        for number in range(1, threads + 1):
            self.redo.enable(number)

    @property
    def scn(self) -> int:
        return self.redo.scn

    def step(self) -> int:
        """Several records may share an SCN."""
        return self.rng.choice((0, 1, 1, 1, 2, 7))

    # -- tables --------------------------------------------------------------------------------------------------

    def create(self, owner: str, name: str, columns: Sequence[Column], key: Sequence[str] = ()) -> Relation:
        self._object += self.rng.randint(1, 5)
        layout = Layout(self.scn, 1, tuple(columns))
        relation = self.relations[f"{owner}.{name}"] = Relation(self._object, owner, name, tuple(key), [layout])
        return relation

    def alter(self, relation: Relation, columns: Sequence[Column], sql: str, thread: int, user: str = "APP") -> None:
        """DDL is a transaction of its own. Rows get the new columns with NULL."""
        work = self.begin(thread, user)
        self.redo.advance(1)
        self.write(work, redo.DDL, relation, sql=sql, info="USER DDL (PlSql=0 RecDep=0)")
        layout = Layout(self.scn, relation.version + 1, tuple(columns))
        relation.layouts.append(layout)
        for place, row in list(relation.now.items()):
            relation.now[place] = {c.name: row.get(c.name) for c in columns}
        work.commit()

    def place(self, relation: Relation) -> str:
        """Where a new row is put."""
        self._row += 1
        return redo.row_id(relation.object, 4, 100 + self._row // 60, self._row % 60)

    # -- transactions --------------------------------------------------------------------------------------------

    def begin(self, thread: int, user: str = "APP", client: str | None = None, *, silent: bool = False) -> Transaction:
        """A `silent` one has no START in the redo."""
        self.redo.advance(self.step())
        work = Work(self._xid(), thread, user, client, self.scn, silent=silent)
        transaction = Transaction(self, work)
        self.open.append(transaction)
        if not silent:
            self.redo.write(thread, redo.START, work, sql="set transaction read write;")
        return transaction

    def _xid(self) -> bytes:
        """Undo segment and slot, which one open transaction has at a time, and how often they were used."""
        taken = {t.work.xid[:4] for t in (*self.open, *self.abandoned)}
        while True:
            segment, slot = self.rng.randint(1, 4), self.rng.randint(0, 9)
            prefix = segment.to_bytes(2, "little") + slot.to_bytes(2, "little")
            if prefix not in taken:
                used = self._slots[prefix] = self._slots.get(prefix, 500) + 1
                return prefix + used.to_bytes(4, "little")

    # -- the redo ------------------------------------------------------------------------------------------------

    def write(self, by: Transaction, code: int, relation: Relation | None = None, **more: object) -> int:
        table = {}
        if relation is not None:
            table = {
                "owner": relation.owner,
                "table": relation.name,
                "object": relation.object,
                "version": relation.version,
            }
        behind = code != redo.DDL and self.rng.random() < 0.2
        told: dict[str, Any] = {**table, **more}
        return self.redo.write(by.work.thread, code, by.work, behind=behind, **told).order

    def build_dictionary(self) -> None:
        """A copy of the catalog in the redo of the first open thread; the log is switched before and after."""
        thread = next(t.number for t in self.redo.threads.values() if t.open)
        self.redo.switch(thread).dictionary = True
        self.redo.advance()
        self.redo.switch(thread)

    # -- time passes ---------------------------------------------------------------------------------------------

    def crash(self, thread: int) -> None:
        """The instance dies. What was open on it is rolled back by whichever instance finds it. The last one is back
        at once, and goes on in the same log; another one's thread is closed, and its log archived."""
        if sum(t.open for t in self.redo.threads.values()) > 1:
            self.redo.close(thread)
            self.recover()
            return
        for transaction in [t for t in self.open if t.work.thread == thread]:
            transaction.rollback(nameless=self.rng.random() < 0.5)

    def recover(self) -> None:
        alive = [t.number for t in self.redo.threads.values() if t.open]
        for transaction in [t for t in self.open if alive and not self.redo.threads[t.work.thread].open]:
            transaction.work.thread = self.rng.choice(alive)
            transaction.rollback(nameless=self.rng.random() < 0.5)

    def revive(self, thread: int) -> None:
        self.redo.advance(self.rng.randint(3, 40))
        self.redo.reopen(thread)
        self.recover()


def _set(relation: Relation, place: str, row: Row | None) -> None:
    if row is None:
        relation.now.pop(place, None)
    else:
        relation.now[place] = row
