"""Connections of the Arrow driver, by which chunks are read.

The driver does not give out its socket, which the watch over operations in flight needs. So the socket is found among
the files of the process: it is the one that a connection adds.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa

from tidelog.connectors.postgres import server_watch, sqlstate
from tidelog.connectors.postgres.client import LIFT_LIMITS, reader_conninfo, written
from tidelog.connectors.postgres.config import Config
from tidelog.connectors.postgres.server_watch import Operation
from tidelog.errors import NotInstalled, TidelogError

_connecting = threading.Lock()


class Bulk:
    """A connection of the Arrow driver: answers to small questions, and rows in bulk as Arrow.

    Statements commit by themselves; a transaction begins and ends by statements. It asks as `Session` does, so that
    the catalog can be read in the very transaction that reads rows.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._driver = arrow_driver()
        with self._translated():
            self._connection, self._socket = self._connect()
        self._open: Any = None
        try:
            self.query(LIFT_LIMITS)
        except TidelogError:
            self.close()
            raise

    def _connect(self) -> tuple[Any, socket.socket | None]:
        """The connection, and a duplicate of its socket: the number stays valid when the driver closes its own. None if
        another thread connected to the same port meanwhile; such a connection is not watched."""
        with _connecting:
            before = _connected_files(self._config.port)
            connection = self._driver.connect(reader_conninfo(self._config), autocommit=True)
            new = _connected_files(self._config.port) - before
            return connection, server_watch.duplicate_socket(new.pop()) if len(new) == 1 else None

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        texts = tuple(written(value) for value in parameters)
        with self._in_flight(), self._connection.cursor() as cursor:
            cursor.execute(sql % texts if texts else sql)
            found = cursor.fetch_arrow_table() if cursor.description else pa.table({})
        columns = [_plain(found.field(i), found.column(i)) for i in range(found.num_columns)]
        return list(zip(*columns, strict=True))

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """At least one, also of no rows."""
        with self._in_flight() as operation, self._connection.cursor() as cursor:
            self._open = cursor
            cursor.execute(sql)
            found = _reader(cursor)
            rows = iter(partial(_next, found), None)
            batch = next(rows, pa.RecordBatch.from_pylist([], schema=found.schema))
            while batch is not None:
                with operation.pause() if operation is not None else nullcontext():
                    yield batch
                batch = next(rows, None)

    def close(self) -> None:
        """Also while rows are still coming."""
        try:
            with self._in_flight():
                if self._open is not None:
                    self._open.close()
                self._connection.close()
        finally:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    @contextmanager
    def _in_flight(self) -> Iterator[Operation | None]:
        """While an operation waits for the server, the watch asks whether the server lives."""
        if self._socket is None:
            with self._translated():
                yield None
            return
        with (
            server_watch.watch_operation(self._socket.fileno(), self._config.connect_timeout_s) as operation,
            self._translated(operation),
        ):
            yield operation

    @contextmanager
    def _translated(self, operation: Operation | None = None) -> Iterator[None]:
        try:
            yield
        except (self._driver.Error, pa.ArrowException, OSError) as exc:
            if operation is not None and operation.unanswered_s:
                raise sqlstate.unanswered(self._config, operation.unanswered_s) from exc
            raise sqlstate.in_bulk(self._config, getattr(exc, "sqlstate", "") or "", str(exc)) from exc


def _connected_files(port: int) -> set[int]:
    """Numbers of the open files that are sockets with a peer at this port, or local ones; none where the system does
    not list them."""
    connected = set()
    for number in _open_files():
        with suppress(OSError):  # not connected, or closed meanwhile
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                duplicate = server_watch.duplicate_socket(number)
                if duplicate is None:
                    continue
                with duplicate:
                    peer = duplicate.getpeername()
                if not isinstance(peer, tuple) or peer[1] == port:
                    connected.add(number)
    return connected


def _open_files() -> list[int]:
    try:
        return [int(entry.name) for entry in Path("/dev/fd").iterdir()]
    except OSError:
        return []


def _reader(cursor: Any) -> Any:
    """The reader that knows the SQLSTATE of an error in the middle of the rows. The one inside it, which the driver
    hands out, does not: with that alone, every such error is one that time may cure."""
    return getattr(getattr(cursor, "_results", None), "reader", None) or cursor.fetch_record_batch()


def _next(reader: Any) -> pa.RecordBatch | None:
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None


def _plain(field: pa.Field, column: pa.ChunkedArray) -> list[Any]:
    """Values as the other driver gives them: this one reads an oid as a signed number, and the empty "char" as NUL."""
    match (field.metadata or {}).get(b"POSTGRESQL:type"):
        case b"oid":
            return [None if value is None else value % 2**32 for value in column.to_pylist()]
        case b"char":
            return [None if value is None else value.strip("\0") for value in column.to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


def arrow_driver() -> ModuleType:
    """Loaded where chunks are read and nowhere else: it is large."""
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as exc:
        raise NotInstalled(
            "Reading tables needs the driver adbc-driver-postgresql.", hint="Run: pip install 'tidelog[postgres]'"
        ) from exc
    driver: ModuleType = dbapi
    return driver
