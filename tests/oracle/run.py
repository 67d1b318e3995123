"""One seed: a workload, captured in one mode, with crashes; what comes out must be what the model says.

The reading is the engine's own, from the connector over its tail, buffer and journal to decoding. What Spark does
around it is done here in miniature: an offset is logged before its batch is read, a batch that was logged and not
committed is read again after a crash and has to be the same, and the sink applies each batch once.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.oracle import driver
from tests.oracle.decoding import decoded
from tests.oracle.lockstep import Lockstep
from tests.oracle.model import Event, Wrong, difference, shown
from tests.oracle.workload import ACCOUNTS, OWNER, Traits, Workload
from tidelog.connectors.oracle import client, position, tail
from tidelog.engine import backoff, serving
from tidelog.engine import capture as capturing
from tidelog.engine.definition import Definition
from tidelog.engine.home import Home
from tidelog.engine.reading import Reading
from tidelog.errors import TransientError
from tidelog.journal import buffer, handover
from tidelog.journal.files import Files
from tidelog.model.offset import Offset

Say = Callable[[str], None]
BUFFERED, UNBUFFERED = "logminer", "logminer_unbuffered"
_CRASHES_MAX = 4
_ROUNDS_MAX = 8
_SHARED = Path("/dev/shm")


class Crash(BaseException):
    """The process dies here."""


@dataclass(frozen=True)
class How:
    """How a seed is run."""

    adapter: str
    persistent: bool
    steps: int
    before: int
    """Steps of the workload before the capture starts."""
    fetch: int
    held: int
    """Bytes of open transactions that stay in memory."""
    inline: int
    """Bytes of a spilled transaction that are copied to the journal rather than referred to."""
    events: int | None
    crashes: bool = True


@dataclass
class Sink:
    """Applies a batch once, and remembers it: whatever comes again has to be the same."""

    batches: dict[int, list[Event]] = field(default_factory=dict)

    def apply(self, number: int, events: list[Event]) -> None:
        if number in self.batches and self.batches[number] != events:
            raise Wrong(f"batch {number} was\n{shown(self.batches[number])}\nand is now\n{shown(events)}")
        self.batches[number] = events

    @property
    def events(self) -> list[Event]:
        return [e for number in sorted(self.batches) for e in self.batches[number]]


class Run:
    """Two generators of chance: one for the workload, which is thus the same in both modes but for its SCNs (asking for
    one takes one), and one for what happens to the capture."""

    def __init__(self, seed: int, adapter: str, folder: Path, say: Say | None = None) -> None:
        self.seed, self.say = seed, say
        rng = Random(seed)
        self.workload = Workload(rng, Traits.of(rng), say)
        self.server = driver.Server(self.workload.database)
        self.server.before = self._round_trip
        self.workload.restarted = self._restarted
        self.rng = Random(f"{seed} {adapter}")
        self.how = self._how(adapter)
        self.folder = folder
        self.sink = Sink()
        self.offsets: list[str] = []
        self.committed = 0
        self.crashes = 0
        self.left = self.how.steps
        self.since = self.over = 0
        self.reading: Reading | None = None
        self.armed = False
        self.starting = False

    def _how(self, adapter: str) -> How:
        rng, shared = self.rng, Random(f"{self.seed} steps")
        return How(
            adapter=adapter,
            persistent=rng.random() < 0.6,
            steps=shared.randint(30, 110),
            before=shared.randint(0, 25),
            fetch=rng.choice((3, 20, 100, 1000)),
            held=rng.choice((0, 3_000, 30_000, 1 << 20)),
            inline=rng.choice((0, 2_000, 1 << 20)),
            events=rng.choice((None, None, None, 5, 30)),
        )

    # -- the run -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        with self._patched():
            try:
                self._first()
                while not self._over():
                    try:
                        self._batch()
                    except (Crash, TransientError) as exc:
                        self._die(str(exc))
                self._drain()
                self._move_on()
            finally:
                self._leave()
        self._compare()

    def _first(self) -> None:
        for _ in range(self.how.before):
            self.workload.step()
        self.reading = self._reading()
        first = self._initial(self.reading)
        self.since = position.scn_of(first.position)
        self.offsets.append(_text(first))
        self._say(f"captured from {first.to_json()}")
        self.armed = True

    def _initial(self, reading: Reading) -> Offset:
        """Others work meanwhile: the same in both modes, so that both start at the same place."""
        own, self.rng, self.starting = self.rng, Random(f"{self.seed} start"), True
        first = reading.initial()
        self.rng, self.starting = own, False
        return first

    def _over(self) -> bool:
        return self.left <= 0

    def _batch(self) -> None:
        """As Spark does it: log the offset, read the batch, apply it, commit."""
        if self.reading is None:
            self.reading = self._reading()
        if len(self.offsets) == self.committed + 1:
            start = _offset(self.offsets[-1])
            end = self.reading.latest(start, self.how.events, None)
            self._tick(3)
            self._step("before the offset is logged")
            if end == start:
                return
            self.offsets.append(_text(end))
            self._step("after the offset is logged")
        start, end = (_offset(text) for text in self.offsets[self.committed :])
        events = decoded(self.reading.plan(start, end))
        self._step("before the sink applies")
        self.sink.apply(self.committed, events)
        self._step("after the sink applied")
        self.committed += 1
        self.workload.safe = _needed(start)
        self._say(f"batch {self.committed - 1}: {len(events)} events up to {end.document}")
        self._step("after the commit")

    def _drain(self) -> None:
        """The workload ends; everything has to come."""
        self.armed = False
        self.workload.settle()
        self._take_all()

    def _move_on(self) -> None:
        """Nothing is open any more: before long, nobody needs the log of what is over."""
        over = self.over = self.workload.database.scn
        for _ in range(_ROUNDS_MAX):
            self.workload.add_one()
            self._take_all()
            last = _offset(self.offsets[-1])
            if _needed(last) >= over - 1:
                return
        raise Wrong(f"the log is needed from {_needed(last)} on, although nothing was open at {over}: {last.document}")

    def _take_all(self) -> None:
        while True:
            try:
                if self._drained():
                    return
            except TransientError as exc:
                self._die(str(exc))

    def _drained(self) -> bool:
        """Whether nothing more comes."""
        if self.reading is None:
            self.reading = self._reading()
        if len(self.offsets) == self.committed + 1:
            self.reading.drain()
        before = self.committed
        self._batch()
        return self.committed == before

    @property
    def main(self) -> list[Event]:
        """What came of the workload proper."""
        return [e for e in self.sink.events if e.commit_scn <= self.over]

    def _compare(self) -> None:
        expected, found = self.workload.events(self.since), self.sink.events
        if expected != found:
            raise Wrong(difference(expected, found))

    # -- what happens on the way ---------------------------------------------------------------------------------

    def _round_trip(self, what: str) -> None:
        """Before each statement: the world moves on, connections break, processes die."""
        self._tick(3 if self.starting else int(self.rng.random() < 0.35))
        if self.armed and self.rng.random() < 0.004:
            self._say("connections lost")
            self.server.cut()
        self._step(f"in {what[:60]!r}", 0.004)

    def _restarted(self, thread: int) -> None:
        """We are connected to the first instance; who starts when it dies is told so, and starts again."""
        if thread == 1 and not self.starting:
            self.server.cut()

    def _tick(self, most: int) -> None:
        if not (self.armed or self.starting) or self.left <= 0:
            self.workload.settle_files()
            return
        for _ in range(self.rng.randint(0, most)):
            if self.left > 0:
                self.left -= 1
                self.workload.step()

    def _idle(self) -> None:
        self._tick(2)

    def _step(self, place: str, chance: float = 0.04) -> None:
        if self.armed and self.how.crashes and self.crashes < _CRASHES_MAX and self.rng.random() < chance:
            self.crashes += 1
            raise Crash(place)

    def _die(self, place: str) -> None:
        """The process is gone, and maybe its files."""
        self._say(f"crash {place}")
        self._leave()
        lost = self.rng.random()
        if lost < 0.15:
            self._say("the journal is lost")
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
        elif lost < 0.25:
            self._say("the ledger is lost")
            for name in ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"):
                (self.folder / name).unlink(missing_ok=True)
        if self.rng.random() < 0.1:
            self.how = replace(self.how, persistent=not self.how.persistent)

    def _leave(self) -> None:
        armed, self.armed = self.armed, False
        if self.reading is not None:
            self.reading.close()
        self.server.cut()
        self.reading, self.armed = None, armed

    # -- the reading ---------------------------------------------------------------------------------------------

    def _reading(self) -> Reading:
        return Reading(self._definition(), Home(self.folder))

    def _definition(self) -> Definition:
        mode = "persistent" if self.how.persistent else "transient"
        source = {"connector": "oracle", **self._options()}
        return Definition("campaign", source, {"type": "console"}, {}, {"mode": mode})

    def _options(self) -> dict[str, str]:
        excluded = ACCOUNTS[self.seed % len(ACCOUNTS)] if self.workload.traits.excluded else {}
        pauses = {f"log.mining.sleep.time.{name}.ms": "0" for name in ("default", "min", "max", "increment")}
        return {
            "database.user": "c##tide",
            "database.password": "secret",
            "database.dbname": "FREE",
            "database.pdb.name": "FREEPDB1" if self.seed % 2 else "",
            "database.connection.adapter": self.how.adapter,
            "table.include.list": rf"{OWNER}\..*",
            "snapshot.mode": "no_data",
            "log.mining.strategy": "redo_log_catalog" if self.workload.traits.ddl else "online_catalog",
            "lob.enabled": str(self.workload.traits.large).lower(),
            "query.fetch.size": str(self.how.fetch),
            "log.mining.log.query.max.retries": "10000",
            "log.mining.log.backoff.initial.delay.ms": "0",
            "log.mining.low.watermark.interval.ms": "0",
            **pauses,
            **excluded,
        }

    @contextmanager
    def _patched(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "CONNECT", self.server.connect)
            patch.setattr(serving, "Capture", Lockstep.made(self.rng, self._idle, self.how.held))
            patch.setattr(backoff, "_FIRST_S", 0.0)
            patch.setattr(capturing, "_POLL_S", 0.0)
            patch.setattr(tail, "_ROWS_MIN", 1)  # so that a fetch may end inside a transaction
            patch.setattr(handover, "_INLINE_BYTES", self.how.inline)
            patch.setattr(buffer, "_PIECE_ROWS", 7)
            written = Files.write

            def write(files: Files, name: str, content: Any, **options: Any) -> None:
                self._step(f"before {name} is written", 0.02)
                written(files, name, content, **options)
                self._step(f"after {name} is written", 0.02)

            patch.setattr(Files, "write", write)
            yield

    def _say(self, text: str) -> None:
        if self.say is not None:
            self.say(f"{self.workload.database.scn} * {text}")


def _text(offset: Offset) -> str:
    return json.dumps(offset.to_json())


def _offset(text: str) -> Offset:
    return Offset.from_json(json.loads(text))


def _needed(offset: Offset) -> int:
    """The oldest SCN that an offset asks for: the log below it may go."""
    documents = [offset.document, *([json.loads(offset.note)] if offset.note else [])]
    return min((int(d["scn"]) for d in documents if d.get("scn")), default=0)


def play(seed: int, adapter: str, say: Say | None = None) -> Run:
    """One run, in a folder of its own."""
    base = _SHARED if _SHARED.is_dir() else None
    with tempfile.TemporaryDirectory(dir=base, prefix="tidelog-") as folder:
        run = Run(seed, adapter, Path(folder) / "home", say)
        run.folder.mkdir()
        run.run()
        return run
