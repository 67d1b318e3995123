"""Oracle as the engine sees it: the log through LogMiner, in either mode, and reads of present rows.

Nothing is created in the database, and nothing there holds our place: archived logs live as long as the administrator
says. Where the log has to be read from is in the notes and offsets alone.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidelog.connectors.oracle import check, config, decode, note, pending, position, queries
from tidelog.connectors.oracle.buffered import BufferedTail
from tidelog.connectors.oracle.catalog import Catalog
from tidelog.connectors.oracle.client import Session, as_reader
from tidelog.connectors.oracle.config import Accounts, Config
from tidelog.connectors.oracle.logs import gathering
from tidelog.connectors.oracle.note import Note
from tidelog.connectors.oracle.tables import Tables
from tidelog.connectors.oracle.tail import MiningTail
from tidelog.connectors.oracle.unbuffered import UnbufferedTail
from tidelog.contracts import (
    CatalogText,
    Finding,
    Kept,
    Key,
    Lag,
    Limits,
    Scan,
    UnloggedChange,
    WatchWait,
    Watermark,
    ignore_wait,
)
from tidelog.core.settings import nearest
from tidelog.core.snapshot.settings import SnapshotSettings
from tidelog.errors import ConfigError
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection


def create(options: Mapping[str, str], pipeline: str = "tidelog") -> OracleConnector:
    return OracleConnector(config.read(options, pipeline))


class OracleConnector:
    def __init__(self, settings: Config) -> None:
        self._config = settings
        self._tables = Tables(settings)
        self._session: Session | None = None
        self._lock = threading.Lock()
        self._first = Note()
        self._low: int | None = None

    def selection(self) -> Selection:
        return self._config.selection

    def decoder(self) -> decode.OracleDecoder:
        return decode.OracleDecoder()

    def snapshot_settings(self) -> SnapshotSettings:
        return self._config.snapshot

    def check(self) -> list[Finding]:
        return check.findings(self._config)

    def close(self) -> None:
        self._tables.close()
        with self._lock:
            if self._session is not None:
                self._session.close()
            self._session = None

    def _ask(self) -> Session:
        """Where the log is; used under the lock."""
        if self._session is None or self._session.closed:
            self._session = Session(self._config)
        return self._session

    def _scn(self) -> int:
        with self._lock:
            return int(self._ask().one(queries.CURRENT_SCN))

    # -- the log -----------------------------------------------------------------------------------------------

    def prepare(
        self,
        *,
        resuming: bool = False,
        looking: bool = False,  # noqa: ARG002  nothing is set up
        watch: WatchWait = ignore_wait,  # noqa: ARG002  no statement of it waits for others
    ) -> int:
        """The capture starts at the present SCN. Transactions that are open now count as a whole, if they commit: the
        log is read from where the oldest of them began."""
        self._require_tables()
        if resuming:
            return self.reach()
        with self._lock:
            start = pending.look(self._ask())
        self._first = Note(start.mine_from, snapshot_scn=start.scn, pending=start.pending)
        return position.last_at(position.of_scn(start.scn))

    def _require_tables(self) -> None:
        captured = self._tables.captured()
        for table in captured:
            if names := self._config.selection.blurred_keys(table):
                raise ConfigError(
                    f"The table {table.qualified} can't be captured: a rule masks or cuts its key "
                    f"({', '.join(names)}), and rows could not be told apart.",
                    hint="Hash these columns instead, or leave the rule out.",
                )
        if not captured:
            raise self._no_tables()

    def _no_tables(self) -> ConfigError:
        wanted = self._config.selection.include_tables
        everything = [table.qualified for table in self._everything()]
        near = nearest(wanted.replace("\\", "").upper(), everything)
        found = f"There are {', '.join(everything[:10])}." if everything else "The user sees no tables: grant SELECT."
        return ConfigError(
            f"No table of {self._config.dbname} matches table.include.list {wanted!r} and the other lists.",
            hint=f"Did you mean {near!r}?" if near else found,
        )

    def _everything(self) -> list[Table]:
        with Session(as_reader(self._config), inside=True) as session:
            return Catalog(session, Selection()).captured()

    def find_server_state(self) -> str:
        return ""  # the server keeps nothing for us

    def tail(
        self,
        start: int,
        known: Sequence[Table],
        memory_bytes: int,
        *,
        note: str | None = None,
        kept: Kept | None = None,
    ) -> MiningTail:
        """The unbuffered tail reads whole transactions again from `start`: of what is kept it needs nothing."""
        told = self._noted(note)
        if self._config.unbuffered:
            self._require_log(told.mine_from, start)
            return UnbufferedTail(self._config, start, known, memory_bytes, told)
        by_account = self._config.accounts != Accounts()  # then the buffer does not know all: who was left out
        self._require_log(told.mine_from if kept is None or by_account else kept.resume, start)
        return BufferedTail(self._config, start, known, memory_bytes, told, kept)

    def _require_log(self, scn: int | None, start: int) -> None:
        with self._lock:
            gathering.require(self._ask(), self._config, position.scn_of(start) if scn is None else scn)

    def _noted(self, text: str | None) -> Note:
        return note.parse(text) if text else self._first

    def scope(self) -> str:
        config = self._config
        if config.unbuffered:
            return ""
        return f"{config.selection.fingerprint} {config.accounts} {config.lob} {config.include_redo_sql}"

    def limits(self) -> Limits:
        return Limits(age_s=self._config.retention_s, events=self._config.events_max)

    def log_end(self) -> int:
        return position.of_scn(self._scn())

    def through(self, log_end: int) -> int:
        return position.last_at(log_end)

    def reach(self) -> int:
        with self._lock:
            oldest = gathering.oldest(self._ask(), self._config)
        return position.of_scn(oldest or 0)

    def names(self) -> Mapping[str, str]:
        return {"server": self._config.selection.topic_prefix, "database": self._config.selection.database}

    def position_of(self, document: Mapping[str, Any]) -> int:
        return note.position_of(note.read(document))

    def document(self, at: int, xid: int, committed: int, note: str | None = None) -> dict[str, Any]:  # noqa: ARG002
        told = self._noted(note)
        self._low = told.mine_from
        return told.document()

    def lag(self) -> Lag:
        """The log files that the next start would read, as a whole: how far into one we are, nobody says."""
        if self._low is None:
            return Lag(0, 0)
        with self._lock:
            session = self._ask()
            logs = gathering.collect(session, self._config, self._low, gathering.state(session))
        size = sum(log.bytes for log in logs)
        return Lag(size, size)

    # -- transactions ------------------------------------------------------------------------------------------

    def horizon(self) -> Watermark:
        return self._tables.horizon()

    def next_xid(self) -> int:
        """Ids are no numbers here that grow; when a transaction begins, its SCN tells."""
        return self._scn()

    def settled(self, xid: int) -> bool:
        with self._lock:
            return all(begun >= xid for begun in pending.look(self._ask()).pending.values())

    # -- present rows ------------------------------------------------------------------------------------------

    def tables(self) -> list[Table]:
        return self._tables.captured()

    def untold(self, tables: Sequence[Table]) -> list[Table]:  # noqa: ARG002
        return []  # the log tells of every table

    def log_coverage(self, ids: Sequence[int]) -> dict[int, frozenset[str]]:
        return {id: frozenset({"log"}) for id in ids}  # the log has all changes of every table

    def captured_names(self) -> Mapping[int, str]:
        return {}

    def publish(self, tables: Sequence[Table]) -> None:
        """Nothing to do: the log tells of every table."""

    def contents(self, ids: Sequence[int]) -> Mapping[int, CatalogText]:  # noqa: ARG002
        return {}

    def unlogged_change(self, before: CatalogText, now: CatalogText) -> UnloggedChange | None:  # noqa: ARG002
        return None

    def present(self, ids: Sequence[int]) -> list[Table]:
        return self._tables.present(ids)

    def parse(self, text: str, table: Table, column: Column) -> pa.Scalar:
        return decode.values(pa.array([text]), table, column, self._config.selection)[0][0]

    def read(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._tables.read(table, columns)

    def read_keys(self, table: Table, columns: Sequence[str], keys: pa.Table) -> Iterator[pa.RecordBatch]:
        return self._tables.read_keys(table, columns, keys)

    def read_range(
        self, table: Table, columns: Sequence[str], low: str | None, high: str | None
    ) -> Iterator[pa.RecordBatch]:
        return self._tables.read_range(table, columns, low, high)

    def bounds(self, table: Table, rows: int) -> list[str]:
        return self._tables.bounds(table, rows)

    def walked(self, table: Table, surrogate: str = "") -> tuple[str, ...]:
        return self._tables.walked(table, surrogate)

    def maximum(self, scan: Scan) -> Key | None:
        return self._tables.maximum(scan)

    def boundaries(self, scan: Scan, low: Key | None, maximum: Key, rows: int, count: int) -> list[Key]:
        return self._tables.boundaries(scan, low, maximum, rows, count)

    def estimate(self, scan: Scan) -> int:
        return self._tables.estimate(scan)

    def row_bytes(self, table: Table) -> int:  # noqa: ARG002
        return 0

    def export(self, scan: Scan) -> str:
        return self._tables.export(scan)

    def release(self, exports: Collection[str]) -> None:
        """An exported snapshot is an SCN, and holds nothing."""

    def exported(self, name: str) -> bool:
        return self._tables.exported(name)
