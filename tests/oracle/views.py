"""What the dictionary says: the V$ views about redo, the catalog of tables, and the tables themselves as of an SCN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from tests.oracle import redo
from tests.oracle.database import Database, Relation
from tests.oracle.mining import COLUMNS as CONTENTS
from tests.oracle.mining import Session
from tests.oracle.redo import Log, Thread

Rows = list[tuple[Any, ...]]
View = tuple[tuple[str, ...], Callable[[Database, Session], Rows]]

LOG_BYTES = 50 << 20


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _dual(_: Database, __: Session) -> Rows:
    return [("X",)]


def _database(database: Database, _: Session) -> Rows:
    # Asking for the present SCN takes one.
    scn = database.redo.advance()
    times = redo.day_of(database.resetlogs)
    state = ("FREE", 4711, "YES", "ARCHIVELOG", "PRIMARY", "READ WRITE", "IMPLICIT", "NO", "YES")
    return [(*state, scn, database.resetlogs, times, "Linux x86 64-bit", "FREE")]


def _groups(thread: Thread) -> list[Log]:
    return list(thread.online().values())


def _log(database: Database, _: Session) -> Rows:
    """A group that was added and never written to has no SCN yet."""
    found = [_log_row(log, thread) for thread in database.redo.threads.values() for log in _groups(thread)]
    return [*found, (99, 1, 0, LOG_BYTES, 512, 1, "YES", "UNUSED", 0, None, 0)]


def _log_row(log: Log, thread: Thread) -> tuple[Any, ...]:
    current = log is thread.current
    status = "CURRENT" if current else "INACTIVE" if log.archived else "ACTIVE"
    ends = redo.FOREVER_STORED if log.next is None else log.next
    archived = "NO" if current or not log.archived else "YES"
    size = (LOG_BYTES, 512, 1)
    return _group(log), log.thread, log.sequence, *size, archived, status, log.first, redo.day_of(log.first), ends


def _group(log: Log) -> int:
    return log.thread * 10 + log.group


def _logfile(database: Database, _: Session) -> Rows:
    return [
        (_group(log), None, "ONLINE", name, "NO")
        for thread in database.redo.threads.values()
        for name, log in thread.online().items()
    ]


def _archived(database: Database, _: Session) -> Rows:
    times = redo.day_of(database.resetlogs)
    found = []
    for log in database.redo.logs():
        for archive in log.archives:
            if not archive.ready or log.next is None:
                continue
            name = None if archive.deleted else archive.name
            dictionary = "YES" if log.dictionary else "NO"
            found.append(
                (
                    name,
                    archive.destination,
                    log.thread,
                    log.sequence,
                    database.resetlogs,
                    times,
                    log.first,
                    redo.day_of(log.first),
                    log.next,
                    redo.day_of(log.next),
                    LOG_BYTES // 512,
                    512,
                    "YES",
                    "YES" if archive.deleted else "NO",
                    "D" if archive.deleted else "A",
                    dictionary,
                    dictionary,
                    "NO",
                )
            )
    return found


def _destinations(database: Database, _: Session) -> Rows:
    used = [(n, f"LOG_ARCHIVE_DEST_{n}", "VALID", "LOCAL") for n in range(1, database.redo.destinations + 1)]
    return [*used, (31, "LOG_ARCHIVE_DEST_31", "INACTIVE", "LOCAL")]


def _thread(database: Database, _: Session) -> Rows:
    return [_thread_row(thread, database) for thread in database.redo.threads.values()]


def _thread_row(thread: Thread, database: Database) -> tuple[Any, ...]:
    checkpoint = thread.logs[-1].first if thread.open else thread.closed_at
    last = thread.logs[-1]
    return (
        thread.number,
        "OPEN" if thread.open else "CLOSED",
        thread.enabled,
        thread.enabled_at,
        redo.day_of(thread.enabled_at),
        thread.disabled_at,
        checkpoint,
        redo.day_of(checkpoint),
        thread.flushed_scn,
        last.sequence,
        redo.day_of(thread.flushed_scn),
        last.sequence,
        f"inst{thread.number}",
        database.resetlogs,
    )


def _transaction(database: Database, _: Session) -> Rows:
    """Also those that a replication product left open; a start of 0 belongs to one that has not written yet."""
    rows = [
        (t.work.xid, t.work.start_scn, "ACTIVE", redo.day_of(t.work.start_scn), t.work.thread)
        for t in (*database.open, *database.abandoned)
    ]
    return [*rows, (bytes(8), 0, "ACTIVE", redo.day_of(0), 1)]


def _added(_: Database, session: Session) -> Rows:
    """A file that LogMiner misses is there without a name."""
    found = [(f.name, f.log.first, f.log.next, f.log.thread, f.log.sequence, 0) for f in session.files]
    return [*found, (None, 0, 0, 1, 0, 4)] if session.files else []


def _contents(_: Database, session: Session) -> Rows:
    return session.contents()


def _version(_: Database, __: Session) -> Rows:
    banner = "Oracle Database 23ai Free Release 23.0.0.0.0 - Develop, Learn, and Run for Free"
    return [(banner, f"{banner}\nVersion 23.8.0.25.04", banner, 0)]


def _parameter(database: Database, _: Session) -> Rows:
    cluster = "TRUE" if len(database.redo.threads) > 1 else "FALSE"
    return [("cluster_database", cluster), ("undo_retention", "900"), ("archive_lag_target", "0")]


def _nls(_: Database, __: Session) -> Rows:
    return [("NLS_CHARACTERSET", "AL32UTF8"), ("NLS_NCHAR_CHARACTERSET", "AL16UTF16")]


def _properties(_: Database, __: Session) -> Rows:
    return [("DBTIMEZONE", "+00:00"), ("GLOBAL_DB_NAME", "FREE")]


# -- the catalog ---------------------------------------------------------------------------------------------------


def _tables(database: Database, _: Session) -> Rows:
    return [
        (r.owner, r.name, len(r.now), "NO", "Y" if r.temporary else "N", "N", None, "VALID", "NO")
        for r in database.relations.values()
    ]


def _objects(database: Database, _: Session) -> Rows:
    return [
        (r.owner, r.name, None, r.object, r.object, "TABLE", "VALID", redo.day_of(r.layouts[-1].scn), "N")
        for r in database.relations.values()
    ]


def _columns(database: Database, _: Session) -> Rows:
    found = []
    for r in database.relations.values():
        for n, c in enumerate(r.columns, 1):
            kind = f"TIMESTAMP({c.scale})" if c.type == "TIMESTAMP" else c.type
            owner = "SYS" if c.type == "XMLTYPE" else None
            null = "Y" if c.nullable else "N"
            hidden = c.hidden or c.system
            shown = None if hidden else 1 + sum(not (b.hidden or b.system) for b in r.columns[: n - 1])
            row = (r.owner, r.name, c.name, kind, owner, c.length, c.precision, c.scale, null, shown, n, n)
            flags = ("NO", "YES" if hidden else "NO", "NO" if c.system else "YES")
            found.append((*row, None, *flags, c.length, None, "NO", "NO", None))
    return found


def _constraints(database: Database, _: Session) -> Rows:
    return [
        (r.owner, f"{r.name}_PK", "P", r.name, "ENABLED", "VALIDATED", r.owner, f"{r.name}_PK", None)
        for r in database.relations.values()
        if r.key
    ]


def _constraint_columns(database: Database, _: Session) -> Rows:
    return [
        (r.owner, f"{r.name}_PK", r.name, name, n)
        for r in database.relations.values()
        for n, name in enumerate(r.key, 1)
    ]


def _indexes(database: Database, _: Session) -> Rows:
    return [
        (r.owner, f"{r.name}_PK", "NORMAL", r.owner, r.name, "UNIQUE", "VALID")
        for r in database.relations.values()
        if r.key
    ]


def _index_columns(database: Database, _: Session) -> Rows:
    return [
        (r.owner, f"{r.name}_PK", r.owner, r.name, name, n, "ASC")
        for r in database.relations.values()
        for n, name in enumerate(r.key, 1)
    ]


def _log_groups(database: Database, _: Session) -> Rows:
    return [
        (r.owner, f"{r.name}_ALL", r.name, "ALL COLUMN LOGGING", "ALWAYS", "GENERATED NAME")
        for r in database.relations.values()
    ]


def _nothing(_: Database, __: Session) -> Rows:
    return []


_COLUMN_NAMES = (
    "OWNER TABLE_NAME COLUMN_NAME DATA_TYPE DATA_TYPE_OWNER DATA_LENGTH DATA_PRECISION DATA_SCALE NULLABLE COLUMN_ID "
    "INTERNAL_COLUMN_ID SEGMENT_COLUMN_ID DATA_DEFAULT VIRTUAL_COLUMN HIDDEN_COLUMN USER_GENERATED CHAR_LENGTH "
    "CHAR_USED IDENTITY_COLUMN DEFAULT_ON_NULL DEFAULT_LENGTH"
)
VIEWS: dict[str, View] = {
    "DUAL": (_names("DUMMY"), _dual),
    "V$DATABASE": (
        _names(
            "NAME DBID CDB LOG_MODE DATABASE_ROLE OPEN_MODE SUPPLEMENTAL_LOG_DATA_MIN SUPPLEMENTAL_LOG_DATA_PK "
            "SUPPLEMENTAL_LOG_DATA_ALL CURRENT_SCN RESETLOGS_CHANGE# RESETLOGS_TIME PLATFORM_NAME DB_UNIQUE_NAME"
        ),
        _database,
    ),
    "V$LOG": (
        _names(
            "GROUP# THREAD# SEQUENCE# BYTES BLOCKSIZE MEMBERS ARCHIVED STATUS FIRST_CHANGE# FIRST_TIME NEXT_CHANGE#"
        ),
        _log,
    ),
    "V$LOGFILE": (_names("GROUP# STATUS TYPE MEMBER IS_RECOVERY_DEST_FILE"), _logfile),
    "V$ARCHIVED_LOG": (
        _names(
            "NAME DEST_ID THREAD# SEQUENCE# RESETLOGS_CHANGE# RESETLOGS_TIME FIRST_CHANGE# FIRST_TIME NEXT_CHANGE# "
            "NEXT_TIME BLOCKS BLOCK_SIZE ARCHIVED DELETED STATUS DICTIONARY_BEGIN DICTIONARY_END STANDBY_DEST"
        ),
        _archived,
    ),
    "V$ARCHIVE_DEST_STATUS": (_names("DEST_ID DEST_NAME STATUS TYPE"), _destinations),
    "V$THREAD": (
        _names(
            "THREAD# STATUS ENABLED ENABLE_CHANGE# ENABLE_TIME DISABLE_CHANGE# CHECKPOINT_CHANGE# CHECKPOINT_TIME "
            "LAST_REDO_CHANGE# LAST_REDO_SEQUENCE# LAST_REDO_TIME SEQUENCE# INSTANCE GROUPS"
        ),
        _thread,
    ),
    "V$TRANSACTION": (_names("XID START_SCN STATUS START_DATE INST_ID"), _transaction),
    "GV$TRANSACTION": (_names("XID START_SCN STATUS START_DATE INST_ID"), _transaction),
    "V$LOGMNR_LOGS": (_names("FILENAME LOW_SCN NEXT_SCN THREAD_ID THREAD_SQN STATUS"), _added),
    "V$LOGMNR_CONTENTS": (CONTENTS, _contents),
    "V$VERSION": (_names("BANNER BANNER_FULL BANNER_LEGACY CON_ID"), _version),
    "V$PARAMETER": (_names("NAME VALUE"), _parameter),
    "DATABASE_PROPERTIES": (_names("PROPERTY_NAME PROPERTY_VALUE"), _properties),
    "NLS_DATABASE_PARAMETERS": (_names("PARAMETER VALUE"), _nls),
    "ALL_TABLES": (
        _names("OWNER TABLE_NAME NUM_ROWS NESTED TEMPORARY SECONDARY IOT_TYPE STATUS EXTERNAL"),
        _tables,
    ),
    "ALL_OBJECTS": (
        _names(
            "OWNER OBJECT_NAME SUBOBJECT_NAME OBJECT_ID DATA_OBJECT_ID OBJECT_TYPE STATUS LAST_DDL_TIME "
            "ORACLE_MAINTAINED"
        ),
        _objects,
    ),
    "ALL_TAB_COLUMNS": (_names(_COLUMN_NAMES), _columns),
    "ALL_TAB_COLS": (_names(_COLUMN_NAMES), _columns),
    "ALL_CONSTRAINTS": (
        _names(
            "OWNER CONSTRAINT_NAME CONSTRAINT_TYPE TABLE_NAME STATUS VALIDATED INDEX_OWNER INDEX_NAME R_CONSTRAINT_NAME"
        ),
        _constraints,
    ),
    "ALL_CONS_COLUMNS": (_names("OWNER CONSTRAINT_NAME TABLE_NAME COLUMN_NAME POSITION"), _constraint_columns),
    "ALL_INDEXES": (
        _names("OWNER INDEX_NAME INDEX_TYPE TABLE_OWNER TABLE_NAME UNIQUENESS STATUS"),
        _indexes,
    ),
    "ALL_IND_COLUMNS": (
        _names("INDEX_OWNER INDEX_NAME TABLE_OWNER TABLE_NAME COLUMN_NAME COLUMN_POSITION DESCEND"),
        _index_columns,
    ),
    "ALL_LOG_GROUPS": (
        _names("OWNER LOG_GROUP_NAME TABLE_NAME LOG_GROUP_TYPE ALWAYS GENERATED"),
        _log_groups,
    ),
    "ALL_USERS": (_names("USERNAME USER_ID"), _nothing),
}
for _name in [n for n in VIEWS if n.startswith("ALL_")]:
    VIEWS["DBA_" + _name[4:]] = VIEWS[_name]


def table_rows(relation: Relation, scn: int) -> tuple[Sequence[str], Rows]:
    """Values as SQLite orders them: times as texts of one form."""
    names = [c.name for c in relation.columns]
    found = [(place, *(_kept(row.get(n)) for n in names)) for place, row in relation.as_of(scn)]
    return ["ROWID_", *names], found


def _kept(value: Any) -> Any:
    match value:
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S.%f}000"
        case Decimal():
            return float(value)
        case _:
            return value
