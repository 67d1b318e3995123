"""A LogMiner session: the files it was given, the range it was started with, and the rows that come out.

In the order of the redo (SCN, then as written, whatever the thread), or, with COMMITTED_DATA_ONLY, one transaction
after the other in the order of their commits. A transaction that began below the range is told from the range on only,
and nobody knows its user then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

from tests.oracle import redo
from tests.oracle.database import Database
from tests.oracle.redo import Entry, Log

DICT_FROM_ONLINE_CATALOG, DICT_FROM_REDO_LOGS, DDL_DICT_TRACKING = 16, 32, 8
COMMITTED_DATA_ONLY, SKIP_CORRUPTION, NO_SQL_DELIMITER, NO_ROWID_IN_STMT = 2, 4, 64, 2048
NEW, ADDFILE, REMOVEFILE = 1, 3, 2
UNKNOWN = "UNKNOWN"

COLUMNS = (
    "SCN",
    "SQL_REDO",
    "OPERATION_CODE",
    "TIMESTAMP",
    "XID",
    "CSF",
    "TABLE_NAME",
    "SEG_OWNER",
    "OPERATION",
    "ROW_ID",
    "ROLLBACK",
    "STATUS",
    "INFO",
    "SSN",
    "THREAD#",
    "DATA_OBJ#",
    "DATA_OBJV#",
    "DATA_OBJD#",
    "START_SCN",
    "COMMIT_SCN",
    "SEQUENCE#",
    "START_TIMESTAMP",
    "COMMIT_TIMESTAMP",
    "RS_ID",
    "USERNAME",
    "CLIENT_ID",
    "SRC_CON_NAME",
    "SRC_CON_ID",
    "SEG_TYPE_NAME",
    "TABLE_SPACE",
)


class Refused(Exception):
    """An Oracle error, by its number."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message


@dataclass(frozen=True)
class Named:
    """A file in the session, with what it held when it was added."""

    name: str
    log: Log


@dataclass
class Session:
    database: Database
    files: list[Named] = field(default_factory=list)
    started: bool = False
    start: int = 0
    end: int | None = None
    options: int = 0

    # -- what DBMS_LOGMNR does -----------------------------------------------------------------------------------

    def add(self, name: str, options: int = ADDFILE) -> None:
        if options == NEW:
            self.files.clear()
        log = self.database.redo.file(name)
        if log is None:
            raise Refused(1284, f"file {name} cannot be opened")
        if any(f.name == name for f in self.files):
            raise Refused(1289, f"cannot add duplicate logfile {name}")
        self.files.append(Named(name, log))

    def remove(self, name: str) -> None:
        if all(f.name != name for f in self.files):
            raise Refused(1290, f"cannot remove unlisted logfile {name}")
        self.files = [f for f in self.files if f.name != name]

    def begin(self, start: int | None, end: int | None, options: int) -> None:
        if not self.files:
            raise Refused(1292, "no log file has been specified for the current LogMiner session")
        if start is not None and end is not None and end < start:
            raise Refused(1281, "SCN range specified is invalid")
        if options & DICT_FROM_REDO_LOGS and not any(f.log.dictionary for f in self.files):
            raise Refused(1371, "Complete LogMiner dictionary not found.")
        first = min(f.log.first for f in self.files)
        self.start, self.end, self.options = first if start is None else start, end, options
        self._check_range()
        self.started = True

    def finish(self) -> None:
        """Ends the session; its files are forgotten with it."""
        if not self.started:
            raise Refused(1307, "no LogMiner session is currently active")
        self.started = False
        self.files.clear()

    def _check_range(self) -> None:
        """Every thread of the session without a gap, and the range not outside of its files."""
        logs = sorted((f.log for f in self.files), key=lambda log: (log.thread, log.sequence))
        if self.end is not None and self.end < min(log.first for log in logs):
            raise Refused(1281, "SCN range specified is invalid")
        if self.start < min(log.first for log in logs):
            raise Refused(1291, "missing logfile")
        for _, group in groupby(logs, key=lambda log: log.thread):
            own = list(group)
            if any(b.sequence > a.sequence + 1 for a, b in pairwise(own)):
                raise Refused(1291, "missing logfile")
        if all(log.next is not None and log.next <= self.start for log in logs):
            raise Refused(1291, "missing logfile")

    # -- what comes out ------------------------------------------------------------------------------------------

    def contents(self) -> list[tuple[Any, ...]]:
        if not self.started:
            raise Refused(1306, "dbms_logmnr.start_logmnr() must be invoked before selecting from v$logmnr_contents")
        entries = self._entries()
        if self.options & COMMITTED_DATA_ONLY:
            return [row for e in self._committed(entries) for row in self._rows(e, committed=True)]
        return [row for e in entries for row in self._rows(e, committed=False)]

    def check_files(self) -> None:
        for f in self.files:
            holds = self.database.redo.file(f.name)
            if holds is None:
                raise Refused(1284, f"file {f.name} cannot be opened")
            if holds is not f.log:
                raise Refused(
                    310, f"archived log contains sequence {holds.sequence}; sequence {f.log.sequence} required"
                )

    def _entries(self) -> list[Entry]:
        """What lies in the range, in the order of the redo. A file that was written over since is found out here."""
        self.check_files()
        logs = {(f.log.thread, f.log.sequence): f.log for f in self.files}
        end = redo.FOREVER if self.end is None else self.end
        redo_ = self.database.redo
        found = [e for log in logs.values() for e in log.entries if self.start <= e.scn <= end and redo_.on_disk(e)]
        return sorted(found, key=lambda e: e.place)

    def _committed(self, entries: list[Entry]) -> list[Entry]:
        """Whole transactions in commit order. Entries of none, such as a missing SCN, come first."""
        apart: dict[int, list[Entry]] = {}
        loose: list[Entry] = []
        found: list[Entry] = []
        for entry in entries:
            if entry.work is None:
                loose.append(entry)
                continue
            apart.setdefault(id(entry.work), []).append(entry)
            if entry.code == redo.COMMIT:
                found += [e for e in apart.pop(id(entry.work)) if self._shown(e)]
        return loose + found

    def _shown(self, entry: Entry) -> bool:
        assert entry.work is not None
        return self.database.shows_undone or entry.order not in entry.work.undone

    def _whose(self, entry: Entry) -> tuple[str | None, str | None]:
        """User and client: the START tells them, so it has to lie in what is mined."""
        work = entry.work
        if work is None:
            return None, None
        if work.silent or work.start_scn < self.start:
            return UNKNOWN, UNKNOWN
        return work.user, work.client

    def _rows(self, entry: Entry, committed: bool) -> list[tuple[Any, ...]]:
        work, scn = entry.work, entry.scn
        xid = bytes(8) if work is None else work.unknown if entry.nameless and not committed else work.xid
        begun = work is not None and (committed or entry.code in (redo.START, redo.COMMIT))
        ended = work is not None and committed and entry.code not in (redo.START, redo.DDL)
        start = work.start_scn if begun and work is not None else None
        commit = work.commit_scn if ended and work is not None else None
        head = (scn,)
        middle = (entry.code, redo.day_of(scn), xid)
        tail = (
            entry.table,
            entry.owner,
            redo.OPERATIONS[entry.code],
            entry.row_id,
            entry.rollback,
            entry.status,
            entry.info,
            0,
            0 if entry.loose else entry.thread,
            entry.object,
            entry.version,
            entry.object,
            start,
            commit,
            entry.number,
            None if start is None else redo.day_of(start),
            None if commit is None else redo.day_of(commit),
            f" 0x{entry.thread:06x}.{entry.order:08x}.0010 ",
            *self._whose(entry),
            None if work is None else "FREEPDB1",
            3,
            "TABLE" if entry.table else None,
            "USERS",
        )
        return [(*head, sql, *middle, csf, *tail) for csf, sql in redo.rows_of(entry)]
