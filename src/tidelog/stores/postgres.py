"""Control state in a PostgreSQL database, in a schema of its own, for services on several machines.

Writers of one connector take turns by an advisory lock that ends with their transaction. Connections rest between calls
and are checked by the `BEGIN` of the next. Driver errors end here, and none of ours is built from the URL: what may be
shown of it is taken apart first, so the password is never among it.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tidelog.errors import ConfigError, CorruptState, NotInstalled, StoreAway, TidelogError
from tidelog.stores.kept import storable
from tidelog.stores.sql import FORMAT, HISTORY, SCHEMA, Run, SqlStore

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.pq import TransactionStatus
except ImportError as exc:
    raise NotInstalled(
        "Keeping control state in PostgreSQL needs the driver psycopg.", hint="Run: pip install 'tidelog[postgres]'"
    ) from exc

_NAMESPACE = "tidelog"
_IDLE_MAX = 4
_DEFAULTS: dict[str, str | int] = {
    "connect_timeout": 10,
    "application_name": "tidelog store",
    "keepalives_idle": 10,
    "tcp_user_timeout": 30_000,
}
_LOCAL = f"SET LOCAL search_path TO {_NAMESPACE}; SET LOCAL lock_timeout = '30s'; SET LOCAL statement_timeout = '60s'"
_READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_LOCAL}"
_WRITE = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {_LOCAL}"
_NAMED = f"SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = '{_NAMESPACE}')"
_MADE = f"""SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = '{_NAMESPACE}' AND c.relname = 'format')"""
"""Read from the catalog's tables: `to_regclass` answers from a cache, which waiting for an advisory lock does not
renew, so it would not see what the one before has made."""
_LOCK = "SELECT pg_advisory_xact_lock(%s)"
_GUARDS = (
    """CREATE FUNCTION keep_history() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'history is only ever added to: %', TG_TABLE_NAME; END $$""",
    *(
        f"CREATE TRIGGER kept BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} EXECUTE FUNCTION keep_history()"
        for table in HISTORY
    ),
    *(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER kept" for table in HISTORY),
)
_FORMAT = ("CREATE TABLE format (version BIGINT NOT NULL)", f"INSERT INTO format VALUES ({FORMAT})")

_SETTINGS_CURE = {
    "28000": "Check the user in offset.storage, and pg_hba.conf on the server.",
    "28P01": "Check user and password in offset.storage.",
    "3D000": "Create the database, or check its name in offset.storage.",
    "42501": f"As owner of the database: CREATE SCHEMA {_NAMESPACE} AUTHORIZATION <the user in offset.storage>.",
    "25006": "Name the primary in offset.storage: a standby only reads.",
    "42P07": f"Something else owns tables in the schema {_NAMESPACE}: give the store a database of its own.",
}
_TIME_CURES = ("08", "40", "53", "55", "57", "58")
"""Classes of SQLSTATE: connection, conflict of transactions, resources, state, intervention, system."""
_GONE = ("3F000", "42P01", "42703", "42883")
"""SQLSTATEs of a schema, table, column or function that is not there."""
_REFUSALS = (
    ("authentication failed|no password supplied", "28P01"),
    ('pg_hba.conf|role ".*" (does not exist|is not permitted)', "28000"),
    ('database ".*" does not exist', "3D000"),
)

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresStore(SqlStore):
    def __init__(self, url: str) -> None:
        self._conninfo, self._address = _parsed(url)
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._owner = os.getpid()
        self._ready = False

    def __repr__(self) -> str:
        return f"PostgresStore({self._address!r})"

    def close(self) -> None:
        while (connection := self._rested()) is not None:
            connection.close()

    @contextmanager
    def _reading(self) -> Iterator[Run]:
        with self._translated(), self._transaction(_READ) as connection:
            yield _runner(connection)

    @contextmanager
    def _writing(self, name: str) -> Iterator[Run]:
        with self._translated(), self._transaction(_WRITE) as connection:
            connection.execute(_LOCK, (_lock_key("connector", name),))
            yield _runner(connection)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        connection = self._begin(begin)
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            self._undo(connection)
            raise
        self._rest(connection)

    def _undo(self, connection: Connection) -> None:
        """A connection that cannot say so any more is closed, and the server undoes what it left."""
        try:
            if connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()
        self._rest(connection)

    def _begin(self, begin: str) -> Connection:
        while (rested := self._rested()) is not None:
            try:
                rested.execute(begin)
                return rested
            except psycopg.OperationalError:
                rested.close()  # the server was restarted meanwhile; nothing was asked of it yet
        connection = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        try:
            self._prepare(connection)
            connection.execute(begin)
        except BaseException:
            connection.close()
            raise
        return connection

    # -- connections at rest

    def _rested(self) -> Connection | None:
        with self._lock:
            if self._owner != os.getpid():  # after a fork they belong to the parent
                self._owner, self._idle = os.getpid(), []
            return self._idle.pop() if self._idle else None

    def _rest(self, connection: Connection) -> None:
        with self._lock:
            if connection.info.transaction_status == TransactionStatus.IDLE and len(self._idle) < _IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    # -- first use

    def _prepare(self, connection: Connection) -> None:
        if self._ready:
            return
        if self._format(connection) == 0:
            connection.execute(_WRITE)  # READ COMMITTED: after the wait for the lock, what another has made is seen
            connection.execute(_LOCK, (_lock_key("schema"),))
            if self._format(connection) == 0:  # of two who come first, one makes the tables
                _make(connection)
            connection.execute("COMMIT")
        self._ready = True

    def _format(self, connection: Connection) -> int:
        if not _one(connection, _MADE):
            return 0
        found = int(_one(connection, f"SELECT max(version) FROM {_NAMESPACE}.format") or -1)
        if found != FORMAT:
            raise CorruptState(
                f"The store {self._address} has format {found}; this tidelog knows format {FORMAT}.",
                hint="Use the tidelog version that wrote it, or a newer one.",
            )
        return found

    # -- errors

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as exc:
            text = exc.diag.message_primary or _reason(str(exc))
            raise self._error(exc.sqlstate or _connect_state(text), text.rstrip(".")) from exc
        except OSError as exc:
            raise StoreAway(f"The connection to the store {self._address} broke ({exc.strerror}).") from exc

    def _error(self, state: str, text: str) -> TidelogError:
        message = f"The store {self._address} says: {text}."
        if state in _SETTINGS_CURE:
            return ConfigError(message, hint=_SETTINGS_CURE[state])
        if state in _GONE:
            return CorruptState(message, hint=f"Somebody removed tables of the schema {_NAMESPACE}: bring them back.")
        if not state or state[:2] in _TIME_CURES:
            return StoreAway(message, hint="Check that the server runs and can be reached.")
        return ConfigError(message, hint=f"Check the rights and the triggers in the schema {_NAMESPACE}.")


def _runner(connection: Connection) -> Run:
    def run(sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        cursor = connection.execute(sql.replace("?", "%s"), storable(values))
        return cursor.fetchall() if cursor.description else []

    return run


def _make(connection: Connection) -> None:
    # A role that owns the schema need not be allowed to make one.
    if not _one(connection, _NAMED):
        connection.execute(f"CREATE SCHEMA {_NAMESPACE}")
    connection.execute(f"SET LOCAL search_path TO {_NAMESPACE}")
    for statement in (*SCHEMA, *_GUARDS, *_FORMAT):
        connection.execute(statement)


def _one(connection: Connection, sql: str) -> Any:
    row = connection.execute(sql).fetchone()
    return row[0] if row else None


def _lock_key(*texts: str) -> int:
    """Advisory locks are shared by all who use the database: a wide number keeps apart from theirs."""
    named = "\0".join((_NAMESPACE, *texts)).encode("utf-8", "replace")
    return int.from_bytes(hashlib.sha256(named).digest()[:8], "big", signed=True)


def _parsed(url: str) -> tuple[str, str]:
    """How to connect, and what may be shown of it. What libpq says of a bad URL is not passed on: it quotes what it
    took for a port or a host, and in a URL whose password has an unescaped `/` or `@` that is the password."""
    try:
        parts = conninfo_to_dict(url)
        host = str(parts.get("host") or parts.get("hostaddr") or "localhost")
        port = str(parts.get("port") or "5432")
        path = url.partition("://")[2].partition("?")[0].partition("/")[2]
        if "@" in host + path or not all(p.isdigit() for p in port.split(",")):
            raise ValueError("the URL is cut at the wrong places")
        conninfo = make_conninfo(url, **{k: v for k, v in _DEFAULTS.items() if k not in parts}, client_encoding="UTF8")
    except (psycopg.Error, ValueError):
        raise ConfigError(
            "The URL of the store is not one of PostgreSQL.",
            hint="Write postgresql://user:password@host:port/database; in user and password write %40 for @, "
            "%2F for /, %3A for : and %23 for #.",
        ) from None
    return conninfo, f"postgresql://{host}:{port}/{parts.get('dbname') or ''}"


def _connect_state(text: str) -> str:
    """A refused connection has no SQLSTATE: its words have to do."""
    return next((state for words, state in _REFUSALS if re.search(words, text)), "")


def _reason(text: str) -> str:
    """The reason in what libpq says of a failed connection; the address before it is ours to tell."""
    first = text.strip().splitlines()[0] if text.strip() else "connection lost"
    return first.rpartition("failed: ")[2].removeprefix("FATAL:").strip()
