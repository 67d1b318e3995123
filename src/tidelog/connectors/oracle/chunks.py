"""Reading chunks: a span of a table as of one SCN, which is all that the chunk has seen of the log.

A flashback query sees what was committed up to its SCN and nothing else, whatever runs beside it. So a chunk covers
every commit at or below that SCN, and needs neither a lock nor a transaction. Connections stay with the process and
serve the next chunk.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import pyarrow as pa

from tidelog.connectors.oracle import columns, config, position, queries, walk
from tidelog.connectors.oracle.catalog import Catalog
from tidelog.connectors.oracle.client import Session, as_reader
from tidelog.connectors.oracle.config import Config
from tidelog.connectors.oracle.faults import SnapshotTooOld
from tidelog.connectors.oracle.queries import Statement, identifier
from tidelog.contracts import FAILURES, Scan, Span, Watermark
from tidelog.core.signals import Row, Window
from tidelog.core.snapshot.watermark import Replayed
from tidelog.errors import ConfigError, TransientError
from tidelog.model.schema import Table

_idle: dict[tuple[int, str], list[Session]] = {}
"""Connections by process (a fork must not share them) and by what they connect to."""


@atexit.register
def _close() -> None:
    for (process, _), idle in _idle.items():
        for session in idle if process == os.getpid() else ():
            session.close()


def create(options: Mapping[str, str], pipeline: str = "tidelog") -> OracleChunks:
    return OracleChunks(config.read(options, pipeline))


def warm() -> None:
    """The driver is loaded with this module."""


def watermark(scn: int) -> Replayed:
    """What a query as of an SCN has seen: every commit that stands at it or before it."""
    return Replayed(position.of_scn(scn + 1), exact=True)


class OracleChunks:
    """A `ChunkReader`."""

    def __init__(self, settings: Config) -> None:
        self._config = as_reader(settings)

    def open(self, scan: Scan, span: Span, *, attempt: str, asked_by: str = "", texts: bool = False) -> Chunk:
        session, scn = self._connected()
        window = Window(attempt, _now(), asked_by, scan.table.qualified)
        try:
            return Chunk(self._config, session, scn, scan, span, window, texts)
        except BaseException:
            session.close()
            raise

    def _connected(self) -> tuple[Session, int]:
        """A connection that lives, and the present SCN."""
        idle = _idle.get(_place(self._config), [])
        while idle:
            session = idle.pop()
            try:
                return session, int(session.one(queries.CURRENT_SCN))
            except TransientError:  # it was cut while nobody used it; the next one, or a new one, shows what is wrong
                session.close()
        session = Session(self._config, inside=True)
        try:
            return session, int(session.one(queries.CURRENT_SCN))
        except BaseException:
            session.close()
            raise

    def close(self) -> None:
        """Nothing: connections stay with the process, for its next chunk."""


def _place(settings: Config) -> tuple[int, str]:
    return os.getpid(), f"{settings.user}@{settings.dsn}/{settings.pdb}"


class Chunk:
    """An `OpenChunk`. A connection that did not come to its end in order is not used again."""

    def __init__(
        self, settings: Config, session: Session, scn: int, scan: Scan, span: Span, window: Window, texts: bool
    ) -> None:
        self._config = settings
        self._session: Session | None = session
        self._ended = False
        self._texts = texts
        self._letters: list[pa.RecordBatch] = []
        self._window = _Told(settings, session, window) if settings.snapshot.writes_windows else None
        self.table = described(session, settings, scan.table)
        planned = walk.plan(scan, self.table)
        self._export = planned.scn
        self._scn = scn if planned.scn is None else planned.scn
        self.watermark: Watermark = watermark(self._scn)
        chosen = self.table.columns if texts else settings.selection.columns_of(self.table)
        self._columns = [column for column in chosen if not scan.columns or column.name in scan.columns]
        self._statement = walk.rows(planned, columns.selected(self._columns), span, self._scn)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """At least one batch, also of no rows. A statement that changed the table since the SCN is found out here, or
        at the end."""
        some = False
        try:
            for rows in self._connection.batches(self._statement):
                some = True
                yield self._batch(columns.arrays(rows, self._columns))
        except SnapshotTooOld as error:
            if self._export is None:
                raise
            raise ConfigError(
                f"The table {self.table.qualified} has no key, and can't be read as of SCN {self._export} any more: "
                "all of its chunks need the same moment.",
                hint="Raise UNDO_RETENTION (ALTER TABLESPACE … RETENTION GUARANTEE), give the table a key, or name a "
                "surrogate key; then ask for the snapshot again.",
            ) from error
        if not some:
            yield self._batch(columns.arrays([], self._columns))

    def _batch(self, texts: list[pa.StringArray]) -> pa.RecordBatch:
        if self._texts:
            return columns.canonical(texts, self._columns)
        decoded = columns.typed(texts, self._columns, self.table, self._config.selection)
        self._letters += [decoded.failures] if decoded.failures is not None else []
        return decoded.rows

    def letters(self) -> pa.Table:
        return pa.Table.from_batches(self._letters, FAILURES)

    def end(self) -> int:
        if described(self._connection, self._config, self.table) != self.table:
            raise TransientError(f"The table {self.table.qualified} was changed while a chunk of it was read.")
        if self._window is not None:
            self._window.close()
        self._ended = True
        return position.of_scn(self._scn + 1)

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None and self._ended:
            _idle.setdefault(_place(self._config), []).append(session)
        elif session is not None:
            session.close()

    @property
    def _connection(self) -> Session:
        if self._session is None:
            raise TransientError("The chunk is closed.")
        return self._session


def described(session: Session, settings: Config, table: Table) -> Table:
    """What the table is today, whatever it is called by now."""
    found = Catalog(session, settings.selection).present([table.id])
    if not found:
        raise ConfigError(f"The table {table.qualified} does not exist any more.", hint=walk.GONE)
    return found[0]


class _Told:
    """A window that the source is told of, by rows of the signal table: (id, type, data), whatever they are called."""

    def __init__(self, settings: Config, session: Session, window: Window) -> None:
        schema, _, name = settings.snapshot.signal_table.rpartition(".")
        if not schema:
            raise ConfigError(
                f"signal.data.collection is {name!r}, without a schema.", hint="Write it as SCHEMA.TABLE."
            )
        self._name = (schema, name)
        self._table = f"{identifier(schema)}.{identifier(name)}"
        self._deletes = settings.snapshot.strategy == "insert_delete"
        self._session, self._window, self._settings = session, window, settings
        self._insert(window.open_row())

    def close(self) -> None:
        if not self._deletes:
            self._insert(self._window.close_row(_now()))
            return
        told = Catalog(self._session, self._settings.selection).named(*self._name)
        if told is None:
            raise ConfigError(f"The table of signals {self._table} does not exist.", hint="Create it again.")
        first = identifier(told.columns[0].name)
        opened = {"id": self._window.open_row()[0]}
        self._session.execute(Statement(f"DELETE FROM {self._table} WHERE {first} = :id", opened))
        self._session.commit()

    def _insert(self, row: Row) -> None:
        binds = dict(zip(("id", "type", "data"), row, strict=True))
        self._session.execute(Statement(f"INSERT INTO {self._table} VALUES (:id, :type, :data)", binds))
        self._session.commit()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
