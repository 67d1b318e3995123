"""One query's view of a source: offsets in, offsets out, and what lies between two of them.

Everything Spark asks of a streaming source is answered here, without Spark. The capture runs inside (the query reads
the log itself) or apart (`tidelog capture` does, and several queries share its journal).

Law: planning is deterministic. The same two offsets give the same records under the same selection, before and after
a crash, so a batch that is run again is the same batch.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tidelog.contracts import Connector, Slice, Status
from tidelog.engine.capture import Capture, write_status
from tidelog.engine.definition import Definition, connector_of
from tidelog.engine.home import Home
from tidelog.engine.readers import Readers
from tidelog.errors import CorruptState, PositionLost
from tidelog.journal.files import Files
from tidelog.journal.journal import SegmentJournal
from tidelog.journal.ledger import Ledger
from tidelog.model.offset import Offset
from tidelog.model.selection import Selection

_WAIT_S = 0.05
_FIRST_WAIT_S = 1.0
_REPLAY_S = 300.0
_LOCK_S = 20.0
STATUS = "status.json"
_SELECTIONS = "selections"


@dataclass(frozen=True)
class Plan:
    """What one batch reads, and under which selection."""

    journal: str
    """URI of the journal: executors open it themselves."""
    connector: str
    selection: Selection
    slices: tuple[Slice, ...]
    commits: tuple[Slice, ...]
    """Only when transaction metadata is asked for."""


class Reading:
    """Used by one thread."""

    def __init__(self, definition: Definition, home: Home, *, reader: str = "main", silent: bool = False) -> None:
        """A `silent` reading acknowledges nothing."""
        self._definition = definition
        self._home = home
        self._reader = reader
        self._silent = silent
        self._prepared = False
        self._connector: Connector | None = None
        self._files = files_of(definition, home)
        self._apart = definition.limits.apart or home.holder("capture") is not None
        self._readers = Readers(self._files)
        self._journal: SegmentJournal | None = None
        self._capture: Capture | None = None
        self._target: int | None = None
        self._until: int | None = None
        self._hold = ExitStack()
        self._patience_s = _FIRST_WAIT_S

    # -- what a streaming source is asked ------------------------------------------------------------------------

    def initial(self) -> Offset:
        """Where a first start begins."""
        if self._apart:
            return self._offset(self._readers.start(), 0, 0)
        self._prepared = True
        return self._offset(self.connector.prepare(), 0, 0)

    def latest(self, start: Offset, events: int | None, size: int | None) -> Offset:
        """The end of the next batch. `start` was committed: it is acknowledged on the way."""
        self._serve(start.position)
        self.acknowledge(start)
        while True:
            over = self._drained()  # asked before looking: whatever it speaks of is then in the journal
            if self._wait(start.position, self._patience()) > start.position:
                self.journal.require(start.position)
                reached = self.journal.limit(start.position, events, size, self._until)
                if reached > start.position:
                    return self._offset(reached, *self.journal.last_commit(reached))
            if over:
                return start

    def plan(self, start: Offset, end: Offset) -> Plan:
        """What lies between two offsets. After a crash this comes first: wait for the log to be read again."""
        self._serve(start.position)
        self._await(end.position)
        self.journal.require(start.position)
        selection = self._selection(end.selection)
        slices = [s for s in self.journal.plan(start.position, end.position) if _wanted(s, selection)]
        commits = self.journal.commit_slices(start.position, end.position) if selection.transactions else []
        return Plan(self._files.uri, self._definition.connector, selection, tuple(slices), tuple(commits))

    def acknowledge(self, offset: Offset) -> None:
        if self._silent:
            return
        if self._capture is not None:
            self._capture.acknowledge(offset.position)
        else:
            self._readers.acknowledge(self._reader, offset.position)

    def drain(self) -> None:
        """End where the log ends now: `latest` never goes past it, and reaches it."""
        self._target = self.connector.log_end()
        self._until = self.connector.through(self._target)

    def finish(self) -> None:
        """Everything is drained: let the database hear of the last acknowledgement, and give the slot back, since
        Spark does not always tell a source that its query is over."""
        if self._target is not None and self._capture is not None:
            self._capture.settle(5.0)
            self.close()

    def metrics(self) -> dict[str, Any]:
        status = self._capture.status() if self._capture is not None else self.remote_status()
        return {
            "position": status.position,
            "lag_ms": status.lag_ms,
            "lag_bytes": status.lag_bytes,
            "events": status.events,
            "journal_bytes": status.journal_bytes,
            "state": status.state,
            "warning": status.warning,
        }

    def remote_status(self) -> Status:
        """What a capture that runs apart last said of itself."""
        text = self._files.read(STATUS)
        return Status(**json.loads(text)) if text else Status("starting")

    def close(self) -> None:
        if self._capture is not None:
            self._capture.stop()
        if self._connector is not None:
            self._connector.close()
        self._hold.close()

    # -- inside --------------------------------------------------------------------------------------------------

    @property
    def connector(self) -> Connector:
        if self._connector is None:
            self._connector = connector_of(self._definition)
        return self._connector

    @property
    def journal(self) -> SegmentJournal:
        if self._journal is None:
            # Only the capture writes the ledger; who follows it keeps one of his own.
            ledger = ":memory:" if self._apart else str(self._home.ledger)
            self._journal = journal_of(self._definition, ledger, self._files)
        return self._journal

    def _serve(self, start: int) -> None:
        """Begin, once, to serve everything from `start` on."""
        if self._journal is not None:
            return
        if self._apart:
            self._readers.acknowledge(self._reader, start)
            self.journal.follow(start)
            return
        self._hold.enter_context(self._home.lock("journal", patience_s=_LOCK_S))
        if not self._prepared:
            self.connector.prepare(resuming=True)
        storage = self._definition.storage
        self._capture = Capture(
            self.connector,
            self.journal,
            self._files,
            notes=Files(str(self._home.path)),
            memory_bytes=storage.memory_bytes,
            publish=write_status(self._home.status),
        )
        self._capture.start(start)

    def _patience(self) -> float:
        """How long to wait for more; longer the first time, because Spark runs a first batch even if it is empty."""
        patience, self._patience_s = self._patience_s, _WAIT_S
        return patience

    def _drained(self) -> bool:
        """Whether everything up to the target was read; always, where there is none."""
        if self._target is None:
            return True
        if self._capture is not None:
            return self._capture.caught_up(self._target, 0)
        status = self.remote_status()  # none on a machine of its own: then what the journal has is what there is
        return status.state == "starting" or status.seen >= self._target

    def _await(self, end: int) -> None:
        deadline = time.monotonic() + _REPLAY_S
        while self._wait(end - 1, 0.2) < end and not self._passed(end):
            if time.monotonic() > deadline:
                raise PositionLost(
                    f"A batch that ends at {end} can't be read again: the log has come to {self.journal.end()} only.",
                    hint="Is the database reachable, and the slot the one this pipeline used before?",
                )

    def _passed(self, end: int) -> bool:
        """Whether the log is known past `end`: after a loss of the journal, a record of our own that stood there is
        not read again, because the database knows nothing of it."""
        return self._capture is not None and self.connector.through(self._capture.seen()) >= end

    def _wait(self, beyond: int, seconds: float) -> int:
        if self._capture is not None:
            return self._capture.wait(beyond, seconds)
        self.journal.refresh()
        if self.journal.end() <= beyond and seconds:
            time.sleep(seconds)
        return self.journal.end()

    def _offset(self, position: int, xid: int, committed: int) -> Offset:
        selection = self.connector.selection()
        self._keep(selection)
        return Offset(position, selection.fingerprint, self.connector.document(position, xid, committed))

    def _keep(self, selection: Selection) -> None:
        """Remember a selection for as long as the journal lives: a replay decodes under it."""
        name = f"{_SELECTIONS}/{selection.fingerprint}.json"
        if self._files.read(name) is None:
            self._files.write(name, selection.to_json().encode())

    def _selection(self, fingerprint: str) -> Selection:
        current = self.connector.selection()
        if fingerprint == current.fingerprint:
            return current
        text = self._files.read(f"{_SELECTIONS}/{fingerprint}.json")
        if text is None:
            raise CorruptState(
                f"The batch was planned under the selection {fingerprint}, which the journal does not have any more.",
                hint="Start once with the filters that were in force before, then change them.",
            )
        return Selection.from_json(text.decode())


def files_of(definition: Definition, home: Home) -> Files:
    return Files(definition.storage.path or str(home.journal))


def journal_of(definition: Definition, ledger: str, files: Files) -> SegmentJournal:
    storage = definition.storage
    return SegmentJournal(
        files,
        Ledger(ledger),
        max_bytes=storage.bytes_max,
        retention_bytes=storage.retention_bytes,
        compression=storage.compression,
        persistent=storage.persistent,
    )


def _wanted(piece: Slice, selection: Selection) -> bool:
    return piece.table is None or selection.has_table(piece.table.schema, piece.table.name)
