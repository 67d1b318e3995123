"""Publication and slot: what the server needs before anything can be read, and whether it still has it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from tidelog.connectors.postgres import check, lock_waits, publication, survey
from tidelog.connectors.postgres.catalog import Catalog
from tidelog.connectors.postgres.client import LOG_END, REPLAYED, Session, lsn_text
from tidelog.connectors.postgres.config import Config
from tidelog.connectors.postgres.names import identifier
from tidelog.connectors.postgres.scene import Scene, observe
from tidelog.connectors.postgres.sqlstate import START_OVER
from tidelog.connectors.postgres.survey import Relation
from tidelog.contracts import Finding, Lag, WatchWait, ignore_wait
from tidelog.core.settings import nearest
from tidelog.errors import ConfigError, PositionLost, SlotBusy, TidelogError
from tidelog.model.schema import Table
from tidelog.model.selection import Selection

_LOG = logging.getLogger("tidelog")

_SLOT = """
SELECT confirmed_flush_lsn - '0/0'::pg_lsn, wal_status, safe_wal_size, plugin,
       pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
                       confirmed_flush_lsn),
       pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
                       restart_lsn),
       active_pid
  FROM pg_replication_slots
 WHERE slot_name = %s
"""
"""Columns by number; the first is NULL while the slot is being created."""

_VIA_ROOT = "WITH (publish_via_partition_root = true)"


class Slot:
    """By the session that it is given: whoever asks decides on whose."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def prepare(
        self, session: Session, *, resuming: bool, looking: bool = False, watch: WatchWait = ignore_wait
    ) -> int:
        """Creates the publication and the slot where they are missing; returns the slot's position. The publication
        comes first, because a slot decodes only what was published when it was created. Everything that can be checked
        is checked before that, and a publication is dropped again if its slot cannot be created."""
        if session.version < 130000:
            raise ConfigError(
                f"The server is PostgreSQL {session.version // 10000}; tidelog needs 13 or newer.",
                hint="Upgrade the server.",
            )
        if self._config.streaming and (problem := check.cannot_stream(session.version)):
            raise ConfigError(problem.meaning, hint=problem.cure)
        lock_waits.cancel_if_client_disconnects(session)
        slots = self._query_slot(session)
        if resuming:
            self.require(session, None)
        scene = observe(session, self._config)
        if not scene.captured:
            raise self._no_tables(session)
        fit = [*survey.unmatched(scene.relations, self._config.selection), *check.fit(scene)]
        _warn(fit)
        _require([*fit, *publication.findings(scene)])
        if scene.slot is None:
            _require(check.room_for_slot(scene))
        self._signals(session)
        with ExitStack() as undo:  # also after an interrupt: a new slot waits for open transactions
            if self._config.autocreate != "disabled" and not (looking and slots):
                self._publish(session, scene, watch, undo)
            position = self._ensure_slot(session, watch)
            undo.pop_all()
        return position

    def exists(self, session: Session) -> bool:
        """Whether there is a slot of this name for this database; one that the server has given up counts, too."""
        sql = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND database = current_database()"
        return bool(session.query(sql, [self._config.slot]))

    def _publish(self, session: Session, scene: Scene, watch: WatchWait, undo: ExitStack) -> None:
        """Creates or alters the publication; `undo` drops one that was created."""
        name = self._config.publication
        exists = bool(session.query("SELECT 1 FROM pg_publication WHERE pubname = %s", [name]))
        action = f"{'Altering' if exists else 'Creating'} the publication {name}"
        with lock_waits.warn_while_waiting(self._config, session, action, watch):
            if not exists:
                self._create_publication(session, scene, undo)
            elif self._config.autocreate != "all_tables":
                self._set_tables(session, scene)

    def _create_publication(self, session: Session, scene: Scene, undo: ExitStack) -> None:
        create = f"CREATE PUBLICATION {self._config.publication} FOR"
        if self._config.autocreate == "all_tables":
            session.query(f"{create} ALL TABLES {_VIA_ROOT}")
            undo.callback(self._drop_publication, session)
            return
        with _locked(session, scene.published):
            session.query(f"{create} TABLE {', '.join(r.quoted for r in scene.published)} {_VIA_ROOT}")
            undo.callback(self._drop_publication, session)  # already here: an interrupt of COMMIT does not undo it

    def _drop_publication(self, session: Session) -> None:
        """After a start that failed. A slot that was created nevertheless needs the publication: without it, the next
        start would find that changes are lost."""
        if session.closed:
            return
        with suppress(TidelogError):  # what went wrong first is what the user has to know
            if not self.exists(session):
                session.query(f"DROP PUBLICATION IF EXISTS {self._config.publication}")

    def _set_tables(self, session: Session, scene: Scene) -> None:
        name = self._config.publication
        if publication.listed_tables(session, name) != {(r.schema, r.name) for r in scene.published}:
            session.query(f"ALTER PUBLICATION {name} SET TABLE {', '.join(r.quoted for r in scene.published)}")

    def _query_slot(self, session: Session) -> list[tuple[Any, ...]]:
        """The slot's row, if there is one; `SlotBusy` while another session creates the slot."""
        found = session.query(_SLOT, [self._config.slot])
        if not found:
            return found
        confirmed, plugin, pid = found[0][0], found[0][3], found[0][-1]
        if plugin != "pgoutput":
            kind = f"uses the plugin {plugin}, not pgoutput" if plugin else "is a physical one"
            raise ConfigError(
                f"The slot {self._config.slot} {kind}.", hint="Choose another slot.name, or drop the slot."
            )
        if confirmed is None:
            raise SlotBusy(
                f"Server process {pid} still creates the replication slot {self._config.slot}, and waits for "
                f"{lock_waits.describe(session, pid)}"
            )
        return found

    def publish(self, session: Session, tables: Sequence[Table], patience_s: int) -> None:
        """Add these tables to the publication, if it is ours and lists its tables. The session waits for each of them
        `patience_s` at most."""
        if self._config.autocreate != "filtered":
            return
        relations = {relation.oid: relation for relation in survey.relations(session)}
        for table in self.unpublished(session, tables):
            relation = relations.get(table.id)
            if relation is None:  # dropped since
                continue
            if not relation.told:
                _require([survey.without_identity(relation, self._config.autocreate, alone=True)])
            name = self._config.publication
            action = f"Adding {table.qualified} to the publication {name}"
            with lock_waits.explain_lock_timeout(self._config, session, action, patience_s):
                session.query(f"ALTER PUBLICATION {name} ADD TABLE {relation.quoted}")

    def _signals(self, session: Session) -> list[Table]:
        """The table of signals, which we read for ourselves."""
        name = self._config.snapshot.signal_table
        if not name:
            return []
        found = [t for t in Catalog(session, Selection()).captured() if t.qualified == name]
        if not found:
            schema, _, table = name.rpartition(".")
            written = f"{identifier(schema or 'public')}.{identifier(table)}"
            raise ConfigError(
                f"The table of signals {name} does not exist.",
                hint=f"Run: CREATE TABLE {written} (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, "
                "data varchar(2048)); or correct signal.data.collection, written as schema.table.",
            )
        if len(found[0].columns) != 3:
            raise ConfigError(
                f"The table of signals {name} has {len(found[0].columns)} columns, and a signal has an id, a type and "
                "data, nothing else.",
                hint="Make it anew with these three: `tidelog check` prints the SQL.",
            )
        return found

    def _no_tables(self, session: Session) -> ConfigError:
        wanted = self._config.selection.include_tables
        everything = [t.qualified for t in Catalog(session, Selection()).captured()]
        near = nearest(wanted.replace("\\", ""), everything)
        found = f"The database has {', '.join(everything[:10])}." if everything else "The database has no tables."
        return ConfigError(
            f"No table of {self._config.dbname} matches table.include.list {wanted!r} and the other lists.",
            hint=f"Did you mean {near!r}?" if near else found,
        )

    def _ensure_slot(self, session: Session, watch: WatchWait) -> int:
        found = self._query_slot(session)
        if found and found[0][1] == "lost":  # of no use to anybody any more
            session.query("SELECT pg_drop_replication_slot(%s)", [self._config.slot])
            found = []
        if not found:
            recovering = session.query("SELECT pg_is_in_recovery()")[0][0]
            failover = session.version >= 170000 and self._config.failover and not recovering
            extra = ", failover => true" if failover else ""
            action = f"Creating the replication slot {self._config.slot}"
            with lock_waits.warn_while_waiting(self._config, session, action, watch):
                session.query(f"SELECT pg_create_logical_replication_slot(%s, 'pgoutput'{extra})", [self._config.slot])
            found = self._query_slot(session)
        return int(found[0][0])

    def require(self, session: Session, start: int | None) -> int:
        """PostgreSQL silently starts at the slot's own position when asked for an older one: never accept that.
        Returns how far the slot is acknowledged."""
        after = f"after {lsn_text(start)}" if start is not None else "since the last delivered one"
        found = self._query_slot(session)
        if not found:
            raise PositionLost(
                f"The replication slot {self._config.slot} does not exist any more: changes {after} are lost.",
                hint=START_OVER,
            )
        confirmed, state = found[0][0], found[0][1]
        if state == "lost":
            raise PositionLost(
                f"The server removed log that the slot {self._config.slot} still needed (max_slot_wal_keep_size, or "
                f"idle_replication_slot_timeout): changes {after} are lost.",
                hint=START_OVER,
            )
        if start is not None:
            self._require_log(session, start)
        if start is not None and confirmed > start:
            raise PositionLost(
                f"The slot {self._config.slot} stands at {lsn_text(int(confirmed))}, past the wanted "
                f"{lsn_text(start)}: the changes between them can't be read again.",
                hint="Did another reader use this slot? Give each pipeline its own slot.name. " + START_OVER,
            )
        return int(confirmed)

    def _require_log(self, session: Session, start: int) -> None:
        """A server that was restored writes other changes at the places that were delivered already. A standby may be
        behind for a moment."""
        is_primary = session.query(REPLAYED)[0][0] is None
        end = int(session.query(LOG_END)[0][0])
        if is_primary and end < start:
            raise PositionLost(
                f"The server's log ends at {lsn_text(end)}, and changes up to {lsn_text(start)} were delivered: the "
                "server was restored to an earlier time, or a standby took over that lacked them.",
                hint=START_OVER,
            )

    def lag(self, session: Session) -> Lag:
        found = self._query_slot(session)
        if not found:
            raise PositionLost(f"There is no replication slot {self._config.slot}.", hint=START_OVER)
        _, _, safe, _, pending, kept, _ = found[0]
        return Lag(int(pending), int(kept or 0), None if safe is None else int(safe))

    def unpublished(self, session: Session, tables: Sequence[Table]) -> list[Table]:
        """Those of which the publication leaves out changes."""
        marks = publication.marks(session, self._config, [t.id for t in tables])
        return [t for t in tables if not marks[t.id]]

    def captured_names(self, session: Session) -> dict[int, str]:
        """The names of `captured`."""
        found = Catalog(session, self._config.selection).captured_names()
        return {oid: name for oid, name in found.items() if name != self._config.snapshot.signal_table}

    def captured(self, session: Session) -> list[Table]:
        """What is delivered: the table of signals is not, whatever the lists say."""
        found = Catalog(session, self._config.selection).captured()
        return [t for t in found if t.qualified != self._config.snapshot.signal_table]


@contextmanager
def _locked(session: Session, tables: Iterable[Relation]) -> Iterator[None]:
    """A transaction that has the locks which a publication needs, before it writes anything.

    CREATE PUBLICATION writes into the catalog first and waits for its locks then. Until it gets them, no replication
    slot could be created on the server, because a slot waits for every transaction that has written. A role without the
    privilege for LOCK TABLE goes on without the locks."""
    names = ", ".join(f"ONLY {table.quoted}" for table in tables)
    try:
        session.query("BEGIN")
        session.query(f"LOCK TABLE {names} IN SHARE UPDATE EXCLUSIVE MODE")
    except ConfigError:
        session.query("ROLLBACK")
        session.query("BEGIN")
    except TidelogError:
        _roll_back(session)
        raise
    try:
        yield
    except BaseException:
        _roll_back(session)
        raise
    session.query("COMMIT")


def _roll_back(session: Session) -> None:
    if not session.closed:
        with suppress(TidelogError):  # what went wrong first is what the user has to know
            session.query("ROLLBACK")


def _warn(findings: Iterable[Finding]) -> None:
    for finding in findings:
        if finding.level == "warning":
            _LOG.warning("%s: %s %s", finding.subject, finding.meaning, finding.cure)


def _require(findings: Iterable[Finding]) -> None:
    """What `check` calls an error stops a start."""
    for finding in findings:
        if finding.level == "error":
            raise ConfigError(f"The {finding.subject}: {finding.meaning}", hint=finding.cure)
