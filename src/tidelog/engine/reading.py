"""One query's view of a source: offsets in, offsets out, and what lies between two of them.

Everything Spark asks of a streaming source is answered here, without Spark. The capture runs inside (the query reads
the log itself) or apart (`tidelog capture` does, and several queries share its journal).

Law: planning is deterministic. The same two offsets give the same records under the same selection, before and after
a crash, so a batch that is run again is the same batch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tidelog.contracts import Connector, Slice, Status
from tidelog.core.requirements import Requirements
from tidelog.core.snapshot import watermark
from tidelog.core.snapshot.state import Emission, Heard, Snapshot
from tidelog.core.snapshot.world import Now
from tidelog.engine.admission import Admission
from tidelog.engine.batch_plan import Plan, tables_left_out
from tidelog.engine.capture import Capture
from tidelog.engine.definition import Definition
from tidelog.engine.drain import Drain
from tidelog.engine.following import Following
from tidelog.engine.home import Home
from tidelog.engine.jumps import Jump, landing
from tidelog.engine.selections import Selections
from tidelog.engine.serving import Serving, noted
from tidelog.engine.set_aside import SetAside
from tidelog.engine.signals import in_log
from tidelog.engine.snapshots import Snapshots
from tidelog.engine.stage import Stage
from tidelog.errors import CorruptState, PositionLost, TransientError
from tidelog.journal.journal import SegmentJournal
from tidelog.model.offset import Offset
from tidelog.model.schema import Table
from tidelog.model.selection import Selection

_WAIT_S = 0.05
_FIRST_WAIT_S = 1.0
_REPLAY_S = 300.0
_CATCH_UP_S = 0.2


class Reading:
    """Used by one thread."""

    def __init__(
        self,
        definition: Definition,
        home: Home,
        *,
        reader: str = "main",
        silent: bool = False,
        parallelism: int = 2,
        jump: Jump | None = None,
        requirements: Requirements | None = None,
    ) -> None:
        """A `silent` reading acknowledges nothing, and takes no snapshots. A `jump` is followed once. `requirements`
        are those of a pipeline's sink: such a sink does nothing twice per table and batch, so a batch that was planned
        and not committed is read under today's selection. Any other reader gets it exactly as it was planned."""
        self._definition = definition
        self._home = home
        self._reader = reader
        self._silent = silent
        self._parallelism = parallelism
        self._jump = jump
        self._admission = Admission(requirements, SetAside(home)) if requirements is not None else None
        self._serving = Serving(definition, home, reader=reader, silent=silent)
        self._files = self._serving.files
        self._stage = Stage(self._files.uri, reader)
        self._selections = Selections(self._files)
        self._snapshots: Snapshots | None = None
        self._drain: Drain | None = None
        self._floor = 0
        self._life = 0
        self._change = 0
        self._planned_s = 0.0
        self._batch_ms = 0
        self._patience_s = _FIRST_WAIT_S

    # -- what a streaming source is asked ------------------------------------------------------------------------

    def initial(self) -> Offset:
        """Where a first start begins, and which tables it asks for."""
        if self._jump is not None:
            return self._land(self._jump, None)
        start = self._serving.prepare()
        return self._offset(start, 0, 0, Snapshot() if self._silent else self.snapshots.first())

    def latest(self, start: Offset, events: int | None, size: int | None) -> Offset:
        """The end of the next batch. `start` was committed: it is acknowledged on the way."""
        self._time_batch()
        if self._jump is not None and self._jump.follows(start):
            return self._land(self._jump, start)
        try:
            end = self._next(start, events, size)
            self._planned_s = time.monotonic() if end is not start else 0.0
            return end
        except PositionLost:
            if not self._renews:
                raise
            return self._begin_anew(start)

    def _time_batch(self) -> None:
        """When the next one is asked for, the last one is done."""
        self._batch_ms = int((time.monotonic() - self._planned_s) * 1000) if self._planned_s else 0

    def _next(self, start: Offset, events: int | None, size: int | None) -> Offset:
        self._serve(start)
        snapshot = self._snapshot_of(start)
        self._settle(start, snapshot)
        while True:
            over = self._drained(snapshot)  # asked before looking: whatever it speaks of is then in the journal
            position, reached = self._look(start.position, snapshot, events, size)
            ahead = self._ahead(snapshot, start.position, position, reached, events)
            if position > start.position or ahead != snapshot.settled():
                return self._reached(start, position, ahead)
            self._served.wait(start.position, 0.0 if snapshot.idle else _WAIT_S)
            if over and (self._silent or not (self.snapshots.postponed or self.snapshots.watch.awaited)):
                return start

    def plan(self, start: Offset, end: Offset) -> Plan:
        """What lies between two offsets. After a crash this comes first: wait for the log to be read again."""
        today = self.connector.selection()
        selection = self._selections.of(end.selection, today) if self._admission is None else today
        nothing = Plan(self._files.uri, self._definition.connector, selection, (), ())
        if start.life != end.life or (self._jump is not None and self._jump.follows(end)):
            return nothing
        try:
            return self._plan(start, end, selection)
        except PositionLost:
            if not self._renews:
                raise
            return nothing

    def _plan(self, start: Offset, end: Offset, selection: Selection) -> Plan:
        self._serve(start)
        self._await(end.position)
        self.journal.require(start.position)
        planned_under = self._selections.find(end.selection, selection)
        slices = [
            piece
            for piece in self.journal.plan(start.position, end.position)
            if self._wanted(piece, selection) and self._wanted(piece, planned_under)
        ]
        commits = self.journal.commit_slices(start.position, end.position) if selection.transactions else []
        snapshot = Snapshot.from_json(end.snapshot)
        return Plan(
            journal=self._files.uri,
            connector=self._definition.connector,
            selection=selection,
            slices=tuple(slices),
            commits=tuple(commits),
            reader=self._reader,
            snapshot=snapshot,
            tables={t.id: t for t in self._walked_tables(snapshot) if selection.has_table(t.schema, t.name)},
            windows=tuple(self._window(e, end.position) for e in snapshot.emitting),
            snapshotting=Snapshot.from_json(start.snapshot).incomplete | snapshot.incomplete,
            is_staged=selection.fingerprint == end.selection,
        )

    def acknowledge(self, offset: Offset) -> None:
        """What was delivered, is visible to everybody and is needed for no window may go."""
        if self._silent or self._log is None or offset.life < self._life:
            return
        if self._floor < offset.position:
            self._floor = self._visible(offset.position)
        self._log.acknowledge(self._needed(offset, Snapshot.from_json(offset.snapshot)))

    def drain(self) -> None:
        """End where the log ends now, and with the snapshots that are queued: `latest` reaches that end, and returns
        `start` there."""
        self._drain = Drain(self.connector)
        if not self._silent:
            self.snapshots.prefer_throughput()

    def finish(self) -> None:
        """Everything is drained: let the database hear of the last acknowledgement, and give the slot back, since
        Spark does not always tell a source that its query is over."""
        if self._drain is not None and self._log is not None:
            self._log.settle(5.0)
            self.close()

    def metrics(self) -> dict[str, Any]:
        status = self._log.status() if self._log is not None else Status("starting")
        return {
            "position": status.position,
            "lag_ms": status.lag_ms,
            "lag_bytes": status.lag_bytes,
            "events": status.events,
            "journal_bytes": status.journal_bytes,
            "state": status.state,
            "warning": status.warning,
        }

    def close(self) -> None:
        self._serving.close()

    # -- inside --------------------------------------------------------------------------------------------------

    @property
    def connector(self) -> Connector:
        return self._serving.connector

    @property
    def journal(self) -> SegmentJournal:
        return self._served.journal

    @property
    def _log(self) -> Capture | Following | None:
        return self._serving.log

    @property
    def _served(self) -> Capture | Following:
        assert self._log is not None, "nothing is served yet"
        return self._log

    @property
    def snapshots(self) -> Snapshots:
        if self._snapshots is None:
            self._snapshots = Snapshots(
                self.connector,
                self._home,
                self._stage,
                name=self._definition.name,
                parallelism=self._parallelism,
                admission=self._admission,
            )
        return self._snapshots

    def _serve(self, start: Offset) -> None:
        """Begin, once."""
        self._life, self._change = start.life, start.change
        if self._log is None:
            self._floor = self._serving.begin(start, self.snapshots.notices.abandoned)
            if not self._silent:
                self._stage.tidy()

    def _begin_anew(self, start: Offset) -> Offset:
        """The place in the log is lost: take another one, and read everything once more. What lies between the two
        has no events."""
        self._serving.let_go()
        first = self._serving.prepare()
        self._floor, self._life, self._change = first, start.life + 1, start.change
        return self._offset(first, 0, 0, self.snapshots.again(self._snapshot_of(start), "when-needed"))

    def _land(self, jump: Jump, start: Offset | None) -> Offset:
        """Where somebody wants the reading to go on. What lies between `start` and there has no events."""
        self._serving.let_go()
        self.snapshots.ground()
        first = self._serving.prepare(resuming=jump.offset is not None)
        there = landing(jump, start, first, self.connector, self.snapshots)
        self._floor, self._life, self._change = there.floor, (start.life + 1 if start else 0), jump.id
        return self._offset(there.position, 0, 0, there.snapshot, json.dumps(jump.offset) if jump.offset else None)

    @property
    def _renews(self) -> bool:
        return not self._serving.apart and not self._silent and self.snapshots.settings.mode == "when_needed"

    def _snapshot_of(self, offset: Offset) -> Snapshot:
        return Snapshot() if self._silent else self.snapshots.of(offset)

    def _needed(self, offset: Offset, snapshot: Snapshot) -> int:
        return min(offset.position, self._floor, offset.position if snapshot.since is None else snapshot.since)

    # -- the next batch ------------------------------------------------------------------------------------------

    def _settle(self, start: Offset, snapshot: Snapshot) -> None:
        """`start` is delivered: tell so."""
        self.acknowledge(start)
        if not self._silent:
            self.snapshots.committed(snapshot)
            if self._admission is not None:
                self._admission.committed(start.position, snapshot.handled)

    def _visible(self, end: int) -> int:
        """Up to where everybody sees what was delivered."""
        try:
            commits = self.journal.commits(self._floor, end)
            if not commits.num_rows:
                return end
            positions, xids = (commits[name].to_numpy() for name in ("position", "xid"))
            return watermark.floor(positions, xids, self.connector.horizon(), end)
        except (TransientError, CorruptState):
            return self._floor  # that the database is away, or the journal damaged, is told where they are read

    def _look(self, start: int, snapshot: Snapshot, events: int | None, size: int | None) -> tuple[int, int]:
        """Where the batch ends, and up to where the log is known then."""
        busy = bool(snapshot.entries) and not snapshot.paused and not self._silent
        self._follow_chunks(snapshot, busy)
        seen = self._served.seen()
        ended = self._served.wait(start, 0.0 if busy else self._patience())
        if ended <= start or (busy and snapshot.blocking):
            return start, max(start, seen) if ended <= start else start
        self.journal.require(start)
        limit = self._drain.limit if self._drain is not None else None
        position = self.journal.limit(start, events, size, limit)
        if position >= ended:
            return position, max(position, seen)
        if self._drain is not None and self.journal.limit(position, None, None, limit) == position:
            return position, max(position, self._drain.known(seen))
        return position, position

    def _follow_chunks(self, snapshot: Snapshot, busy: bool) -> None:
        """Let the log come past what the chunks have seen, also where nothing is written: this closes windows."""
        windowed = not self._silent and self.snapshots.settings.writes_windows
        goal = 0 if self._silent else self.snapshots.goal(snapshot)
        if self._drain is not None:
            self._drain.extend(max(goal, self._served.schema_end))
            self._drain.follow_windows(are_open=busy and windowed and snapshot.flying > 0)
        if goal and not windowed:
            self._served.caught_up(goal, _CATCH_UP_S)

    def _ahead(self, snapshot: Snapshot, start: int, position: int, reached: int, events: int | None) -> Snapshot:
        if self._silent:
            return snapshot.settled()
        taken = sum(self.journal.commits(start, position)["ordinal"].to_pylist()) if events is not None else 0
        now = Now(
            reached=reached,
            floor=self._floor,
            rows=None if events is None else max(0, events - taken),
            full=self.journal.full() and snapshot.since is not None and snapshot.since < start,
            windowed=self.snapshots.settings.writes_windows,
        )
        batch_ms, self._batch_ms = self._batch_ms, 0  # it is learned from once
        slices = self.journal.plan(start, position) if start < position else []
        left_out = tables_left_out(slices, self.connector.selection())
        return self.snapshots.advance(snapshot, self._heard(slices), now, self._logged, batch_ms, left_out)

    def _heard(self, slices: Sequence[Slice]) -> list[Heard]:
        """The signals that the log holds."""
        name = self.snapshots.settings.heard_table
        own = [s for s in slices if name and s.table is not None and s.table.qualified == name]
        return in_log(own, self._files, self.connector.decoder())

    def _logged(self, oid: int) -> str:
        table = next((t for t in self.journal.tables() if t.id == oid), None)
        return table.shape if table is not None else ""

    def _window(self, emission: Emission, end: int) -> tuple[Slice, ...]:
        since, oid = emission.chunk.since, emission.entry.oid
        return tuple(s for s in self.journal.plan(since, end) if s.table is not None and s.table.id == oid)

    def _walked_tables(self, snapshot: Snapshot) -> list[Table]:
        oids = {e.oid for e, _ in snapshot.planned} | {e.entry.oid for e in snapshot.emitting}
        return self.connector.present(sorted(oids)) if oids else []

    def _wanted(self, piece: Slice, selection: Selection) -> bool:
        """Of a captured table; the table of signals is captured for us alone."""
        if piece.table is None:
            return True
        own = not self._silent and piece.table.qualified == self.snapshots.settings.signal_table
        return not own and selection.has_table(piece.table.schema, piece.table.name)

    def _patience(self) -> float:
        """How long to wait for more; longer the first time, because Spark runs a first batch even if it is empty."""
        patience, self._patience_s = self._patience_s, _WAIT_S
        return patience

    def _drained(self, snapshot: Snapshot) -> bool:
        """Whether everything up to the target was read, and every snapshot is done; always, where there is no
        target."""
        if self._drain is None:
            return True
        if (snapshot.idle or self._silent) and self._served.caught_up(self._drain.target, 0):
            return True
        self._served.raise_failure()
        return False

    def _await(self, end: int) -> None:
        deadline = time.monotonic() + _REPLAY_S
        while self._served.wait(end - 1, 0.2) < end and not self._served.passed(end):
            if time.monotonic() > deadline:
                self._served.raise_failure()
                raise PositionLost(
                    f"A batch that ends at {end} can't be read again: the log has come to {self.journal.end()} only.",
                    hint="Is the database reachable, and the slot the one this pipeline used before?",
                )

    def _reached(self, start: Offset, position: int, snapshot: Snapshot) -> Offset:
        """The offset at `position`. The log may have to be read again from before it: an older note than that of the
        place is as good, it only begins earlier."""
        xid, committed, note = self.journal.last_commit(position)
        found = self._offset(position, xid, committed, snapshot, note if xid else noted(start))
        low = self._needed(found, snapshot)
        if note is None or low == position:
            return found
        return replace(found, note=self.journal.last_commit(low)[2] or start.note or noted(start))

    def _offset(self, position: int, xid: int, committed: int, snapshot: Snapshot, note: str | None = None) -> Offset:
        selection = self.connector.selection()
        self._selections.keep(selection)
        told = self.connector.document(position, xid, committed, note)
        document = told if self._silent else {**told, **self.snapshots.document(snapshot)}
        floor = min(self._floor or position, position)
        return Offset(position, selection.fingerprint, document, floor, snapshot.to_json(), self._life, self._change)
