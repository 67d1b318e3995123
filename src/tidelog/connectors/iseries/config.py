"""The settings of the IBM i connector, under the names that Debezium's users know; the journal is found by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.connectors.iseries import ccsid
from tidelog.contracts import Limits
from tidelog.core import selecting
from tidelog.core.settings import Setting, boolean, count, parse, port
from tidelog.core.snapshot import settings as snapshots
from tidelog.core.snapshot.settings import SnapshotSettings
from tidelog.errors import ConfigError
from tidelog.model.selection import Selection

_ENTRIES_MIN = 100


def name(text: str) -> str:
    if text and not re.fullmatch(r"[A-Z$#@][A-Z0-9_$#@.]{0,9}", text.upper()):
        raise ValueError("write a system name of up to ten characters")
    return text.upper()


SETTINGS = (
    Setting("database.hostname", "Host name or address of the system.", "localhost"),
    Setting("database.port", "Port of the Mapepire server on it.", "8076", port),
    Setting(
        "database.user",
        "User profile; it needs *USE and *OBJEXIST of the journal, and *USE of its receivers and of the tables.",
        None,
    ),
    Setting("database.password", "Its password; better written as ${NAME} or ${file:/path}.", "", secret=True),
    Setting("database.dbname", "Name of the relational database, as WRKRDBDIRE shows it as *LOCAL.", ""),
    Setting("database.ssl.verify", "Refuse a server whose certificate is not trusted.", "true", boolean),
    Setting("database.ssl.ca", "File with the certificates that the server's is checked against.", ""),
    Setting("journal.library", "Library of the journal. Default: that of the captured tables.", "", name),
    Setting("journal.name", "The journal. Default: that of the captured tables.", "", name),
    Setting("journal.entries.max", "How many entries are asked for at once.", "20000", count),
    Setting(
        "from.ccsid",
        "Read characters of this CCSID in the one that to.ccsid says, in all tables: 65535 for columns that are not "
        "tagged but hold text. Without it, such columns are bytes. Better: correct the tables.",
        "0",
        count,
    ),
    Setting("to.ccsid", "The CCSID in which characters of from.ccsid are read.", "0", count),
    Setting("poll.interval.ms", "How often the journal is asked for more when it had nothing.", "1000", count),
    Setting(
        "transaction.retention.ms",
        "Give up a transaction that is open for so long; its changes are lost, and it is said. 0: never.",
        "0",
        count,
    ),
    Setting("transaction.events.threshold", "Give up a transaction with more changes; 0: never.", "0", count),
    *selecting.SETTINGS,
    *snapshots.SETTINGS,
)


@dataclass(frozen=True)
class Config:
    host: str
    port: int
    user: str
    password: str
    dbname: str
    verify: bool
    ca: str
    journal_library: str
    journal: str
    entries_max: int
    poll_s: float
    limits: Limits
    selection: Selection
    ccsids: Mapping[int, int] = field(default_factory=dict)
    """In which CCSID columns of another are read."""
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)

    def __repr__(self) -> str:
        return f"Config({self.user}@{self.host}:{self.port}, journal={self.journal_library}/{self.journal})"


def read(options: Mapping[str, str], pipeline: str = "tidelog") -> Config:  # noqa: ARG001
    values = parse(SETTINGS, options, subject="The IBM i connector")
    settings = snapshots.read(values)
    if settings.writes_windows:
        raise ConfigError(
            "The IBM i connector never writes windows to the source, but read.only is false.",
            hint="Leave read.only as it is (true): snapshots need no signal table.",
        )
    database = values["database.dbname"] or values["database.hostname"]
    return Config(
        host=values["database.hostname"],
        port=values["database.port"],
        user=values["database.user"],
        password=values["database.password"],
        dbname=values["database.dbname"],
        verify=values["database.ssl.verify"],
        ca=_certificates(values["database.ssl.ca"]),
        journal_library=values["journal.library"],
        journal=values["journal.name"],
        entries_max=max(_ENTRIES_MIN, values["journal.entries.max"]),
        poll_s=values["poll.interval.ms"] / 1000,
        limits=Limits(values["transaction.retention.ms"] / 1000, values["transaction.events.threshold"]),
        selection=selecting.read(values, connector="db2as400", database=database, prefix=values["database.hostname"]),
        ccsids=_ccsids(values["from.ccsid"], values["to.ccsid"]),
        snapshot=settings,
    )


def _ccsids(stated: int, meant: int) -> dict[int, int]:
    if not stated and not meant:
        return {}
    if not stated or not ccsid.known(meant):
        raise ConfigError(
            f"from.ccsid is {stated}, and to.ccsid is {meant}, which "
            + ("leads from nowhere." if not stated else "we cannot translate."),
            hint="Give both: from.ccsid 65535 and to.ccsid 37, for example, or neither.",
        )
    return {stated: meant}


def _certificates(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii") if path else ""
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"database.ssl.ca: the file {path} can't be read.", hint="Name a file in PEM form.") from exc
