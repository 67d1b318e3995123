"""PostgreSQL as the engine sees it: the log from a slot, reads of present rows, and walks over tables."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from tidelog.connectors.postgres import (
    check,
    config,
    contents,
    decode,
    lock_waits,
    lookup,
    offset,
    position,
    publication,
    ranges,
    types,
    walk,
)
from tidelog.connectors.postgres.catalog import Catalog
from tidelog.connectors.postgres.client import LOG_END, REPLAYED, VISIBLE, Session, as_reader
from tidelog.connectors.postgres.config import Config
from tidelog.connectors.postgres.holder import SlotHolder
from tidelog.connectors.postgres.names import identifier, literal, quoted
from tidelog.connectors.postgres.slot import Slot
from tidelog.connectors.postgres.tail import PostgresTail
from tidelog.contracts import (
    CatalogText,
    Finding,
    Kept,
    Key,
    Lag,
    Limits,
    Scan,
    UnloggedChange,
    WatchWait,
    Watermark,
    ignore_wait,
)
from tidelog.core.metadata import UNDECODABLE
from tidelog.core.snapshot.settings import SnapshotSettings
from tidelog.core.snapshot.watermark import Replayed, Visible
from tidelog.core.strings import Mask
from tidelog.errors import ConfigError, TidelogError, UnsupportedChange
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

_ROWS_PER_READ, _BYTES_PER_READ = 50_000, 16 << 20
"""How much of a table is parsed at a time; a row that is larger comes alone."""
_PATIENCE_S = 2
"""For tables that DDL holds: the stream waits while a snapshot is planned, or a table published."""

_OLDEST = "SELECT pg_is_in_recovery(), pg_snapshot_xmin(pg_current_snapshot())::text"
_YOUNGEST = """
SELECT pg_snapshot_xmax(pg_current_snapshot())::text,
       (SELECT array_agg(transactionid::text) FROM pg_locks WHERE locktype = 'transactionid')
"""


def create(options: Mapping[str, str], pipeline: str = "tidelog") -> PostgresConnector:
    return PostgresConnector(config.read(options, pipeline))


class PostgresConnector:
    def __init__(self, settings: Config) -> None:
        self._config = settings
        self._slot = Slot(settings)
        self._slot_holder = SlotHolder(settings.slot)
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

    # -- the log -----------------------------------------------------------------------------------------------

    def prepare(self, *, resuming: bool = False, looking: bool = False, watch: WatchWait = ignore_wait) -> int:
        with Session(self._config) as session:
            return self._slot.prepare(session, resuming=resuming, looking=looking, watch=watch)

    def find_server_state(self) -> str:
        with Session(self._config) as session:
            return f"the replication slot {self._config.slot}" if self._slot.exists(session) else ""

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
            self._slot_holder.require_free(session)
            confirmed = self._slot.require(session, position.resume(start))
        tail = PostgresTail(self._config, start, known, acknowledged=confirmed, memory_bytes=memory_bytes)
        self._slot_holder.add_own_sender(tail.sender)
        return tail

    def lag(self) -> Lag:
        return self._slot.lag(self._reader())

    def scope(self) -> str:
        return ""  # the server tells a transaction from its beginning

    def limits(self) -> Limits:
        """None: the server gives up a transaction by itself, and says so."""
        return Limits()

    def log_end(self) -> int:
        return int(self._reader().query(LOG_END)[0][0])

    def reach(self) -> int:
        return self._slot.require(self._reader(), None)

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
        return self._slot.captured(self._reader())

    def untold(self, tables: Sequence[Table]) -> list[Table]:
        return self._slot.unpublished(self._reader(), tables)

    def log_coverage(self, ids: Sequence[int]) -> dict[int, frozenset[str]]:
        session = self._reader()
        captured = Catalog(session, self._config.selection).captured_names()
        return publication.marks(session, self._config, sorted(captured.keys() & set(ids)))

    def present(self, ids: Sequence[int]) -> list[Table]:
        return Catalog(self._reader(), self._config.selection).present(ids)

    def captured_names(self) -> Mapping[int, str]:
        return self._slot.captured_names(self._reader())

    def publish(self, tables: Sequence[Table]) -> None:
        # Not by the shared session: while it waited for a lock, the capture could not ask for its lag.
        with Session(self._config, patience_s=_PATIENCE_S) as session:
            self._slot.publish(session, tables, _PATIENCE_S)

    def contents(self, ids: Sequence[int]) -> Mapping[int, CatalogText]:
        return contents.describe(self._reader(), ids)

    def unlogged_change(self, before: CatalogText, now: CatalogText) -> UnloggedChange | None:
        return contents.difference(self._tables(), before, now)

    def parse(self, text: str, table: Table, column: Column) -> pa.Scalar:
        return decode.values(pa.array([text]), table, column, self._config.selection)[0][0]

    def read(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """By the names of today: the log may be behind. A column that is gone or has another type by now is null; the
        version of the table that says so is still to come, and asks again."""
        with self._locked_table(table) as (session, now):
            if now is None:
                return
            names = [_name_now(table.column(c), now) for c in columns]
            if None not in [name for c, name in zip(columns, names, strict=True) if c in table.key]:
                chosen = ", ".join("NULL" if name is None else identifier(name) for name in names)
                yield from self._select(session, f"SELECT {chosen} FROM {walk.source(session, now)}", table, columns)

    def read_keys(self, table: Table, columns: Sequence[str], keys: pa.Table) -> Iterator[pa.RecordBatch]:
        """By the names of today, as `read`; a table whose key has changed since has no such rows. Masked keys mean
        nothing to the database: then all rows come."""
        if any(self._config.selection.rules_for(table, table.column(c)) for c in keys.column_names):
            yield from self.read(table, columns)
            return
        for some in lookup.portions(keys):
            with self._locked_table(table) as (session, now):
                if now is None:
                    return
                names = [_name_now(table.column(c), now) for c in columns]
                key = [_name_now(table.column(c), now) for c in keys.column_names]
                known = [name for name in key if name is not None]
                if len(known) == len(key):
                    sql = lookup.statement(session, now, names, known, some)
                    yield from self._select(session, sql, table, columns)

    def read_range(
        self, table: Table, columns: Sequence[str], low: str | None, high: str | None
    ) -> Iterator[pa.RecordBatch]:
        limits = [f"{_key(table, self._config.selection)} > {literal(low)}"] if low is not None else []
        limits += [f"{_key(table, self._config.selection)} <= {literal(high)}"] if high is not None else []
        where = f" WHERE {' AND '.join(limits)}" if limits else ""
        names = ", ".join(identifier(c) for c in columns)
        with self._locked_table(table) as (session, _):
            sql = f"SELECT {names} FROM {walk.source(session, table)}{where}"
            yield from self._select(session, sql, table, columns, marks=self._config.selection.failures != "fail")

    @contextmanager
    def _locked_table(self, table: Table) -> Iterator[tuple[Session, Table | None]]:
        """Opens a transaction, locks the table (ACCESS SHARE), and yields the session with the table's current
        definition; None if the table was dropped.

        The lock comes before anything is read. COPY takes its snapshot before it waits for a lock, and a table that
        was rewritten meanwhile is empty to an older snapshot."""
        with Session(as_reader(self._config), whole=True) as session, session.transaction():
            while source := walk.find_source(session, table):
                session.query("SAVEPOINT unlocked")
                with lock_waits.warn_while_waiting(self._config, session, f"Reading {table.qualified}"):
                    is_locked = session.lock(source)
                if is_locked and walk.find_source(session, table) == source:
                    break
                session.query("ROLLBACK TO SAVEPOINT unlocked")  # it got another name meanwhile
            tables = Catalog(session, self._config.selection).present([table.id])
            yield session, tables[0] if tables else None

    def _select(
        self, session: Session, sql: str, table: Table, columns: Sequence[str], *, marks: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """With `marks`, rows that do not fit their types come marked; without, they are an error."""
        for text in session.copy(sql, _ROWS_PER_READ, _BYTES_PER_READ):
            yield self._typed(text, table, columns, marks=marks)

    def bounds(self, table: Table, rows: int) -> list[str]:
        if not table.key or not _sorts_alike(table.column(table.key[0]), self._config.selection):
            return []
        sql = ranges.boundaries(table, self._source(table), _key(table, self._config.selection), rows)
        with Session(as_reader(self._config), whole=True) as session:
            found = [str(row[0]) for row in session.query(sql)]
        return list(dict.fromkeys(found))

    def _typed(self, text: bytes, table: Table, columns: Sequence[str], *, marks: bool) -> pa.RecordBatch:
        # The text is one block: Arrow refuses a row that reaches over more than two, and their default is 1 MiB.
        names = [f"c{i}" for i in range(len(columns))]
        texts = csv.read_csv(
            pa.BufferReader(text),
            read_options=csv.ReadOptions(column_names=names, block_size=len(text)),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        ).combine_chunks()
        found = [self._column(texts.column(i).chunk(0), table, name, marks) for i, name in enumerate(columns)]
        arrays, failed = [array for array, _ in found], np.logical_or.reduce([mask for _, mask in found])
        if not failed.any():
            return pa.record_batch(arrays, names=list(columns))
        return pa.record_batch([*arrays, pa.array(failed)], names=[*columns, UNDECODABLE])

    def _column(self, texts: pa.StringArray, table: Table, name: str, marks: bool) -> tuple[pa.Array, Mask]:
        """The values, and which of them do not fit their type."""
        column, selection = table.column(name), self._config.selection
        array, failed = decode.values(texts, table, column, selection)
        if failed.any() and not marks:
            raise UnsupportedChange(
                f"{table.qualified}.{name} holds a value that does not fit its type in the target.",
                hint=types.hint(column),
            )
        return array, failed

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
        found = self._tables().ask(walk.maximum(planned))
        return tuple(found[0]) if found else None

    def boundaries(self, scan: Scan, low: Key | None, maximum: Key, rows: int, count: int) -> list[Key]:
        planned = self._walk(scan)
        if planned.by_place:
            _, known_rows, known_blocks = self._blocks(scan)
            return walk.places(low, maximum, rows, count, known_rows / known_blocks if known_blocks else 0)
        found: list[Key] = []
        while len(found) < count and maximum not in found:
            after = found[-1] if found else low
            key = self._tables().ask(walk.boundary(planned, after, maximum, rows))
            if not key:
                return walk.ends(found, True, maximum)
            found.append(tuple(key[0]))
        return walk.ends(found, False, maximum)

    def estimate(self, scan: Scan) -> int:
        if scan.condition:
            [(plan,)] = self._tables().ask(walk.expected(self._walk(scan)))
            return int(plan[0]["Plan"]["Plan Rows"])
        return int(self._tables().query(walk.ESTIMATE, [scan.table.id, scan.table.id])[0][0])

    def row_bytes(self, table: Table) -> int:
        (rows,), (size,) = (
            self._tables().query(statement, [table.id, table.id])[0] for statement in (walk.ESTIMATE, walk.TABLE_BYTES)
        )
        return int(size) // int(rows) if rows else 0

    def _tables(self) -> Session:
        """As the role that reads tables, and unable to write: conditions are SQL that somebody else wrote."""
        with self._lock:
            if self._walker is None or self._walker.closed:
                self._walker = Session(as_reader(self._config), read_only=True, patience_s=_PATIENCE_S, whole=True)
            return self._walker

    def _source(self, table: Table) -> str:
        return walk.source(self._tables(), table)

    def _walk(self, scan: Scan) -> walk.Walk:
        return walk.plan(scan, self._source(scan.table), self._tables().query(walk.DESCRIBE, [scan.table.id]))

    def _blocks(self, scan: Scan) -> tuple[int, int, int]:
        blocks, rows, known = self._tables().query(walk.BLOCKS, [scan.table.id, scan.table.id])[0]
        return int(blocks), int(rows), int(known)

    def export(self, scan: Scan) -> str:
        if self._config.snapshot.writes_windows:
            raise ConfigError(
                f"The table {scan.table.qualified} has no key: it can't be read in windows that the source is told of.",
                hint="Give it a primary key, name a surrogate key, or leave read.only as it is (true).",
            )
        session = Session(as_reader(self._config), patience_s=_PATIENCE_S)
        try:
            session.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            session.query(f"LOCK TABLE {quoted(scan.table)} IN ACCESS SHARE MODE")
            name = str(session.query("SELECT pg_export_snapshot()")[0][0])
        except TidelogError:
            session.close()
            raise
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


def _key(table: Table, selection: Selection) -> str:
    """The first key column, comparable alike by the database and by Arrow: what Arrow has as text, by its bytes. The
    text is what the log tells, which a cast would not give of `char` and `inet`."""
    column = table.column(table.key[0])
    name = identifier(column.name)
    as_text = pa.types.is_string(types.arrow_type(column, selection))
    return f"format('%s', {name}) COLLATE \"C\"" if as_text else name


def _sorts_alike(column: Column, selection: Selection) -> bool:
    """Whether values keep their order outside the database: arrays become JSON, NaN has no place among floats there,
    and a numeric loses digits when it becomes one."""
    return not (column.type.endswith("[]") or pa.types.is_floating(types.arrow_type(column, selection)))


def _name_now(column: Column, now: Table) -> str | None:
    """What a column is called today, if it is still the same."""
    for other in now.columns:
        same = other.number == column.number if column.number > 0 else other.name == column.name
        if same and (other.type, other.modifier) == (column.type, column.modifier):
            return other.name
    return None
