"""The only file that speaks to the driver: Mapepire, SQL over a WebSocket to a small server on the IBM i.

Driver errors end here. Messages of the journal's own commands come inside the text of an SQL error, so they are known
by their number: `CPF7053`, `CPF7054` and `CPF9801` say that what we ask for is gone, `CPF7062` that nothing was found,
which is no error. An SQLSTATE is five digits, as an entry's number may be: it counts only where the driver or the text
says that it is one. `CONNECT` opens a connection; it is an attribute so that another one can take its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType, TracebackType
from typing import Any, Protocol, cast

from tidelog.connectors.iseries.config import Config
from tidelog.connectors.iseries.receivers import START_OVER
from tidelog.errors import ConfigError, DatabaseAway, NotInstalled, PositionLost, TidelogError, TransientError

AUTHORITIES = (
    "Give the user profile *USE and *OBJEXIST of the journal (entries of all objects need both), *USE of its receivers "
    "and of the tables, and *EXECUTE of their libraries: GRTOBJAUT OBJ(library/journal) OBJTYPE(*JRN) USER(user) "
    "AUT(*OBJEXIST *OBJOPR *READ *EXECUTE)."
)
_ROWS_PER_FETCH = 2_000
_NO_ENTRIES = "CPF7062"
_LOST = {"CPF7053", "CPF7054", "CPF9801", "CPF7006"}
"""Receiver range not valid; first or last entry not valid; object not found; entries no longer there."""
_STALE = "CPF7060"
"""An object of the selection is not there: the catalog has moved on."""
_FORBIDDEN = {"CPF9802", "CPF9822", "CPF7002", "SQL0551", "42501", "42502"}
_UNKNOWN = {"SQL0204", "SQL0206", "42704", "42703"}
_MESSAGE = re.compile(r"\b(?:CPF[0-9A-F]{4}|SQL\d{4})\b")
_STATE = re.compile(r"\bSQLSTATE\b\W{0,3}(\w{5})\b")
_CREDENTIALS = re.compile(r"password|not authorized to|user id|userid|sign-?on|HTTP 401|CPF2204|CPF22E2", re.IGNORECASE)
_TLS = re.compile(r"certificate|SSL|TLS", re.IGNORECASE)


class Cursor(Protocol):
    """What we use of the driver's cursor, which is that of PEP 249."""

    def execute(self, operation: str, parameters: Sequence[Any] | None = None) -> Any: ...

    def fetchmany(self, size: int | None = None) -> Sequence[Sequence[Any]]: ...

    def close(self) -> None: ...


class Connection(Protocol):
    def cursor(self) -> Cursor: ...

    def close(self) -> None: ...


def driver() -> ModuleType:
    """Loaded when somebody connects: it is large, and offsets need none."""
    try:
        import mapepire_python
    except ImportError as exc:
        raise NotInstalled(
            "The IBM i connector needs the driver mapepire-python.", hint="Run: pip install 'tidelog[iseries]'"
        ) from exc
    return mapepire_python


def _connect(config: Config) -> Connection:
    mapepire_python = driver()
    server = mapepire_python.DaemonServer(
        host=config.host,
        port=config.port,
        user=config.user,
        password=config.password,
        ignoreUnauthorized=not config.verify,
        ca=config.ca or None,
    )
    # Values are rendered by our own SQL; these make the rest independent of the user's defaults.
    options = {"naming": "sql", "date format": "iso", "time format": "jis", "decimal separator": "."}
    return cast(Connection, mapepire_python.connect(server, opts=options))


CONNECT: Callable[[Config], Connection] = _connect


class Session:
    """One job on the system. Used by one thread at a time."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.closed = False
        with self._translated(connecting=True):
            self._connection = CONNECT(config)

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return [row for batch in self.batches(sql, parameters) for row in batch]

    def batches(
        self, sql: str, parameters: Sequence[Any] = (), rows: int = _ROWS_PER_FETCH
    ) -> Iterator[list[tuple[Any, ...]]]:
        """The rows in batches; nothing when the journal says that it has no entries there."""
        with self._translated():
            cursor = self._connection.cursor()
        try:
            try:
                with self._translated():
                    cursor.execute(sql, list(parameters) or None)
            except _NothingThere:
                return
            while True:
                try:
                    with self._translated():
                        found = [tuple(row) for row in cursor.fetchmany(rows)]
                except _NothingThere:
                    return
                if not found:
                    return
                yield found
        finally:
            if not self.closed:
                with self._translated():
                    cursor.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with self._translated():
                self._connection.close()

    def _abandon(self) -> None:
        """A connection that failed is not used again; whatever is left of it goes."""
        if not self.closed:
            self.closed = True
            with suppress(Exception):  # it is broken, and why was told already
                self._connection.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _translated(self, *, connecting: bool = False) -> Iterator[None]:
        """The driver raises its own errors, plain `Exception`s and those of the network alike."""
        try:
            yield
        except (TidelogError, _NothingThere, GeneratorExit):
            raise
        except Exception as exc:  # noqa: BLE001  the driver has no root of its own
            shown = _shown(exc, self._config.password)
            error = translate(shown, self._config, state=_state(exc), connecting=connecting)
            if isinstance(error, TransientError) and not connecting:
                self._abandon()
            raise error from None  # the driver's own error may repeat what was sent


UNREACHABLE = "Check database.hostname and database.port, and that the Mapepire server runs there."


class _NothingThere(Exception):
    """The journal has no entries of this kind."""


def translate(message: str, config: Config, *, state: str = "", connecting: bool = False) -> Exception:
    """An error of the driver as one of ours, by what it says, and by its SQLSTATE."""
    codes = {state, *_MESSAGE.findall(message), *_STATE.findall(message)}
    if _NO_ENTRIES in codes:
        return _NothingThere(message)
    if codes & _LOST:
        return PositionLost(f"The journal no longer has what comes next ({message}).", hint=START_OVER)
    if _STALE in codes:
        return TransientError(f"The journal's objects have changed meanwhile ({message}).")
    if codes & _FORBIDDEN:
        return ConfigError(
            f"{config.user} may not do this on {config.host} ({message}).",
            hint=AUTHORITIES,
        )
    if codes & _UNKNOWN:
        return ConfigError(
            f"{config.host} does not know what we asked for ({message}).",
            hint="The connector needs IBM i 7.4 or newer with the current Db2 group PTF.",
        )
    if connecting and _CREDENTIALS.search(message):
        return ConfigError(
            f"{config.host} refused {config.user}.", hint="Check database.user and database.password, and the profile."
        )
    if connecting and _TLS.search(message):
        return ConfigError(
            f"The connection to {config.host}:{config.port} is not trusted ({message}).",
            hint="Check database.ssl.ca, or set database.ssl.verify to false.",
        )
    said = f"{config.host}:{config.port} can't be used now ({message})."
    return DatabaseAway(said, hint=UNREACHABLE) if connecting else TransientError(said)


def _state(exc: BaseException) -> str:
    """The driver tells its caller the text alone; what else the server said stands behind it."""
    told = exc.__cause__.args if exc.__cause__ is not None else exc.args
    return str(told[0].get("sql_state", "")) if told and isinstance(told[0], dict) else ""


def _shown(exc: Exception, password: str) -> str:
    text = " ".join(str(exc).split()) or type(exc).__name__
    return text.replace(password, "***") if password else text
