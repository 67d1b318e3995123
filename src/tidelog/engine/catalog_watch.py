"""Notices what changed rows without an event in the log, and requests a snapshot of those tables.

The catalog is read at the start and every few seconds. It tells of two things: a captured table that was dropped and
created again, or whose name another table has taken (`Connector.captured_names`), and a table whose rows are others
although no event says so (`Connector.contents`).

Law: a change is acted on once the log is known up to where it ended when the catalog was read. So whatever the log has
to tell of the table as it was before the change is delivered before the snapshot, and cannot undo it. What was acted on
stands in the same offset as the requests that follow from it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog.contracts import CatalogText, Connector, UnloggedChange
from tidelog.core.snapshot import requests
from tidelog.core.snapshot.requests import Wanted
from tidelog.core.snapshot.state import Snapshot
from tidelog.engine.admission import Admission, AdmitEverything, can_be_swept
from tidelog.engine.backoff import Backoff
from tidelog.engine.catalog_texts import CatalogTexts
from tidelog.engine.shell import snapshot_command
from tidelog.errors import ConfigError, LockTimeout, TransientError
from tidelog.model.schema import Table

_LOG = logging.getLogger("tidelog.snapshots")


@dataclass(frozen=True)
class _Finding:
    contents: Mapping[int, str]
    """By table, the digest of its text."""
    changes: Mapping[int, UnloggedChange]
    recreated: Mapping[int, str]
    """Tables with an id that is new under a name that is not."""
    log_end: int
    """The catalog was read before the log ended here."""


class CatalogWatch:
    """Used by one thread."""

    def __init__(
        self, connector: Connector, admission: Admission | AdmitEverything, texts: CatalogTexts, *, pipeline: str
    ) -> None:
        self._connector = connector
        self._texts = texts
        self._admission = admission
        self._pipeline = pipeline
        self._interval_s = connector.snapshot_settings().refresh_ms / 1000
        self._looked_s: float | None = None
        self._retrying = Backoff("Looking for changes that the log does not tell")
        self._finding: _Finding | None = None
        self._names: set[str] = set()
        """Of all tables that were captured since the process began."""
        self._refused: set[int] = set()
        """Tables created again that cannot be captured: it is said once."""
        self._publishing: dict[int, Backoff] = {}
        """Tables created again that another session has locked."""

    @property
    def awaited(self) -> int:
        """Up to where the log must be known before a change that was noticed is acted on; 0 if there is none."""
        return self._finding.log_end if self._finding is not None else 0

    @property
    def is_postponed(self) -> bool:
        """Whether the last look failed: there may be changes that nobody has noticed."""
        return self._retrying.failures > 0

    def contents(self, tables: Sequence[Table]) -> tuple[tuple[int, str], ...]:
        """What to remember of tables that are about to be read."""
        return _sorted(self._texts.keep(self._connector.contents([table.id for table in tables]), ()))

    def follow(self, snapshot: Snapshot, reached: int) -> Snapshot:
        """Request snapshots of the tables whose rows changed without an event; the log is known up to `reached`. A look
        that failed is repeated after a while, and not with each batch: it may have waited for a lock."""
        if not self._retrying.is_due:
            return snapshot
        began_s = time.monotonic()
        try:
            followed = self._follow(snapshot, reached)
        except TransientError as exc:
            self._retrying.failed(exc.message, time.monotonic() - began_s)
            if isinstance(exc, LockTimeout):  # the database answers: signals and snapshots go on
                return snapshot
            raise
        self._retrying.succeeded()
        return followed

    def _follow(self, snapshot: Snapshot, reached: int) -> Snapshot:
        if self._finding is None and self._is_due():
            snapshot = self._look(snapshot)
        if self._finding is None or reached < self._finding.log_end:
            return snapshot
        finding = self._finding
        snapshot = self._request(snapshot, finding)
        self._finding = None  # not before the source has answered
        return snapshot

    def _is_due(self) -> bool:
        return self._looked_s is None or time.monotonic() - self._looked_s >= self._interval_s

    def _look(self, snapshot: Snapshot) -> Snapshot:
        """Compare the catalog with what the snapshot state remembers of it."""
        names, covered = self._connector.captured_names(), set(snapshot.known)
        known = {id: name for id, name in names.items() if id in covered}
        self._names.update(known.values())
        recreated = {id: name for id, name in names.items() if id not in known and name in self._names}
        recreated = {id: name for id, name in recreated.items() if self._may_publish(id)}
        before, texts = dict(snapshot.contents), self._connector.contents(list(known))
        now = self._texts.keep(texts, before.values())
        differing = [id for id, digest in now.items() if before.get(id, digest) != digest]
        changes = {id: change for id in differing if (change := self._change(before[id], texts[id])) is not None}
        if changes or recreated:
            self._finding = _Finding(now, changes, recreated, self._connector.log_end())
        elif _sorted(now) != snapshot.contents:
            snapshot = replace(snapshot, contents=_sorted(now))
        self._looked_s = time.monotonic()
        return snapshot

    def _change(self, before: str, text: CatalogText) -> UnloggedChange | None:
        """What changed the rows of a table since the digest `before` was taken."""
        earlier = self._texts.find(before)
        if earlier is None:
            return UnloggedChange("its catalog entry changed, and the earlier one is lost (catalog.json)")
        return self._connector.unlogged_change(earlier, text)

    # -- what follows from it ----------------------------------------------------------------------------------

    def _request(self, snapshot: Snapshot, finding: _Finding) -> Snapshot:
        tables = self._connector.tables()
        if finding.recreated:
            tables = self._admission.admit(tables, self._connector.selection())
        else:
            aside = self._admission.waiting()  # a table that is set aside is read anyway when it comes back
            tables = [table for table in tables if table.qualified not in aside]
        committed = dict(snapshot.contents)
        snapshot = replace(snapshot, contents=_sorted(finding.contents))
        snapshot = self._read_changed(snapshot, [t for t in tables if t.id in finding.changes], finding.changes)
        return self._read_recreated(snapshot, [t for t in tables if t.id in finding.recreated], committed)

    def _read_changed(
        self, snapshot: Snapshot, tables: Sequence[Table], changes: Mapping[int, UnloggedChange]
    ) -> Snapshot:
        wanted = []
        for table in tables:
            change = changes[table.id]
            if not self._may_read(table):
                _LOG.warning(
                    "%s: %s; the log does not tell which rows that affects, and the target may have others. `%s` reads "
                    "the table again",
                    table.qualified,
                    change.reason,
                    snapshot_command(self._pipeline, [table.qualified]),
                )
                continue
            what = "its keys are compared with the target" if change.only_removes else "its rows are read again"
            _LOG.warning(
                "%s: %s; the log does not tell which rows that affects, so %s", table.qualified, change.reason, what
            )
            wanted.append(Wanted(table.qualified, sweep=True, only_sweep=change.only_removes))
        return self._ask(snapshot, "changed", wanted)

    def _may_read(self, table: Table) -> bool:
        """Rows that existed before are not wanted with `no_data`; without a key, rows could not be told apart."""
        is_wanted = self._connector.snapshot_settings().mode != "no_data"
        return is_wanted and can_be_swept(table, self._connector.selection())

    def _read_recreated(self, snapshot: Snapshot, tables: Sequence[Table], committed: Mapping[int, str]) -> Snapshot:
        """`committed` are the digests of the last committed offset."""
        published = [table for table in tables if self._publish(table)]
        if not published:
            return snapshot
        ids = [table.id for table in published]
        known = dict(snapshot.contents)
        new = self._texts.keep(self._connector.contents(ids), {*known.values(), *committed.values()})
        contents = {**known, **new}
        snapshot = replace(snapshot, known=(*snapshot.known, *ids), contents=_sorted(contents))
        reads = self._connector.snapshot_settings().mode != "no_data"
        for table in published:
            what = "its rows are read" if reads else "its changes are followed from now on"
            _LOG.warning("%s: another table has this name now; %s", table.qualified, what)
        selection = self._connector.selection()
        wanted = [Wanted(t.qualified, sweep=can_be_swept(t, selection)) for t in published]
        return self._ask(snapshot, "recreated", wanted) if reads else snapshot

    def _may_publish(self, id: int) -> bool:
        if id in self._refused:
            return False
        return id not in self._publishing or self._publishing[id].is_due

    def _publish(self, table: Table) -> bool:
        """Whether the log tells of the table from now on. One that another session has locked is left to a later look,
        so that nothing else waits for it."""
        began_s = time.monotonic()
        try:
            self._connector.publish([table])
            reason = "it is not published" if self._connector.untold([table]) else ""
        except LockTimeout as exc:
            self._postpone(table, exc, time.monotonic() - began_s)
            return False
        except ConfigError as exc:
            reason = f"{exc}"
        self._publishing.pop(table.id, None)
        if reason:
            self._refused.add(table.id)
            _LOG.warning("%s: another table has this name now, and is not captured: %s", table.qualified, reason)
        return not reason

    def _postpone(self, table: Table, reason: LockTimeout, lasted_s: float) -> None:
        backoff = self._publishing.setdefault(table.id, Backoff(f"Publishing {table.qualified}"))
        if not backoff.failures:  # the backoff logs those that follow
            _LOG.warning(
                "%s: another table has this name now, and is not captured yet: %s", table.qualified, reason.message
            )
        backoff.failed(reason.message, lasted_s)

    def _ask(self, snapshot: Snapshot, reason: str, wanted: Sequence[Wanted]) -> Snapshot:
        if not wanted:
            return snapshot
        after = self._connector.next_xid()
        return requests.repeat(snapshot, f"{reason}-{after}", [replace(w, after=after) for w in wanted])


def _sorted(contents: Mapping[int, str]) -> tuple[tuple[int, str], ...]:
    return tuple(sorted(contents.items()))
