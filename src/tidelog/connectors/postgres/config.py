"""The settings of the PostgreSQL connector, under the names that Debezium's users know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.core.rules import algorithm
from tidelog.core.settings import Setting, boolean, count, parse, patterns
from tidelog.core.snapshot import settings as snapshots
from tidelog.core.snapshot.settings import SnapshotSettings
from tidelog.errors import ConfigError
from tidelog.model.selection import ColumnRule, Selection

_NAME = re.compile(r"[a-z0-9_]{1,63}")


def keys(text: str) -> str:
    for entry in filter(None, text.split(";")):
        pattern, colon, names = entry.rpartition(":")
        if not (colon and pattern.strip() and all(name.strip() for name in names.split(","))):
            raise ValueError("write schema.table:column,column and separate tables by semicolons")
        patterns(pattern.strip())
    return text


SETTINGS = (
    Setting("database.hostname", "Host name or address of the server, or the folder of its socket.", "localhost"),
    Setting("database.port", "Port of the server.", "5432", int),
    Setting("database.user", "Role that reads the log; it needs REPLICATION and SELECT.", None),
    Setting("database.password", "Its password; better written as ${PGPASSWORD} or ${file:/path}.", "", secret=True),
    Setting("database.dbname", "Database to capture.", None),
    Setting(
        "database.sslmode",
        "TLS, as libpq does it.",
        "prefer",
        choices=("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    ),
    Setting("database.sslrootcert", "File with the certificates that the server's is checked against.", ""),
    Setting("database.sslcert", "File with the client's certificate.", ""),
    Setting("database.sslkey", "File with the client's key.", ""),
    Setting("database.connect.timeout.ms", "How long one attempt to connect may take.", "10000", count),
    Setting("topic.prefix", "Logical name of the source; topics start with it. Default: the database's name.", ""),
    Setting("slot.name", "Replication slot; created when missing. Default: named after the pipeline.", ""),
    Setting("slot.failover", "Let standbys keep the slot, where the server can (PostgreSQL 17).", "true", boolean),
    Setting("publication.name", "Publication that the slot reads. Default: named after the pipeline.", ""),
    Setting(
        "publication.autocreate.mode",
        "filtered: publish the captured tables; all_tables: publish all; disabled: it exists already.",
        "filtered",
        choices=("filtered", "all_tables", "disabled"),
    ),
    Setting("schema.include.list", "Regular expressions: schemas to capture.", "", patterns),
    Setting("schema.exclude.list", "Regular expressions: schemas to leave out.", "", patterns),
    Setting("table.include.list", "Regular expressions over schema.table: tables to capture.", "", patterns),
    Setting("table.exclude.list", "Regular expressions over schema.table: tables to leave out.", "", patterns),
    Setting("column.include.list", "Regular expressions over schema.table.column.", "", patterns),
    Setting("column.exclude.list", "Regular expressions over schema.table.column.", "", patterns),
    Setting("message.key.columns", "Keys instead of the primary key: schema.table:column,column;…", "", keys),
    Setting(
        "column.mask.with.N.chars",
        "Columns shown as N asterisks.",
        "",
        patterns,
        pattern=r"column\.mask\.with\.\d+\.chars",
    ),
    Setting(
        "column.truncate.to.N.chars",
        "Columns cut to N characters.",
        "",
        patterns,
        pattern=r"column\.truncate\.to\.\d+\.chars",
    ),
    Setting(
        "column.mask.hash.ALGORITHM.with.salt.SALT",
        "Columns shown as a salted hash.",
        "",
        patterns,
        pattern=r"column\.mask\.hash(\.v2)?\.[^.]+\.with\.salt\..+",
    ),
    Setting(
        "decimal.handling.mode",
        "numeric as exact decimals (precise), as double, or as text.",
        "precise",
        choices=("precise", "double", "string"),
    ),
    Setting(
        "time.precision.mode",
        "Dates and times in the envelope: numbers (adaptive, connect) or ISO 8601 texts (isostring).",
        "adaptive",
        choices=("adaptive", "adaptive_time_microseconds", "connect", "isostring"),
    ),
    Setting(
        "binary.handling.mode",
        "bytea in the envelope's JSON.",
        "base64",
        choices=("bytes", "base64", "base64-url-safe", "hex"),
    ),
    Setting("unavailable.value.placeholder", "Stands for an unchanged TOAST value.", "__debezium_unavailable_value"),
    Setting("skipped.operations", "Operations to leave out: letters of c, u, d, t, separated by commas.", "none"),
    Setting(
        "event.processing.failure.handling.mode",
        "A record that cannot be decoded stops the pipeline (fail), is skipped with a warning, or is set aside.",
        "fail",
        choices=("fail", "warn", "dead-letter"),
    ),
    Setting(
        "provide.transaction.metadata",
        "Number the events of each transaction, and tell its begin and end.",
        "false",
        boolean,
    ),
    Setting("heartbeat.interval.ms", "Deliver a heartbeat this often; 0 for none.", "0", count),
    Setting("status.update.interval.ms", "How often the server hears how far we are.", "5000", count),
    Setting(
        "publish.origin",
        "Changes of which origin are sent (PostgreSQL 16): any, or none for local ones.",
        "any",
        choices=("any", "none"),
    ),
    Setting(
        "streaming",
        "Read large transactions while they are still open (on; PostgreSQL 14), or once they have committed (off).",
        "off",
        boolean,
    ),
    Setting(
        "schema.refresh.interval.ms", "How often the catalog is asked for changes that wrote no row.", "5000", count
    ),
    *snapshots.SETTINGS,
    Setting("snapshot.database.user", "Role that reads the tables, SELECT is enough. Default: database.user.", ""),
    Setting("snapshot.database.password", "Its password. Default: database.password.", "", secret=True),
)


@dataclass(frozen=True)
class Config:
    host: str
    port: int
    user: str
    password: str
    dbname: str
    tls: Mapping[str, str]
    connect_timeout_s: int
    slot: str
    failover: bool
    publication: str
    autocreate: str
    origin: str
    status_interval_s: float
    heartbeat_interval_s: float
    refresh_interval_s: float
    selection: Selection
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    streaming: bool = False
    """Large transactions come while they are open."""
    reader: str = ""
    """Role that reads chunks, if it is another one."""
    reader_password: str = ""

    def __repr__(self) -> str:
        return f"Config({self.user}@{self.host}:{self.port}/{self.dbname}, slot={self.slot})"


def read(options: Mapping[str, str], pipeline: str = "tidelog") -> Config:
    values = parse(SETTINGS, options, subject="The PostgreSQL connector")
    values |= {name: values[name] or own_name(pipeline) for name in ("slot.name", "publication.name")}
    for name in ("slot.name", "publication.name"):
        if not _NAME.fullmatch(values[name]):
            raise ConfigError(
                f"{name} is {values[name]!r}; PostgreSQL allows lower-case letters, digits and underscores, up to 63.",
                hint="Choose another name.",
            )
    return Config(
        host=values["database.hostname"],
        port=values["database.port"],
        user=values["database.user"],
        password=values["database.password"],
        dbname=values["database.dbname"],
        tls={
            k: values[f"database.{k}"]
            for k in ("sslmode", "sslrootcert", "sslcert", "sslkey")
            if values[f"database.{k}"]
        },
        connect_timeout_s=max(1, values["database.connect.timeout.ms"] // 1000),
        slot=values["slot.name"],
        failover=values["slot.failover"],
        publication=values["publication.name"],
        autocreate=values["publication.autocreate.mode"],
        origin=values["publish.origin"],
        status_interval_s=values["status.update.interval.ms"] / 1000,
        heartbeat_interval_s=values["heartbeat.interval.ms"] / 1000,
        refresh_interval_s=values["schema.refresh.interval.ms"] / 1000,
        selection=_selection(values),
        snapshot=snapshots.read(values),
        streaming=values["streaming"],
        reader=values["snapshot.database.user"],
        reader_password=values["snapshot.database.password"],
    )


def _selection(values: Mapping[str, Any]) -> Selection:
    return Selection(
        include_schemas=values["schema.include.list"],
        exclude_schemas=values["schema.exclude.list"],
        include_tables=values["table.include.list"],
        exclude_tables=values["table.exclude.list"],
        include_columns=values["column.include.list"],
        exclude_columns=values["column.exclude.list"],
        message_keys=values["message.key.columns"],
        rules=tuple(_rules(values)),
        decimals=values["decimal.handling.mode"],
        times=values["time.precision.mode"],
        binaries=values["binary.handling.mode"],
        placeholder=values["unavailable.value.placeholder"],
        skipped=_operations(values["skipped.operations"]),
        failures=values["event.processing.failure.handling.mode"],
        transactions=values["provide.transaction.metadata"],
        topic_prefix=values["topic.prefix"] or values["database.dbname"],
        connector="postgresql",
        database=values["database.dbname"],
    )


def own_name(pipeline: str) -> str:
    """`tidelog` for the pipeline of that name, `tidelog_shop` for `shop`: what PostgreSQL allows in a slot's name."""
    plain = re.sub(r"[^a-z0-9_]", "_", pipeline.lower())
    return plain if plain.startswith("tidelog") else f"tidelog_{plain}"[:63]


def _operations(text: str) -> tuple[str, ...]:
    letters = tuple(sorted({part.strip() for part in text.split(",") if part.strip()} - {"none"}))
    if set(letters) - set("cudt"):
        raise ConfigError(f"skipped.operations is {text!r}.", hint="Use c, u, d and t, separated by commas, or none.")
    return letters


def _rules(values: Mapping[str, Any]) -> list[ColumnRule]:
    rules = []
    for name, columns in values["column.mask.with.N.chars"].items():
        rules.append(ColumnRule("mask", columns, length=int(name.split(".")[3])))
    for name, columns in values["column.truncate.to.N.chars"].items():
        rules.append(ColumnRule("truncate", columns, length=int(name.split(".")[3])))
    for name, columns in values["column.mask.hash.ALGORITHM.with.salt.SALT"].items():
        found = re.fullmatch(r"column\.mask\.hash(?:\.v2)?\.([^.]+)\.with\.salt\.(.+)", name)
        if found:
            algorithm(found[1])  # a mistake is told now, not on an executor
            rules.append(ColumnRule("hash", columns, algorithm=found[1], salt=found[2]))
    return rules
