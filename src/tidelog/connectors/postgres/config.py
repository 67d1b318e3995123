"""The settings of the PostgreSQL connector, under the names that Debezium's users know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidelog.core import selecting
from tidelog.core.settings import Setting, boolean, count, parse, port
from tidelog.core.snapshot import settings as snapshots
from tidelog.core.snapshot.settings import SnapshotSettings
from tidelog.errors import ConfigError
from tidelog.model.selection import Selection

_NAME = re.compile(r"[a-z0-9_]{1,63}")


SETTINGS = (
    Setting("database.hostname", "Host name or address of the server, or the folder of its socket.", "localhost"),
    Setting("database.port", "Port of the server.", "5432", port),
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
    Setting("slot.name", "Replication slot; created when missing. Default: named after the pipeline.", ""),
    Setting("slot.failover", "Let standbys keep the slot, where the server can (PostgreSQL 17).", "true", boolean),
    Setting("publication.name", "Publication that the slot reads. Default: named after the pipeline.", ""),
    Setting(
        "publication.autocreate.mode",
        "filtered: publish the captured tables; all_tables: publish all; disabled: it exists already.",
        "filtered",
        choices=("filtered", "all_tables", "disabled"),
    ),
    *selecting.SETTINGS,
    Setting(
        "heartbeat.interval.ms",
        "A heartbeat in the envelope this often while nothing else comes; 0 for none. The slot moves on without it.",
        "0",
        count,
    ),
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
        selection=selecting.read(
            values, connector="postgresql", database=values["database.dbname"], prefix=values["database.dbname"]
        ),
        snapshot=replace(snapshots.read(values), refresh_ms=values["schema.refresh.interval.ms"]),
        streaming=values["streaming"],
        reader=values["snapshot.database.user"],
        reader_password=values["snapshot.database.password"],
    )


def own_name(pipeline: str) -> str:
    """`tidelog` for the pipeline of that name, `tidelog_shop` for `shop`: what PostgreSQL allows in a slot's name."""
    plain = re.sub(r"[^a-z0-9_]", "_", pipeline.lower())
    return plain if plain.startswith("tidelog") else f"tidelog_{plain}"[:63]
