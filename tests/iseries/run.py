"""One seed: a workload, captured with crashes; what comes out must be what the model says.

The path is the real one: connector, tail, buffer, journal, and decoding of what the journal plans. Around it stands the
engine in miniature. A batch's end is noted before it is read; a batch that was noted is read again after a crash, and
has to be the same; the sink applies each once.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.iseries.driver import Server
from tests.iseries.faults import FAULTS
from tests.iseries.workload import CAPTURED, ORDERS, Event, Workload
from tidelog.connectors.iseries import client
from tidelog.connectors.iseries.connector import IseriesConnector, create
from tidelog.connectors.iseries.tail import IseriesTail
from tidelog.contracts import Mixed, Portion
from tidelog.core import metadata
from tidelog.errors import TransientError
from tidelog.journal import segment
from tidelog.journal.buffer import Buffer
from tidelog.journal.files import Files
from tidelog.journal.journal import SegmentJournal
from tidelog.journal.ledger import Ledger

_SHARED = Path("/dev/shm")
_CRASHES_MAX = 4
_POLLS_MAX = 2_000
OPTIONS = {
    "database.hostname": "ibmi",
    "database.user": "reader",
    "database.password": "secret",
    "table.include.list": ",".join(r"\.".join(f.sql) for f in CAPTURED),
    "poll.interval.ms": "0",
}

Say = Callable[[str], None]


class Crash(BaseException):
    """The process dies here."""


class Wrong(AssertionError):
    """What came out is not what the model says."""


@dataclass
class Sink:
    batches: dict[int, list[Event]] = field(default_factory=dict)

    def apply(self, number: int, events: list[Event]) -> None:
        if self.batches.setdefault(number, events) != events:
            raise Wrong(f"batch {number} was {self.batches[number]} and is now {events}")

    @property
    def events(self) -> list[Event]:
        return [event for number in sorted(self.batches) for event in self.batches[number]]


class Run:
    def __init__(self, seed: int, folder: Path, fault: str = "", say: Say | None = None) -> None:
        self.rng = Random(f"{seed} capture")
        self.say = say or (lambda _: None)
        self.fault = fault
        self.workload = Workload(Random(seed), self.say)
        self.server = Server(self.workload.system)
        self.server.empty_is_an_error = self.rng.random() < 0.3
        self.folder = folder
        self.persistent = self.rng.random() < 0.6
        self.memory = self.rng.choice((1 << 12, 1 << 20))
        self.entries = self.rng.choice((100, 100, 1000))
        self.steps = self.rng.randint(40, 140)
        self.sink = Sink()
        self.noted: list[int] = []
        """Where each batch ends; the first one is where the capture began."""
        self.since = (0, 0)
        self.crashes = 0
        self.life: Life | None = None

    def run(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "CONNECT", self.server.connect)
            if self.fault:
                FAULTS[self.fault](patch)
            self._first()
            while self.steps > 0:
                self._survive(self._turn)
            self.workload.finish()
            self._survive(self._drain)
        self._compare()

    def _first(self) -> None:
        for _ in range(self.rng.randint(0, 50)):
            self.workload.step()
        connector = self._connector()
        self.noted.append(connector.prepare())
        last = self.workload.system.receivers[-1]
        self.since = (self.workload.system.made, last.last)
        self.server.before = self._meanwhile
        self.say(f"captured from {self.since}, persistent {self.persistent}, memory {self.memory}")

    def _connector(self) -> IseriesConnector:
        return create({**OPTIONS, "journal.entries.max": str(self.entries)})

    def _meanwhile(self, _: str) -> None:
        """The jobs go on while we ask; now and then the connection breaks, or the process dies."""
        if self.steps > 0:
            self._work()
            self._perhaps(0.01)
            if self.rng.random() < 0.01:
                raise OSError("the connection broke")

    def _work(self) -> None:
        for _ in range(self.rng.choice((0, 0, 1, 2, 7)) if self.steps > 0 else 0):
            self.workload.step()
            self.steps -= 1

    def _perhaps(self, chance: float) -> None:
        if self.crashes < _CRASHES_MAX and self.steps > 0 and self.rng.random() < chance:
            self.crashes += 1
            raise Crash

    def _survive(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Crash:
            self.say("crash")
            self.life = None
        except TransientError as exc:
            self.say(f"{exc}")
            self.life = None
        else:
            return
        if self.steps <= 0:
            self._survive(act)

    # -- the engine in miniature -------------------------------------------------------------------------------

    def _turn(self) -> None:
        life = self._living()
        for _ in range(self.rng.randint(1, 3)):
            self._work()
            self._poll(life)
        self._perhaps(0.05)
        if self.rng.random() < 0.6:
            self._batch(life)

    def _drain(self) -> None:
        life = self._living()
        end = life.connector.log_end()
        self._until(life, lambda: life.tail.reached() >= end and life.tail.quiet())
        while self._batch(life):
            pass

    def _living(self) -> Life:
        if self.life is None:
            self.life = Life(self)
            for number in range(self.committed(), len(self.noted) - 1):  # what was noted and not applied comes again
                self._apply(self.life, number)
        return self.life

    def committed(self) -> int:
        return len(self.sink.batches)

    def _until(self, life: Life, done: Callable[[], bool]) -> None:
        for _ in range(_POLLS_MAX):
            if done():
                return
            self._poll(life)
        raise Wrong("the capture does not get on")

    def _poll(self, life: Life) -> None:
        mixed = life.tail.poll(0, True)
        if mixed is None:
            return
        assert isinstance(mixed, Mixed)
        for portion in life.buffer.add(mixed):
            self._perhaps(0.02)
            life.journal.append(portion)
            self._met(portion)
        if self.persistent and self.rng.random() < 0.3:
            life.buffer.flush()
            self._perhaps(0.05)

    def _met(self, portion: Portion) -> None:
        """Without its files, a journal does not know which version of a table stood at its end."""
        for block in portion.blocks if self.persistent else ():
            if block.table is not None and block.table.qualified == ".".join(ORDERS.sql):
                self.workload.known = len(block.table.columns)

    def _batch(self, life: Life) -> bool:
        start = self.noted[-1]
        end = life.journal.limit(start, self.rng.choice((None, None, 5)), None)
        if end <= start:
            return False
        self.noted.append(end)
        self._perhaps(0.05)
        self._apply(life, len(self.noted) - 2)
        if self.rng.random() < 0.5:
            life.journal.release(end)
            life.buffer.sweep(life.journal.referred())
        return True

    def _apply(self, life: Life, number: int) -> None:
        start, end = self.noted[number], self.noted[number + 1]
        self._until(life, lambda: life.journal.end() >= end)  # after a transient restart it is read once more
        self.sink.apply(number, life.events(start, end))
        self._perhaps(0.03)

    # -- what must have come -----------------------------------------------------------------------------------

    def _compare(self) -> None:
        expected = [e for at, events in self.workload.committed if at > self.since for e in events]
        if self.sink.events != expected:
            raise Wrong(_difference(expected, self.sink.events))
        assert self.life is not None
        if over := self.life.buffer.open().keys() - self.workload.open():
            raise Wrong(f"transactions that have ended are kept as open: {sorted(over)}")


class Life:
    """A process, from its start to its death."""

    def __init__(self, run: Run) -> None:
        files = Files(str(run.folder / "journal"))
        self.files = files
        self.connector = run._connector()
        ledger = Ledger(str(run.folder / "ledger.sqlite"))
        self.journal = SegmentJournal(files, ledger, persistent=run.persistent)
        self.decoder = self.connector.decoder()
        start = self.journal.open(run.noted[run.committed()])
        self.buffer = Buffer(
            files, memory_bytes=run.memory, start=start, epoch=self.journal.epoch, persistent=run.persistent
        )
        self.buffer.sweep(self.journal.referred())
        note = self.journal.last_commit(start)[2]
        self.tail: IseriesTail = self.connector.tail(
            start, self.journal.tables(), run.memory, note=note, kept=self.buffer.kept()
        )
        self.buffer.merging = self.tail.merging

    def events(self, start: int, end: int) -> list[Event]:
        found: list[tuple[tuple[int, int], Event]] = []
        selection = self.connector.selection()
        for piece in self.journal.plan(start, end):
            assert piece.table is not None
            rows = self.decoder.typed(segment.load(self.files, piece), piece.table, selection).rows
            names = [c.name for c in piece.table.columns]
            for row in rows.to_pylist():
                place = (row[metadata.POSITION], row[metadata.ORDINAL])
                found.append((place, _event(piece.table.qualified, row, names)))
        places = [place for place, _ in found]
        if len(set(places)) != len(places):
            raise Wrong(f"two events at one place: {sorted(places)}")
        return [event for _, event in sorted(found, key=lambda pair: pair[0])]


def _event(table: str, row: dict[str, Any], names: list[str]) -> Event:
    op = row[metadata.OP]
    before = tuple(row[metadata.BEFORE][n] for n in names) if row[metadata.BEFORE] is not None else None
    after = tuple(row[n] for n in names) if op in "cu" else None
    return Event(table, op, before, after)


def _difference(expected: list[Event], found: list[Event]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), None)
    at = min(len(expected), len(found)) if at is None else at
    show = "\n".join(f"{name}: {some[at : at + 3]}" for name, some in (("expected", expected), ("found", found)))
    return f"{len(expected)} events expected, {len(found)} found; they part at {at}\n{show}"


def run(seed: int, fault: str = "", say: Say | None = None) -> None:
    folder = Path(tempfile.mkdtemp(dir=_SHARED if _SHARED.is_dir() else None))
    try:
        Run(seed, folder, fault, say).run()
    except Exception as exc:
        exc.add_note(f"seed {seed}")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
