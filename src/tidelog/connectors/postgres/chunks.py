"""Reading chunks: a span of a table in one transaction, with what that transaction has seen of the log.

The table is locked against DDL and TRUNCATE before the snapshot is taken, because these are not seen through one. On
a primary the watermark is the snapshot itself. On a standby it is the replayed place, read before the snapshot.
Connections stay with the process and serve the next chunk.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from tidelog.connectors.postgres import columns, config, walk
from tidelog.connectors.postgres.bulk import Bulk, arrow_driver
from tidelog.connectors.postgres.catalog import Catalog
from tidelog.connectors.postgres.client import REPLAYED, reader_conninfo
from tidelog.connectors.postgres.config import Config
from tidelog.connectors.postgres.names import identifier, literal
from tidelog.contracts import FAILURES, Scan, Span, Watermark
from tidelog.core.signals import Row, Window
from tidelog.core.snapshot.watermark import Replayed, Visible
from tidelog.errors import ConfigError, TransientError
from tidelog.model.schema import Table

if TYPE_CHECKING:
    from tidelog.connectors.postgres.client import Session

_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SEEN = """
SELECT pg_current_snapshot()::text, (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint,
       current_setting('wal_block_size')::bigint, pg_size_bytes(current_setting('wal_segment_size'))
"""
"""The snapshot is taken before the place is read: all that it sees has its commit in the log before there."""
_HEADER, _LONG_HEADER = 24, 40
"""Bytes before the first record of a page, and of a segment's first page."""

_idle: dict[tuple[int, str], list[Bulk]] = {}
"""Connections by process (a fork must not share them) and by what they connect to."""


@atexit.register
def _close() -> None:
    for (process, _), idle in _idle.items():
        for bulk in idle if process == os.getpid() else ():
            bulk.close()


def create(options: Mapping[str, str], pipeline: str = "tidelog") -> PostgresChunks:
    return PostgresChunks(config.read(options, pipeline))


def warm() -> None:
    arrow_driver()


class PostgresChunks:
    """A `ChunkReader`."""

    def __init__(self, settings: Config) -> None:
        self._config = settings

    def open(self, scan: Scan, span: Span, *, attempt: str, asked_by: str = "", texts: bool = False) -> Chunk:
        bulk, replayed = self._connected()
        window = Window(attempt, _now(), asked_by, scan.table.qualified)
        try:
            return Chunk(self._config, bulk, replayed, scan, span, window, texts)
        except BaseException:
            bulk.close()
            raise

    def _connected(self) -> tuple[Bulk, int | None]:
        """A connection that lives, and how far the server has replayed, if it is a standby."""
        idle = _idle.get(_place(self._config), [])
        while idle:
            bulk = idle.pop()
            try:
                return bulk, bulk.query(REPLAYED)[0][0]
            except TransientError:  # it was cut while nobody used it; the next one, or a new one, shows what is wrong
                bulk.close()
        bulk = Bulk(self._config)
        return bulk, bulk.query(REPLAYED)[0][0]

    def close(self) -> None:
        """Nothing: connections stay with the process, for its next chunk."""


def _place(settings: Config) -> tuple[int, str]:
    return os.getpid(), reader_conninfo(settings)


class Chunk:
    """An `OpenChunk`. A connection that did not end its transaction in order is not used again."""

    def __init__(
        self, settings: Config, bulk: Bulk, replayed: int | None, scan: Scan, span: Span, window: Window, texts: bool
    ) -> None:
        self._config = settings
        self._bulk: Bulk | None = bulk
        self._replayed = replayed
        self._ended = False
        self._letters: list[pa.RecordBatch] = []
        self._window = _Told(settings, bulk, window) if settings.snapshot.writes_windows else None
        source = _locked(bulk, scan)
        self.watermark, self._passed = _seen(bulk, replayed)
        self.table = _described(bulk, settings, scan.table)
        planned = walk.plan(scan, source, bulk.query(walk.DESCRIBE, [scan.table.id]) if scan.key else [])
        chosen = columns.plain(self.table) if texts else columns.delivered(self.table, settings.selection)
        self._columns = [one for one in chosen if not scan.columns or one.column.name in scan.columns]
        wanted = ", ".join(column.sql for column in self._columns)
        self._sql = f"SELECT {wanted} FROM {source}{walk.within(planned, span)}"

    def rows(self) -> Iterator[pa.RecordBatch]:
        for batch in self._connection.batches(self._sql):
            decoded = columns.typed(batch, self._columns, self.table, self._config.selection)
            self._letters += [decoded.failures] if decoded.failures is not None else []
            yield decoded.rows

    def letters(self) -> pa.Table:
        return pa.Table.from_batches(self._letters, FAILURES)

    def end(self) -> int:
        bulk = self._connection
        bulk.query("COMMIT")
        if self._window is not None:
            self._window.close()
        passed = self._passed if self._replayed is None else _replayed_now(bulk)
        self._ended = True
        return passed

    def close(self) -> None:
        bulk, self._bulk = self._bulk, None
        if bulk is not None and self._ended:
            _idle.setdefault(_place(self._config), []).append(bulk)
        elif bulk is not None:
            bulk.close()

    @property
    def _connection(self) -> Bulk:
        if self._bulk is None:
            raise TransientError("The chunk is closed.")
        return self._bulk


def _locked(bulk: Bulk, scan: Scan) -> str:
    """Begin, and hold the table as it is; returns what FROM calls it, by the name that it has today."""
    source = walk.source(bulk, scan.table)
    bulk.query(_BEGIN)
    if scan.export:
        bulk.query(f"SET TRANSACTION SNAPSHOT {literal(scan.export)}")
    bulk.query(f"LOCK TABLE {source} IN ACCESS SHARE MODE")
    return source


def _seen(bulk: Bulk, replayed: int | None) -> tuple[Watermark, int]:
    """The watermark, and where the log has told all of it. The first query of the transaction takes its snapshot."""
    if replayed is not None:
        return Replayed(replayed), replayed
    snapshot, inserted, page, segment = bulk.query(_SEEN)[0]
    return Visible.parse(snapshot), reportable(inserted, page, segment)


def _replayed_now(bulk: Bulk) -> int:
    """On a standby a commit is visible a moment before it counts as replayed: so the place is read late."""
    (found,) = bulk.query(REPLAYED)[0]
    if found is None:
        raise TransientError("The standby was promoted while a chunk was read.")
    return int(found)


def reportable(inserted: int, page: int = 8192, segment: int = 16 << 20) -> int:
    """An insert position as a log end that the server will tell one day. Where the log ends with a page, the insert
    position is already past the header of the next one, and nothing is told of that while nobody writes."""
    header = _LONG_HEADER if inserted % segment < page else _HEADER
    return inserted - header if inserted % page == header else inserted


def _described(bulk: Bulk, settings: Config, table: Table) -> Table:
    # Of a session, the catalog only uses `query`, which is the same here.
    found = Catalog(cast("Session", bulk), settings.selection).present([table.id])
    if not found:
        raise ConfigError(f"The table {table.qualified} does not exist any more.", hint=walk.GONE)
    return found[0]


class _Told:
    """A window that the source is told of, by rows of the signal table: (id, type, data), whatever they are called."""

    def __init__(self, settings: Config, bulk: Bulk, window: Window) -> None:
        schema, _, name = settings.snapshot.signal_table.rpartition(".")
        self._table = f"{identifier(schema or 'public')}.{identifier(name)}"
        self._deletes = settings.snapshot.strategy == "insert_delete"
        self._bulk, self._window = bulk, window
        self._insert(window.open_row())

    def close(self) -> None:
        if self._deletes:
            (first,) = self._bulk.query(_FIRST_COLUMN, [self._table])[0]
            opened = literal(self._window.open_row()[0])
            self._bulk.query(f"DELETE FROM {self._table} WHERE {identifier(first)} = {opened}")
        else:
            self._insert(self._window.close_row(_now()))

    def _insert(self, row: Row) -> None:
        values = ", ".join(literal(text or "") for text in row)
        self._bulk.query(f"INSERT INTO {self._table} VALUES ({values})")


_FIRST_COLUMN = """
SELECT attname::text FROM pg_attribute
 WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum LIMIT 1
"""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
