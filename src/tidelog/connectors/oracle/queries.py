"""Every SQL statement of the Oracle connector, as a text with named binds.

A statement carries its name in a comment, such as `/* tidelog contents */`: who looks at V$SQL knows whose it is. The
V$ views of an instance already show the logs of all nodes of a cluster; GV$ is asked for open transactions alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelog.connectors.oracle.config import UNKNOWN_USER, Config, anchored, plain
from tidelog.model.selection import split_patterns

INSERT, DELETE, UPDATE, DDL, START, COMMIT = 1, 2, 3, 5, 6, 7
SELECT_LOB_LOCATOR, LOB_WRITE, LOB_TRIM, LOB_ERASE = 9, 10, 11, 29
REPLICATION_MARKER, MISSING_SCN, ROLLBACK, UNSUPPORTED = 27, 34, 36, 255
XML_BEGIN, XML_WRITE, XML_END = 68, 70, 71
LONG_BEGIN, LONG_WRITE, LONG_END = 91, 92, 93
"""Operation codes; the last three are extended strings (32K)."""

_ENDS = (START, COMMIT, REPLICATION_MARKER, MISSING_SCN, ROLLBACK)
"""What is said of transactions, and of no table."""
_ROWS = (INSERT, DELETE, UPDATE, UNSUPPORTED)
_LARGE = (
    SELECT_LOB_LOCATOR,
    LOB_WRITE,
    LOB_TRIM,
    LOB_ERASE,
    XML_BEGIN,
    XML_WRITE,
    XML_END,
    LONG_BEGIN,
    LONG_WRITE,
    LONG_END,
)

FIXED = (
    "SCN", "SQL_REDO", "OPERATION_CODE", "TIMESTAMP", "XID", "CSF", "TABLE_NAME", "SEG_OWNER", "OPERATION", "ROW_ID",
    "ROLLBACK", "STATUS", "INFO", "SSN", "THREAD#", "DATA_OBJ#", "DATA_OBJV#", "DATA_OBJD#", "START_SCN", "COMMIT_SCN",
    "SEQUENCE#",
)  # fmt: skip
_LIST_MAX = 1000
OPTIONAL = ("START_TIMESTAMP", "COMMIT_TIMESTAMP", "RS_ID", "USERNAME", "CLIENT_ID")


@dataclass(frozen=True)
class Statement:
    sql: str
    binds: Mapping[str, Any] = field(default_factory=dict)


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _list(values: Iterable[Any]) -> str:
    return ", ".join(literal(v) if isinstance(v, str) else str(v) for v in values)


# -- V$LOGMNR_CONTENTS ---------------------------------------------------------------------------------------------


def columns(config: Config) -> tuple[str, ...]:
    """The columns of a mined row, in their order."""
    tracked = config.tracked
    switches = (
        tracked.start_timestamp,
        tracked.commit_timestamp,
        tracked.rs_id,
        tracked.username,
        tracked.client_id,
    )
    return (*FIXED, *(name for name, wanted in zip(OPTIONAL, switches, strict=True) if wanted))


def contents_buffered(config: Config, low: int, high: int) -> Statement:
    """What was logged in (low, high], transactions mixed."""
    return _contents(config, "contents", "SCN > :low AND SCN <= :high", low, high)


def contents_unbuffered(config: Config, low: int, high: int) -> Statement:
    """What was committed in [low, high), transaction by transaction. A START, a DDL and a gap have no COMMIT_SCN: they
    come always, also those of transactions whose other rows lie outside."""
    scope = (
        "((COMMIT_SCN >= :low AND COMMIT_SCN < :high)"
        f" OR (COMMIT_SCN IS NULL AND OPERATION_CODE IN ({_list((DDL, START, MISSING_SCN))})))"
    )
    return _contents(config, "committed", scope, low, high)


def _contents(config: Config, name: str, scope: str, low: int, high: int) -> Statement:
    rows = " AND ".join([f"OPERATION_CODE IN ({_list(codes(config))})", *_tables(config), *_accounts(config)])
    ddl = " AND ".join([f"OPERATION_CODE = {DDL} AND INFO NOT LIKE 'INTERNAL DDL%'", *_accounts(config)])
    what = f"(OPERATION_CODE IN ({_list(_ENDS)}) OR ({rows}) OR ({ddl}))"
    where = " AND ".join([scope, *_container(config, MISSING_SCN), what])
    chosen = ", ".join(columns(config))
    return Statement(
        f"SELECT /* tidelog {name} */ {chosen} FROM V$LOGMNR_CONTENTS WHERE {where}",
        {"low": low, "high": high, **_container_binds(config)},
    )


def transactions(config: Config, low: int, high: int) -> Statement:
    """Of all transactions in [low, high], where they begin and end: SCN, XID, OPERATION_CODE, THREAD#."""
    ends = _list((START, COMMIT, REPLICATION_MARKER, ROLLBACK))
    where = " AND ".join(["SCN >= :low AND SCN <= :high", *_container(config), f"OPERATION_CODE IN ({ends})"])
    return Statement(
        f"SELECT /* tidelog transactions */ SCN, XID, OPERATION_CODE, THREAD# FROM V$LOGMNR_CONTENTS WHERE {where}",
        {"low": low, "high": high, **_container_binds(config)},
    )


def codes(config: Config) -> tuple[int, ...]:
    """The operation codes of changes of rows."""
    return (*_ROWS, *(_LARGE if config.lob else ()))


def _container(config: Config, *anywhere: int) -> list[str]:
    """Rows of the pluggable database; those with a code that is `anywhere` belong to none."""
    others = f" OR OPERATION_CODE IN ({_list(anywhere)})" if anywhere else ""
    return [f"(SRC_CON_NAME = :pdb{others})"] if config.pdb else []


def _container_binds(config: Config) -> dict[str, Any]:
    return {"pdb": config.pdb} if config.pdb else {}


_UNRESOLVED = "TABLE_NAME IS NULL OR TABLE_NAME = 'UNKNOWN' OR TABLE_NAME LIKE 'OBJ#%' OR TABLE_NAME LIKE 'BIN$%'"
"""Rows whose table is known by its number alone: they are never filtered here."""


def _tables(config: Config) -> list[str]:
    """As the database filters tables; the signal table is always among them."""
    if config.filter_mode == "none":
        return []
    conditions = _schemas(config) + _named(config)
    if not conditions:
        return []
    signal = config.snapshot.signal_table
    ours = f" OR SEG_OWNER || '.' || TABLE_NAME = {literal(signal)}" if signal else ""
    return [f"({_UNRESOLVED}{ours} OR ({' AND '.join(conditions)}))"]


def _schemas(config: Config) -> list[str]:
    selection = config.selection
    return [*_match("SEG_OWNER", selection.include_schemas), *_match("SEG_OWNER", selection.exclude_schemas, "NOT ")]


def _named(config: Config) -> list[str]:
    selection, name = config.selection, "SEG_OWNER || '.' || TABLE_NAME"
    listed = selection.include_tables or selection.exclude_tables
    sign = "" if selection.include_tables else "NOT "
    if config.filter_mode == "in" and listed:
        return [_among(name, [plain(entry) for entry in split_patterns(listed)], sign)]
    return _match(name, listed, sign)


def _match(what: str, patterns: str, sign: str = "") -> list[str]:
    """One by one, because Oracle takes short patterns only. It has no groups that capture nothing, and by default
    compares as the session's language does."""
    if not patterns:
        return []
    each = [f"REGEXP_LIKE({what}, {literal(anchored(pattern))}, 'c')" for pattern in split_patterns(patterns)]
    return [f"{sign}({' OR '.join(each)})"]


def _among(what: str, names: Sequence[str], sign: str = "") -> str:
    """In one of several lists: a list has at most a thousand entries."""
    portions = [names[at : at + _LIST_MAX] for at in range(0, len(names), _LIST_MAX)]
    return f"{sign}({' OR '.join(f'{what} IN ({_list(some)})' for some in portions)})"


def _accounts(config: Config) -> list[str]:
    accounts = config.accounts
    return [
        *_account("USERNAME", accounts.include_users, accounts.exclude_users),
        *_account("CLIENT_ID", accounts.include_clients, accounts.exclude_clients),
    ]


def _account(column: str, include: Sequence[str], exclude: Sequence[str]) -> list[str]:
    """Who is not known is left to `Accounts.takes`."""
    listed, sign = (include, "") if include else (exclude, "NOT ")
    if not listed:
        return []
    known = _among(f"UPPER({column})", [name.upper() for name in listed], sign)
    return [f"({column} IS NULL OR {column} = {literal(UNKNOWN_USER)} OR {known})"]


# -- mining sessions -----------------------------------------------------------------------------------------------


def add_logfile(name: str) -> Statement:
    return Statement(
        "BEGIN /* tidelog add */ DBMS_LOGMNR.ADD_LOGFILE(LOGFILENAME => :name, OPTIONS => DBMS_LOGMNR.ADDFILE); END;",
        {"name": name},
    )


def remove_logfile(name: str) -> Statement:
    return Statement(
        "BEGIN /* tidelog remove */ DBMS_LOGMNR.REMOVE_LOGFILE(LOGFILENAME => :name); END;", {"name": name}
    )


ADDED = Statement("SELECT /* tidelog added */ FILENAME FROM V$LOGMNR_LOGS WHERE FILENAME IS NOT NULL")
END_LOGMNR = Statement("BEGIN /* tidelog end */ DBMS_LOGMNR.END_LOGMNR(); END;")
BUILD_DICTIONARY = Statement(
    "BEGIN /* tidelog dictionary */ DBMS_LOGMNR_D.BUILD(OPTIONS => DBMS_LOGMNR_D.STORE_IN_REDO_LOGS); END;"
)

_DICTIONARIES = {
    "online_catalog": ("DICT_FROM_ONLINE_CATALOG",),
    "hybrid": ("DICT_FROM_ONLINE_CATALOG",),
    "redo_log_catalog": ("DICT_FROM_REDO_LOGS", "DDL_DICT_TRACKING"),
    "dictionary_from_file": (),
}


def options(config: Config, *, committed: bool) -> tuple[str, ...]:
    """Those of START_LOGMNR. CONTINUOUS_MINE is never one: newer servers have not got it."""
    return (*_DICTIONARIES[config.strategy], "NO_ROWID_IN_STMT", *(("COMMITTED_DATA_ONLY",) if committed else ()))


def start_logmnr(config: Config, start: int | None, end: int | None, *, committed: bool) -> Statement:
    """Either bound may be left out."""
    binds: dict[str, Any] = {"start_scn": start, "end_scn": end}
    parts = [("STARTSCN", "start_scn"), ("ENDSCN", "end_scn")]
    given = [f"{name} => :{bind}" for name, bind in parts if binds[bind] is not None]
    given += ["OPTIONS => " + " + ".join(f"DBMS_LOGMNR.{o}" for o in options(config, committed=committed))]
    if config.strategy == "dictionary_from_file":
        given.append("DICTFILENAME => :dictionary")
        binds["dictionary"] = config.dictionary
    return Statement(
        f"BEGIN /* tidelog start */ DBMS_LOGMNR.START_LOGMNR({', '.join(given)}); END;",
        {name: value for name, value in binds.items() if value is not None},
    )


SESSION = (
    "ALTER SESSION SET NLS_DATE_FORMAT = 'YYYY-MM-DD HH24:MI:SS'"
    " NLS_TIMESTAMP_FORMAT = 'YYYY-MM-DD HH24:MI:SS.FF9'"
    " NLS_TIMESTAMP_TZ_FORMAT = 'YYYY-MM-DD HH24:MI:SS.FF9 TZH:TZM'"
    " NLS_NUMERIC_CHARACTERS = '.,'",
    "ALTER SESSION SET TIME_ZONE = '00:00'",
)
"""Every session renders values alike, so that a value read from a table equals the same value in redo SQL."""


def container(name: str) -> str:
    return f"ALTER SESSION SET CONTAINER = {identifier(name)}"


# -- log files -----------------------------------------------------------------------------------------------------

_ONLINE = """
SELECT MIN(F.MEMBER) AS FILE_NAME, L.FIRST_CHANGE#, L.NEXT_CHANGE#, L.ARCHIVED, L.STATUS, 'ONLINE' AS TYPE,
       L.SEQUENCE#, 'NO' AS DICTIONARY_BEGIN, 'NO' AS DICTIONARY_END, L.THREAD#, L.BYTES, NULL AS DEST_NAME
  FROM V$LOGFILE F, V$LOG L
 WHERE F.GROUP# = L.GROUP# AND L.STATUS = 'CURRENT'
 GROUP BY L.GROUP#, L.FIRST_CHANGE#, L.NEXT_CHANGE#, L.ARCHIVED, L.STATUS, L.SEQUENCE#, L.THREAD#, L.BYTES
UNION
"""
_ARCHIVED = """
SELECT A.NAME AS FILE_NAME, A.FIRST_CHANGE#, A.NEXT_CHANGE#, A.ARCHIVED, NULL AS STATUS, 'ARCHIVED' AS TYPE,
       A.SEQUENCE#, A.DICTIONARY_BEGIN, A.DICTIONARY_END, A.THREAD#, A.BLOCKS * A.BLOCK_SIZE AS BYTES, S.DEST_NAME
  FROM V$ARCHIVED_LOG A, V$DATABASE D, V$ARCHIVE_DEST_STATUS S
 WHERE A.DEST_ID = S.DEST_ID AND A.RESETLOGS_CHANGE# = D.RESETLOGS_CHANGE# AND A.RESETLOGS_TIME = D.RESETLOGS_TIME
"""
_AVAILABLE = " AND A.NAME IS NOT NULL AND A.ARCHIVED = 'YES' AND A.STATUS = 'A'"


def logs(config: Config, scn: int) -> Statement:
    """The log files that hold what comes at and after `scn`: only current online ones, and archived ones of this life
    of the database. Columns: FILE_NAME, FIRST_CHANGE#, NEXT_CHANGE#, ARCHIVED, STATUS, TYPE, SEQUENCE#,
    DICTIONARY_BEGIN, DICTIONARY_END, THREAD#, BYTES, DEST_NAME."""
    young = f" AND A.FIRST_TIME >= SYSDATE - {config.archive_hours}/24" if config.archive_hours else ""
    archived = f"{_ARCHIVED}{_destinations(config)}{_AVAILABLE} AND A.NEXT_CHANGE# > :scn{young}"
    online = "" if config.archive_only else _ONLINE
    return _commented("logs", f"{online}{archived} ORDER BY 7", {"scn": scn})


def archives(config: Config, thread: int) -> Statement:
    """All archived logs of a redo thread, the newest first, deleted ones as well: they tell how its logs followed each
    other. Columns as in `logs`."""
    return _commented(
        "archives",
        f"{_ARCHIVED}{_destinations(config)} AND A.ARCHIVED = 'YES' AND A.THREAD# = :thread ORDER BY 7 DESC",
        {"thread": thread},
    )


def deleted(scn: int) -> Statement:
    """Archived logs that held `scn` and are gone; columns as in `logs`."""
    sql = f"{_ARCHIVED} AND A.STATUS = 'D' AND A.FIRST_CHANGE# <= :scn AND A.NEXT_CHANGE# > :scn ORDER BY 7"
    return _commented("deleted", sql, {"scn": scn})


def oldest(config: Config) -> Statement:
    """The oldest SCN that a log file still holds."""
    online = (
        "" if config.archive_only else "SELECT MIN(FIRST_CHANGE#) AS SCN FROM V$LOG WHERE STATUS <> 'UNUSED' UNION "
    )
    archived = f"SELECT MIN(FIRST_CHANGE#) AS SCN FROM ({_ARCHIVED}{_destinations(config)}{_AVAILABLE})"
    return _commented("oldest", f"SELECT MIN(SCN) FROM ({online}{archived})")


def newest_archived(config: Config) -> Statement:
    """How far the archive has come: the greatest NEXT_CHANGE#."""
    inner = f"{_ARCHIVED}{_destinations(config)}{_AVAILABLE}"
    return _commented("newest", f"SELECT MAX(NEXT_CHANGE#) FROM ({inner})")


def _destinations(config: Config) -> str:
    if config.destinations:
        return f" AND S.DEST_NAME IN ({_list(config.destinations)})"
    return " AND S.STATUS = 'VALID' AND S.TYPE = 'LOCAL'"


def _commented(name: str, sql: str, binds: Mapping[str, Any] | None = None) -> Statement:
    first, _, rest = " ".join(sql.split()).partition(" ")
    return Statement(f"{first} /* tidelog {name} */ {rest}", binds or {})


CURRENT_LOGS = _commented("current", "SELECT THREAD#, SEQUENCE# FROM V$LOG WHERE STATUS = 'CURRENT' ORDER BY 1, 2")
"""What a log switch changes."""
ONLINE_LOGS = _commented(
    "online",
    "SELECT GROUP#, THREAD#, SEQUENCE#, BYTES, ARCHIVED, STATUS, FIRST_CHANGE#, NEXT_CHANGE# FROM V$LOG ORDER BY 1",
)
"""All of them, whether we read them or wait until they are archived."""
DESTINATIONS = _commented(
    "destinations",
    "SELECT DEST_NAME, STATUS, TYPE FROM V$ARCHIVE_DEST_STATUS WHERE STATUS <> 'INACTIVE' ORDER BY DEST_ID",
)
THREADS = _commented(
    "threads",
    "SELECT THREAD#, STATUS, ENABLED, ENABLE_CHANGE#, DISABLE_CHANGE#, CHECKPOINT_CHANGE#, LAST_REDO_CHANGE#,"
    " LAST_REDO_SEQUENCE#, INSTANCE FROM V$THREAD ORDER BY 1",
)

# -- the database --------------------------------------------------------------------------------------------------

CURRENT_SCN = _commented("scn", "SELECT CURRENT_SCN FROM V$DATABASE")
DATABASE = _commented(
    "database",
    "SELECT NAME, DBID, CDB, LOG_MODE, DATABASE_ROLE, OPEN_MODE, SUPPLEMENTAL_LOG_DATA_MIN, SUPPLEMENTAL_LOG_DATA_PK,"
    " SUPPLEMENTAL_LOG_DATA_ALL, CURRENT_SCN, RESETLOGS_CHANGE# FROM V$DATABASE",
)
VERSION = _commented("version", "SELECT BANNER FROM V$VERSION")
RAC = _commented("rac", "SELECT VALUE FROM V$PARAMETER WHERE NAME = 'cluster_database'")
CHARSET = _commented("charset", "SELECT VALUE FROM NLS_DATABASE_PARAMETERS WHERE PARAMETER = 'NLS_CHARACTERSET'")
UTC_OFFSET = _commented("offset", "SELECT TO_CHAR(SYSTIMESTAMP, 'TZH:TZM') FROM DUAL")
"""Times in V$LOGMNR_CONTENTS are those of the server's clock, without their zone."""


def deviated(scn: int, milliseconds: int) -> Statement:
    """The SCN that was current `milliseconds` before `scn`; ORA-08180 or ORA-08181 if nobody knows any more."""
    return _commented(
        "deviated",
        "SELECT TIMESTAMP_TO_SCN(SCN_TO_TIMESTAMP(:scn) - NUMTODSINTERVAL(:ms / 1000, 'SECOND')) FROM DUAL",
        {"scn": scn, "ms": milliseconds},
    )


def open_transactions(*, rac: bool) -> Statement:
    """Those that have changed something: XID, START_SCN."""
    view = "GV$TRANSACTION" if rac else "V$TRANSACTION"
    return _commented("pending", f"SELECT XID, START_SCN FROM {view} WHERE START_SCN > 1")
