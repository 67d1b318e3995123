"""A database in one process: transactions, their visibility, and a log; the same steps for the same seed.

Three things of a real one matter here. A commit enters the log first and becomes visible later, in any order between
transactions (synchronous replication). Row locks are held until then, so that for one row both orders agree. And a
standby shows what it has replayed, a moment before it says so.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from tidelog.core.snapshot.watermark import Replayed, Visible
from tidelog.model.schema import Column, Table

Key = tuple[int, ...]
Row = dict[str, int | str | None]
"""The columns beside the key."""
NOTE = "note"
"""The op of an event that tells only the table's version: what a poll of the catalog leaves in the log."""


@dataclass(frozen=True)
class Event:
    op: str
    table: str
    version: int
    key: Key = ()
    row: Row | None = None
    old: Key | None = None
    """The key before, if it changed."""
    unchanged: bool = False
    """The toast column was left out."""


@dataclass(frozen=True)
class Commit:
    position: int
    end: int
    xid: int
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Change:
    """What a statement does to a row; no row: it ends. `version`: to the table."""

    table: str
    key: Key = ()
    row: Row | None = None
    version: int | None = None


@dataclass
class Store:
    """What somebody who begins to read now sees."""

    rows: dict[str, dict[Key, Row]]
    versions: dict[str, int]

    def apply(self, changes: list[Change]) -> None:
        for c in changes:
            if c.version is not None:
                self.versions[c.table] = c.version
            elif c.row is None:
                self.rows[c.table].pop(c.key, None)
            else:
                self.rows[c.table][c.key] = c.row


@dataclass
class Layer:
    """A savepoint's work."""

    xid: int = 0
    events: list[Event] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)


@dataclass(eq=False)
class Transaction:
    layers: list[Layer]
    xids: list[int] = field(default_factory=list)
    """Its own first, then its savepoints'."""
    locked: set[tuple[str, Key]] = field(default_factory=set)
    tables: set[str] = field(default_factory=set)
    exclusive: str = ""
    altering: bool = False
    """It changes the columns of the table that it has for itself, and does nothing else."""
    logged: bool = False

    def changes(self) -> list[Change]:
        return [c for layer in self.layers for c in layer.changes]


@dataclass
class Relation:
    """A table of the model. Its second version has one more column, whose values in old rows only the source knows."""

    oid: int
    name: str
    key: tuple[str, ...]
    width: int
    """Key values are below it."""
    published: bool = True
    rewritten: bool = False

    def table(self, version: int) -> Table:
        return self._tables[version]

    def __post_init__(self) -> None:
        keys = tuple(Column(k, "int8") for k in self.key)
        first = Table(
            self.oid, "public", self.name, (*keys, Column("plain", "int8"), Column("toast", "text")), self.key
        )
        more = Column("extra", "int8", rewritten=self.rewritten)
        self._tables = (first, replace(first, columns=(*first.columns, more)))


class Database:
    def __init__(self, rng: Random, relations: list[Relation], standby: bool) -> None:
        self.rng, self.standby = rng, standby
        self.relations = {f"public.{r.name}": r for r in relations}
        self.primary = Store({n: {} for n in self.relations}, dict.fromkeys(self.relations, 0))
        self.replica = Store({n: {} for n in self.relations}, dict.fromkeys(self.relations, 0))
        self.log: list[Commit] = []
        self.end = 1000
        self.open: list[Transaction] = []
        self.xid = (1 << 32) - rng.randrange(40)
        self.completed = self.xid - 1
        self.readers: list[str] = []
        self.stopped = False
        self.haste = rng.choice((0.2, 0.6, 1.0))
        """How soon commits become visible."""
        self.mix = ["c", "u", "u", "u", "d", "m", "m", "again", *rng.choices(("c", "u", "d", "m", "again"), k=4)]
        self._replay: list[tuple[int, list[Change], str]] = []
        self._shown = 0
        self._replayed = self.end
        self._value = 0
        self.say: Callable[[str], None] | None = None
        for name, relation in self.relations.items():
            for key in rng.sample(list(_keys(relation)), min(rng.randint(3, 16), relation.width ** len(relation.key))):
                row: Row = {"plain": self._next(), "toast": f"t{self._next()}"}
                self.primary.rows[name][key] = self.replica.rows[name][key] = row

    # -- what the connector asks --------------------------------------------------------------------------------

    @property
    def shown(self) -> Store:
        return self.replica if self.standby else self.primary

    def log_end(self) -> int:
        return self._replayed if self.standby else self.end

    def horizon(self) -> Visible | Replayed:
        if self.standby:
            return Replayed(self._replayed)
        top = self.completed + 1
        running = tuple(sorted(t.xids[0] for t in self.open if t.xids and t.xids[0] < top))
        return Visible(min((*running, top)), top, running)

    def settled(self, xid: int) -> bool:
        return not any(t.xids and t.xids[0] < xid for t in self.open)

    def unlock(self, table: str) -> None:
        """Wait until nobody holds the table for himself."""
        for t in [t for t in self.open if t.exclusive == table and not self.standby]:
            self._commit(t)
            self._reveal(t)

    def until_visible(self, end: int) -> None:
        """Wait until all that stands in the log before `end` is visible; a standby shows more than it tells."""
        told = {c.xid for c in self.log if c.position < end}
        for t in [t for t in self.open if t.logged and t.xids[0] in told and not self.standby]:
            self._reveal(t)

    def poll(self, told: dict[str, int]) -> None:
        """Versions of tables that the log has not told go into it."""
        for name, version in self.shown.versions.items():
            if version > told.get(name, 0):
                at = self.log_end()
                insort(self.log, Commit(at, at + 1, 0, (Event(NOTE, name, version),)), key=lambda c: c.position)
                self._replayed = at + 1
                self.end = max(self.end, at + 1)

    # -- what happens -------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing that happens in the database."""
        if self.stopped:
            return
        roll = self.rng.random()
        writing = [t for t in self.open if not t.logged]
        waiting = [t for t in self.open if t.logged]
        if self.standby and roll < 0.3:
            self._show() if self.rng.random() < 0.5 else self.tell_replayed()
        elif roll >= 0.9:
            self._seldom()
        elif waiting and roll >= 0.8:
            if self.rng.random() < self.haste:
                self._reveal(self.rng.choice(waiting))
        elif not writing or (roll >= 0.7 and len(self.open) < 6):
            self.open.append(Transaction([Layer()]))
            self._write(self.open[-1])
        else:
            self._go_on(self.rng.choice(writing), roll)

    def _go_on(self, t: Transaction, roll: float) -> None:
        if roll < 0.45:
            self._write(t)
        elif roll < 0.53:
            self._nest(t)
        elif self.rng.random() < 0.85:
            self._commit(t)
        else:
            self._abort(t)

    def _seldom(self) -> None:
        roll = self.rng.random()
        if roll < 0.15:
            self._alter(self.rng.choice(list(self.relations)))
        elif roll < 0.65:
            self._elsewhere()
        elif roll < 0.75:
            self._publish()

    def stop(self) -> None:
        """The writers finish; nothing happens any more."""
        for t in list(self.open):
            if not t.logged and self.rng.random() < 0.3:
                self._abort(t)
            else:
                self._commit(t)
                self._reveal(t)
        while self._replay:
            self._show()
            self.tell_replayed()
        self._replayed = self.end
        self.stopped = True

    def _write(self, t: Transaction) -> None:
        if t.altering:
            return
        name = self.rng.choice(list(self.relations))
        if any(o is not t and o.exclusive == name for o in self.open):
            return
        rows = self._own(t, name)
        free = [k for k in rows if self._lockable(t, name, k)]
        room = [k for k in _keys(self.relations[name]) if k not in rows and self._lockable(t, name, k)]
        op = self.rng.choice(self.mix)
        if op == "c" and room:
            self._change(t, name, "c", None, self.rng.choice(room), self._fresh(name), False)
        elif op == "m" and room and free:
            old = self.rng.choice(free)
            self._update(t, name, old, self.rng.choice(room), rows[old])
        elif op != "c" and free:
            self._write_one(t, name, op, self.rng.choice(free), rows)

    def _write_one(self, t: Transaction, name: str, op: str, key: Key, rows: dict[Key, Row]) -> None:
        if op in "um":
            self._update(t, name, key, key, rows[key])
            return
        self._change(t, name, "d", key, key, None, False)
        if op == "again":
            self._change(t, name, "c", None, key, self._fresh(name), False)

    def _update(self, t: Transaction, name: str, old: Key, new: Key, row: Row) -> None:
        same = self.rng.random() < 0.6
        row = {**row, "plain": self._next()}
        if not same:
            row["toast"] = f"t{self._next()}"
        if self.primary.versions[name] and self.rng.random() < 0.5:
            row["extra"] = self._next()
        self._change(t, name, "u", old, new, row, same)

    def _change(
        self, t: Transaction, name: str, op: str, old: Key | None, new: Key, row: Row | None, same: bool
    ) -> None:
        layer = self._layer(t)
        if old is not None:
            layer.changes.append(Change(name, old))
        if row is not None:
            layer.changes.append(Change(name, new, row))
        t.locked |= {(name, k) for k in (old, new) if k is not None}
        t.tables.add(name)
        moved = old if op == "u" and old != new else None
        told = {k: v for k, v in row.items() if not (same and k == "toast")} if row is not None else None
        self._event(layer, Event(op, name, self.primary.versions[name], new, told, moved, same))

    def _event(self, layer: Layer, event: Event) -> None:
        if self.relations[event.table].published:
            layer.events.append(event)
        if self.say:
            self.say(f"  xid {layer.xid}: {event}")

    def _layer(self, t: Transaction) -> Layer:
        """The innermost savepoint, with its ids: the transaction's own comes first."""
        for layer in (t.layers[0], t.layers[-1]):
            if not layer.xid:
                layer.xid, self.xid = self.xid, self.xid + 1
                t.xids.append(layer.xid)
        return t.layers[-1]

    def _nest(self, t: Transaction) -> None:
        if len(t.layers) < 3 and self.rng.random() < 0.5:
            t.layers.append(Layer())
            self._write(t)
        elif len(t.layers) > 1:
            layer = t.layers.pop()
            if self.rng.random() < 0.5:
                t.layers[-1].events += layer.events
                t.layers[-1].changes += layer.changes
            elif layer.xid:  # what was rolled back is over, though its transaction is not
                self.completed = max(self.completed, layer.xid)

    def _commit(self, t: Transaction) -> None:
        if t.logged:
            return
        if not t.xids:
            self.open.remove(t)
            return
        t.logged = True
        position = self.end + self.rng.randint(1, 3)
        self.end = position + self.rng.randint(1, 3)
        events = tuple(e for layer in t.layers for e in layer.events)
        if events:
            self.log.append(Commit(position, self.end, t.xids[0], events))
        self._replay.append((self.end, t.changes(), t.exclusive))
        if self.say:
            self.say(f"  xid {t.xids[0]}: commit at {position}")

    def _reveal(self, t: Transaction) -> None:
        if t not in self.open:
            return
        self.primary.apply(t.changes())
        self._over(t)
        if self.say:
            self.say(f"  xid {t.xids[0]}: visible")

    def _abort(self, t: Transaction) -> None:
        self._over(t)
        if self.say:
            self.say(f"  xid {t.xids[:1]}: rolled back")

    def _over(self, t: Transaction) -> None:
        self.open.remove(t)
        self.completed = max((self.completed, *t.xids))

    def _show(self) -> None:
        """A standby applies a commit; that it has is told later."""
        if self._shown < len(self._replay) and self._replay[self._shown][2] not in self.readers:
            self.replica.apply(self._replay[self._shown][1])
            self._shown += 1

    def tell_replayed(self) -> None:
        """Between showing and telling lie microseconds, never a batch."""
        if self._shown:
            self._replayed = self._replay[self._shown - 1][0]
            del self._replay[: self._shown]
            self._shown = 0

    def _alter(self, name: str) -> None:
        """TRUNCATE, or ALTER TABLE ADD COLUMN: a transaction that has the table for itself."""
        if name in self.readers:
            return
        for t in [t for t in self.open if name in t.tables or t.exclusive == name]:  # it waits for its lock
            self._commit(t)
            self._reveal(t)
        t = Transaction([Layer()], exclusive=name)
        layer = self._layer(t)
        rows = self.primary.rows[name]
        if self.rng.random() < 0.4:
            layer.changes += [Change(name, key) for key in rows]
            self._event(layer, Event("t", name, self.primary.versions[name]))
        elif not self.primary.versions[name]:
            rewritten = self.relations[name].rewritten
            filled = {k: {**r, "extra": self._next() if rewritten else None} for k, r in rows.items()}
            layer.changes += [Change(name, k, r) for k, r in filled.items()]
            layer.changes.append(Change(name, version=1))
            t.altering = True
        self.open.append(t)

    def _publish(self) -> None:
        for relation in self.relations.values():
            relation.published = True

    def _elsewhere(self) -> None:
        """Something that is not captured: the log goes on, an id is used."""
        self.completed = max(self.completed, self.xid)
        self.xid += 1
        self.end += self.rng.randint(1, 5)
        self._replay.append((self.end, [], ""))

    # -- small steps --------------------------------------------------------------------------------------------

    def _own(self, t: Transaction, name: str) -> dict[Key, Row]:
        """The table as its transaction sees it."""
        rows = dict(self.primary.rows[name])
        Store({n: rows if n == name else {} for n in self.relations}, {}).apply(t.changes())
        return rows

    def _lockable(self, t: Transaction, name: str, key: Key) -> bool:
        return not any(o is not t and (name, key) in o.locked for o in self.open)

    def _fresh(self, name: str) -> Row:
        row: Row = {"plain": self._next(), "toast": f"t{self._next()}"}
        return {**row, "extra": self._next()} if self.primary.versions[name] else row

    def _next(self) -> int:
        self._value += 1
        return self._value


def _keys(relation: Relation) -> Iterator[Key]:
    if len(relation.key) == 1:
        return ((n,) for n in range(relation.width))
    return ((a, b) for a in range(relation.width) for b in range(relation.width))
