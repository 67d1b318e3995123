"""The only file that speaks to the driver: ordinary sessions, the replication stream, and bulk reads.

Driver errors end here. They become ours by SQLSTATE: what a setting cures is a `ConfigError`, a log that is gone is
a `PositionLost`, and everything that time may cure is a `TransientError`. No message ever carries the password,
because none is built from the connection string.
"""

from __future__ import annotations

import re
import select
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType, TracebackType
from typing import Any

import pyarrow as pa

from tidelog.connectors.postgres.config import Config
from tidelog.errors import ConfigError, NotInstalled, PositionLost, TidelogError, TransientError

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
    "-c extra_float_digits=3 -c xmlbinary=base64 -c lc_monetary=C"
)
"""Every session renders values alike, so that a value read from a table equals the same value from the log."""
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

_TLS = "TLS"
_SETTINGS_CURE = {
    "28000": "Check database.user and database.sslmode, and pg_hba.conf on the server.",
    "28P01": "Check database.user and database.password.",
    "3D000": "Check database.dbname.",
    "42501": "Grant the role what it lacks; `tidelog check` prints the SQL.",
    "55000": "`tidelog check` says which server setting is missing.",
    "53400": "Raise max_replication_slots, or drop a slot that nobody reads.",
    "42704": "`tidelog check` says what is missing.",
    _TLS: "Check database.sslmode, database.sslrootcert, and database.sslcert with its database.sslkey; "
    "under verify-full the server's certificate must bear the name in database.hostname.",
}
_CONNECT_STATES = (
    (re.compile(r"password"), "28P01"),
    (re.compile(r"database .*does not exist"), "3D000"),
    (re.compile(r"pg_hba\.conf|role .*does not exist"), "28000"),
    (re.compile(r"certificate (verify|file|present)|(root|server|client) certificate|private key file"), _TLS),
    (re.compile(r"does not support SSL|alert (unknown ca|bad certificate)|certificate authentication"), _TLS),
)
"""What a connection that fails tells in words alone: the driver gives no SQLSTATE then, and TLS has none."""
_TIME_CURES = ("08", "40", "53", "55", "57", "58")
"""Classes of SQLSTATE: connection, conflict of transactions, resources, state, intervention, system."""
_SERVER_SAYS = "PGRES_FATAL_ERROR"
_REFUSED = "XX000"
_PASSES = re.compile(
    r"terminating connection|canceling statement|conflict with recovery|deadlock|could not serialize|out of memory"
    r"|No space left|could not (open|read|write|extend|fsync|access)|shutting down|starting up|lock timeout"
)
"""What the server may say in the middle of rows that time cures; the driver hands no SQLSTATE on then."""
_SLOT_BUSY = "55006"
_STRETCH = b"SELECT repeat(' ', 1048576)"
_PAUSE_S = 0.001


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
        """`patience_s`: how long to wait for a table that somebody else has locked; 0: as the role is set. `whole`: a
        policy that hides rows is an error, not a smaller table."""
        self._config = config
        settings = _RENDERING + (_READ_ONLY if read_only else "") + (_WHOLE if whole else "")
        settings += f" -c lock_timeout={patience_s}s" if patience_s else ""
        with translated(config):
            self._connection = psycopg.connect(_conninfo(config, application, settings=settings), autocommit=True)

    @property
    def version(self) -> int:
        """As `server_version_num`: 180001 is 18.1."""
        return self._connection.info.server_version

    @property
    def closed(self) -> bool:
        """Also after the server, or something on the way, has cut it."""
        return self._connection.closed

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with translated(self._config), self._connection.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """One statement and no second one behind it, whoever wrote parts of it: a pipeline takes no more."""
        with translated(self._config), self._connection.pipeline(), self._connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    def copy(self, sql: str, rows: int) -> Iterator[bytes]:
        """The rows of a query as CSV texts of about `rows` rows; every value is quoted, NULL is empty."""
        statement = f"COPY ({sql}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
        with (
            translated(self._config),
            self._connection.cursor() as cursor,
            cursor.copy(statement) as copy,
        ):
            gathered: list[bytes] = []
            for line in copy:
                gathered.append(bytes(line))
                if len(gathered) >= rows:
                    yield b"".join(gathered)
                    gathered = []
            if gathered:
                yield b"".join(gathered)

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
        with translated(self._config):
            self._pgconn.exec_(_STRETCH)
            result = self._pgconn.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise _stream_error(self._config, result)

    @property
    def sender(self) -> int:
        """The server's process that sends."""
        return self._pgconn.backend_pid

    def drain(self, into: list[memoryview], room: int) -> int:
        """Append the messages that have arrived, up to `room` bytes; returns the bytes taken."""
        with translated(self._config):
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
        with translated(self._config):
            if time.monotonic() - self._woken < _PAUSE_S < seconds:
                time.sleep(_PAUSE_S)
            readable, _, _ = select.select([self._pgconn.socket], [], [], seconds)
            if readable:
                self._pgconn.consume_input()
                self._woken = time.monotonic()
            return bool(readable)

    def feedback(self, flushed: int, *, reply: bool = False) -> None:
        """Tell the server that everything before `flushed` is safe with us; ask, maybe, how far it is."""
        now = int(time.time() * 1_000_000) - _EPOCH_US
        message = struct.pack(">cQQQqB", b"r", max(self.received, flushed), flushed, flushed, now, reply)
        with translated(self._config):
            self._pgconn.put_copy_data(message)
            self._flush()
        self.reply_wanted = False

    def _flush(self) -> None:
        while self._pgconn.flush() == 1:
            select.select([], [self._pgconn.socket], [], 1.0)

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
        self._connection.close()


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

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        texts = tuple(Literal(value).as_string(None) for value in parameters)
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
            found = cursor.fetch_record_batch()
            empty = pa.RecordBatch.from_pylist([], schema=found.schema)
            yield next(found, empty)
            yield from found

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
            raise _arrow_error(self._config, exc.sqlstate or "", str(exc)) from exc
        except (pa.ArrowException, OSError) as exc:  # from the middle of the rows: in words alone
            raise _arrow_error(self._config, "", str(exc)) from exc


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


def _arrow_error(config: Config, state: str, text: str) -> TidelogError:
    told = re.search(r"(?:ERROR|FATAL):\s+(.*)", text)
    reason = told[1].strip() if told else _reason(text)
    state = state.strip("\0") or _connect_state(reason)
    if not state and _SERVER_SAYS in text and not _PASSES.search(reason):
        state = _REFUSED
    if state and state not in _SETTINGS_CURE and state[:2] not in _TIME_CURES:
        return ConfigError(f"PostgreSQL refused a statement: {reason}.")
    return _classify(config, state, reason.rstrip("."))


def _connect_state(text: str) -> str:
    return next((state for words, state in _CONNECT_STATES if words.search(text)), "")


def as_reader(config: Config) -> Config:
    """With the role that reads tables, if it is another one."""
    if not config.reader:
        return config
    return replace(config, user=config.reader, password=config.reader_password or config.password)


def reader_conninfo(config: Config) -> str:
    """Of the role that reads rows. A table that DDL holds is waited for in turns: a batch waits for its slowest
    chunk."""
    read_only = _READ_ONLY if config.snapshot.read_only else ""
    return _conninfo(
        as_reader(config), "tidelog chunks", settings=f"{_RENDERING}{_WHOLE} -c lock_timeout=10s{read_only}"
    )


def lsn_text(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:08X}"


def _conninfo(config: Config, application: str, *, settings: str = _RENDERING, **more: str) -> str:
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
    return _classify(config, state, text)


def _classify(config: Config, state: str, text: str) -> TidelogError:
    if state == _SLOT_BUSY:
        return TransientError(f"Slot {config.slot} is in use by another reader: {text}.")
    if "can no longer" in text or "invalidated" in text or ("slot" in text and "does not exist" in text):
        return PositionLost(
            f"The replication slot {config.slot} is gone or was invalidated by the server: {text}.",
            hint="Changes since the last delivered position are lost. Start with a new name (or delete the state "
            "folder of this pipeline) to create a new slot, and take a new snapshot of the tables.",
        )
    if state in _SETTINGS_CURE:
        return ConfigError(f"PostgreSQL at {config.host}:{config.port} says: {text}.", hint=_SETTINGS_CURE[state])
    return TransientError(f"PostgreSQL at {config.host}:{config.port} says: {text or 'connection lost'}.")


@contextmanager
def translated(config: Config) -> Iterator[None]:
    """Driver errors become ours."""
    try:
        yield
    except psycopg.Error as exc:
        text = exc.diag.message_primary or _reason(str(exc))
        state = exc.sqlstate or _connect_state(text)
        if exc.sqlstate and not isinstance(exc, psycopg.OperationalError) and state not in _SETTINGS_CURE:
            raise ConfigError(
                f"PostgreSQL refused a statement: {text}.", hint="`tidelog check` looks for causes."
            ) from exc
        raise _classify(config, state, text.rstrip(".")) from exc
    except OSError as exc:
        raise TransientError(f"The connection to {config.host}:{config.port} broke ({exc.strerror}).") from exc


def _reason(text: str) -> str:
    """The reason in what libpq says of a failed connection; the address before it is ours to tell. Of several
    addresses, the one that a setting cures says more than those where nobody listens."""
    first = text.strip().splitlines()[0] if text.strip() else "connection lost"
    told = [line for line in text.splitlines() if "failed: " in line]
    chosen = next((line for line in told if _connect_state(line.rpartition("failed: ")[2])), first)
    return chosen.rpartition("failed: ")[2].removeprefix("FATAL:").strip()
