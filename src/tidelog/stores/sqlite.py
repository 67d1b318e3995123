"""Control state in one file: SQLite with a write-ahead log, safe for any number of processes and threads.

A connection lives for one call, so nothing is carried over a fork and nothing is left open. Whoever finds the file
locked waits in turn. The file may hold passwords that were written into a config: only its owner may read it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tidelog.errors import ConfigError, CorruptState, StoreAway, TidelogError
from tidelog.stores.kept import storable
from tidelog.stores.sql import FORMAT, HISTORY, SCHEMA, Run, SqlStore

BUSY_SECONDS_MAX = 30.0
_PAUSE_S = 0.01
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_TIME_CURES = {
    **dict.fromkeys(_BUSY, "Another process holds it; tidelog tries again."),
    sqlite3.SQLITE_FULL: "The disk is full: free some space.",
    sqlite3.SQLITE_IOERR: "The disk failed: look into the system's log.",
}
_RIGHTS = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)


def _guard(table: str, key: str) -> tuple[str, ...]:
    """Rows are only added, above all that are there: REPLACE removes a row without asking a trigger for deletes."""
    refuse = f"SELECT RAISE(ABORT, 'history is only ever added to: {table}')"
    taken = f"EXISTS (SELECT 1 FROM {table} WHERE {key} = NEW.{key})"
    return (
        f"CREATE TRIGGER {table}_kept_update BEFORE UPDATE ON {table} BEGIN {refuse}; END",
        f"CREATE TRIGGER {table}_kept_delete BEFORE DELETE ON {table} BEGIN {refuse}; END",
        f"CREATE TRIGGER {table}_kept_insert BEFORE INSERT ON {table} WHEN {taken} BEGIN {refuse}; END",
    )


_KEYS = {"change": "id", "applied": "change"}
_GUARDS = tuple(statement for table in HISTORY for statement in _guard(table, _KEYS[table]))


class SqliteStore(SqlStore):
    def __init__(self, path: Path) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._path)!r})"

    def close(self) -> None:
        """Nothing is open between calls."""

    @contextmanager
    def _reading(self) -> Iterator[Run]:
        with self._translated(), closing(self._begin("BEGIN", create=False)) as db:
            yield _runner(db)

    @contextmanager
    def _writing(self, name: str) -> Iterator[Run]:  # noqa: ARG002 - a file has one writer, whatever he writes about
        with self._translated(), closing(self._begin("BEGIN IMMEDIATE", create=True)) as db:
            yield _runner(db)
            db.execute("COMMIT")  # without it, closing rolls back

    def _begin(self, statement: str, *, create: bool) -> sqlite3.Connection:
        """Where SQLite gives up at once on a lock (its log is being made, or cleared away) it is asked again."""
        deadline = time.monotonic() + BUSY_SECONDS_MAX
        while True:
            db = self._connect(create)
            try:
                _prepare(db, self._path)
                db.execute(statement)
                return db
            except sqlite3.OperationalError as exc:
                db.close()
                if _code(exc) not in _BUSY or time.monotonic() > deadline:
                    raise
            except BaseException:
                db.close()
                raise
            time.sleep(_PAUSE_S)

    def _connect(self, create: bool) -> sqlite3.Connection:
        """Looking does not make a file: a store that is not there looks like an empty one."""
        place = str(self._path)
        if create:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(place, os.O_RDWR | os.O_CREAT, 0o600))
        elif not self._path.exists():
            place = ":memory:"
        return sqlite3.connect(place, timeout=BUSY_SECONDS_MAX, isolation_level=None)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            raise self._error(_code(exc), str(exc)) from exc
        except OSError as exc:
            raise self._denied(exc.strerror or str(exc)) from exc

    def _error(self, code: int, text: str) -> TidelogError:
        if code in _TIME_CURES:
            return StoreAway(f"The store {self._path} is not usable now ({text}).", hint=_TIME_CURES[code])
        if code in _RIGHTS:
            return self._denied(text)
        return CorruptState(
            f"The store {self._path} is damaged, or no store of tidelog's ({text}).",
            hint="Bring back a copy of the file, or move it away: a new one is made, without connectors and history.",
        )

    def _denied(self, text: str) -> ConfigError:
        return ConfigError(
            f"The store {self._path} cannot be opened ({text}).",
            hint="Set offset.storage or TIDELOG_HOME to a place you may write, or change its rights.",
        )


def _runner(db: sqlite3.Connection) -> Run:
    def run(sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return db.execute(sql, storable(values)).fetchall()

    return run


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    db.execute("PRAGMA synchronous = FULL")  # an edit that was confirmed survives a loss of power
    if _format(db, path) == 0:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("BEGIN IMMEDIATE")
        if _format(db, path) == 0:  # of two who come first, one makes the tables
            for statement in (*SCHEMA, *_GUARDS, f"PRAGMA user_version = {FORMAT}"):
                db.execute(statement)
        db.execute("COMMIT")


def _format(db: sqlite3.Connection, path: Path) -> int:
    """The tables are counted first: whoever makes them beside us gives the file its number in the same commit."""
    [tables] = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    [found] = db.execute("PRAGMA user_version").fetchone()
    if found not in (0, FORMAT):
        raise CorruptState(
            f"The store {path} has format {found}; this tidelog knows format {FORMAT}.",
            hint="Use the tidelog version that wrote it, or a newer one.",
        )
    if found == 0 and tables:
        raise ConfigError(f"The file {path} belongs to another program.", hint="Name another one in offset.storage.")
    return int(found)


def _code(exc: sqlite3.Error) -> int:
    """Without the details of the extended code; 0 for errors of the module itself."""
    return int(getattr(exc, "sqlite_errorcode", 0)) & 0xFF
