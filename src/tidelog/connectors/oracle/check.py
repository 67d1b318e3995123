"""Is the database ready for capture? Each finding says what it means and what exactly cures it.

The check only reads. It looks from the outside in: connection, containers, grants, log, tables. Whatever was found
before something failed is kept. What concerns single tables is in `survey.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.connectors.oracle import pending, queries, survey
from tidelog.connectors.oracle.catalog import Catalog
from tidelog.connectors.oracle.client import Session, as_reader
from tidelog.connectors.oracle.config import Config
from tidelog.connectors.oracle.faults import UNREACHABLE, SessionGone
from tidelog.connectors.oracle.logs import gathering
from tidelog.contracts import Finding
from tidelog.core.settings import nearest, size_text
from tidelog.errors import ConfigError, TidelogError
from tidelog.model.schema import Table
from tidelog.model.selection import Selection

OLDEST = 12
_LOG_BYTES_LOW = 100 << 20
_UNDO_SECONDS_LOW = 900
_LOG_VIEWS = ("V$DATABASE", "V$LOG", "V$LOGFILE", "V$ARCHIVED_LOG", "V$ARCHIVE_DEST_STATUS", "V$THREAD")
_MINING_VIEWS = ("V$LOGMNR_LOGS", "V$LOGMNR_CONTENTS", "V$PARAMETER", "V$TRANSACTION")
_PRIVILEGES = "SELECT /* tidelog privileges */ PRIVILEGE FROM SESSION_PRIVS"
_CONTAINER = "SELECT /* tidelog container */ SYS_CONTEXT('USERENV', 'CON_NAME') FROM DUAL"
_UNDO = "SELECT /* tidelog undo */ VALUE FROM V$PARAMETER WHERE NAME = 'undo_retention'"
_BUILD_PACKAGE = "SELECT /* tidelog package */ COUNT(*) FROM ALL_OBJECTS WHERE OBJECT_NAME = 'DBMS_LOGMNR_D'"


@dataclass(frozen=True)
class Scene:
    """What every part of the check may want to know. `session` stands where the log is mined."""

    session: Session
    config: Config
    database: Mapping[str, Any]
    """The row of V$DATABASE."""
    tables: Sequence[Table]
    captured: Sequence[Table]


def findings(config: Config) -> list[Finding]:
    found: list[Finding] = []
    try:
        with Session(config) as session:
            found.append(Finding("ok", "connection", f"{config.user} is logged in to {config.dsn}."))
            found.extend(_version(session))
            found.extend(_grants(session, config))
            with Session(as_reader(config), inside=True) as reader:
                scene = _scene(session, reader, config)
                for part in _PARTS:
                    found.extend(part(scene))
                found.extend(survey.findings(reader, config, scene.captured, scene.database))
    except TidelogError as exc:
        found.append(Finding("error", "check" if found else "connection", exc.message, exc.hint or UNREACHABLE))
    return found


def _scene(session: Session, reader: Session, config: Config) -> Scene:
    names = ("name", "dbid", "cdb", "log_mode", "role", "open_mode", "minimal", "keys", "all", "scn", "resetlogs")
    tables = Catalog(reader, Selection()).captured()
    captured = [t for t in tables if config.selection.has_table(t.schema, t.name)]
    captured = [t for t in captured if t.qualified != config.snapshot.signal_table]
    row = session.query(queries.DATABASE)[0]
    return Scene(session, config, dict(zip(names, row, strict=True)), tables, captured)


def _version(session: Session) -> Iterator[Finding]:
    banner = str(session.one(queries.VERSION) or "")
    found = re.search(r"\b(\d+)(?:c|g|ai)\b", banner)
    if found and int(found[1]) < OLDEST:
        yield Finding("error", "server", f"{banner} is too old.", f"tidelog needs Oracle {OLDEST}c or newer.")
    else:
        yield Finding("ok", "server", f"{banner}.")


# -- grants --------------------------------------------------------------------------------------------------------


def _grants(session: Session, config: Config) -> Iterator[Finding]:
    user, everywhere = config.user, " CONTAINER=ALL" if config.pdb else ""
    held = {row[0] for row in session.query(_PRIVILEGES)}
    wanted = ["LOGMINING", "SELECT ANY TRANSACTION", *(["SET CONTAINER"] if config.pdb else [])]
    missing = [f"GRANT {name} TO {user}{everywhere};" for name in wanted if name not in held]
    hidden = [view for view in _views(session, config) if not _may(session, view)]
    missing += [f"GRANT SELECT ON {_granted(view)} TO {user}{everywhere};" for view in hidden]
    if not _executes(session):
        missing.append(f"GRANT EXECUTE ON DBMS_LOGMNR TO {user}{everywhere};")
    if config.strategy == "redo_log_catalog" and not session.one(_BUILD_PACKAGE):
        missing.append(f"GRANT EXECUTE ON DBMS_LOGMNR_D TO {user}{everywhere};")
    if missing:
        yield Finding("error", f"user {user}", "It may not do everything that mining the log needs.", " ".join(missing))
    else:
        yield Finding("ok", f"user {user}", "It may mine the log.")


def _views(session: Session, config: Config) -> Iterator[str]:
    yield from _LOG_VIEWS
    yield from _MINING_VIEWS
    if _may(session, "V$PARAMETER") and pending.is_cluster(session):
        yield "GV$TRANSACTION"
    if config.snapshot.mode != "no_data":
        yield "V$VERSION"


def _granted(view: str) -> str:
    """Grants are on the view behind the synonym."""
    return view.replace("V$", "V_$", 1)


def _may(session: Session, view: str) -> bool:
    """What a mining session tells can only be asked in one: that there is none is known to whoever may ask."""
    try:
        session.query(f"SELECT /* tidelog may */ COUNT(*) FROM {view} WHERE 1 = 0")
    except SessionGone:
        return True
    except ConfigError:
        return False
    return True


def _executes(session: Session) -> bool:
    """Ending a session that was never begun tells whether we may."""
    try:
        session.execute(queries.END_LOGMNR)
    except SessionGone:
        return True
    except ConfigError:
        return False
    return True


# -- the database --------------------------------------------------------------------------------------------------


def _containers(scene: Scene) -> Iterator[Finding]:
    config, has = scene.config, scene.database["cdb"] == "YES"
    if has and not config.pdb:
        meaning = "The database has containers, and database.pdb.name does not say which one is captured."
        yield Finding(
            "error", "database.pdb.name", meaning, "Set database.pdb.name, and database.dbname to the root's."
        )
    elif config.pdb and not has:
        meaning = f"The database has no containers, but database.pdb.name is {config.pdb}."
        yield Finding("error", "database.pdb.name", meaning, "Leave database.pdb.name out.")
    elif config.pdb and (name := scene.session.one(_CONTAINER)) != "CDB$ROOT":
        meaning = f"The log of a container database is mined in its root; {config.dsn} leads to {name}."
        yield Finding(
            "error", "database.dbname", meaning, "Name the root's service; database.pdb.name names the tables'."
        )


def _archiving(scene: Scene) -> Iterator[Finding]:
    if scene.database["log_mode"] == "ARCHIVELOG":
        yield Finding("ok", "log mode", "The database archives its log.")
    else:
        meaning = "Without archived logs, changes are gone as soon as an online log is reused."
        cure = "SHUTDOWN IMMEDIATE; STARTUP MOUNT; ALTER DATABASE ARCHIVELOG; ALTER DATABASE OPEN;"
        yield Finding("error", "log mode", meaning, cure)
    role, mode = scene.database["role"], scene.database["open_mode"]
    if role != "PRIMARY" and scene.config.strategy == "redo_log_catalog":
        meaning = f"The database is a {role.lower()} ({mode.lower()}): no dictionary can be built in its log."
        yield Finding("error", "log.mining.strategy", meaning, "Choose online_catalog or hybrid.")


def _supplemental(scene: Scene) -> Iterator[Finding]:
    if scene.database["minimal"] in ("YES", "IMPLICIT"):
        yield Finding("ok", "supplemental logging", "The log tells whole changes.")
        return
    meaning = "Without minimal supplemental logging LogMiner tells changes in pieces that belong to no row."
    yield Finding("error", "supplemental logging", meaning, "ALTER DATABASE ADD SUPPLEMENTAL LOG DATA;")


def _destinations(scene: Scene) -> Iterator[Finding]:
    rows = scene.session.query(queries.DESTINATIONS)
    local = [name for name, status, kind in rows if status == "VALID" and kind == "LOCAL"]
    known = {name for name, status, _ in rows if status == "VALID"}
    for name in scene.config.destinations:
        if name not in known:
            near = nearest(name, [row[0] for row in rows])
            cure = f"Did you mean {near}?" if near else f"Known are: {', '.join(sorted(known)) or 'none'}."
            yield Finding("error", "archive.destination.name", f"{name} is no valid archive destination.", cure)
    if not scene.config.destinations and not local:
        meaning = "There is no valid local archive destination: archived logs can't be read."
        yield Finding(
            "error", "archive destination", meaning, "Look at V$ARCHIVE_DEST, or set archive.destination.name."
        )


def _log_sizes(scene: Scene) -> Iterator[Finding]:
    smallest = min((int(row[3]) for row in scene.session.query(queries.ONLINE_LOGS)), default=0)
    if smallest and smallest < _LOG_BYTES_LOW:
        meaning = f"Online logs of {size_text(smallest)} are switched often, and every switch begins a mining session."
        cure = "ALTER DATABASE ADD LOGFILE … SIZE 1G; then drop the small groups."
        yield Finding("warning", "online logs", meaning, cure)


def _threads(scene: Scene) -> Iterator[Finding]:
    for thread in gathering.state(scene.session):
        if thread.private:
            meaning = "It is enabled as PRIVATE: what its instance changes is not captured."
            number = thread.number
            cure = f"ALTER DATABASE DISABLE THREAD {number}; ALTER DATABASE ENABLE PUBLIC THREAD {number};"
            yield Finding("warning", f"redo thread {number}", meaning, cure)


def _tables(scene: Scene) -> Iterator[Finding]:
    if scene.captured:
        yield Finding("ok", "tables", f"{len(scene.captured)} are captured.")
        return
    wanted = scene.config.selection.include_tables
    names = [t.qualified for t in scene.tables]
    near = nearest(wanted.replace("\\", ""), names) or nearest(wanted.replace("\\", "").upper(), names)
    listed = f"There are {', '.join(names[:10])}." if names else f"{scene.config.user} sees no tables: grant SELECT."
    meaning = f"No table matches table.include.list {wanted!r} and the other lists."
    yield Finding("error", "tables", meaning, f"Did you mean {near}?" if near else listed)


def _undo(scene: Scene) -> Iterator[Finding]:
    seconds = scene.session.one(_UNDO)
    if scene.config.snapshot.mode != "no_data" and seconds is not None and int(seconds) < _UNDO_SECONDS_LOW:
        meaning = f"Snapshots read tables as they were a moment ago; undo is kept for {seconds} s only."
        yield Finding("warning", "undo_retention", meaning, f"ALTER SYSTEM SET UNDO_RETENTION = {_UNDO_SECONDS_LOW};")


_PARTS: tuple[Callable[[Scene], Iterator[Finding]], ...] = (
    _containers,
    _archiving,
    _supplemental,
    _destinations,
    _log_sizes,
    _threads,
    _undo,
    _tables,
)
