"""The index of a journal in SQLite: which segments there are, what stands in them, and every table version seen.

It is a cache. Whatever it says can be read again from the segments, so it is written without waiting for the disk.
Only one process writes a ledger.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from tidelog.errors import CorruptState
from tidelog.journal.segment import BlockInfo, SegmentInfo, segment_name
from tidelog.model.schema import Table

FORMAT = 2
_SCHEMA = """
CREATE TABLE IF NOT EXISTS segment (
    epoch INTEGER, number INTEGER, epoch_start INTEGER, "begin" INTEGER, "end" INTEGER, floor INTEGER, events INTEGER,
    bytes INTEGER, size INTEGER, low INTEGER, high INTEGER, PRIMARY KEY (epoch, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS block (
    epoch INTEGER, number INTEGER, place INTEGER, version TEXT, rows INTEGER, bytes INTEGER,
    low INTEGER, high INTEGER, checksum INTEGER, "index" INTEGER, path TEXT, "first" INTEGER, committed INTEGER,
    PRIMARY KEY (epoch, number, place)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS version (
    fingerprint TEXT PRIMARY KEY, table_id INTEGER, position INTEGER, description TEXT);
"""


@dataclass(frozen=True)
class Entry:
    """A segment as the ledger knows it."""

    epoch: int
    number: int
    epoch_start: int
    begin: int
    end: int
    floor: int
    events: int
    bytes: int
    size: int
    low: int
    high: int

    @staticmethod
    def of(info: SegmentInfo) -> Entry:
        return Entry(*(getattr(info, f.name) for f in fields(Entry)))

    @property
    def name(self) -> str:
        return segment_name(self.epoch, self.number)


@dataclass(frozen=True)
class Placed:
    """A block and the segment it stands in."""

    epoch: int
    number: int
    info: BlockInfo

    @property
    def name(self) -> str:
        """Of the file that has the records."""
        return self.info.path or segment_name(self.epoch, self.number)


class Ledger:
    def __init__(self, path: str) -> None:
        if path != ":memory:":
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = _open(path)
        # A plan may still look into the ledger after its capture has stopped: then nobody is left to close it.
        weakref.finalize(self, self._db.close)

    def add(self, info: SegmentInfo) -> None:
        row = astuple(Entry.of(info))
        blocks = [(info.epoch, info.number, place, *astuple(b)) for place, b in enumerate(info.blocks)]
        marks = ",".join("?" * len(blocks[0]))
        versions = [(k, t.id, info.low, t.to_json()) for k, t in info.tables.items()]
        with self._lock, self._db:
            self._db.execute("INSERT OR REPLACE INTO segment VALUES (?,?,?,?,?,?,?,?,?,?,?)", row)
            self._db.executemany(f"INSERT OR REPLACE INTO block VALUES ({marks})", blocks)
            self._db.executemany("INSERT OR REPLACE INTO version VALUES (?,?,?,?)", versions)

    def segments(self) -> list[Entry]:
        with self._lock:
            rows = self._db.execute("SELECT * FROM segment ORDER BY epoch, number").fetchall()
        return [Entry(*row) for row in rows]

    def between(self, low: int, high: int) -> list[Placed]:
        """Blocks of tables with a position in [low, high), in the order they were written."""
        sql = "SELECT * FROM block WHERE place > 0 AND rows > 0 AND high >= ? AND low < ? ORDER BY epoch, number, place"
        with self._lock:
            rows = self._db.execute(sql, (low, high)).fetchall()
        return [Placed(row[0], row[1], BlockInfo(*row[3:])) for row in rows]

    def commits(self, entry: Entry) -> BlockInfo:
        sql = "SELECT * FROM block WHERE epoch = ? AND number = ? AND place = 0"
        with self._lock:
            row = self._db.execute(sql, (entry.epoch, entry.number)).fetchone()
        if row is None:
            raise CorruptState(f"The journal's segment {entry.name} is gone.")
        return BlockInfo(*row[3:])

    def referred(self) -> set[str]:
        """The files beside the segments that hold records of theirs."""
        with self._lock:
            rows = self._db.execute("SELECT DISTINCT path FROM block WHERE path <> ''").fetchall()
        return {path for (path,) in rows}

    def remove(self, entries: Sequence[Entry]) -> None:
        keys = [(e.epoch, e.number) for e in entries]
        with self._lock, self._db:
            self._db.executemany("DELETE FROM segment WHERE epoch = ? AND number = ?", keys)
            self._db.executemany("DELETE FROM block WHERE epoch = ? AND number = ?", keys)

    def version(self, fingerprint: str) -> Table:
        with self._lock:
            row = self._db.execute("SELECT description FROM version WHERE fingerprint = ?", (fingerprint,)).fetchone()
        return Table.from_json(row[0])

    def latest(self) -> list[Table]:
        """The newest version of each table; of two in one segment, the one that was written last."""
        sql = "SELECT table_id, description FROM version ORDER BY position, rowid"
        with self._lock:
            newest = dict(self._db.execute(sql).fetchall())
        return [Table.from_json(text) for text in newest.values()]

    def newest_version(self) -> int:
        """The position of the newest table version; -1 if there is none."""
        with self._lock:
            [newest] = self._db.execute("SELECT coalesce(max(position), -1) FROM version").fetchone()
        return int(newest)

    def forget(self, position: int) -> None:
        """Versions seen from `position` on were told by what is lost: they count as seen only where they still are."""
        still = "SELECT max(low) FROM block WHERE block.version = version.fingerprint AND low < ?"
        sql = f"UPDATE version SET position = COALESCE(({still}), -1) WHERE position >= ?"
        with self._lock, self._db:
            self._db.execute(sql, (position, position))

    def close(self) -> None:
        with self._lock:
            self._db.close()


def _open(path: str) -> sqlite3.Connection:
    """A damaged ledger is thrown away: it only repeats what the segments say."""
    try:
        return _connect(path)
    except sqlite3.DatabaseError:
        for suffix in ("", "-wal", "-shm"):
            Path(path + suffix).unlink(missing_ok=True)
        return _connect(path)


def _connect(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, check_same_thread=False)
    try:
        _prepare(db)
    except BaseException:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = OFF")
    [written] = db.execute("PRAGMA user_version").fetchone()
    [tables] = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    [state] = db.execute("PRAGMA quick_check").fetchone()
    if state != "ok" or (tables and written != FORMAT):
        raise sqlite3.DatabaseError("damaged, or written by another version of tidelog")
    db.executescript(f"{_SCHEMA} PRAGMA user_version = {FORMAT};")
