"""Publication and slot: what the server needs before anything can be read, and whether it still has it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tidelog.connectors.postgres import check, survey
from tidelog.connectors.postgres.catalog import Catalog
from tidelog.connectors.postgres.client import Session, lsn_text
from tidelog.connectors.postgres.config import Config
from tidelog.connectors.postgres.names import identifier, quoted
from tidelog.connectors.postgres.sqlstate import START_OVER
from tidelog.contracts import Lag
from tidelog.core.settings import nearest
from tidelog.errors import ConfigError, PositionLost, TidelogError
from tidelog.model.schema import Table
from tidelog.model.selection import Selection

_SLOT = """
SELECT confirmed_flush_lsn - '0/0'::pg_lsn, wal_status, safe_wal_size, plugin,
       pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
                       confirmed_flush_lsn),
       pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
                       restart_lsn)
  FROM pg_replication_slots
 WHERE slot_name = %s
"""

_PUBLISHED = "SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = %s"

_UNPUBLISHED = """
WITH RECURSIVE publication AS (SELECT oid, puballtables FROM pg_publication WHERE pubname = %s),
     tree(root, oid) AS (
       SELECT wanted, wanted FROM unnest(%s::oid[]) AS wanted
        UNION ALL SELECT tree.root, inhrelid FROM pg_inherits JOIN tree ON inhparent = tree.oid)
SELECT tree.root::bigint
  FROM tree JOIN pg_class c USING (oid) CROSS JOIN publication p
 GROUP BY tree.root
HAVING NOT bool_or(p.puballtables
                   OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid)
                   OR {in_schema})
"""
"""From the catalog's own tables: the view that lists all this waits for whoever holds one of them."""
_IN_SCHEMA = "EXISTS (SELECT FROM pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace)"

_VIA_ROOT = "WITH (publish_via_partition_root = true)"


class Slot:
    """By the session that it is given: whoever asks decides on whose."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def prepare(self, session: Session, *, resuming: bool, looking: bool = False) -> int:
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
        slots = session.query(_SLOT, [self._config.slot])
        if slots and slots[0][3] != "pgoutput":
            raise ConfigError(
                f"The slot {self._config.slot} uses the plugin {slots[0][3]}, not pgoutput.",
                hint="Choose another slot.name, or drop the slot.",
            )
        if resuming:
            self.require(session, None)
        self._require_fit(session)
        if not slots:
            check.require_room_for_slot(session, self._config)
        created = False
        if self._config.autocreate == "disabled":
            self._require_publication(session)
            self._require_signals(session)
        elif not (looking and slots):
            created = self._publish(session, before_slot=not slots)
        try:
            return self._ensure_slot(session)
        except BaseException:  # also an interrupt: the server waits for open transactions before it creates a slot
            if created and not session.closed:
                with suppress(TidelogError):  # what went wrong first is what the user has to know
                    session.query(f"DROP PUBLICATION {self._config.publication}")
            raise

    def exists(self, session: Session) -> bool:
        """Whether there is a slot of this name for this database; one that the server has given up counts, too."""
        sql = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND database = current_database()"
        return bool(session.query(sql, [self._config.slot]))

    def _require_fit(self, session: Session) -> None:
        tables = self.captured(session)
        for _, meaning, cure in survey.twins(tables):
            raise ConfigError(meaning, hint=cure)
        for table in tables:
            if names := self._config.selection.blurred_keys(table):
                meaning, cure = survey.blurred_key(names)
                raise ConfigError(f"The table {table.qualified} can't be captured. {meaning}", hint=cure)

    def _require_publication(self, session: Session) -> None:
        """Since PostgreSQL 18 the server streams nothing, and reports no error, if a publication is missing."""
        if session.query("SELECT 1 FROM pg_publication WHERE pubname = %s", [self._config.publication]):
            return
        raise ConfigError(
            f"The publication {self._config.publication} does not exist, and publication.autocreate.mode is disabled: "
            "no change would ever arrive.",
            hint="`tidelog check` prints the SQL that creates it. Or correct publication.name.",
        )

    def _require_signals(self, session: Session) -> None:
        """Of a publication that others made."""
        for table in self.unpublished(session, self._signals(session)):
            raise ConfigError(
                f"The table of signals {table.qualified} is not in the publication {self._config.publication}: no "
                "signal would ever arrive.",
                hint=f"Run: ALTER PUBLICATION {self._config.publication} ADD TABLE {quoted(table)}",
            )

    def _publish(self, session: Session, *, before_slot: bool) -> bool:
        """Creates or alters the publication; returns whether it was created."""
        exists = session.query("SELECT puballtables FROM pg_publication WHERE pubname = %s", [self._config.publication])
        if not exists and not before_slot:
            raise ConfigError(
                f"The slot {self._config.slot} exists, but the publication {self._config.publication} does not: what "
                "was written since the slot was created would never be published, and be missing without a word.",
                hint="Correct publication.name, or drop the slot: "
                f"SELECT pg_drop_replication_slot('{self._config.slot}')",
            )
        if self._config.autocreate == "all_tables":
            if not exists:
                session.query(f"CREATE PUBLICATION {self._config.publication} FOR ALL TABLES {_VIA_ROOT}")
            return not exists
        tables = self._publishable(session) + self._signals(session)
        names = ", ".join(quoted(t) for t in tables)
        if not exists:
            session.query(f"CREATE PUBLICATION {self._config.publication} FOR TABLE {names} {_VIA_ROOT}")
        elif set(session.query(_PUBLISHED, [self._config.publication])) != {(t.schema, t.name) for t in tables}:
            session.query(f"ALTER PUBLICATION {self._config.publication} SET TABLE {names}")
        return not exists

    def _publishable(self, session: Session) -> list[Table]:
        tables = self.captured(session)
        if not tables:
            raise self._no_tables(session)
        for table in tables:
            if table.old_image == "none" or (table.old_image == "key" and not table.key):
                raise ConfigError(
                    f"The table {table.qualified} has neither a primary key nor a replica identity: once published, "
                    "the server would refuse UPDATE and DELETE on it.",
                    hint=f"Run: ALTER TABLE {quoted(table)} ADD PRIMARY KEY (…); or: ALTER TABLE {quoted(table)} "
                    "REPLICA IDENTITY FULL; or leave it out of table.include.list.",
                )
        return tables

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

    def _ensure_slot(self, session: Session) -> int:
        found = session.query(_SLOT, [self._config.slot])
        if found and found[0][1] == "lost":  # of no use to anybody any more
            session.query("SELECT pg_drop_replication_slot(%s)", [self._config.slot])
            found = []
        if not found:
            recovering = session.query("SELECT pg_is_in_recovery()")[0][0]
            failover = session.version >= 170000 and self._config.failover and not recovering
            extra = ", failover => true" if failover else ""
            session.query(f"SELECT pg_create_logical_replication_slot(%s, 'pgoutput'{extra})", [self._config.slot])
            found = session.query(_SLOT, [self._config.slot])
        return int(found[0][0])

    def require(self, session: Session, start: int | None) -> int:
        """PostgreSQL silently starts at the slot's own position when asked for an older one: never accept that.
        Returns how far the slot is acknowledged."""
        after = f"after {lsn_text(start)}" if start is not None else "since the last delivered one"
        found = session.query(_SLOT, [self._config.slot])
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
        if start is not None and confirmed > start:
            raise PositionLost(
                f"The slot {self._config.slot} stands at {lsn_text(int(confirmed))}, past the wanted "
                f"{lsn_text(start)}: the changes between them can't be read again.",
                hint="Did another reader use this slot? Give each pipeline its own slot.name. " + START_OVER,
            )
        return int(confirmed)

    def lag(self, session: Session) -> Lag:
        found = session.query(_SLOT, [self._config.slot])
        if not found:
            raise PositionLost(f"The replication slot {self._config.slot} does not exist any more.", hint=START_OVER)
        _, _, safe, _, pending, kept = found[0]
        return Lag(int(pending), int(kept or 0), None if safe is None else int(safe))

    def unpublished(self, session: Session, tables: Sequence[Table]) -> list[Table]:
        """Those of which neither they nor a partition of theirs is published."""
        if not tables:
            return []
        sql = _UNPUBLISHED.format(in_schema=_IN_SCHEMA if session.version >= 150000 else "false")
        found = {oid for (oid,) in session.query(sql, [self._config.publication, [t.id for t in tables]])}
        return [t for t in tables if t.id in found]

    def captured(self, session: Session) -> list[Table]:
        """What is delivered: the table of signals is not, whatever the lists say."""
        found = Catalog(session, self._config.selection).captured()
        return [t for t in found if t.qualified != self._config.snapshot.signal_table]
