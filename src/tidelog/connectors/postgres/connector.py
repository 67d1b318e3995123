"""PostgreSQL as the engine sees it: publication and slot, the tail of the log, and reads of present rows."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa
from pyarrow import csv

from tidelog.connectors.postgres import check, config, decode, lookup, offset, position, survey, types, walk
from tidelog.connectors.postgres.catalog import Catalog
from tidelog.connectors.postgres.client import LOG_END, REPLAYED, VISIBLE, Session, as_reader, lsn_text
from tidelog.connectors.postgres.config import Config
from tidelog.connectors.postgres.names import identifier, literal, quoted
from tidelog.connectors.postgres.tail import PostgresTail
from tidelog.contracts import Finding, Kept, Key, Lag, Limits, Scan, Watermark
from tidelog.core.settings import nearest
from tidelog.core.snapshot.settings import SnapshotSettings
from tidelog.core.snapshot.watermark import Replayed, Visible
from tidelog.errors import ConfigError, PositionLost, UnsupportedChange
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

_ROWS_PER_READ = 50_000

_SLOT = """
SELECT confirmed_flush_lsn - '0/0'::pg_lsn, wal_status, safe_wal_size, plugin,
       pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
                       confirmed_flush_lsn),
       pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
                       restart_lsn)
  FROM pg_replication_slots
 WHERE slot_name = %s
"""

_OLDEST = "SELECT pg_is_in_recovery(), pg_snapshot_xmin(pg_current_snapshot())::text"
_YOUNGEST = """
SELECT pg_snapshot_xmax(pg_current_snapshot())::text,
       (SELECT array_agg(transactionid::text) FROM pg_locks WHERE locktype = 'transactionid')
"""

_PUBLISHED = "SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = %s"


def create(options: Mapping[str, str], pipeline: str = "tidelog") -> PostgresConnector:
    return PostgresConnector(config.read(options, pipeline))


class PostgresConnector:
    def __init__(self, settings: Config) -> None:
        self._config = settings
        self._session: Session | None = None
        self._walker: Session | None = None
        self._exports: dict[str, Session] = {}
        self._lock = threading.Lock()

    def selection(self) -> Selection:
        return self._config.selection

    def decoder(self) -> decode.PostgresDecoder:
        return decode.PostgresDecoder()

    def snapshot_settings(self) -> SnapshotSettings:
        return self._config.snapshot

    def check(self) -> list[Finding]:
        return check.findings(self._config)

    def close(self) -> None:
        self.release(())
        for session in (self._session, self._walker):
            if session is not None:
                session.close()
        self._session = self._walker = None

    # -- publication and slot ----------------------------------------------------------------------------------

    def prepare(self, *, resuming: bool = False) -> int:
        """The publication comes first: a slot can only decode what was published when it was created."""
        with Session(self._config) as session:
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
            self._require_keys(session)
            if self._config.autocreate != "disabled":
                self._publish(session, before_slot=not slots)
            if resuming:
                self._require_slot(session, None)
            return self._ensure_slot(session)

    def _require_keys(self, session: Session) -> None:
        for table in self._captured(session):
            if names := self._config.selection.blurred_keys(table):
                meaning, cure = survey.blurred_key(names)
                raise ConfigError(f"The table {table.qualified} can't be captured. {meaning}", hint=cure)

    def _publish(self, session: Session, *, before_slot: bool) -> None:
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
            return
        tables = self._publishable(session) + self._signals(session)
        names = ", ".join(quoted(t) for t in tables)
        if not exists:
            session.query(f"CREATE PUBLICATION {self._config.publication} FOR TABLE {names} {_VIA_ROOT}")
        elif set(session.query(_PUBLISHED, [self._config.publication])) != {(t.schema, t.name) for t in tables}:
            session.query(f"ALTER PUBLICATION {self._config.publication} SET TABLE {names}")

    def _publishable(self, session: Session) -> list[Table]:
        tables = self._captured(session)
        if not tables:
            raise self._no_tables(session)
        for table in tables:
            if table.old_image == "none" or (table.old_image == "key" and not table.key):
                raise ConfigError(
                    f"The table {table.qualified} has neither a primary key nor a replica identity: once published, "
                    "the server would refuse UPDATE and DELETE on it.",
                    hint=f"Run: ALTER TABLE {quoted(table)} ADD PRIMARY KEY (…); or: ALTER TABLE {quoted(table)} "
                    "REPLICA IDENTITY FULL; or leave it out by table.exclude.list.",
                )
        return tables

    def _signals(self, session: Session) -> list[Table]:
        """The table of signals, which we read for ourselves."""
        name = self._config.snapshot.signal_table
        if not name:
            return []
        found = [t for t in Catalog(session, Selection()).captured() if t.qualified == name]
        if not found:
            raise ConfigError(
                f"The table of signals {name} does not exist.",
                hint=f"Run: CREATE TABLE {name} (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, "
                "data varchar(2048)); or correct signal.data.collection, written as schema.table.",
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

    # -- the log -----------------------------------------------------------------------------------------------

    def tail(
        self,
        start: int,
        known: Sequence[Table],
        memory_bytes: int,
        *,
        note: str | None = None,  # noqa: ARG002  the log itself knows all that is needed to read on
        kept: Kept | None = None,  # noqa: ARG002
    ) -> PostgresTail:
        with Session(self._config) as session:
            confirmed = self._require_slot(session, position.resume(start))
        return PostgresTail(self._config, start, known, acknowledged=confirmed, memory_bytes=memory_bytes)

    def _require_slot(self, session: Session, start: int | None) -> int:
        """PostgreSQL silently starts at the slot's own position when asked for an older one: never accept that.
        Returns how far the slot is acknowledged."""
        after = f"after {lsn_text(start)}" if start is not None else "since the last delivered one"
        found = session.query(_SLOT, [self._config.slot])
        if not found:
            raise PositionLost(
                f"The replication slot {self._config.slot} does not exist any more: changes {after} are lost.",
                hint=_START_OVER,
            )
        confirmed, state = found[0][0], found[0][1]
        if state == "lost":
            raise PositionLost(
                f"The server removed log that the slot {self._config.slot} still needed (max_slot_wal_keep_size, or "
                f"idle_replication_slot_timeout): changes {after} are lost.",
                hint=_START_OVER,
            )
        if start is not None and confirmed > start:
            raise PositionLost(
                f"The slot {self._config.slot} stands at {lsn_text(int(confirmed))}, past the wanted "
                f"{lsn_text(start)}: the changes between them can't be read again.",
                hint="Did another reader use this slot? Give each pipeline its own slot.name. " + _START_OVER,
            )
        return int(confirmed)

    def lag(self) -> Lag:
        found = self._reader().query(_SLOT, [self._config.slot])
        if not found:
            raise PositionLost(f"The replication slot {self._config.slot} does not exist any more.", hint=_START_OVER)
        _, _, safe, _, pending, kept = found[0]
        return Lag(int(pending), int(kept or 0), None if safe is None else int(safe))

    def scope(self) -> str:
        return ""  # the server tells a transaction from its beginning

    def limits(self) -> Limits:
        """None: the server gives up a transaction by itself, and says so."""
        return Limits()

    def log_end(self) -> int:
        return int(self._reader().query(LOG_END)[0][0])

    def reach(self) -> int:
        return self._require_slot(self._reader(), None)

    def names(self) -> Mapping[str, str]:
        return {"server": self._config.selection.topic_prefix, "database": self._config.dbname}

    def position_of(self, document: Mapping[str, Any]) -> int:
        return offset.position_of(document)

    def through(self, log_end: int) -> int:
        return position.of_record(log_end)

    def document(self, at: int, xid: int, committed: int, note: str | None = None) -> dict[str, Any]:  # noqa: ARG002
        return offset.document(at, xid, committed)

    # -- present rows ------------------------------------------------------------------------------------------

    def tables(self) -> list[Table]:
        return self._captured(self._reader())

    def _captured(self, session: Session) -> list[Table]:
        """What is delivered: the table of signals is not, whatever the lists say."""
        found = Catalog(session, self._config.selection).captured()
        return [t for t in found if t.qualified != self._config.snapshot.signal_table]

    def present(self, ids: Sequence[int]) -> list[Table]:
        return Catalog(self._reader(), self._config.selection).present(ids)

    def parse(self, text: str, table: Table, column: Column) -> pa.Scalar:
        return decode.values(pa.array([text]), table, column, self._config.selection)[0][0]

    def read(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """By the names of today: the log may be behind. A column that is gone or has another type by now is null; the
        version of the table that says so is still to come, and asks again."""
        for now in Catalog(self._reader(), self._config.selection).present([table.id]):
            names = [_name_now(table.column(c), now) for c in columns]
            if None not in [name for c, name in zip(columns, names, strict=True) if c in table.key]:
                chosen = ", ".join("NULL" if name is None else identifier(name) for name in names)
                yield from self._select(f"SELECT {chosen} FROM {quoted(now)}", table, columns)

    def read_keys(self, table: Table, columns: Sequence[str], keys: pa.Table) -> Iterator[pa.RecordBatch]:
        """By the names of today, as `read`; a table whose key has changed since has no such rows. Masked keys mean
        nothing to the database: then all rows come."""
        if any(self._config.selection.rules_for(table, table.column(c)) for c in keys.column_names):
            yield from self.read(table, columns)
            return
        for now in self.present([table.id]):
            names = [_name_now(table.column(c), now) for c in columns]
            key = [_name_now(table.column(c), now) for c in keys.column_names]
            known = [name for name in key if name is not None]
            if len(known) == len(key):
                for sql in lookup.statements(self._tables(), now, names, known, keys):
                    yield from self._select(sql, table, columns)

    def read_range(
        self, table: Table, columns: Sequence[str], low: str | None, high: str | None
    ) -> Iterator[pa.RecordBatch]:
        limits = [f"{_key(table, self._config.selection)} > {literal(low)}"] if low is not None else []
        limits += [f"{_key(table, self._config.selection)} <= {literal(high)}"] if high is not None else []
        where = f" WHERE {' AND '.join(limits)}" if limits else ""
        names = ", ".join(identifier(c) for c in columns)
        return self._select(f"SELECT {names} FROM {quoted(table)}{where}", table, columns)

    def _select(self, sql: str, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with Session(as_reader(self._config)) as session:
            for text in session.copy(sql, _ROWS_PER_READ):
                yield self._typed(text, table, columns)

    def bounds(self, table: Table, rows: int) -> list[str]:
        if not table.key:
            return []
        key = _key(table, self._config.selection)
        numbered = f"SELECT {key} AS k, row_number() OVER (ORDER BY {key}) AS n FROM {quoted(table)}"
        sql = f"SELECT k::text FROM ({numbered}) s WHERE n % {int(rows)} = 0 ORDER BY n"
        found = [str(row[0]) for row in self._tables().query(sql)]
        return list(dict.fromkeys(found))

    def _typed(self, text: bytes, table: Table, columns: Sequence[str]) -> pa.RecordBatch:
        texts = csv.read_csv(
            BytesIO(text),
            read_options=csv.ReadOptions(column_names=[f"c{i}" for i in range(len(columns))]),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types={f"c{i}": pa.string() for i in range(len(columns))},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        ).combine_chunks()
        arrays = [self._column(texts.column(i).chunk(0), table, name) for i, name in enumerate(columns)]
        return pa.record_batch(arrays, names=list(columns))

    def _column(self, texts: pa.StringArray, table: Table, name: str) -> pa.Array:
        column, selection = table.column(name), self._config.selection
        array, failed = decode.values(texts, table, column, selection)
        if failed.any():
            raise UnsupportedChange(
                f"{table.qualified}.{name} holds a value that does not fit its type in the target.",
                hint=types.hint(column),
            )
        return array

    # -- walks -------------------------------------------------------------------------------------------------

    def walked(self, table: Table, surrogate: str = "") -> tuple[str, ...]:
        if surrogate:
            walk.require(table, [surrogate], {column.name for column in table.columns})
            return (surrogate,)
        known = {column.name for column in table.columns}
        key = table.key or tuple(name for name in self._config.selection.key_of(table) if name in known)
        if not key and table.old_image != "full":
            raise ConfigError(
                f"The table {table.qualified} has no key, and its replica identity is not FULL: the rows of a snapshot "
                "could not be told from those that change meanwhile.",
                hint=f"Run: ALTER TABLE {quoted(table)} ADD PRIMARY KEY (…); or: ALTER TABLE {quoted(table)} REPLICA "
                "IDENTITY FULL.",
            )
        return key

    def maximum(self, scan: Scan) -> Key | None:
        planned = self._walk(scan)
        if planned.by_place:
            blocks = self._blocks(scan)[0]
            return walk.place(blocks) if blocks else None
        found = self._tables().query(walk.maximum(planned))
        return tuple(found[0]) if found else None

    def boundaries(self, scan: Scan, low: Key | None, maximum: Key, rows: int, count: int) -> list[Key]:
        planned = self._walk(scan)
        if planned.by_place:
            _, known_rows, known_blocks = self._blocks(scan)
            return walk.places(low, maximum, rows, count, known_rows / known_blocks if known_blocks else 0)
        found: list[Key] = []
        while len(found) < count and maximum not in found:
            after = found[-1] if found else low
            key = self._tables().query(walk.boundary(planned, after, maximum, rows))
            if not key:
                return walk.ends(found, True, maximum)
            found.append(tuple(key[0]))
        return walk.ends(found, False, maximum)

    def estimate(self, scan: Scan) -> int:
        return int(self._tables().query(walk.ESTIMATE, [scan.table.id, scan.table.id])[0][0])

    def _tables(self) -> Session:
        """As the role that reads tables."""
        if not self._config.reader:
            return self._reader()
        with self._lock:
            if self._walker is None or self._walker.closed:
                self._walker = Session(as_reader(self._config))
            return self._walker

    def _walk(self, scan: Scan) -> walk.Walk:
        source = self._tables().query(walk.SOURCE, [scan.table.id])
        if not source:
            raise ConfigError(f"The table {scan.table.qualified} does not exist any more.", hint=walk.GONE)
        return walk.plan(scan, source[0][0], self._tables().query(walk.DESCRIBE, [scan.table.id]))

    def _blocks(self, scan: Scan) -> tuple[int, int, int]:
        blocks, rows, known = self._tables().query(walk.BLOCKS, [scan.table.id, scan.table.id])[0]
        return int(blocks), int(rows), int(known)

    def export(self, scan: Scan) -> str:
        if self._config.snapshot.writes_windows:
            raise ConfigError(
                f"The table {scan.table.qualified} has no key: it can't be read in windows that the source is told of.",
                hint="Give it a primary key, name a surrogate key, or leave read.only as it is (true).",
            )
        session = Session(as_reader(self._config))
        session.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        session.query(f"LOCK TABLE {quoted(scan.table)} IN ACCESS SHARE MODE")
        name = str(session.query("SELECT pg_export_snapshot()")[0][0])
        self._exports[name] = session
        return name

    def release(self, exports: Collection[str]) -> None:
        for name in self._exports.keys() - set(exports):
            self._exports.pop(name).close()

    def exported(self, name: str) -> bool:
        return name in self._exports and not self._exports[name].closed

    def horizon(self) -> Watermark:
        # On a standby the place is read before the snapshot: what is replayed between them is seen, not promised.
        replayed = self._reader().query(REPLAYED)[0][0]
        if replayed is not None:
            return Replayed(int(replayed))
        return Visible.parse(self._reader().query(VISIBLE)[0][0])

    def settled(self, xid: int) -> bool:
        """A standby knows no running transactions: there, replay order is all there is."""
        recovering, oldest = self._reader().query(_OLDEST)[0]
        return bool(recovering) or int(oldest) >= xid

    def next_xid(self) -> int:
        """A snapshot ends after the last transaction that is over; one that runs may be younger, and holds a lock on
        its id, which has 32 bits there."""
        ended, running = self._reader().query(_YOUNGEST)[0]
        ahead = [(int(xid) - int(ended) + 2**31) % 2**32 - 2**31 for xid in running or ()]
        return int(ended) + max([0, *(distance + 1 for distance in ahead)])

    def _reader(self) -> Session:
        """Asked by the capture's thread and by the query's: one session serves both."""
        with self._lock:
            if self._session is None or self._session.closed:
                self._session = Session(self._config)
            return self._session


_VIA_ROOT = "WITH (publish_via_partition_root = true)"
_START_OVER = (
    "To go on, start the pipeline under a new name (or delete its state folder) with a new slot, and take a new "
    "snapshot of the tables."
)


def _key(table: Table, selection: Selection) -> str:
    """The first key column, comparable alike by the database and by Arrow: what Arrow has as text, by its bytes."""
    column = table.column(table.key[0])
    name = identifier(column.name)
    as_text = pa.types.is_string(types.arrow_type(column, selection))
    return f'{name}::text COLLATE "C"' if as_text else name


def _name_now(column: Column, now: Table) -> str | None:
    """What a column is called today, if it is still the same."""
    for other in now.columns:
        same = other.number == column.number if column.number > 0 else other.name == column.name
        if same and (other.type, other.modifier) == (column.type, column.modifier):
            return other.name
    return None
