"""Where a reading's log comes from: captured here, or apart by `tidelog capture`, whose journal is followed.

Law: one process writes a journal, and one query reads it under a name. Both are held until the end, and whoever may
not write a journal leaves nothing behind in the database.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack

from tidelog.contracts import Connector
from tidelog.core.snapshot.state import Snapshot
from tidelog.engine import owner
from tidelog.engine.capture import Capture, write_status
from tidelog.engine.definition import Definition, connector_of
from tidelog.engine.following import Following
from tidelog.engine.home import Home, Lock
from tidelog.engine.owner import Owner, owner_of
from tidelog.engine.readers import Readers
from tidelog.engine.storage import files_of, journal_of
from tidelog.errors import PositionLost
from tidelog.journal.buffer import Abandoned
from tidelog.journal.files import Files
from tidelog.model.offset import Offset

_LOCK_S = 20.0
_REPLAY_S, _POLL_S = 20.0, 0.2
"""How long a standby may take to replay what it had replayed before."""


class Serving:
    def __init__(self, definition: Definition, home: Home, *, reader: str, silent: bool) -> None:
        self._definition = definition
        self._home = home
        self._reader = reader
        self._silent = silent
        self.files = files_of(definition, home)
        self.apart = definition.limits.apart or home.holder("capture") is not None
        self.log: Capture | Following | None = None
        self._readers = Readers(self.files)
        self._connector: Connector | None = None
        self._prepared: int | None = None
        self._starts_over = False
        """Nothing that was delivered counts any more."""
        self._lock: Lock | None = None
        self._name = ""
        self._hold = ExitStack()

    @property
    def connector(self) -> Connector:
        if self._connector is None:
            self._connector = connector_of(self._definition)
        return self._connector

    def prepare(self, *, resuming: bool = False) -> int:
        """Make ready for a start: where it begins. Who goes on with a log that is captured apart knows where."""
        self._starts_over = not resuming
        if self.apart:
            return 0 if resuming else self._readers.start()
        owner.require(self.files, self._owner)
        with ExitStack() as taken:
            lock = self._lock or taken.enter_context(self._home.lock("journal", patience_s=_LOCK_S))
            self._prepared = self.connector.prepare(resuming=resuming, looking=self._silent)
            self._hold.push(taken.pop_all())
        self._lock = lock
        return self._prepared

    def begin(self, start: Offset, abandoned: Callable[[Abandoned], None]) -> int:
        """Serve everything that lies after `start`, and the windows that are open there; from where that is."""
        if self.apart:
            return self._follow(start)
        return self._capture(start, abandoned)

    def let_go(self) -> None:
        """Of the log, to take it up elsewhere."""
        if self.log is not None:
            self.log.stop()
        self.log = None

    def close(self) -> None:
        if self.log is not None:
            self.log.stop()
        if self._connector is not None:
            self._connector.close()
        self._hold.close()

    # -- inside --------------------------------------------------------------------------------------------------

    def _follow(self, start: Offset) -> int:
        owner.require_source(self.files, self._owner)
        name = self._followed_as()
        floor = _first_needed(start, self._readers.reached(name))
        journal = journal_of(self._definition, ":memory:", self.files)
        log = Following(journal, self.files, self._readers, name)
        log.start(floor)
        self.log = log
        return floor

    def _followed_as(self) -> str:
        """The name under which we tell how far we are; ours until the end."""
        if not self._name and self._silent:
            self._name = self._readers.visit(self._reader)
        elif not self._name:
            held = self._readers.hold(self._reader, self._home, patience_s=_LOCK_S)
            self._name = self._hold.enter_context(held)
        return self._name

    def _capture(self, start: Offset, abandoned: Callable[[Abandoned], None]) -> int:
        prepared = self._prepared if self._prepared is not None else self.prepare(resuming=True)
        assert self._lock is not None
        self._require_reached(start.position)
        owner.claim(self.files, self._owner)
        # The database knows places of its own log only. Between them stand records of our own; `start` is past these.
        is_at_start = prepared <= start.position <= self.connector.through(prepared)
        floor = _first_needed(start, start.position if is_at_start else prepared)
        storage = self._definition.storage
        log = Capture(
            self.connector,
            journal_of(self._definition, str(self._home.ledger), self.files),
            self.files,
            notes=Files(str(self._home.path)),
            memory_bytes=storage.memory_bytes,
            publish=write_status(self._home.status),
            persistent=storage.persistent,
            abandoned=abandoned,
            check=self._lock.require_kept,
        )
        log_end = self.connector.through(self.connector.log_end()) if self._starts_over else None
        log.start(floor, start.note or noted(start), log_end)
        self.log = log
        return floor

    def _require_reached(self, position: int) -> None:
        """A database that was restored writes other changes at places that were delivered already. A standby that has
        just started may be behind for a moment."""
        deadline = time.monotonic() + _REPLAY_S
        while self.connector.through(self.connector.log_end()) < position:
            if time.monotonic() > deadline:
                raise PositionLost(
                    "The database's log ends before the place up to which changes were delivered: it was restored to "
                    "an earlier time, or a standby took over that lacked them.",
                    hint="Start over: `tidelog offsets delete`, and start again: all tables are read anew.",
                )
            time.sleep(_POLL_S)

    @property
    def _owner(self) -> Owner:
        return owner_of(self._definition, self.connector)


def _first_needed(start: Offset, acknowledged: int) -> int:
    """From where the log is served: what was acknowledged since `start` was planned is not there any more, and
    was visible to everybody."""
    floor = max(start.floor, acknowledged) if start.floor else start.position
    since = Snapshot.from_json(start.snapshot).since
    return min(start.position, floor, start.position if since is None else since)


def noted(offset: Offset) -> str:
    """What an offset itself tells of the place."""
    return json.dumps(dict(offset.document))
