"""Connections by psycopg: ordinary sessions and the replication stream. Rows in bulk come by another driver (`bulk`).

Driver errors end here, see `sqlstate`. No message ever carries the password, because none is built from the connection
string.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any

from tidelog.connectors.postgres import server_watch, sqlstate
from tidelog.connectors.postgres.config import Config
from tidelog.connectors.postgres.server_watch import Operation
from tidelog.errors import ConfigError, DatabaseAway, NotInstalled, TidelogError, TransientError

try:
    import psycopg
    from psycopg import pq
    from psycopg.conninfo import make_conninfo
    from psycopg.sql import Literal
except ImportError as exc:
    raise NotInstalled(
        "The PostgreSQL connector needs the driver psycopg.", hint="Run: pip install 'tidelog[postgres]'"
    ) from exc

_EPOCH_US = 946_684_800_000_000  # 2000-01-01, where PostgreSQL's clock starts
_RENDERING = (
    "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=iso_8601 -c bytea_output=hex "
    "-c extra_float_digits=3 -c xmlbinary=base64 -c lc_monetary=C -c quote_all_identifiers=off "
    "-c array_nulls=on"
)
"""Every session renders values alike, so that a value read from a table equals the same value from the log."""
_BEHAVIOUR = (
    " -c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0"
    " -c default_transaction_isolation=read\\ committed -c standard_conforming_strings=on"
)
"""What a role or a database may set for its applications and what breaks ours: a slot waits for other transactions and
a large table is read for as long as that takes, a hot standby refuses SERIALIZABLE, and statements hold backslashes."""
_DEFAULTS = _RENDERING + _BEHAVIOUR
LIFT_LIMITS = (
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('idle_session_timeout', 'transaction_timeout')"
)
"""Limits of later versions (14 and 17), for the first statement of a connection: a server refuses a connection that
names a setting which it does not know. The decoding of a transaction counts as one, so a stream has them too."""
_WRITABLE = " -c default_transaction_read_only=off"
"""Some administrators switch writing off by default; a publication, or a signal, is written on purpose."""
_READ_ONLY = " -c default_transaction_read_only=on"
_WHOLE = " -c row_security=off"

LOG_END = (
    "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END"
    " - '0/0'::pg_lsn"
)
"""How far the server's log is durable, as a number."""

REPLAYED = "SELECT CASE WHEN pg_is_in_recovery() THEN (pg_last_wal_replay_lsn() - '0/0'::pg_lsn)::bigint END"
"""How far a standby has replayed the log: the end of a record, so every commit that begins before it is visible to
whoever looks afterwards. Null on a primary."""

VISIBLE = "SELECT pg_current_snapshot()::text"

_STRETCH = b"SELECT repeat(' ', 1048576)"
_PAUSE_S = 0.001
_CONNECT_TIMEOUT_MIN_S = 2
"""libpq takes a shorter time for this one."""


class Session:
    """An ordinary connection; statements commit by themselves."""

    def __init__(
        self,
        config: Config,
        *,
        application: str = "tidelog",
        read_only: bool = False,
        patience_s: int = 0,
        whole: bool = False,
    ) -> None:
        """`patience_s`: how long to wait for a table that somebody else has locked; 0: without a limit. `whole`: a
        policy that hides rows is an error, not a smaller table."""
        self._config = config
        settings = _DEFAULTS + (_READ_ONLY if read_only else _WRITABLE) + (_WHOLE if whole else "")
        settings += f" -c lock_timeout={patience_s}s" if patience_s else ""
        with translated(config):
            self._connection = psycopg.connect(_conninfo(config, application, settings=settings), autocommit=True)
        try:
            self.query(LIFT_LIMITS)
        except TidelogError:
            self.close()
            raise

    @property
    def version(self) -> int:
        """As `server_version_num`: 180001 is 18.1."""
        return self._connection.info.server_version

    @property
    def backend_pid(self) -> int:
        """The server's process of this connection."""
        return self._connection.info.backend_pid

    @property
    def closed(self) -> bool:
        """Also after the server, or something on the way, has cut it."""
        return self._connection.closed

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._in_flight(), self._connection.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """One statement and no second one behind it, whoever wrote parts of it: a pipeline takes no more."""
        with self._in_flight(), self._connection.pipeline(), self._connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A READ ONLY, READ COMMITTED transaction: each statement sees what was committed before it began. It may stay
        idle while its rows are used."""
        self.query("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
        try:
            yield
        except BaseException:
            self.close()  # ends the transaction, whatever state it is in
            raise
        self.query("ROLLBACK")

    def lock(self, source: str) -> bool:
        """Locks the table in ACCESS SHARE mode until the transaction ends. Returns False if no table has this name.
        Unlike LOCK TABLE, a SELECT needs rights on some of the columns only."""
        with self._in_flight(), self._connection.cursor() as cursor:
            try:
                cursor.execute(f"SELECT FROM {source} LIMIT 0")
            except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
                return False
        return True

    def copy(self, sql: str, rows: int, size: int) -> Iterator[bytes]:
        """The rows of a query as CSV texts of about `rows` rows or `size` bytes, always whole rows: a text is larger
        than `size` by at most one row. Every value is quoted, NULL is empty."""
        statement = f"COPY ({sql}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
        with (
            self._in_flight() as operation,
            self._connection.cursor() as cursor,
            cursor.copy(statement) as copy,
        ):
            gathered: list[bytes] = []
            gathered_bytes = 0
            for line in copy:
                operation.active_s = time.monotonic()
                gathered.append(bytes(line))
                gathered_bytes += len(line)
                if len(gathered) >= rows or gathered_bytes >= size:
                    text = b"".join(gathered)
                    gathered, gathered_bytes = [], 0  # before the caller goes on: a row may have a gigabyte
                    with operation.pause():
                        yield text
            if gathered:
                with operation.pause():
                    yield b"".join(gathered)

    @contextmanager
    def _in_flight(self) -> Iterator[Operation]:
        """While an operation waits for the server, the watch asks whether the server lives."""
        with translated(self._config):
            fileno = self._connection.fileno()
        with (
            server_watch.watch_operation(fileno, self._config.connect_timeout_s) as operation,
            translated(self._config, operation),
        ):
            yield operation

    def cancel(self) -> None:
        """Ends the statement that runs now, with an error; called from another thread than the one that waits for
        it."""
        with translated(self._config):
            self._connection.cancel_safe(timeout=self._config.connect_timeout_s)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Stream:
    """A replication connection: raw messages in, feedback out. Used by one thread."""

    def __init__(self, config: Config, start: int, options: Sequence[str]) -> None:
        self._config = config
        with translated(config):
            conninfo = _conninfo(config, "tidelog capture", replication="database")
            self._connection = psycopg.connect(conninfo, autocommit=True)
            self._operation = server_watch.begin_operation(self._connection.fileno(), config.connect_timeout_s)
        self._pgconn = self._connection.pgconn
        self.received = start
        """The end of the log as the server last told it."""
        self.answers = 0
        """How often it did."""
        self.reply_wanted = False
        self._woken = 0.0
        try:
            self._begin(start, options)
        except TidelogError:
            self.close()
            raise

    def _begin(self, start: int, options: Sequence[str]) -> None:
        # libpq's buffer grows with the largest message it ever held and never shrinks. Stretched once, it takes all
        # that the kernel has gathered in one read, where it would otherwise be woken for every 16 KiB.
        command = f"START_REPLICATION SLOT {self._config.slot} LOGICAL {lsn_text(start)} ({', '.join(options)})"
        with translated(self._config, self._operation):
            self._pgconn.exec_(_STRETCH)
            lifted = self._pgconn.exec_(LIFT_LIMITS.encode())
            if lifted.status != pq.ExecStatus.TUPLES_OK:
                raise _stream_error(self._config, lifted)
            result = self._pgconn.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise _stream_error(self._config, result)

    @property
    def sender(self) -> int:
        """The server's process that sends."""
        return self._pgconn.backend_pid

    def drain(self, into: list[memoryview], room: int) -> int:
        """Append the messages that have arrived, up to `room` bytes; returns the bytes taken."""
        with translated(self._config, self._operation):
            return self._drain(into, room)

    def _drain(self, into: list[memoryview], room: int) -> int:
        get, taken = self._pgconn.get_copy_data, 0
        while taken < room:
            length, data = get(1)
            if length > 0:
                if data[0] == 0x77:  # 'w': a record
                    into.append(data)
                    taken += length
                else:
                    self._keepalive(data)
            elif length == 0:
                break
            else:
                raise self._ended()
        return taken

    def wait(self, seconds: float) -> bool:
        """Wait for bytes and take them from the socket; False when none came. In full flow, a moment's pause lets
        the kernel gather: fewer wake-ups make server and client faster."""
        with translated(self._config, self._operation):
            if time.monotonic() - self._woken < _PAUSE_S < seconds:
                time.sleep(_PAUSE_S)
            self._operation.resume()
            readable = _poll(self._pgconn.socket, select.POLLIN, seconds)
            if readable:
                self._pgconn.consume_input()
                self._woken = time.monotonic()
                self._operation.active_s = self._woken
                self._operation.paused = True  # until the next wait: the journal may be full
            return bool(readable)

    def feedback(self, flushed: int, *, reply: bool = False) -> None:
        """Tell the server that everything before `flushed` is safe with us; ask, maybe, how far it is."""
        now = int(time.time() * 1_000_000) - _EPOCH_US
        message = struct.pack(">cQQQqB", b"r", max(self.received, flushed), flushed, flushed, now, reply)
        with translated(self._config, self._operation):
            self._pgconn.put_copy_data(message)
            self._flush()
        self.reply_wanted = False

    def _flush(self) -> None:
        while self._pgconn.flush() == 1:
            self._operation.resume()
            _poll(self._pgconn.socket, select.POLLOUT, 1.0)

    def _keepalive(self, data: memoryview) -> None:
        end, _, reply = struct.unpack_from(">QqB", data, 1)
        self.received = max(self.received, end)
        self.answers += 1
        self.reply_wanted |= bool(reply)

    def _ended(self) -> TidelogError:
        result = self._pgconn.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return _stream_error(self._config, result)
        return TransientError("The server ended the replication stream.")

    def close(self) -> None:
        server_watch.end_operation(self._operation)
        self._connection.close()


def _poll(fileno: int, event: int, seconds: float) -> bool:
    """Whether the event, or an error, came in time. `select.select` refuses file numbers from 1024 on."""
    poll = select.poll()
    poll.register(fileno, event)
    return bool(poll.poll(seconds * 1000))


def written(value: object) -> str:
    """A value as a statement holds it."""
    return Literal(value).as_string(None)


def as_reader(config: Config) -> Config:
    """With the role that reads tables, if it is another one."""
    if not config.reader:
        return config
    return replace(config, user=config.reader, password=config.reader_password or config.password)


def reader_conninfo(config: Config) -> str:
    """Of the role that reads rows. A table that DDL holds is waited for in turns: a batch waits for its slowest
    chunk."""
    writing = _READ_ONLY if config.snapshot.read_only else _WRITABLE
    return _conninfo(as_reader(config), "tidelog chunks", settings=f"{_DEFAULTS}{writing}{_WHOLE} -c lock_timeout=10s")


def lsn_text(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:08X}"


def _conninfo(config: Config, application: str, *, settings: str = _DEFAULTS, **more: str) -> str:
    return make_conninfo(
        host=config.host,
        port=config.port,
        user=config.user,
        password=config.password or None,
        dbname=config.dbname,
        connect_timeout=config.connect_timeout_s,
        application_name=application,
        client_encoding="UTF8",
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=4,
        tcp_user_timeout=30_000,
        options=settings,
        **config.tls,
        **more,
    )


def _stream_error(config: Config, result: Any) -> TidelogError:
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    text = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode("utf-8", "replace")
    return sqlstate.error(config, state, text)


@contextmanager
def translated(config: Config, operation: Operation | None = None) -> Iterator[None]:
    """Driver errors become ours. That of an operation which the watch has ended tells why."""
    try:
        yield
    except (psycopg.Error, OSError, TransientError) as exc:
        if operation is not None and operation.unanswered_s:
            raise sqlstate.unanswered(config, operation.unanswered_s) from exc
        if isinstance(exc, psycopg.Error):
            raise translate(config, exc) from exc
        if isinstance(exc, OSError):
            text = f"The connection to {config.host}:{config.port} broke ({exc.strerror})."
            raise DatabaseAway(text, hint=sqlstate.UNREACHABLE) from exc
        raise


def translate(config: Config, error: psycopg.Error) -> TidelogError:
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return sqlstate.unanswered(config, max(_CONNECT_TIMEOUT_MIN_S, config.connect_timeout_s))
    text = error.diag.message_primary or sqlstate.reason_of(str(error))
    refused = sqlstate.CANNOT_CONNECT_NOW if sqlstate.is_refusal(str(error)) else ""
    state = error.sqlstate or sqlstate.connect_state(text) or refused
    is_refused = not isinstance(error, psycopg.OperationalError) and state not in sqlstate.SESSION_ENDED
    if error.sqlstate and is_refused and state not in sqlstate.SETTINGS_CURE:
        return ConfigError(f"PostgreSQL refused a statement: {text}.", hint="`tidelog check` looks for causes.")
    return sqlstate.error(config, state, text.rstrip("."))
