"""How the Oracle connector is to work: its settings, read and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.connectors.oracle.settings import BUFFERED, SETTINGS, UNBUFFERED
from tidelog.core import selecting
from tidelog.core.settings import parse
from tidelog.core.snapshot import settings as snapshots
from tidelog.core.snapshot.settings import SnapshotSettings
from tidelog.errors import ConfigError
from tidelog.model.pattern import translated
from tidelog.model.selection import Selection, split_patterns

UNKNOWN_USER = "UNKNOWN"
"""What LogMiner says of a transaction whose start it has not read."""
_JDBC = re.compile(r"\Ajdbc:oracle:\w+:", re.IGNORECASE)
_PASSWORD = re.compile(r"password\s*=", re.IGNORECASE)
_LISTS = ("schema.include.list", "schema.exclude.list", "table.include.list", "table.exclude.list")
_PATTERN_BYTES_MAX = 512
_PLAIN = re.compile(r"[\w$#]+\.[\w$#]+")


@dataclass(frozen=True)
class Accounts:
    """Whose transactions are captured. Capitals do not matter."""

    include_users: tuple[str, ...] = ()
    exclude_users: tuple[str, ...] = ()
    include_clients: tuple[str, ...] = ()
    exclude_clients: tuple[str, ...] = ()

    def takes(self, user: str | None, client: str | None) -> bool:
        """Whether a transaction counts. Who is not known cannot be told from the included ones, and is taken: LogMiner
        does not know the user of a transaction whose start it has not read."""
        return _taken(user, self.include_users, self.exclude_users) and _taken(
            client, self.include_clients, self.exclude_clients
        )


def _taken(name: str | None, include: tuple[str, ...], exclude: tuple[str, ...]) -> bool:
    if not name or name.upper() == UNKNOWN_USER:
        return True
    if include:
        return name.upper() in {other.upper() for other in include}
    return name.upper() not in {other.upper() for other in exclude}


@dataclass(frozen=True)
class Tracked:
    """The columns of V$LOGMNR_CONTENTS that can be left out."""

    start_timestamp: bool = True
    commit_timestamp: bool = True
    rs_id: bool = True
    username: bool = True
    client_id: bool = True


@dataclass(frozen=True)
class Pauses:
    """Between passes over the log, in seconds."""

    default_s: float = 1.0
    min_s: float = 0.0
    max_s: float = 3.0
    increment_s: float = 0.2

    def after(self, pause_s: float, found: bool) -> float:
        """The next pause: shorter while there is something, longer while there is nothing."""
        changed = min(pause_s, self.default_s) - self.increment_s if found else pause_s + self.increment_s
        return max(self.min_s, min(self.max_s, changed))


@dataclass(frozen=True)
class Config:
    user: str
    password: str
    dbname: str
    host: str = "localhost"
    port: int = 1521
    pdb: str = ""
    url: str = ""
    connect_timeout_s: float = 10.0
    query_timeout_ms: int = 600_000
    fetch_rows: int = 10_000
    adapter: str = BUFFERED
    strategy: str = "online_catalog"
    dictionary: str = ""
    filter_mode: str = "none"
    logs_min: int = 0
    session_max_s: float = 0.0
    renew_connection: bool = False
    pauses: Pauses = Pauses()
    log_retries: int = 5
    log_delay_s: float = 1.0
    log_delay_max_s: float = 60.0
    deviation_ms: int = 0
    adjustment: int = 1
    destinations: tuple[str, ...] = ()
    archive_hours: int = 0
    archive_only: bool = False
    archive_poll_s: float = 10.0
    accounts: Accounts = Accounts()
    watermark_interval_s: float = 10.0
    retention_s: float = 0.0
    events_max: int = 0
    include_redo_sql: bool = False
    tracked: Tracked = Tracked()
    lob: bool = False
    heartbeat_interval_s: float = 0.0
    selection: Selection = field(default_factory=Selection)
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    reader: str = ""
    """User that reads chunks, if it is another one."""
    reader_password: str = ""

    @property
    def unbuffered(self) -> bool:
        return self.adapter == UNBUFFERED

    @property
    def dsn(self) -> str:
        """Where the database is, without user and password."""
        return self.url or f"{self.host}:{self.port}/{self.dbname}"

    def __repr__(self) -> str:
        return f"Config({self.user}@{self.dsn}{f', pdb={self.pdb}' if self.pdb else ''}, {self.adapter})"


def read(options: Mapping[str, str], pipeline: str = "tidelog") -> Config:  # noqa: ARG001
    """Nothing is created in the database, so nothing is named after the pipeline."""
    values = parse(SETTINGS, options, subject="The Oracle connector")
    _require(values)
    return Config(
        user=values["database.user"],
        password=values["database.password"],
        dbname=values["database.dbname"],
        host=values["database.hostname"],
        port=values["database.port"],
        pdb=values["database.pdb.name"].upper(),
        url=_url(values["database.url"]),
        connect_timeout_s=max(1.0, values["database.connect.timeout.ms"] / 1000),
        query_timeout_ms=values["database.query.timeout.ms"],
        fetch_rows=max(1, values["query.fetch.size"]),
        adapter=values["database.connection.adapter"],
        include_redo_sql=values["log.mining.include.redo.sql"],
        lob=values["lob.enabled"],
        heartbeat_interval_s=values["heartbeat.interval.ms"] / 1000,
        watermark_interval_s=values["log.mining.low.watermark.interval.ms"] / 1000,
        retention_s=values["log.mining.transaction.retention.ms"] / 1000,
        events_max=values["log.mining.buffer.transaction.events.threshold"],
        tracked=_tracked(values),
        accounts=_accounts(values),
        selection=selecting.read(
            values,
            connector="oracle",
            database=values["database.pdb.name"].upper() or values["database.dbname"],
            prefix=values["database.dbname"],
        ),
        snapshot=_snapshot(values),
        reader=values["snapshot.database.user"],
        reader_password=values["snapshot.database.password"],
        **_mining(values),
        **_logs(values),
    )


def _snapshot(values: Mapping[str, Any]) -> SnapshotSettings:
    """The signal table may be written with its database before it, as SCHEMA.TABLE or DATABASE.SCHEMA.TABLE."""
    found = snapshots.read(values)
    database, _, table = found.signal_table.partition(".")
    if "." not in table:
        return found
    here = values["database.pdb.name"] or values["database.dbname"]
    if database.upper() != here.upper():
        raise ConfigError(
            f"signal.data.collection is in the database {database}, but {here} is captured.",
            hint="Write SCHEMA.TABLE.",
        )
    return replace(found, signal_table=table)


def _url(text: str) -> str:
    """Where the database is. Nothing of a text with a password in it is ever shown, so it is not taken at all."""
    account, _, place = _JDBC.sub("", text.strip()).rpartition("@")
    if account or _PASSWORD.search(text):
        raise ConfigError(
            "database.url has a user or a password in it.",
            hint="Put them into database.user and database.password, and leave in database.url what comes after the @.",
        )
    return place.removeprefix("//")


def _mining(values: Mapping[str, Any]) -> dict[str, Any]:
    pauses = (values[f"log.mining.sleep.time.{name}.ms"] / 1000 for name in ("default", "min", "max", "increment"))
    return {
        "strategy": values["log.mining.strategy"],
        "dictionary": values["log.mining.path.dictionary"],
        "filter_mode": values["log.mining.query.filter.mode"],
        "session_max_s": values["log.mining.session.max.ms"] / 1000,
        "renew_connection": values["log.mining.restart.connection"],
        "pauses": Pauses(*pauses),
        "deviation_ms": values["log.mining.max.scn.deviation.ms"],
        "adjustment": values["log.mining.redo.thread.scn.adjustment"],
    }


def _logs(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "logs_min": values["log.mining.log.count.min"],
        "log_retries": values["log.mining.log.query.max.retries"],
        "log_delay_s": values["log.mining.log.backoff.initial.delay.ms"] / 1000,
        "log_delay_max_s": values["log.mining.log.backoff.max.delay.ms"] / 1000,
        "destinations": values["archive.destination.name"],
        "archive_hours": values["archive.log.hours"],
        "archive_only": values["archive.log.only.mode"],
        "archive_poll_s": values["archive.log.only.scn.poll.interval.ms"] / 1000,
    }


def _tracked(values: Mapping[str, Any]) -> Tracked:
    switches = ("start.timestamp", "commit.timestamp", "rs.id", "username", "client.id")
    return Tracked(*(values[f"log.mining.track.{name}"] for name in switches))


def _accounts(values: Mapping[str, Any]) -> Accounts:
    lists = ("username.include", "username.exclude", "clientid.include", "clientid.exclude")
    return Accounts(*(values[f"log.mining.{name}.list"] for name in lists))


def _require(values: Mapping[str, Any]) -> None:
    """What fits together only in some ways."""
    for name, column in (("username", "username"), ("clientid", "client.id")):
        include, exclude = (values[f"log.mining.{name}.{kind}.list"] for kind in ("include", "exclude"))
        if include and exclude:
            raise ConfigError(
                f"log.mining.{name}.include.list and log.mining.{name}.exclude.list are both given.",
                hint="Give one of them.",
            )
        if (include or exclude) and not values[f"log.mining.track.{column}"]:
            raise ConfigError(
                f"log.mining.track.{column} is false, but log.mining.{name} lists need it.",
                hint=f"Leave log.mining.track.{column} as it is (true), or drop the list.",
            )
    if values["log.mining.strategy"] == "dictionary_from_file" and not values["log.mining.path.dictionary"]:
        raise ConfigError(
            "log.mining.strategy is dictionary_from_file, but log.mining.path.dictionary is missing.",
            hint="Name the file on the server that DBMS_LOGMNR_D.BUILD has written.",
        )
    match values["log.mining.query.filter.mode"]:
        case "in":
            _require_plain(values)
        case "regex":
            _require_common(values)
            _require_short(values)


def _require_plain(values: Mapping[str, Any]) -> None:
    for name in ("table.include.list", "table.exclude.list"):
        for entry in split_patterns(values[name]):
            if not _PLAIN.fullmatch(plain(entry)) or translated(entry) != entry:
                raise ConfigError(
                    f"log.mining.query.filter.mode is in, but {name} has the regular expression {entry!r}.",
                    hint="Write plain names such as INVENTORY.ORDERS, or choose regex or none.",
                )


def _require_common(values: Mapping[str, Any]) -> None:
    """What Java has of its own would mean something else to Oracle, and rows would be missing."""
    for name in _LISTS:
        for entry in split_patterns(values[name]):
            if translated(entry) != entry:
                raise ConfigError(
                    f"log.mining.query.filter.mode is regex, but {name} has {entry!r}, which Oracle does not know.",
                    hint="Write it without \\Q, \\p and names of groups, or choose none: tidelog filters by itself.",
                )


def _require_short(values: Mapping[str, Any]) -> None:
    for name in _LISTS:
        for entry in split_patterns(values[name]):
            if len(anchored(entry).encode()) > _PATTERN_BYTES_MAX:
                raise ConfigError(
                    f"log.mining.query.filter.mode is regex, but {name} has an expression that is longer than "
                    f"{_PATTERN_BYTES_MAX} bytes: {entry[:60]!r}…",
                    hint="Write several expressions, separated by commas, or choose none: tidelog filters by itself.",
                )


def anchored(pattern: str) -> str:
    """An expression of ours as Oracle's, which looks for it anywhere."""
    return f"^({pattern})$"


def plain(pattern: str) -> str:
    """A name that is written as a regular expression: without backslashes."""
    return pattern.replace("\\", "")
