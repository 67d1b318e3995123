"""Snapshots as the planner runs them: the core decides, the connector and the stage are its world.

Everything that is decided goes into the offset of the next batch. What was delivered is told, and what is no longer
needed is deleted, only when that offset comes back committed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from tidelog.contracts import Connector
from tidelog.core import signals
from tidelog.core.signals import Execute, Log, Malformed, Pause, Resume, Signal, Stop, WindowClose, WindowOpen
from tidelog.core.snapshot import document, java_keys, plan, requests
from tidelog.core.snapshot.cost import CostModel
from tidelog.core.snapshot.document import Asked
from tidelog.core.snapshot.requests import Wanted
from tidelog.core.snapshot.state import AT_ONCE, INCREMENTAL, INITIAL, SIGNAL, Entry, Heard, News, Snapshot
from tidelog.core.snapshot.world import Bounds, Now
from tidelog.engine.admission import Admission, AdmitEverything, can_be_swept
from tidelog.engine.backoff import Backoff
from tidelog.engine.catalog_texts import CatalogTexts
from tidelog.engine.catalog_watch import CatalogWatch
from tidelog.engine.coverage import Coverage
from tidelog.engine.home import Home
from tidelog.engine.notices import Notices
from tidelog.engine.planning_world import PlanningWorld
from tidelog.engine.shell import snapshot_command
from tidelog.engine.signals import Channels
from tidelog.engine.stage import Stage
from tidelog.errors import ConfigError, TransientError
from tidelog.model.offset import Offset
from tidelog.model.schema import Table

_LOG = logging.getLogger("tidelog.snapshots")
LOST = "rows of the initial snapshot were not read"
NO_TABLE = "no captured table matches"
UNTOLD = "its changes are not in the log yet: once it is published, the pipeline's next start captures it"
ASIDE = "the sink cannot take it: tidelog status says why"
ANEW = "every table is read anew"
_THROUGHPUT_MS = 2_000
_OPEN_DELAY_MAX_S = 1.0
"""Old transactions are waited for, and may end at any moment."""


class Snapshots:
    """Used by one thread."""

    def __init__(
        self,
        connector: Connector,
        home: Home,
        stage: Stage,
        *,
        name: str,
        parallelism: int,
        admission: Admission | None = None,
    ) -> None:
        """`admission` says which tables the sink can take; a user's own sink takes all."""
        self._connector = connector
        self._admission = admission or AdmitEverything()
        self.settings = connector.snapshot_settings()
        reads_again = self.settings.mode != "no_data"
        self._coverage = Coverage(connector, pipeline=name, reads_again=reads_again)
        self._stage = stage
        self._name = name
        self._bounds = Bounds(
            self.settings.parallelism or max(1, parallelism - 1), self.settings.chunk_rows, self.settings.target_ms
        )
        self._costs = CostModel()
        self._readings: dict[int, CostModel] = {}
        self._channels = Channels(self.settings, home.signals)
        self.notices = Notices(self.settings, home, name)
        self.watch = CatalogWatch(connector, self._admission, CatalogTexts(home.catalog_texts), pipeline=name)
        self._begun = False
        self._told = ""
        self.postponed = False
        """Whether the database was away when the last batch was planned: signals, or changes that the log does not
        tell, may wait that nobody has seen."""
        self._advancing = Backoff("Going on with the snapshots")
        self._reading = Backoff("Reading a chunk")
        self._opening = Backoff("Opening a snapshot", limit_s=_OPEN_DELAY_MAX_S)
        self._published: dict[int, int] = {}
        """Tables, and the transaction ids below which their log may be incomplete."""

    def first(self) -> Snapshot:
        """The state of a first start: every captured table is asked for, unless no rows are wanted."""
        tables, untold = self._covered()
        snapshot = Snapshot(known=tuple(t.id for t in tables), contents=self.watch.contents(tables))
        snapshot = self._coverage.begin(snapshot)
        self._begun = True
        tables = self._admission.admit(tables, self._connector.selection(), anew=True)
        if self.settings.mode == "no_data":
            return snapshot
        snapshot = requests.miss(snapshot, INITIAL, untold, INITIAL, UNTOLD)
        return requests.ask(snapshot, INITIAL, [Wanted(t.qualified) for t in tables], INITIAL)

    def resume(self, told: Snapshot | None) -> Snapshot:
        """The state of a first start that goes on where another connector was: only what that one still had to read."""
        captured = self._covered()[0]
        self._admission.admit(captured, self._connector.selection())
        self._begun = True
        known, contents = tuple(t.id for t in captured), self.watch.contents(captured)
        return self._coverage.begin(replace(told or Snapshot(), known=known, contents=contents))

    def _covered(self) -> tuple[list[Table], list[str]]:
        """The captured tables of which the log tells, and the others, which are left to a later start: what is read
        of them would never change again."""
        found = self._connector.tables()
        untold = [t.qualified for t in self._connector.untold(found)]
        if untold and len(untold) == len(found):
            raise ConfigError(
                f"The log tells of none of the captured tables ({', '.join(untold[:5])}{', …' if untold[5:] else ''}).",
                hint="Publish them: tidelog check prints how.",
            )
        if untold:
            _LOG.warning("%s: %s", ", ".join(untold), UNTOLD)
        return [t for t in found if t.qualified not in untold], untold

    def again(self, snapshot: Snapshot, reason: str) -> Snapshot:
        """Everything from the beginning: every captured table is asked for once more, and in the end the target loses
        what the source does not have."""
        tables, untold = self._covered()
        self._begun = True
        ended = requests.stop(snapshot.settled(), None, ANEW)
        fresh = Snapshot(
            known=tuple(t.id for t in tables),
            contents=self.watch.contents(tables),
            heard=snapshot.heard,
            handled=snapshot.handled,
            news=ended.news,
        )
        fresh = self._coverage.begin(fresh)
        id = f"{reason}-{self._connector.next_xid()}"
        selection = self._connector.selection()
        tables = self._admission.admit(tables, selection, anew=True)
        wanted = [Wanted(t.qualified, sweep=can_be_swept(t, selection)) for t in tables]
        return requests.ask(requests.miss(fresh, id, untold, INITIAL, UNTOLD), id, wanted, INITIAL)

    def of(self, offset: Offset) -> Snapshot:
        """The state that an offset holds; one that another connector wrote tells the queue, and its first table goes
        on after the last key that was sent."""
        snapshot = Snapshot.from_json(offset.snapshot) if offset.snapshot else restored(offset)
        if self._begun or offset.selection == self._connector.selection().fingerprint:
            return snapshot
        return plan.grounded(snapshot)  # what was read under other filters is read again

    def ground(self) -> None:
        """Whatever was read so far counts no more."""
        self._stage.keep(set())

    def committed(self, snapshot: Snapshot) -> None:
        """The batch that ended here is delivered for good."""
        digest = hashlib.sha256(json.dumps(snapshot.to_json(), sort_keys=True).encode()).hexdigest()
        if digest == self._told:
            return
        self._told = digest
        self.notices.tell(snapshot, digest)
        self._channels.settle(snapshot.handled)
        self._stage.keep({e.name(c) for e in snapshot.entries for c in e.chunks})
        self._connector.release([e.export for e in snapshot.entries])

    def goal(self, snapshot: Snapshot) -> int:
        """How far the log must be known for everything that was read so far to be delivered, and for what the catalog
        showed to be acted on; 0 if there is neither. (Where windows are written to the source, the log closes them
        further on.)"""
        staged = [c.passed for e in snapshot.entries for c in e.chunks if c.staged]
        attempts = self._stage.attempts() if snapshot.planned else {}
        for entry, chunk in snapshot.planned:
            for attempt in attempts.get(entry.name(chunk), ()):
                note = self._stage.note(entry.name(chunk), attempt)
                staged.append(note.manifest.passed if note is not None else 0)
        return max([self.watch.awaited, *staged])

    def document(self, snapshot: Snapshot) -> dict[str, str]:
        """The attributes that other connectors know: the queue, and how far its first table is."""
        queue = [Asked(e.table, e.condition, e.surrogate, e.id) for e in snapshot.entries]
        first = snapshot.entries[0] if snapshot.entries else None
        if first is None or first.maximum is None:
            return document.write(queue)
        types = first.types.split(",")
        sent = None if first.cursor is None else java_keys.key_values(first.cursor, types)
        return document.write(queue, sent, java_keys.key_values(first.maximum, types))

    def advance(
        self,
        start: Snapshot,
        heard: Sequence[Heard],
        now: Now,
        logged: Callable[[int], str],
        batch_ms: int = 0,
        left_out: Collection[int] = (),
    ) -> Snapshot:
        """The state at the end of the next batch; `heard` are the signals of the log up to there. When the database
        does not answer, the snapshots wait and the stream goes on; the signals wait in the state. `batch_ms`: how long
        the batch that ended at `start` took, with all that the sink did; 0 when it is not known. `left_out` are the
        tables of which the log holds changes up to there that are not delivered."""
        snapshot = replace(start.settled(), heard=(*start.heard, *heard))
        snapshot = self._coverage.leave_out(snapshot, left_out)
        began_s = time.monotonic()
        self.postponed = True
        try:
            snapshot = self._followed(snapshot, now)
            self.postponed = self.watch.is_postponed
            if not self._advancing.is_due and not now.full:
                return snapshot
            world = PlanningWorld(self._connector, self._stage, logged, self._reading, self._opening)
            self._learn(start, world, batch_ms)
            now = replace(now, cost=self._costs.cost, readings={oid: m.cost for oid, m in self._readings.items()})
            advanced = plan.advance(snapshot, world, now, self._bounds)
        except TransientError as exc:
            self._advancing.failed(exc.message, time.monotonic() - began_s)
            return snapshot
        except ConfigError:
            self._stage.keep({e.name(c) for e in start.entries for c in e.chunks if c.staged})  # to be tried again
            raise
        self._advancing.succeeded()
        return advanced

    def _learn(self, start: Snapshot, world: PlanningWorld, batch_ms: int) -> None:
        """A batch reads rows, and delivers those that the one before it has read: each row passes through two. One
        that reads nothing has fewer tasks, and is not comparable."""
        read = 0
        for entry, chunk in start.planned:
            manifest = world.manifest(entry.name(chunk))
            if manifest is not None and not (manifest.failed or manifest.refused or chunk.keys):
                self._readings.setdefault(entry.oid, CostModel()).learn(manifest.rows, manifest.ms)
                read += manifest.rows
        if batch_ms and read:
            delivered = sum(emission.chunk.rows for emission in start.emitting)
            self._costs.learn((read + delivered) / 2, batch_ms)

    def prefer_throughput(self) -> None:
        """Nobody waits for single changes: throughput counts, not the latency of a batch."""
        if self._bounds.target_ms:
            self._bounds = replace(self._bounds, target_ms=max(_THROUGHPUT_MS, self._bounds.target_ms))

    def _resumed(self, snapshot: Snapshot) -> Snapshot:
        """Follow what was changed while nobody ran."""
        captured = self._covered()[0]
        selection = self._connector.selection()
        admitted = self._admission.admit(captured, selection)
        # The target may have rows of an earlier table of this name, or of a time when the table was captured before.
        tables = [(t.id, Wanted(t.qualified, sweep=can_be_swept(t, selection))) for t in admitted]
        after = self._connector.next_xid()
        self._published = dict.fromkeys((t.id for t in captured), after)
        snapshot = requests.uncover(snapshot, [table.qualified for table in admitted])
        snapshot = self._coverage.resume(snapshot, {t.id for t in captured})
        if self.settings.mode != "no_data":
            snapshot = requests.cover(snapshot, tables, after=after)
            snapshot = replace(snapshot, known=tuple(t.id for t in captured))
        if self.settings.mode == "always" and not snapshot.entries:
            return self.again(snapshot, "always")
        return snapshot

    # -- signals -------------------------------------------------------------------------------------------------

    def _followed(self, snapshot: Snapshot, now: Now) -> Snapshot:
        """After everything that was asked since the last batch."""
        if not self._begun:
            snapshot = self._resumed(snapshot)
        snapshot = self._coverage.follow(snapshot, self._admission.waiting())
        snapshot = self._admission.readmit(snapshot, self._connector)
        snapshot = self.watch.follow(snapshot, now.reached)
        waiting = self._waiting(snapshot)
        for at, values in snapshot.heard:
            snapshot = self._follow(snapshot, at, signals.of_values(values))
        for signal in waiting:
            snapshot = self._once(snapshot, now.reached, signal)
        self._begun = True
        return replace(snapshot, heard=())

    def _waiting(self, start: Snapshot) -> list[Signal]:
        """Of the channels outside the log: as many as one batch may follow, the rest has its turn in the next."""
        waiting = self._channels.waiting()
        fresh = [signal for signal in waiting if not requests.handled(start, signal.id)]
        if len(fresh) < len(waiting):  # the same id once more
            self._channels.settle(start.handled)
        return fresh[:AT_ONCE]

    def _follow(self, snapshot: Snapshot, at: int, signal: Signal) -> Snapshot:
        if isinstance(signal, WindowOpen):
            return snapshot
        if isinstance(signal, WindowClose):
            return _closed(snapshot, signal.id, at)
        return self._once(snapshot, at, signal)

    def _once(self, snapshot: Snapshot, at: int, signal: Signal) -> Snapshot:
        if requests.handled(snapshot, signal.id):
            return snapshot
        return self._obey(requests.handle(snapshot, signal.id), at, signal)

    def _obey(self, snapshot: Snapshot, at: int, signal: Signal) -> Snapshot:
        match signal:
            case Execute():
                return self._ask(snapshot, signal)
            case Stop():
                names = [e.table for e in snapshot.entries]
                chosen = None if signal.collections is None else set(signals.matching(signal.collections, names))
                return self._stop(snapshot, chosen)
            case Pause():
                return requests.pause(snapshot)
            case Resume():
                return requests.resume(snapshot)
            case Log():
                _LOG.warning("%s", signals.told(signal.message, str(at)))
            case Malformed():
                _LOG.warning("The signal %r was skipped: %s", signal.id, signal.reason)
                told = News("MALFORMED", signal.id, SIGNAL, reason=signal.reason)
                return replace(snapshot, news=(*snapshot.news, told))
        return snapshot

    def _stop(self, snapshot: Snapshot, chosen: Collection[str] | None) -> Snapshot:
        """Who stops what nobody asked for should know that it does not come by itself any more."""
        tables = [e.table for e in snapshot.entries if e.kind == INITIAL and (chosen is None or e.table in chosen)]
        if tables:
            again = snapshot_command(self._name, tables)
            _LOG.warning("%s: %s. `%s` reads them.", ", ".join(tables), LOST, again)
        return requests.stop(snapshot, chosen, LOST)

    def _ask(self, snapshot: Snapshot, signal: Execute) -> Snapshot:
        """What cannot be read is told, and the rest is read; but never more rows than were asked for."""
        found = self._connector.tables()
        captured = [t.qualified for t in found]
        tables = signals.tables_of(signal, captured)
        missing = signals.unmatched(signal.collections, captured)
        idle = set(signals.unmatched([pattern for pattern, _ in signal.conditions], tables)) - set(missing)
        if missing:
            _LOG.warning("The signal %r: %s: %s", signal.id, NO_TABLE, ", ".join(missing))
        untold = [t.qualified for t in self._connector.untold([t for t in found if t.qualified in tables])]
        if untold:
            _LOG.warning("The signal %r: %s: %s", signal.id, ", ".join(untold), UNTOLD)
        aside = [t for t in self._admission.waiting() if t in tables]
        if not set(tables) - set(untold) - set(aside):
            reason = UNTOLD if untold else ASIDE if aside else NO_TABLE
            return requests.skip(snapshot, signal.id, signal.collections, signal.kind, reason)
        if idle:
            why = f"the condition for {', '.join(sorted(idle))} concerns none of the tables that were asked for"
            _LOG.warning("The signal %r was skipped: %s", signal.id, why)
            return requests.skip(snapshot, signal.id, signal.collections, signal.kind, why)
        ids = {t.qualified: t.id for t in found}
        wanted = [
            Wanted(t, signals.condition_for(signal, t), after=self._after(snapshot, ids[t]))
            for t in tables
            if t not in untold and t not in aside
        ]
        snapshot = requests.ask(snapshot, signal.id, wanted, signal.kind, surrogate=signal.surrogate)
        snapshot = requests.miss(snapshot, signal.id, untold, signal.kind, UNTOLD)
        snapshot = requests.miss(snapshot, signal.id, aside, signal.kind, ASIDE)
        return requests.miss(snapshot, signal.id, missing, signal.kind, NO_TABLE)

    def _after(self, snapshot: Snapshot, id: int) -> int:
        """Which transactions a table's first chunk waits for: none, if it was captured before we began; else those
        that were open when we first knew that the log tells of it."""
        if id in snapshot.known:
            return 0
        if id not in self._published:
            self._published[id] = self._connector.next_xid()
        return self._published[id]


def restored(offset: Offset) -> Snapshot:
    found = document.read(offset.document)
    if found is None:
        return Snapshot()
    entries = [
        Entry(found.asked_by(a) or "imported", a.table, INCREMENTAL, a.condition, a.surrogate) for a in found.queue
    ]
    sent = None if found.sent is None else java_keys.key_texts(found.sent)
    return Snapshot(entries=(replace(entries[0], cursor=sent), *entries[1:]))


def _closed(snapshot: Snapshot, attempt: str, at: int) -> Snapshot:
    return replace(snapshot, windows=(*snapshot.windows, (attempt, at)))
