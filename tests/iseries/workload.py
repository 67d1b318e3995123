"""A random workload of several jobs over one journal, and the model of what has to come out of it.

A job works with commitment control or without. Rows are locked as the system locks them. A roll-back, to a savepoint
or of everything, writes what it takes back, newest first. Between the old image of an update and its new one, other
jobs may write. Receivers change at any time, and their numbers may begin anew when no transaction is open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

from tests.iseries.records import Field
from tests.iseries.system import File, System, named

Row = tuple[Any, ...]

ORDERS = File(
    "SHOP",
    "ORDERS",
    (
        Field("ID", "INTEGER", 4),
        Field("CUSTOMER", "CHAR", 8, ccsid=37),
        Field("AMOUNT", "DECIMAL", 9, 2),
        Field("PLACED", "TIMESTMP", 10, fraction=6),
        Field("NOTE", "VARCHAR", 20, ccsid=273, nullable=True),
    ),
    key=("ID",),
)
ITEMS = File(
    "SHOP",
    "ITEMS0001",
    (
        Field("ORDER_ID", "BIGINT", 8),
        Field("PIECES", "NUMERIC", 5, 0),
        Field("DUE", "DATE", 4, nullable=True),
        Field("CODE", "VARBIN", 6),
    ),
    table="ORDER_ITEMS",
    key=("ORDER_ID",),
)
AUDIT = File("SHOP", "AUDIT", (Field("ID", "INTEGER", 4), Field("WHAT", "CHAR", 10, ccsid=37)))
ELSEWHERE = File("OTHER", "LOG", (Field("ID", "INTEGER", 4),))
CAPTURED = (ORDERS, ITEMS)


class Event(NamedTuple):
    table: str
    op: str
    before: Row | None
    after: Row | None


@dataclass
class Change:
    """Of an open transaction: what it did to a row, so that it can be taken back."""

    kind: str
    file: File
    rrn: int
    before: Row | None
    after: Row | None


@dataclass
class Job:
    number: int
    controlled: bool
    pace: float = 1.0
    """A slow job has its transactions open for long, and says little."""
    cycle: int = 0
    changes: list[Change] = field(default_factory=list)
    savepoints: list[int] = field(default_factory=list)
    half: Change | None = None
    """An update whose new image is still to be written."""
    locks: set[tuple[str, int]] = field(default_factory=set)


class Workload:
    def __init__(self, rng: Random, say: Callable[[str], None] | None = None) -> None:
        self.rng = rng
        self.say = say or (lambda _: None)
        self.system = System([ORDERS, ITEMS, AUDIT, ELSEWHERE], zone=rng.choice((0, 10_000, -53_000)))
        self.jobs = [Job(i, rng.random() < 0.75, rng.choice((0.1, 1.0, 1.0))) for i in range(rng.randint(1, 5))]
        self.rows: dict[tuple[str, int], Row] = {}
        self.next_rrn = {f.name: 1 for f in (ORDERS, ITEMS, AUDIT, ELSEWHERE)}
        self.committed: list[tuple[tuple[int, int], list[Event]]] = []
        """In commit order, each under its receiver's number and its sequence."""
        self.resets = rng.random() < 0.4
        self.alters = rng.random() < 0.4
        self.known: int | None = None
        """With how many columns the capture has met the table that is altered."""
        self.changes_receivers = rng.choice((0.0, 0.02, 0.1))

    # -- steps -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        self.system.clock += timedelta(seconds=rng.choice((0, 0, 1, 40, 400)))
        if rng.random() < self.changes_receivers:
            self._change_receiver()
            return
        if self.alters and rng.random() < 0.08:
            self._alter()
            return
        job = rng.choices(self.jobs, [job.pace for job in self.jobs])[0]
        if job.half is not None:
            self._second_half(job)
        elif job.controlled:
            self._controlled(job)
        else:
            self._change(job)

    def _controlled(self, job: Job) -> None:
        chance = self.rng.random()
        if not job.cycle:
            job.cycle = self.system.begin()
            self._change(job)
        elif chance < 0.15:
            self._commit(job)
        elif chance < 0.25:
            early = job.cycle % 7 == 0
            self._roll_back(job, 0, told=self.rng.random() < 0.7, early=early)
            self.system.write("C", "CN" if early else "RB", cycle=job.cycle)
            self._over(job)
        elif chance < 0.35:
            job.savepoints.append(len(job.changes))
        elif chance < 0.45 and job.savepoints:
            self._roll_back(job, job.savepoints.pop())
        else:
            self._change(job)

    def open(self) -> set[int]:
        return {job.cycle for job in self.jobs if job.cycle}

    def finish(self) -> None:
        """Most transactions end; some stay open for good."""
        for job in self.jobs:
            if job.half is not None:
                self._second_half(job)
            if job.cycle and self.rng.random() < 0.7:
                self._commit(job)

    def _commit(self, job: Job) -> None:
        sequence = self.system.write("C", "CM", cycle=job.cycle)
        self.say(f"job {job.number} commits {job.cycle} at {sequence}")
        self._publish(sequence, job.changes)
        self._over(job)

    def _over(self, job: Job) -> None:
        job.cycle, job.changes, job.savepoints, job.locks = 0, [], [], set()

    def _publish(self, sequence: int, changes: list[Change]) -> None:
        events = [_event(c) for c in changes if c.file.name in (ORDERS.name, ITEMS.name)]
        if events:
            self.committed.append(((self.system.made, sequence), events))

    # -- changes -----------------------------------------------------------------------------------------------

    def _change(self, job: Job) -> None:
        file = self._file()
        free = [rrn for name, rrn in self.rows if name == file.name and not self._locked(file, rrn, job)]
        chance = self.rng.random()
        if not free or chance < 0.45:
            self._insert(job, file)
        elif chance < 0.8:
            self._update(job, file, self.rng.choice(free))
        elif chance < 0.97 or job.controlled:
            self._delete(job, file, self.rng.choice(free))
        else:
            self._clear(file)

    def _file(self) -> File:
        chosen = self.rng.choices((ORDERS, ITEMS, AUDIT, ELSEWHERE), (6, 4, 1, 1))[0]
        return self.system.files[chosen.library, chosen.name]

    def _locked(self, file: File, rrn: int, by: Job) -> bool:
        return any((file.name, rrn) in job.locks for job in self.jobs if job is not by)

    def _insert(self, job: Job, file: File) -> None:
        held = {rrn for other in self.jobs for name, rrn in other.locks if name == file.name}
        gaps = [r for r in range(1, self.next_rrn[file.name]) if (file.name, r) not in self.rows and r not in held]
        if gaps and self.rng.random() < 0.3:
            rrn = self.rng.choice(gaps)
        else:
            rrn = self.next_rrn[file.name]
            self.next_rrn[file.name] += 1
        row = self._values(file)
        sequence = self.system.row(self.rng.choice(("PT", "PX")), file, rrn, row, job.cycle)
        self._done(job, Change("c", file, rrn, None, row), sequence)

    def _update(self, job: Job, file: File, rrn: int) -> None:
        old = self.rows[file.name, rrn]
        new = tuple(v if self.rng.random() < 0.5 else w for v, w in zip(old, self._values(file), strict=True))
        self.system.row("UB", file, rrn, old, job.cycle)
        job.half = Change("u", file, rrn, old, new)
        job.locks.add((file.name, rrn))
        if self.rng.random() < 0.8:
            self._second_half(job)

    def _second_half(self, job: Job) -> None:
        change, job.half = job.half, None
        assert change is not None
        sequence = self.system.row("UP", change.file, change.rrn, change.after or (), job.cycle)
        self._done(job, change, sequence)

    def _delete(self, job: Job, file: File, rrn: int) -> None:
        row = self.rows[file.name, rrn]
        sequence = self.system.row("DL", file, rrn, row, job.cycle)
        self._done(job, Change("d", file, rrn, row, None), sequence)

    def _clear(self, file: File) -> None:
        """Only when nobody holds a row of the file."""
        if any(name == file.name for job in self.jobs for name, _ in job.locks):
            return
        sequence = self.system.write("F", "CR", named(file))
        self.rows = {place: row for place, row in self.rows.items() if place[0] != file.name}
        self._publish(sequence, [Change("t", file, 0, None, None)])

    def _done(self, job: Job, change: Change, sequence: int) -> None:
        place = (change.file.name, change.rrn)
        self.say(f"job {job.number} in {job.cycle}: {change.kind} {place} at {sequence}")
        self._put(place, change.after)
        if job.cycle:
            job.locks.add(place)
            job.changes.append(change)
        else:
            job.locks.discard(place)
            self._publish(sequence, [change])

    def _put(self, place: tuple[str, int], row: Row | None) -> None:
        if row is None:
            self.rows.pop(place, None)
        else:
            self.rows[place] = row

    def _roll_back(self, job: Job, to: int, *, told: bool = True, early: bool = False) -> None:
        """Newest first, or file by file: what was inserted is deleted, everything else is as it was before. The end of
        a transaction says enough by itself, also where its rows are not `told`, or where somebody ends the roll-back
        `early`: then the files are restored to what they were, and the journal does not tell how."""
        self.say(f"job {job.number} in {job.cycle} rolls back to {to}")
        job.savepoints = [s for s in job.savepoints if s <= to]
        taken, job.changes = job.changes[to:], job.changes[:to]
        taken.reverse()
        if self.rng.random() < 0.4:
            taken.sort(key=lambda change: change.file.name, reverse=self.rng.random() < 0.5)
        for i, change in enumerate(taken):
            if told and not (early and i * 2 >= len(taken)):
                self._tell_back(job, change)
            self._put((change.file.name, change.rrn), change.before)

    def _tell_back(self, job: Job, change: Change) -> None:
        if change.kind == "c":
            self.system.row("DR", change.file, change.rrn, change.after or (), job.cycle)
            return
        if change.kind == "u":
            self.system.row("BR", change.file, change.rrn, change.after or (), job.cycle)
        self.system.row("UR", change.file, change.rrn, change.before or (), job.cycle)

    # -- the journal and the tables ----------------------------------------------------------------------------

    def _change_receiver(self) -> None:
        quiet = not any(job.cycle or job.half for job in self.jobs)
        reset = self.resets and quiet and self.rng.random() < 0.5
        if self.rng.random() < 0.1:
            self.system.clock -= timedelta(hours=1)
        self.system.attach(reset=reset)
        self.say(f"receiver {self.system.receivers[-1].name}{' with new numbers' if reset else ''}")

    def _alter(self) -> None:
        """A column more: nobody may hold a row of the table meanwhile. What a row was laid out like before the capture
        met it, no journal tells: such changes wait."""
        file = self.system.files[ORDERS.library, ORDERS.name]
        if len(file.fields) != self.known or len(file.fields) > 7:
            return
        if any(name == file.name for job in self.jobs for name, _ in job.locks):
            return
        added = Field(f"X{len(file.fields)}", "SMALLINT", 2, nullable=True)
        self.system.alter(file, (*file.fields, added))
        self.rows = {p: (*row, None) if p[0] == file.name else row for p, row in self.rows.items()}
        self.say(f"{file.name} has {added.name}")

    def _values(self, file: File) -> Row:
        return tuple(self._value(f) for f in file.fields)

    def _value(self, f: Field) -> Any:
        rng = self.rng
        if f.nullable and rng.random() < 0.3:
            return None
        match f.type:
            case "SMALLINT" | "INTEGER" | "BIGINT":
                return rng.randint(-999, 999)
            case "DECIMAL" | "NUMERIC":
                return Decimal(rng.randint(-99_999, 99_999)).scaleb(-(f.scale or 0))
            case "DATE":
                return date(2026, 1, 1) + timedelta(days=rng.randint(-9_000, 9_000))
            case "TIMESTMP":
                return datetime(2026, 1, 1) + timedelta(microseconds=rng.randint(0, 10**15))
            case "VARBIN":
                return rng.randbytes(rng.randint(0, f.length))
            case "CHAR":
                return "".join(rng.choices("abcÄÖß XYZ", k=rng.randint(0, f.length))).ljust(f.length)
        return "".join(rng.choices("abcäöüß €{}[]\\'\"x".replace("€", ""), k=rng.randint(0, f.length)))


def _event(change: Change) -> Event:
    return Event(".".join(change.file.sql), change.kind, change.before, change.after)
