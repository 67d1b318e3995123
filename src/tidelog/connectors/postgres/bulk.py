"""Connections of the Arrow driver, by which chunks are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

import pyarrow as pa

from tidelog.connectors.postgres import sqlstate
from tidelog.connectors.postgres.client import LIFT_LIMITS, reader_conninfo, written
from tidelog.connectors.postgres.config import Config
from tidelog.errors import NotInstalled, TidelogError


class Bulk:
    """A connection of the Arrow driver: answers to small questions, and rows in bulk as Arrow.

    Statements commit by themselves; a transaction begins and ends by statements. It asks as `Session` does, so that
    the catalog can be read in the very transaction that reads rows.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._driver = arrow_driver()
        with self._translated():
            self._connection = self._driver.connect(reader_conninfo(config), autocommit=True)
        self._open: Any = None
        try:
            self.query(LIFT_LIMITS)
        except TidelogError:
            self.close()
            raise

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        texts = tuple(written(value) for value in parameters)
        with self._translated(), self._connection.cursor() as cursor:
            cursor.execute(sql % texts if texts else sql)
            found = cursor.fetch_arrow_table() if cursor.description else pa.table({})
        columns = [_plain(found.field(i), found.column(i)) for i in range(found.num_columns)]
        return list(zip(*columns, strict=True))

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """At least one, also of no rows."""
        with self._translated(), self._connection.cursor() as cursor:
            self._open = cursor
            cursor.execute(sql)
            found = _reader(cursor)
            rows = iter(partial(_next, found), None)
            yield next(rows, pa.RecordBatch.from_pylist([], schema=found.schema))
            yield from rows

    def close(self) -> None:
        """Also while rows are still coming."""
        with self._translated():
            if self._open is not None:
                self._open.close()
            self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._driver.Error as exc:
            raise sqlstate.in_bulk(self._config, exc.sqlstate or "", str(exc)) from exc
        except (pa.ArrowException, OSError) as exc:
            raise sqlstate.in_bulk(self._config, "", str(exc)) from exc


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
