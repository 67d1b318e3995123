"""Random work on a database, from a seed, and what must come out of it.

The same calls drive the database and build the model: `Workload.events` is what a capture delivers that began at an
SCN. It is told from what transactions did to rows, not from the redo, so a mistake in the redo's reading shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from tests.oracle import redo
from tests.oracle.database import Database, Relation, Row, Transaction
from tests.oracle.literals import Column
from tests.oracle.model import Event, brief, event_of

OWNER = "SHOP"
EXCLUDED_USER, EXCLUDED_CLIENT = "BATCH", "nightly"
ACCOUNTS = (
    {"log.mining.username.exclude.list": EXCLUDED_USER},
    {"log.mining.username.include.list": "app,ogg"},
    {"log.mining.clientid.exclude.list": EXCLUDED_CLIENT},
)
"""Ways to leave out the same transactions."""
_DAY = datetime(2021, 3, 14, 1, 59, 26)
_TEXTS = (
    "plain",
    "it's",
    "a||b",
    "'quoted'",
    "x, \"y\" = 'z' where",
    "semi;colon",
    "(brackets)",
    "Ünïcode ☃",
    "line\nbreak",
    " NULL ",
    "IS NULL and",
    "back\\slash",
    "'",
    "''",
)
_OPEN_MAX = 6


@dataclass(frozen=True)
class Traits:
    """What kind of database a seed has."""

    threads: int = 1
    destinations: int = 1
    tables: int = 1
    large: bool = False
    ddl: bool = False
    excluded: bool = False
    shows_undone: bool = True

    @staticmethod
    def of(rng: Random) -> Traits:
        return Traits(
            threads=rng.choice((1, 1, 2, 3)),
            destinations=rng.choice((1, 1, 2)),
            tables=rng.choice((1, 2, 3)),
            large=rng.random() < 0.3,
            excluded=rng.random() < 0.3,
            ddl=rng.random() < 0.2,
            shows_undone=rng.random() < 0.7,
        )


class Workload:
    def __init__(self, rng: Random, traits: Traits, say: Callable[[str], None] | None = None) -> None:
        self.rng, self.traits, self.say = rng, traits, say
        self.database = Database(rng, threads=traits.threads, destinations=traits.destinations)
        self.database.shows_undone = traits.shows_undone
        self.captured = [self._create(n) for n in range(traits.tables)]
        self.other = self.database.create("HR", "SALARIES", [Column("ID", "NUMBER", 22, 10, 0, False)], ["ID"])
        self.savepoints: dict[Transaction, int] = {}
        self.keys = 0
        self.restarted: Callable[[int], None] = lambda _: None
        self.safe = 0
        """Archives below this SCN are not needed by anybody."""

    def _create(self, n: int) -> Relation:
        columns = [
            Column("ID", "NUMBER", 22, 10, 0, nullable=False),
            Column("NAME", "VARCHAR2", 4000),
            Column("PRICE", "NUMBER", 22, 12, 2),
            Column("MADE", "DATE", 7),
            Column("SEEN", "TIMESTAMP", 11, None, 6),
            Column("MARK", "RAW", 16),
            Column("TITLE", "NVARCHAR2", 200),
        ]
        chosen = [columns[0], *(c for c in columns[1:] if self.rng.random() < 0.6)]
        if self.traits.large and n == 0:
            chosen = [*columns[:2], *(c for c in chosen if c not in columns[:2])]
            kinds = [Column("BODY", "CLOB", 4000), Column("DATA", "BLOB", 4000), Column("LONGER", "VARCHAR2", 32767)]
            chosen += self.rng.sample([*kinds, Column("DOC", "XMLTYPE", 2000)], self.rng.choice((1, 2)))
        if self.rng.random() < 0.3:
            hidden = Column("SHADOW", "NUMBER", 22, 10, 0, hidden=True)
            chosen = [chosen[0], hidden, Column("SYS_NC00003$", "RAW", 16, system=True), *chosen[1:]]
        return self.database.create(OWNER, f"T{n}", chosen, ["ID"])

    # -- what must come out --------------------------------------------------------------------------------------

    def events(self, since: int) -> list[Event]:
        """Of all transactions that were committed after `since`, in commit order."""
        found = []
        for transaction in self.database.committed:
            scn = transaction.work.commit_scn
            assert scn is not None
            if scn > since and not self._left_out(transaction):
                found += [event_of(transaction, c) for c in transaction.changes if c.relation in self.captured]
        return found

    def _left_out(self, transaction: Transaction) -> bool:
        """Whose it is must be known."""
        work = transaction.work
        return self.traits.excluded and work.user == EXCLUDED_USER and not work.silent

    # -- one step ------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Something happens."""
        name = self.rng.choices(*zip(*_STEPS.items(), strict=True))[0]
        getattr(self, f"_do_{name}")()

    def settle(self) -> None:
        """Everything ends, and reaches the disk."""
        while self.database.open:
            self._end(self.database.open[0])
        self.settle_files()

    def add_one(self) -> None:
        """One more transaction, all by itself."""
        transaction = self.database.begin(self._thread())
        self._change(transaction, self.captured[-1])
        transaction.commit()
        self.settle_files()

    def settle_files(self) -> None:
        """Time passes, and nobody does anything."""
        self.database.redo.advance()
        self._do_flush_all()
        self._do_archive_all()

    def _say(self, text: str) -> None:
        if self.say is not None:
            self.say(f"{self.database.scn} {text}")

    def _any(self) -> Transaction | None:
        return self.rng.choice(self.database.open) if self.database.open else None

    def _thread(self) -> int:
        return self.rng.choice([t.number for t in self.database.redo.threads.values() if t.open])

    def _relation(self) -> Relation:
        return self.other if self.rng.random() < 0.15 else self.rng.choice(self.captured)

    def _do_begin(self) -> None:
        if len(self.database.open) < _OPEN_MAX:
            user = EXCLUDED_USER if self.rng.random() < 0.15 else "APP"
            silent = self.rng.random() < 0.15
            thread, client = self._thread(), self.rng.choice((None, "web"))
            client = EXCLUDED_CLIENT if user == EXCLUDED_USER else client
            begun = self.database.begin(thread, user, client, silent=silent)
            self._say(f"begin {begun.work.hex} on {begun.work.thread} by {user}{' silently' if silent else ''}")

    def _do_change(self) -> None:
        transaction = self._any()
        if transaction is None:
            return self._do_begin()
        for _ in range(self.rng.choice((1, 1, 2, 5))):
            self._change(transaction, self._relation())
        return None

    def _change(self, transaction: Transaction, relation: Relation) -> None:
        places = relation.free(transaction)
        what = self.rng.choice("cccuuud") if places else "c"
        if what == "c":
            place = transaction.insert(relation, self._row(relation))
        else:
            place = self.rng.choice(places)
            if what == "u":
                touched = any(c.row_id == place for c in transaction.changes)
                transaction.update(relation, place, self._changes(relation, relation.now[place], touched))
            else:
                transaction.delete(relation, place)
        change = transaction.changes[-1]
        if self.say is not None:
            before, after = brief(change.before), brief(change.after)
            self._say(f"{transaction.work.hex} {what} {relation.name} {place} {before} -> {after}")

    def _do_fail(self) -> None:
        transaction = self._any()
        if transaction is not None:
            self._say(f"{transaction.work.hex} fails to insert")
            transaction.fail(self._plain(), self._row(self._plain(), key=1))

    def _plain(self) -> Relation:
        """A table without large values: what LogMiner tells when those are taken back is another matter."""
        return next((r for r in self.captured if not r.has_large), self.other)

    def _do_savepoint(self) -> None:
        transaction = self._any()
        if transaction is not None:
            self.savepoints[transaction] = transaction.savepoint()

    def _do_rollback_to(self) -> None:
        known = [t for t in self.savepoints if not t.over and self.savepoints[t] <= len(t.changes)]
        if not known:
            return
        transaction = self.rng.choice(known)
        self._say(f"{transaction.work.hex} back to {self.savepoints[transaction]} of {len(transaction.changes)}")
        transaction.rollback_to(self.savepoints[transaction], nameless=self.rng.random() < 0.2)

    def _do_end(self) -> None:
        transaction = self._any()
        if transaction is not None:
            self._end(transaction)

    def _end(self, transaction: Transaction) -> None:
        if self.rng.random() < 0.2:
            nameless = self.rng.random() < 0.3
            transaction.rollback(nameless=nameless)
            self._say(f"{transaction.work.hex} rolled back{' without a name' if nameless else ''}")
            return
        scn = transaction.commit(wait=self.rng.random() < 0.8)
        self._say(f"{transaction.work.hex} committed at {scn} on {transaction.work.thread}")
        other = self._any()
        if other is not None and self.rng.random() < 0.2:
            other.commit(scn, wait=self.rng.random() < 0.8)
            self._say(f"{other.work.hex} committed at {scn} too, on {other.work.thread}")

    def _do_burst(self) -> None:
        """A large transaction, at once."""
        transaction = self.database.begin(self._thread())
        relation = self.rng.choice(self.captured)
        for _ in range(self.rng.randint(10, 40)):
            transaction.insert(relation, self._row(relation))
        self._say(f"{transaction.work.hex} inserted {len(transaction.changes)} rows")

    def _do_mark(self) -> None:
        """A replication product's transaction, which never ends."""
        if len(self.database.abandoned) < 3:
            transaction = self.database.begin(self._thread(), "OGG")
            transaction.mark()
            self._say(f"{transaction.work.hex} left open with a marker")

    def _do_noise(self) -> None:
        """What concerns no row."""
        redo_ = self.database.redo
        match self.rng.randrange(4):
            case 3:
                self.database.begin(self._thread()).commit(loose=True)
            case 0:
                redo_.advance(5)
                redo_.write(self._thread(), redo.MISSING_SCN, info=f"Missing SCN {redo_.scn - 3} - {redo_.scn}")
            case 1:
                self._note(redo.UNSUPPORTED, sql="Unsupported", info="Unsupported operation")
            case _:
                self._note(redo.INSERT, sql="/* No SQL_REDO for temporary tables */", relation=self.other)

    def _note(self, code: int, sql: str, info: str | None = None, relation: Relation | None = None) -> None:
        transaction = self._any()
        if transaction is not None:
            transaction.note(code, relation or self.other, sql=sql, info=info)

    def _do_ddl(self) -> None:
        """A table gets another column; nobody may have changed it and still be open."""
        relation = self.rng.choice(self.captured)
        if self.traits.ddl and not relation.locked and len(relation.layouts) < 4:
            column = Column(f"EXTRA{relation.version}", "NUMBER", 22, 10, 0)
            sql = f'alter table "{relation.owner}"."{relation.name}" add {column.name} number(10)'
            self.database.alter(relation, [*relation.columns, column], sql, self._thread())
            self._say(sql)

    # -- files ---------------------------------------------------------------------------------------------------

    def _do_switch(self) -> None:
        thread = self._thread()
        log = self.database.redo.switch(thread)
        self._say(f"thread {thread} switched to sequence {log.sequence}")

    def _do_archive(self) -> None:
        # How many wait depends on the capture as well: it must not decide how often chance is asked.
        chance, pending = self.rng.random(), self.database.redo.pending_archives()
        if pending:
            pending[int(chance * len(pending))].ready = True

    def _do_archive_all(self) -> None:
        for archive in self.database.redo.pending_archives():
            archive.ready = True

    def _do_flush(self) -> None:
        self.database.redo.flush(self._thread())

    def _do_flush_all(self) -> None:
        for thread in self.database.redo.threads.values():
            if thread.open:
                self.database.redo.flush(thread.number)

    def _do_delete(self) -> None:
        gone = self.database.redo.delete_archives(self.safe)
        if gone:
            self._say(f"archives below {self.safe} deleted")

    def _do_crash(self) -> None:
        thread = self._thread()
        self._say(f"instance {thread} dies")
        self.database.crash(thread)
        self.restarted(thread)

    def _do_enable(self) -> None:
        """The cluster gets another node."""
        number = len(self.database.redo.threads) + 1
        if 1 < number <= 4 and self.traits.threads > 1:
            self.database.redo.enable(number)
            self._say(f"instance {number} is new")

    def _do_revive(self) -> None:
        down = [t.number for t in self.database.redo.threads.values() if not t.open]
        if down:
            thread = self.rng.choice(down)
            self.database.revive(thread)
            self._say(f"instance {thread} is back")

    # -- values --------------------------------------------------------------------------------------------------

    def _row(self, relation: Relation, key: int = 0) -> Row:
        self.keys += 1
        return {c.name: key or self.keys if c.name == "ID" else self._value(c) for c in relation.columns}

    def _changes(self, relation: Relation, row: Row, touched: bool) -> Row:
        others = [c for c in relation.columns if c.name != "ID"]
        if not others:
            return {"ID": self._moved()}
        chosen = self.rng.sample(others, self.rng.randint(1, len(others)))
        changes = {c.name: self._value(c) for c in chosen}
        if self.rng.random() < 0.1 and not relation.has_large:
            changes["ID"] = self._moved()
        if relation.has_large and touched:
            # A value that is written right after a change of its row cannot be told from a part of it.
            changes["NAME"] = f"{self._moved()}"
        return changes if any(row[k] != v for k, v in changes.items()) else {"ID": self._moved()}

    def _moved(self) -> int:
        self.keys += 1
        return self.keys

    def _value(self, column: Column) -> Any:
        rng = self.rng
        if column.nullable and rng.random() < 0.2:
            return None
        match column.type:
            case "NUMBER":
                whole = rng.choice((0, -1, 7, 12345, rng.randint(-(10**9), 10**9)))
                return Decimal(whole).scaleb(-(column.scale or 0)) if column.scale else whole
            case "DATE":
                return _DAY + timedelta(seconds=rng.randint(0, 10**8))
            case "TIMESTAMP":
                return _DAY + timedelta(microseconds=rng.randint(0, 10**14))
            case "RAW":
                return rng.randbytes(rng.randint(1, 8))
            case "CLOB":
                return rng.choice(_TEXTS) * rng.choice((1, 3, 40, 200))
            case "BLOB":
                return rng.randbytes(rng.choice((1, 50, 900, 3000)))
            case "XMLTYPE":
                return f"<a>{'x' * rng.choice((1, 900))}</a>"
            case "VARCHAR2" if column.extended:
                return rng.choice(_TEXTS) * rng.choice((1, 400))
            case _:
                long = column.length >= 4000 and rng.random() < 0.05
                return rng.choice(_TEXTS) * (600 if long else 1)


_STEPS = {
    "begin": 8,
    "change": 30,
    "fail": 2,
    "savepoint": 4,
    "rollback_to": 4,
    "end": 12,
    "burst": 1,
    "mark": 1,
    "noise": 2,
    "switch": 3,
    "archive": 6,
    "flush": 8,
    "flush_all": 6,
    "delete": 2,
    "crash": 0.7,
    "revive": 1.5,
    "enable": 0.3,
    "ddl": 1,
}
