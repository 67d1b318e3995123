"""oracledb's connection and cursor, with the simulated database behind them.

One `Server` has any number of connections; a mining session belongs to its connection. Whoever drives the simulation is
called before each round trip (`Server.before`) and may let time pass, cut the connection, or end it all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import oracledb

from tests.oracle import mining, redo, sql, views
from tests.oracle.database import Database
from tests.oracle.mining import Refused, Session
from tests.oracle.sql import Engine, Token

_OPTIONS = {
    "NEW": mining.NEW,
    "ADDFILE": mining.ADDFILE,
    "REMOVEFILE": mining.REMOVEFILE,
    "COMMITTED_DATA_ONLY": mining.COMMITTED_DATA_ONLY,
    "SKIP_CORRUPTION": mining.SKIP_CORRUPTION,
    "DDL_DICT_TRACKING": mining.DDL_DICT_TRACKING,
    "DICT_FROM_ONLINE_CATALOG": mining.DICT_FROM_ONLINE_CATALOG,
    "DICT_FROM_REDO_LOGS": mining.DICT_FROM_REDO_LOGS,
    "NO_SQL_DELIMITER": mining.NO_SQL_DELIMITER,
    "NO_ROWID_IN_STMT": mining.NO_ROWID_IN_STMT,
    "STORE_IN_REDO_LOGS": 1,
}
_POSITIONS = {
    "ADD_LOGFILE": ("LOGFILENAME", "OPTIONS"),
    "REMOVE_LOGFILE": ("LOGFILENAME",),
    "START_LOGMNR": ("STARTSCN", "ENDSCN", "STARTTIME", "ENDTIME", "DICTFILENAME", "OPTIONS"),
    "END_LOGMNR": (),
    "BUILD": ("DICTIONARY_FILENAME", "DICTIONARY_LOCATION", "OPTIONS"),
}


@dataclass(frozen=True)
class Fault:
    """What oracledb puts into its exceptions."""

    code: int
    text: str
    isrecoverable: bool = False

    @property
    def full_code(self) -> str:
        return f"ORA-{self.code:05}"

    @property
    def message(self) -> str:
        return f"{self.full_code}: {self.text}"

    def __str__(self) -> str:
        return self.message


def refuse(code: int, text: str) -> oracledb.DatabaseError:
    return oracledb.DatabaseError(Fault(code, text))


def cut() -> oracledb.OperationalError:
    return oracledb.OperationalError(Fault(3113, "end-of-file on communication channel", isrecoverable=True))


@dataclass(frozen=True)
class Fetched:
    """What the driver knows of a column before it fetches it."""

    name: str
    type_code: Any = None
    internal_size: int = 4000


@dataclass(frozen=True)
class Var:
    """How a column is fetched: as text, which has to be UTF-8, or as bytes."""

    bypass_decode: bool = False
    encoding_errors: str = "strict"

    def read(self, value: bytes | None) -> str | bytes | None:
        return value if value is None or self.bypass_decode else value.decode(errors=self.encoding_errors)


class Server:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.engine = Engine(lambda: redo.day_of(database.scn))
        self.connections: list[Connection] = []
        self.before: Callable[[str], None] = lambda _: None
        self.statements = 0

    def connect(self, *_: Any, **__: Any) -> Connection:
        self.before("connect")
        self.connections.append(Connection(self))
        return self.connections[-1]

    def cut(self) -> None:
        """All connections are lost."""
        for connection in self.connections:
            connection.lost = True
        self.connections.clear()


class Connection:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.mining = Session(server.database)
        self.lost = self.closed = False
        self.call_timeout = 0
        self.autocommit = False
        self.outputtypehandler: Any = None
        self.version = "23.8.0.25.4"
        self.settings: list[str] = []
        self.read_at: int | None = None
        """A read-only transaction sees the database as it was at this SCN."""

    def cursor(self, *_: Any, **__: Any) -> Cursor:
        self.check()
        return Cursor(self)

    def check(self) -> None:
        if self.lost:
            raise cut()
        if self.closed:
            raise oracledb.InterfaceError("DPY-1001: not connected to database")

    def trip(self, what: str) -> None:
        """Before each round trip; the connection may be lost in it."""
        self.check()
        self.server.before(what)
        self.check()

    def commit(self) -> None:
        self.trip("commit")
        self.read_at = None

    def rollback(self) -> None:
        self.trip("rollback")
        self.read_at = None

    def ping(self) -> None:
        self.trip("ping")

    def cancel(self) -> None:
        self.check()

    def is_healthy(self) -> bool:
        return not (self.lost or self.closed)

    def close(self) -> None:
        self.check()
        self.closed = True
        if self in self.server.connections:
            self.server.connections.remove(self)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.lost and not self.closed:
            self.close()


class Cursor:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize, self.prefetchrows = 100, 2
        self.description: list[tuple[Any, ...]] | None = None
        self.rowfactory: Any = None
        self.rowcount = 0
        self._rows: list[tuple[Any, ...]] = []
        self._next = 0
        self._mined = False
        self._decoded: dict[int, Var] = {}

    # -- asking --------------------------------------------------------------------------------------------------

    def execute(self, statement: str, parameters: Any = None, **named: Any) -> Cursor | None:
        binds = _binds(statement, parameters, named)
        self.connection.trip(statement)
        self.connection.server.statements += 1
        try:
            return self._execute(statement, binds)
        except Refused as exc:
            raise refuse(exc.code, exc.message) from None
        except sql.Unknown as exc:
            raise refuse(942, f"table or view {exc} does not exist") from None

    def _execute(self, statement: str, binds: Mapping[str, Any]) -> Cursor | None:
        words = sql.tokens(statement)
        match words[0].upper:
            case "SELECT" | "WITH":
                self._select(statement, binds)
                return self
            case "BEGIN" | "DECLARE":
                self._call(words, binds)
            case "ALTER":
                self.connection.settings.append(statement)
            case "SET":
                self.connection.read_at = self.connection.server.database.redo.advance()
            case "LOCK":
                pass
            case _:
                raise refuse(900, "invalid SQL statement")
        return None

    def callproc(self, name: str, parameters: Sequence[Any] = (), keyword_parameters: Any = None) -> list[Any]:
        self.connection.trip(name)
        _, _, procedure = name.upper().rpartition(".")
        given = dict(zip(_POSITIONS[procedure], parameters, strict=False)) | dict(keyword_parameters or {})
        try:
            self._run(procedure, {k.upper(): v for k, v in given.items()})
        except Refused as exc:
            raise refuse(exc.code, exc.message) from None
        return list(parameters)

    def var(self, *_: Any, **options: Any) -> Var:
        return Var(**{name: value for name, value in options.items() if name != "arraysize"})

    # -- the answer ----------------------------------------------------------------------------------------------

    def fetchmany(self, size: int | None = None) -> list[Any]:
        wanted = self.arraysize if size is None else size
        if self._next < len(self._rows) or self._mined:
            self._trip_rows()
        found = self._rows[self._next : self._next + wanted]
        self._next += len(found)
        self.rowcount = self._next
        if self._decoded:
            found = [self._read(row) for row in found]
        return [self.rowfactory(*row) for row in found] if self.rowfactory else found

    def fetchall(self) -> list[Any]:
        return self.fetchmany(len(self._rows))

    def fetchone(self) -> Any:
        return next(iter(self.fetchmany(1)), None)

    def __iter__(self) -> Iterator[Any]:
        while found := self.fetchmany():
            yield from found

    def _read(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(self._decoded[n].read(v) if n in self._decoded else v for n, v in enumerate(row))

    def _trip_rows(self) -> None:
        """Mined rows come from the files while they are fetched."""
        self.connection.trip("fetch")
        if self._mined:
            try:
                self.connection.mining.check_files()
            except Refused as exc:
                raise refuse(exc.code, exc.message) from None

    def close(self) -> None:
        self._rows = []

    def __enter__(self) -> Cursor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- statements ----------------------------------------------------------------------------------------------

    def _select(self, statement: str, binds: Mapping[str, Any]) -> None:
        select = sql.translate(statement)
        for table in select.tables:
            self._fill(table, binds)
        names, self._rows = self.connection.server.engine.run(select, binds)
        self._next, self._mined = 0, any(t.table == "V$LOGMNR_CONTENTS" for t in select.tables)
        handler = self.connection.outputtypehandler or (lambda *_: None)
        redo_sql = [n for n, name in enumerate(names) if name == "SQL_REDO"]
        self._decoded = {n: handler(self, Fetched(names[n])) or Var() for n in redo_sql}
        self.description = [(name, None, None, None, None, None, True) for name in names]

    def _fill(self, table: sql.From, binds: Mapping[str, Any]) -> None:
        server = self.connection.server
        relation = server.database.relations.get(f"{table.owner}.{table.table}")
        if relation is not None:
            server.engine.fill(table.name, *views.table_rows(relation, self._seen(table, binds)))
            return
        if table.table not in views.VIEWS:
            raise sql.Unknown(table.name)
        columns, rows = views.VIEWS[table.table]
        server.engine.fill(table.name, columns, rows(server.database, self.connection.mining))

    def _seen(self, table: sql.From, binds: Mapping[str, Any]) -> int:
        if table.scn is None:
            now = self.connection.server.database.scn
            return now if self.connection.read_at is None else self.connection.read_at
        token = table.scn
        return int(binds[token.text[1:]] if token.kind == "bind" else token.text)

    def _call(self, words: Sequence[Token], binds: Mapping[str, Any]) -> None:
        """`BEGIN package.procedure(name => value, …); … END;`"""
        n = 1
        while n < len(words) and words[n].upper != "END":
            if words[n].upper.startswith("DBMS_") and words[n + 1].text == ".":
                n = self._one(words, n + 2, binds)
            else:
                n += 1

    def _one(self, words: Sequence[Token], n: int, binds: Mapping[str, Any]) -> int:
        procedure, n = words[n].upper, n + 1
        given: dict[str, Any] = {}
        if n < len(words) and words[n].text == "(":
            end = next(i for i in range(n, len(words)) if words[i].text == ")")
            given = _arguments(procedure, words[n + 1 : end], binds)
            n = end + 1
        self._run(procedure, given)
        return n

    def _run(self, procedure: str, given: Mapping[str, Any]) -> None:
        session = self.connection.mining
        match procedure:
            case "ADD_LOGFILE":
                session.add(given["LOGFILENAME"], given.get("OPTIONS", mining.ADDFILE))
            case "REMOVE_LOGFILE":
                session.remove(given["LOGFILENAME"])
            case "START_LOGMNR":
                session.begin(_scn(given.get("STARTSCN")), _scn(given.get("ENDSCN")), given.get("OPTIONS", 0))
            case "END_LOGMNR":
                session.finish()
            case "BUILD":
                self.connection.server.database.build_dictionary()
            case _:
                raise Refused(6550, f"PLS-00302: component '{procedure}' must be declared")


def _scn(value: Any) -> int | None:
    return None if value in (None, 0, "0") else int(value)


def _arguments(procedure: str, words: Sequence[Token], binds: Mapping[str, Any]) -> dict[str, Any]:
    parts: list[list[Token]] = [[]]
    for word in words:
        if word.text == ",":
            parts.append([])
        else:
            parts[-1].append(word)
    given = {}
    for n, part in enumerate(p for p in parts if p):
        named = len(part) > 2 and part[1].text == "=>"
        name = part[0].upper if named else _POSITIONS[procedure][n]
        given[name] = _value(part[2:] if named else part, binds)
    return given


def _value(words: Sequence[Token], binds: Mapping[str, Any]) -> Any:
    """A literal, a bind, or a sum of the package's constants."""
    found = [_single(word, binds) for word in words if word.text not in ("+", ".") and not _package(word)]
    return found[0] if len(found) == 1 else sum(found)


def _package(word: Token) -> bool:
    return word.upper in ("DBMS_LOGMNR", "DBMS_LOGMNR_D", "SYS")


def _single(word: Token, binds: Mapping[str, Any]) -> Any:
    match word.kind:
        case "bind":
            return binds[word.text[1:]]
        case "text":
            return word.text[1:-1].replace("''", "'")
        case "number":
            return int(word.text)
    if word.upper not in _OPTIONS:
        raise Refused(6550, f"PLS-00302: component '{word.upper}' must be declared")
    return _OPTIONS[word.upper]


def _binds(statement: str, parameters: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """By name, or by place in the order of their first appearance."""
    used = list(dict.fromkeys(re.findall(r"(?<![:\w']):(\w+)", _without_texts(statement))))
    if isinstance(parameters, Mapping):
        given = dict(parameters)
    elif parameters is not None:
        given = dict(zip(used, parameters, strict=True))
    else:
        given = dict(named)
    missing = [name for name in used if name not in given]
    if missing:
        raise refuse(1008, f"not all variables bound: {', '.join(missing)}")
    extra = [name for name in given if name not in used]
    if extra:
        raise refuse(1036, f"unrecognized bind variable {', '.join(extra)} passed to the bind call")
    return given


def _without_texts(statement: str) -> str:
    return re.sub(r"'(?:[^']|'')*'|/\*.*?\*/", "''", statement, flags=re.S)
