"""One seeded run: the engine in miniature, crashes included, and what must hold in the end.

The engine keeps to the order of the real one. A batch is planned from the last committed offset alone; its offset is
logged before anything is read or delivered; what was logged and not committed is done again after a crash. The sink
applies a batch once per table, `r` rows before log events.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pyarrow as pa

from tests.simulation.model import NOTE, Commit, Database, Key, Relation, Row
from tests.simulation.world import Told, World, Wrong, events_of, schema_of
from tidelog.contracts import Watermark
from tidelog.core import metadata
from tidelog.core.fold import ROW, STAMPS, Folded, Run, fold
from tidelog.core.snapshot import requests, watermark
from tidelog.core.snapshot.plan import advance
from tidelog.core.snapshot.requests import Wanted
from tidelog.core.snapshot.state import BLOCKING, INCREMENTAL, INITIAL, Emission, News, Snapshot
from tidelog.core.snapshot.world import Bounds, Now

_STATE_MAX = 8_000
_BATCHES_MAX = 120
_CRASHES_MAX = 4

Say = Callable[[str], None]


class Crash(Exception):
    """The process dies here."""


@dataclass(frozen=True)
class Offset:
    position: int
    floor: int
    snapshot: Snapshot = field(default_factory=Snapshot)

    def to_json(self) -> str:
        return json.dumps({"position": self.position, "floor": self.floor, "snapshot": self.snapshot.to_json()})

    @staticmethod
    def from_json(text: str) -> Offset:
        raw = json.loads(text)
        return Offset(raw["position"], raw["floor"], Snapshot.from_json(raw["snapshot"]))


@dataclass(frozen=True)
class Signal:
    batch: int
    """It is there when this one is planned."""
    id: str
    verb: str
    tables: tuple[str, ...] = ()


@dataclass
class Target:
    rows: dict[Key, Row] = field(default_factory=dict)
    version: int = 0
    applied: int = -1
    """The last batch that is in it."""
    asked: Watermark | None = None
    """What the source had to show when it was last asked."""


def relations(rng: Random) -> list[Relation]:
    found = []
    for n in range(rng.choice((1, 1, 2))):
        composite = rng.random() < 0.3
        key, width = (("a", "b"), rng.randint(3, 4)) if composite else (("k",), rng.randint(5, 16))
        found.append(Relation(100 + n, f"t{n}", key, width, rewritten=rng.random() < 0.7))
    return found


class Simulation:
    def __init__(self, seed: int, fault: str = "", say: Say | None = None) -> None:
        self.rng = rng = Random(seed)
        self.fault, self.say = fault, say
        standby = rng.random() < 0.25
        some = relations(rng)
        if len(some) > 1 and not standby:
            some[1].published = rng.random() < 0.5
        self.database = Database(rng, some, standby)
        self.database.say = say
        self.world = World(rng, self.database, fault)
        self.journal = self.world.journal
        start = self.database.log_end()
        covered = tuple(r.oid for r in some if r.published)
        self.offsets = [Offset(start, start, Snapshot(known=covered)).to_json()]
        self.committed = 0
        self.targets = {name: Target() for name in self.database.relations}
        self.news: list[News] = []
        self.crashes = 0
        self.target_ms = 250 if seed % 4 == 3 else 0
        """Readings grow past one chunk, or do not."""
        self.bounds = self._bounds()
        self.busy = rng.randint(5, 12)
        self.signals = self._signals()

    # -- the run ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        while not self._done():
            if self.committed == self.busy:
                self.database.stop()
            if self.committed > self.busy + _BATCHES_MAX:
                raise Wrong(f"the snapshots do not end: {Offset.from_json(self.offsets[-1]).snapshot}")
            try:
                self._batch()
            except Crash as exc:
                self._recover(str(exc))
        self._verify()

    def _done(self) -> bool:
        last = Offset.from_json(self.offsets[self.committed])
        delivered = not self.database.log or last.position >= self.database.log[-1].end
        told = self.journal.told
        polled = all(told.get(n, 0) >= v for n, v in self.database.shown.versions.items())
        return self.committed > self.busy + 1 and delivered and polled and not last.snapshot.entries

    def _batch(self) -> None:
        if len(self.offsets) == self.committed + 1:
            offset = self._latest(Offset.from_json(self.offsets[-1]))
            self._step("before the offset is logged")
            self.offsets.append(offset.to_json())
            self._step("after the offset is logged")
        before, now = (Offset.from_json(o) for o in self.offsets[self.committed :])
        self._execute(before, now)
        self._step("before the commit")
        self._commit(now)

    def _step(self, place: str) -> None:
        """Time passes, and the process may die."""
        self.world.tick()
        if self.crashes < _CRASHES_MAX and self.rng.random() < 0.02:
            raise Crash(place)

    def _recover(self, place: str) -> None:
        self.crashes += 1
        self.bounds = self._bounds()
        if self.rng.random() < 0.5:
            self._lose_stage()
        if self.say:
            self.say(f"CRASH {place}; lost {sorted(self.world.stage.lost)}; {self.bounds}")

    def _lose_stage(self) -> None:
        """Of what an offset names, the rows are gone; of the rest, everything."""
        stage = self.world.stage
        named = {c.attempt for o in self.offsets[-2:] for c in _chunks(Offset.from_json(o).snapshot)}
        for name, attempts in list(stage.attempts.items()):
            kept = [a for a in attempts if a.id in named]
            stage.lost |= {a.id for a in kept}
            stage.attempts[name] = [self.world.again(a) for a in kept] if self.fault == "reread-early" else kept

    # -- plan ---------------------------------------------------------------------------------------------------

    def _latest(self, last: Offset) -> Offset:
        self.database.tell_replayed()
        caught_up = self._capture()
        self.world.tick()
        end, all_of_it = self._end(last)
        reached = self.journal.captured if all_of_it and caught_up else end
        horizon = self.database.horizon()
        commits = self.journal.between(last.floor, end)
        positions = np.array([c.position for c in commits], np.int64)
        floor = watermark.floor(positions, self.world.xids(commits), horizon, end)
        floor = end if self.fault == "no-floor" else floor
        snapshot = self._requests(last.snapshot.settled())
        rows = self.rng.choice((None, None, 3))
        now = Now(reached, floor, rows, full=not self.database.stopped and self.rng.random() < 0.05)
        snapshot = advance(snapshot, self.world, now, self.bounds)
        offset = Offset(end, floor, snapshot)
        if self.say:
            self.say(f"BATCH {self.committed + 1}: reached {reached}, {now}\n{_lines(offset)}")
        self._check(last, offset)
        return offset

    def _capture(self) -> bool:
        """Read the log, to its end or not."""
        if self.database.stopped or self.rng.random() < 0.6:
            self.journal.capture(self.database.log_end())
            self.database.poll(self.journal.told)
            self.journal.capture(self.database.log_end())
            return True
        ahead = [c.end for c in self.database.log if self.journal.captured < c.end <= self.database.log_end()]
        if ahead:
            self.journal.capture(self.rng.choice(ahead))
        return False

    def _end(self, last: Offset) -> tuple[int, bool]:
        if last.snapshot.blocking:
            return last.position, False
        ends = [c.end for c in self.journal.between(last.position, self.journal.captured)]
        if not ends:
            return last.position, True
        end = ends[-1] if self.database.stopped or self.rng.random() < 0.6 else self.rng.choice(ends)
        return end, end == ends[-1]

    def _requests(self, snapshot: Snapshot) -> Snapshot:
        db = self.database
        covered = [(r.oid, Wanted(n)) for n, r in db.relations.items() if r.published]
        snapshot = requests.uncover(snapshot, [wanted.table for _, wanted in covered])
        snapshot = requests.cover(snapshot, covered, after=0 if self.fault == "no-after" else db.xid)
        for signal in self.signals:
            if signal.batch <= self.committed and not requests.handled(snapshot, signal.id):
                snapshot = requests.handle(self._follow(snapshot, signal), signal.id)
        return snapshot

    def _follow(self, snapshot: Snapshot, signal: Signal) -> Snapshot:
        if self.say:
            self.say(f"SIGNAL {signal}")
        match signal.verb:
            case "pause":
                return requests.pause(snapshot)
            case "resume":
                return requests.resume(snapshot)
            case "stop":
                return requests.stop(snapshot, signal.tables or None)
            case kind:
                known = [requests.Wanted(t) for t in signal.tables if self.database.relations[t].published]
                return requests.ask(snapshot, signal.id, known, kind) if known else snapshot

    def _check(self, last: Offset, offset: Offset) -> None:
        if offset.position < last.position or offset.floor < last.floor:
            raise Wrong(f"the offset goes back: {last} {offset}")
        if len(offset.to_json()) > _STATE_MAX:
            raise Wrong(f"the offset has {len(offset.to_json())} bytes")
        if offset.snapshot.flying > max(last.snapshot.flying, 2 * self.bounds.parallelism):
            raise Wrong(f"{offset.snapshot.flying} chunks are in flight")

    # -- execute ------------------------------------------------------------------------------------------------

    def _execute(self, last: Offset, now: Offset) -> None:
        commits: list[Commit] = []
        reads: dict[str, list[tuple[pa.Table, int]]] = {n: [] for n in self.targets}
        tasks: list[Emission | str] = [*now.snapshot.emitting, "chunks", "log"]
        self.rng.shuffle(tasks)
        for task in tasks:
            self._step("between partitions")
            if task == "log":
                commits = self.journal.between(last.position, now.position)
            elif isinstance(task, Emission):
                table = task.entry.table
                reads[table].append(self._emitted(task, last, now))
            else:
                self._read(now.snapshot)
        for name in self.rng.sample(list(self.targets), len(self.targets)):
            self._step(f"before {name} is applied")
            incomplete = last.snapshot.incomplete | now.snapshot.incomplete
            self._apply(name, reads[name], commits, now, self.database.relations[name].oid in incomplete)

    def _read(self, snapshot: Snapshot) -> None:
        """Read what is planned, some of it twice, some of it in vain."""
        stage = self.world.stage
        for entry, chunk in snapshot.planned:
            self._step("between chunks")
            if not self.database.stopped and self.rng.random() < 0.05:
                stage.failed[entry.name(chunk)] = "no"
                continue
            for _ in range(self.rng.choice((1, 1, 2))):
                attempt = self.world.read(entry.table, chunk)
                stage.attempts.setdefault(entry.name(chunk), []).append(attempt)
                if self.say:
                    self.say(f"READ {entry.table} {chunk.low} {chunk.high}: {attempt}")
                for _ in range(4):
                    self.world.tick()

    def _emitted(self, task: Emission, last: Offset, now: Offset) -> tuple[pa.Table, int]:
        name = task.entry.table
        commits = self.journal.between(min(task.chunk.since, last.position), now.position)
        version = max([self.targets[name].version, self.world.stage.named(task.chunk.attempt).version])
        version = max([version, *(e.version for c in commits for e in c.events if e.table == name)])
        found = self.world.emitted(name, task.chunk, last.position, now.position, version)
        if self.say:
            self.say(f"EMIT {name} {task.chunk}: {found[0].to_pylist()}")
        return found

    # -- sink ---------------------------------------------------------------------------------------------------

    def _apply(
        self, name: str, reads: list[tuple[pa.Table, int]], commits: list[Commit], now: Offset, incomplete: bool
    ) -> None:
        target, relation = self.targets[name], self.database.relations[name]
        if target.applied == self.committed + 1:
            return
        told = events_of(commits, name)
        noted = [e.version for c in commits for e in c.events if e.table == name and e.op == NOTE]
        version = max([target.version, *(v for _, v in reads), *(e.version for _, _, e in told), *noted])
        if version > target.version:
            self._evolve(name, version)
        rows = [_read_run(r, schema_of(relation, version)) for r, _ in reads if r.num_rows]
        runs = [*rows, *self.world.runs(relation, told, version)]
        if runs:
            folded = fold(runs, relation.key, reads_last=self.fault != "reads-first")
            self._merge(name, folded, now, incomplete, self._is_doubted(target, told))
        target.applied = self.committed + 1

    def _evolve(self, name: str, version: int) -> None:
        """Old rows get the new column's values from the source, where only that knows them."""
        target = self.targets[name]
        target.version = version
        self.database.unlock(name)
        present = self.database.shown.rows[name]
        for key, row in target.rows.items():
            row["extra"] = present.get(key, {}).get("extra")

    def _merge(self, name: str, folded: Folded, now: Offset, incomplete: bool, answered: bool) -> None:
        target, key = self.targets[name], self.database.relations[name].key
        was = {} if folded.truncate else target.rows
        rows = {} if folded.truncate else dict(target.rows)
        for gone in zip(*(folded.deletes[k].to_pylist() for k in key), strict=True):
            rows.pop(gone, None)
        origins = _origins(folded, key)
        for i, new in enumerate(folded.upserts.drop_columns(list(STAMPS)).to_pylist()):
            own = tuple(new.pop(k) for k in key)
            kept = [c for c, mask in folded.keeps.items() if mask[i]]
            if kept:
                told = self._settle(name, own, was, origins.get(i), kept, now.position, incomplete, answered)
                if told is None:
                    rows.pop(own, None)
                    continue
                new |= told
            rows[own] = new
        target.rows = rows

    def _settle(
        self,
        name: str,
        key: Key,
        was: dict[Key, Row],
        origin: Key | None,
        kept: list[str],
        end: int,
        incomplete: bool,
        answered: bool,
    ) -> Row | None:
        """What the log did not tell: from the target's row, or from the source; None if the row cannot be known.

        Where the key changed in an incomplete table, the source is asked even if the target has a row under the old
        key: rows read in place of a lost stage, or while the stream waited, may be of a later time, and another's. A
        row that the target lacks is asked for at any time: one that nobody could tell may go on after the snapshot.
        And what the source has `answered` is of a later time, too.
        """
        trusted = origin is None or not (incomplete or answered) or self.fault == "trust-origin"
        base = was.get(origin or key) if trusted else None
        doubted = incomplete or self.fault not in ("trust-absence", "drop-toast")  # asking makes up for that one
        asked = "extra" in kept or (base is None and doubted)
        found = self._ask(name, key, end) if asked else None
        if base is None and found is None and asked:
            return None
        return {c: ((found if c == "extra" or base is None else base) or {}).get(c) for c in kept}

    def _ask(self, name: str, key: Key, end: int) -> Row | None:
        """The source's present row. It must be one that the batch's commits have made."""
        if self.fault != "answer-early":
            self.database.until_visible(end)
        self.database.unlock(name)
        self.targets[name].asked = self.database.horizon()
        return self.database.shown.rows[name].get(key)

    def _is_doubted(self, target: Target, told: Sequence[Told]) -> bool:
        """Whether rows of the target may be of a later time than these events: the source was asked for them."""
        if target.asked is None or not told or self.fault == "trust-answers":
            return False
        positions, xids = (np.array([getattr(commit, n) for commit, _, _ in told]) for n in ("position", "xid"))
        return bool(target.asked.covers(positions, xids).any())

    # -- commit, and the end ------------------------------------------------------------------------------------

    def _commit(self, offset: Offset) -> None:
        self.committed += 1
        self.news += offset.snapshot.news
        since = offset.snapshot.since
        upto = min(offset.floor, offset.position, offset.position if since is None else since)
        self.journal.released = max(self.journal.released, upto)
        named = {c.attempt for c in _chunks(offset.snapshot)} - {e.chunk.attempt for e in offset.snapshot.emitting}
        planned = {e.name(c) for e, c in offset.snapshot.planned}
        stage = self.world.stage
        stage.attempts = {
            n: some for n, some in stage.attempts.items() if n in planned or any(a.id in named for a in some)
        }

    def _verify(self) -> None:
        last = Offset.from_json(self.offsets[-1])
        if last.snapshot.flying or last.snapshot.entries:
            raise Wrong(f"something is in flight: {last.snapshot}")
        complete = {n.table for n in self.news if n.status in ("SUCCEEDED", "EMPTY")}
        for name in sorted(complete):
            _same(name, self.database.shown.rows[name], self.targets[name].rows)
        self._verify_news()

    def _verify_news(self) -> None:
        started = Counter(n.id for n in self.news if n.type == "STARTED")
        ended = Counter(n.id for n in self.news if n.type in ("COMPLETED", "ABORTED"))
        if started != ended or any(count > 1 for count in started.values()):
            raise Wrong(f"started {started}, ended {ended}")

    # -- small steps --------------------------------------------------------------------------------------------

    def _bounds(self) -> Bounds:
        return Bounds(self.rng.randint(1, 3), self.rng.choice((1, 2, 2, 3, 5, 10)), self.target_ms)

    def _signals(self) -> list[Signal]:
        rng, names = self.rng, list(self.database.relations)
        found = [Signal(rng.randint(0, 2), "first", INITIAL, tuple(names))]
        for n in range(rng.choice((0, 0, 1, 2))):
            verb = rng.choice(("pause", "resume", "stop", INCREMENTAL, INCREMENTAL, BLOCKING))
            tables = tuple(rng.sample(names, rng.randint(1, len(names))))
            found.append(Signal(rng.randint(1, self.busy), f"s{n}", verb, tables))
        return [*found, Signal(self.busy, "last", "resume")]


def _chunks(snapshot: Snapshot) -> list[object]:
    return [c for e in snapshot.entries for c in e.chunks] + [e.chunk for e in snapshot.emitting]


def _read_run(rows: pa.Table, schema: pa.Schema) -> Run:
    """Rows that were read; of a newer column they know nothing."""
    return Run(_shaped(rows, schema), frozenset(f.name for f in schema if f.name not in rows.column_names))


def _shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """A chunk in the shape of a newer version; what it does not know is null."""
    if rows.schema.names == schema.names:
        return rows
    columns = [
        rows[f.name] if f.name in rows.column_names and f.name != metadata.BEFORE else pa.nulls(rows.num_rows, f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


def _origins(folded: Folded, key: tuple[str, ...]) -> dict[int, Key]:
    if not folded.origins.num_rows:
        return {}
    keys = zip(*(folded.origins[k].to_pylist() for k in key), strict=True)
    return dict(zip(folded.origins[ROW].to_pylist(), keys, strict=True))


def _same(name: str, source: dict[Key, Row], target: dict[Key, Row]) -> None:
    for key in sorted(source.keys() | target.keys()):
        if source.get(key) != target.get(key):
            raise Wrong(f"{name} {key}: the source has {source.get(key)}, the target {target.get(key)}")


def _lines(offset: Offset) -> str:
    chunks = [f"    {e.table} {c}" for e in offset.snapshot.entries for c in e.chunks]
    emitted = [f"    emits {e.entry.table} {e.chunk}" for e in offset.snapshot.emitting]
    return "\n".join([f"    ends {offset.position}, floor {offset.floor}", *chunks, *emitted])
