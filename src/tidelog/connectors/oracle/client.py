"""The only file that speaks to the driver: sessions that ask, and results that are read as they come.

Driver errors end here, see `faults`. `CONNECT` is the seam: whoever replaces it (a simulator does) hands out
connections with the driver's own interface, and everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any

from tidelog.connectors.oracle import queries
from tidelog.connectors.oracle.config import Config
from tidelog.connectors.oracle.faults import ConnectionLost, classify
from tidelog.connectors.oracle.queries import Statement
from tidelog.errors import DatabaseAway, NotInstalled, UnsupportedChange

try:
    import oracledb
except ImportError as exc:
    raise NotInstalled(
        "The Oracle connector needs the driver oracledb.", hint="Run: pip install 'tidelog[oracle]'"
    ) from exc

Row = tuple[Any, ...]
_REDO_BYTES_MAX = 4000
_SHOWN = ("INFO", "CLIENT_ID")
"""Columns of the log that are only looked at: a damaged letter in them harms nobody."""


def connect(config: Config) -> Any:
    """A connection of the driver, in its thin mode."""
    connection = oracledb.connect(
        user=config.user,
        password=config.password,
        dsn=config.dsn,
        tcp_connect_timeout=config.connect_timeout_s,
        retry_count=0,
        expire_time=1,
    )
    connection.call_timeout = config.query_timeout_ms
    return connection


def _values(cursor: Any, metadata: Any) -> Any:
    """How a column is fetched. LOBs come as values, not as handles. Redo SQL comes as bytes: it may hold what is no
    UTF-8, and a statement that goes on in the next row may be cut inside a character."""
    if metadata.name == "SQL_REDO":
        size = metadata.internal_size or _REDO_BYTES_MAX
        return cursor.var(oracledb.DB_TYPE_VARCHAR, size, arraysize=cursor.arraysize, bypass_decode=True)
    if metadata.name in _SHOWN:
        size = metadata.internal_size or _REDO_BYTES_MAX
        return cursor.var(oracledb.DB_TYPE_VARCHAR, size, arraysize=cursor.arraysize, encoding_errors="replace")
    large = {
        oracledb.DB_TYPE_CLOB: oracledb.DB_TYPE_LONG,
        oracledb.DB_TYPE_NCLOB: oracledb.DB_TYPE_LONG_NVARCHAR,
        oracledb.DB_TYPE_BLOB: oracledb.DB_TYPE_LONG_RAW,
    }.get(metadata.type_code)
    return cursor.var(large, arraysize=cursor.arraysize) if large is not None else None


CONNECT: Callable[[Config], Any] = connect


class Session:
    """A connection that renders values alike in every session; used by one thread at a time.

    With `inside`, statements run in the pluggable database, where the tables are; the log is mined from the root."""

    def __init__(self, config: Config, *, inside: bool = False) -> None:
        self._config = config
        self._lost = False
        with self._translated():
            self._connection = CONNECT(config)
        self._connection.outputtypehandler = _values
        try:
            for statement in queries.SESSION:
                self.execute(statement)
            if inside and config.pdb:
                self.execute(queries.container(config.pdb))
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        """Also after the server, or something on the way, has cut it."""
        return self._lost

    def query(self, statement: Statement | str) -> list[Row]:
        asked = _statement(statement)
        with self._translated(), self._connection.cursor() as cursor:
            cursor.execute(asked.sql, dict(asked.binds))
            return list(cursor.fetchall())

    def one(self, statement: Statement | str) -> Any:
        """The first value of the first row, or None."""
        found = self.query(statement)
        return found[0][0] if found else None

    def execute(self, statement: Statement | str) -> None:
        asked = _statement(statement)
        with self._translated(), self._connection.cursor() as cursor:
            cursor.execute(asked.sql, dict(asked.binds))

    def batches(self, statement: Statement | str, rows: int = 0) -> Iterator[list[Row]]:
        """The rows as they come, at most `rows` at once (default: as configured). The statement is over when the
        iterator is, also when that is closed early."""
        asked, size = _statement(statement), rows or self._config.fetch_rows
        with self._translated(), self._connection.cursor() as cursor:
            cursor.arraysize, cursor.prefetchrows = size, size
            cursor.execute(asked.sql, dict(asked.binds))
            while found := cursor.fetchmany(size):
                yield found

    def commit(self) -> None:
        with self._translated():
            self._connection.commit()

    def cancel(self) -> None:
        """End what runs on this connection; may be called by another thread."""
        with self._translated():
            self._connection.cancel()

    def close(self) -> None:
        self._lost = True
        try:
            self._connection.close()
        except oracledb.Error:  # it was cut already; there is nothing left to close
            return

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            with translated(self._config):
                yield
        except ConnectionLost:
            self._lost = True
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _statement(given: Statement | str) -> Statement:
    return Statement(given) if isinstance(given, str) else given


@contextmanager
def translated(config: Config) -> Iterator[None]:
    """Driver errors become ours."""
    try:
        yield
    except oracledb.Error as exc:
        operational = isinstance(exc, oracledb.OperationalError | oracledb.InternalError)
        raise classify(config.dsn, str(exc), operational=operational) from exc
    except UnicodeDecodeError as exc:
        raise UnsupportedChange(
            f"Oracle at {config.dsn} has a text that is no valid UTF-8: {exc.object[:40]!r}.",
            hint="Correct the value in its table, or leave the column out by column.exclude.list.",
        ) from exc
    except OSError as exc:
        raise DatabaseAway(f"The connection to {config.dsn} broke ({exc.strerror}).") from exc


def as_reader(config: Config) -> Config:
    """With the user that reads tables, if it is another one."""
    if not config.reader:
        return config
    return replace(config, user=config.reader, password=config.reader_password or config.password)
