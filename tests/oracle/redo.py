"""The redo history: what instances write, the files that hold it, and how far it has reached the disk.

Each instance writes its own thread. What it writes is in its log buffer until the next flush (each commit is one), so
another thread's redo with the same or a lower SCN can turn up later: only `LAST_REDO_CHANGE#` tells how far a thread's
redo is on disk. A log switch gives the thread a new sequence number; the full log is archived some time later, to each
destination on its own, and the online file is used again for another sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.oracle import literals

FOREVER = 2**64 - 1
"""`NEXT_CHANGE#` of a log that is still written."""
FOREVER_STORED = float(FOREVER)
"""As SQLite keeps it."""

INTERNAL, INSERT, DELETE, UPDATE, DDL, START, COMMIT = 0, 1, 2, 3, 5, 6, 7
LOB_LOCATOR, LOB_WRITE, LOB_TRIM, REPLICATION_MARKER, LOB_ERASE = 9, 10, 11, 27, 29
MISSING_SCN, ROLLBACK, XML_BEGIN, XML_WRITE, XML_END = 34, 36, 68, 70, 71
STRING_BEGIN, STRING_WRITE, STRING_END, UNSUPPORTED = 91, 92, 93, 255

OPERATIONS = {
    INTERNAL: "INTERNAL",
    INSERT: "INSERT",
    DELETE: "DELETE",
    UPDATE: "UPDATE",
    DDL: "DDL",
    START: "START",
    COMMIT: "COMMIT",
    LOB_LOCATOR: "SELECT_LOB_LOCATOR",
    LOB_WRITE: "LOB_WRITE",
    LOB_TRIM: "LOB_TRIM",
    REPLICATION_MARKER: "REPLICATION MARKER",
    LOB_ERASE: "LOB_ERASE",
    MISSING_SCN: "MISSING_SCN",
    ROLLBACK: "ROLLBACK",
    XML_BEGIN: "XML DOC BEGIN",
    XML_WRITE: "XML DOC WRITE",
    XML_END: "XML DOC END",
    STRING_BEGIN: "EXTENDED STRING BEGIN",
    STRING_WRITE: "EXTENDED STRING WRITE",
    STRING_END: "EXTENDED STRING END",
    UNSUPPORTED: "UNSUPPORTED",
}

NO_ROW = "A" * 18
_EPOCH = datetime(2024, 1, 1)
_EPOCH_DAYS = (_EPOCH - datetime(1970, 1, 1)).days
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def time_of(scn: int) -> datetime:
    """Ten changes a second."""
    return _EPOCH + timedelta(seconds=scn // 10)


def day_of(scn: int) -> float:
    """The same in days since 1970."""
    return _EPOCH_DAYS + scn // 10 / 86_400


def scn_of(time: datetime) -> int:
    return int((time - _EPOCH).total_seconds()) * 10


def row_id(data_object: int, file: int, block: int, row: int) -> str:
    """As Oracle writes it: six digits of the object, three of the file, six of the block, three of the row."""
    return "".join(_base64(n, width) for n, width in ((data_object, 6), (file, 3), (block, 6), (row, 3)))


def _base64(number: int, width: int) -> str:
    return "".join(_DIGITS[number >> (6 * place) & 63] for place in reversed(range(width)))


@dataclass(eq=False)
class Work:
    """A transaction as the redo knows it."""

    xid: bytes
    thread: int
    user: str
    client: str | None
    start_scn: int
    commit_scn: int | None = None
    entries: int = 0
    undone: set[int] = field(default_factory=set)
    """Entries that cancel each other, by their order."""
    silent: bool = False
    """Its START is in no log: nobody knows whose it is."""
    hidden: bool = False
    """Its changes are of no interest to anybody: it never ends."""

    @property
    def hex(self) -> str:
        return self.xid.hex()

    @property
    def unknown(self) -> bytes:
        """Its id where LogMiner does not know the sequence number."""
        return self.xid[:4] + b"\xff" * 4


@dataclass(frozen=True, eq=False)
class Entry:
    """One thing that happened: one or, if its SQL is long, several rows of V$LOGMNR_CONTENTS."""

    order: int
    """Among all entries of all threads, as they were written."""
    scn: int
    thread: int
    code: int
    work: Work | None = None
    sql: str | bytes | None = None
    owner: str | None = None
    table: str | None = None
    object: int = 0
    version: int = 1
    row_id: str = NO_ROW
    rollback: int = 0
    info: str | None = None
    status: int = 0
    number: int = 0
    """Place in its transaction."""
    nameless: bool = False
    """LogMiner does not know the sequence number of the transaction."""
    loose: bool = False
    """LogMiner does not say which thread has written it."""

    @property
    def place(self) -> tuple[int, int]:
        return self.scn, self.order


@dataclass(eq=False)
class Archive:
    name: str
    destination: int
    ready: bool = False
    deleted: bool = False


@dataclass(eq=False)
class Log:
    thread: int
    sequence: int
    group: int
    first: int
    next: int | None = None
    entries: list[Entry] = field(default_factory=list)
    archives: list[Archive] = field(default_factory=list)
    dictionary: bool = False

    @property
    def archived(self) -> bool:
        return any(a.ready for a in self.archives)


@dataclass(eq=False)
class Thread:
    number: int
    enabled_at: int
    groups: int = 3
    open: bool = True
    enabled: str = "PUBLIC"
    closed_at: int = 0
    disabled_at: int = 0
    flushed: int = 0
    """The last of its entries that is on disk, by its order."""
    flushed_scn: int = 0
    logs: list[Log] = field(default_factory=list)
    written: list[Entry] = field(default_factory=list)

    @property
    def current(self) -> Log | None:
        return self.logs[-1] if self.logs and self.logs[-1].next is None else None

    def online(self) -> dict[str, Log]:
        """The online files by name, with what they hold now."""
        return {f"/u02/redo/thread{self.number}_group{log.group}.log": log for log in self.logs[-self.groups :]}


class Redo:
    """All threads of a database."""

    def __init__(self, first: int, destinations: int = 1) -> None:
        self.scn = first
        self.threads: dict[int, Thread] = {}
        self.destinations = destinations
        self.last_commit = first
        self._entries = 0

    def enable(self, number: int) -> Thread:
        thread = self.threads[number] = Thread(number, self.scn, flushed_scn=self.scn)
        self._open_log(thread)
        return thread

    def advance(self, by: int = 1) -> int:
        self.scn += by
        return self.scn

    # -- writing -------------------------------------------------------------------------------------------------

    def write(
        self,
        thread: int,
        code: int,
        work: Work | None = None,
        scn: int | None = None,
        behind: bool = False,
        **more: object,
    ) -> Entry:
        """`behind`: the instance has not heard yet how far the SCN has come elsewhere, only of the last commit."""
        target = self.threads[thread]
        log = target.current
        if log is None:
            raise ValueError(f"thread {thread} is closed")
        if behind:
            last = target.written[-1].scn if target.written else 0
            begun = work.start_scn if work is not None else 0
            scn = max(last, begun, log.first, target.flushed_scn, self.last_commit)
        self._entries += 1
        number = 0
        if work is not None:
            work.entries += 1
            number = work.entries
        entry = Entry(
            self._entries,
            self.scn if scn is None else scn,
            thread,
            code,
            work=work,
            number=number,
            **more,  # type: ignore[arg-type]
        )
        target.written.append(entry)
        log.entries.append(entry)
        return entry

    def flush(self, thread: int, quiet: bool = False) -> None:
        """All that the thread has written is on disk; unless `quiet`, its redo is then known up to now."""
        target = self.threads[thread]
        target.flushed = target.written[-1].order if target.written else 0
        last = target.written[-1].scn if target.written else 0
        target.flushed_scn = max(target.flushed_scn, last if quiet else self.scn)

    def switch(self, thread: int) -> Log:
        """The log is full: the thread goes on in the next one. What it has written is on disk."""
        target = self.threads[thread]
        self._close_log(target)
        return self._open_log(target)

    def close(self, thread: int) -> None:
        """The instance goes down; what it wrote is archived by another one."""
        target = self.threads[thread]
        self._close_log(target)
        target.open, target.closed_at = False, self.scn

    def reopen(self, thread: int) -> None:
        target = self.threads[thread]
        target.open = True
        self._open_log(target)
        self.flush(thread)

    def _open_log(self, thread: Thread) -> Log:
        sequence = thread.logs[-1].sequence + 1 if thread.logs else 1 + 10 * thread.number
        thread.logs.append(Log(thread.number, sequence, sequence % thread.groups, self.scn))
        return thread.logs[-1]

    def _close_log(self, thread: Thread) -> None:
        log = thread.current
        if log is None:
            raise ValueError(f"thread {thread.number} is closed")
        self.flush(thread.number)
        log.next = self.advance()
        for destination in range(1, self.destinations + 1):
            name = f"/u0{2 + destination}/arch/{thread.number}_{log.sequence}.arc"
            log.archives.append(Archive(name, destination))
        self.reuse(thread)

    def reuse(self, thread: Thread) -> None:
        """An online file cannot be used again before its log is archived."""
        for log in thread.logs[: -thread.groups + 1]:
            for archive in log.archives:
                archive.ready = True

    # -- files ---------------------------------------------------------------------------------------------------

    def logs(self) -> Iterator[Log]:
        for thread in self.threads.values():
            yield from thread.logs

    def pending_archives(self) -> list[Archive]:
        return [a for log in self.logs() if log.next is not None for a in log.archives if not a.ready]

    def file(self, name: str) -> Log | None:
        """What a file holds now."""
        for thread in self.threads.values():
            if name in (online := thread.online()):
                return online[name]
        found = ((log, a) for log in self.logs() for a in log.archives)
        return next((log for log, a in found if a.name == name and a.ready and not a.deleted), None)

    def on_disk(self, entry: Entry) -> bool:
        return entry.order <= self.threads[entry.thread].flushed

    def delete_archives(self, below: int) -> int:
        """Archives that end at or below this SCN are gone."""
        ended = [log for log in self.logs() if log.next is not None and log.next <= below]
        gone = [a for log in ended for a in log.archives if a.ready and not a.deleted]
        for archive in gone:
            archive.deleted = True
        return len(gone)


def rows_of(entry: Entry) -> list[tuple[int, bytes | None]]:
    return literals.pieces(entry.sql)
