"""IBM i as the engine sees it: the journal of the captured tables, its tail, and reads of present rows."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidelog.connectors.iseries import check, config, decode, needs, offset, position, receivers, texts, types, walk
from tidelog.connectors.iseries.catalog import Catalog
from tidelog.connectors.iseries.client import Session
from tidelog.connectors.iseries.config import Config
from tidelog.connectors.iseries.journals import chain_of, end_of, of_files
from tidelog.connectors.iseries.range import Spot
from tidelog.connectors.iseries.receivers import Receiver
from tidelog.connectors.iseries.tail import IseriesTail
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
from tidelog.core.snapshot.watermark import Replayed
from tidelog.errors import ConfigError, UnsupportedChange
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

_KEYS_PER_QUERY = 200
_KB = 1024


def create(options: Mapping[str, str], pipeline: str = "tidelog") -> IseriesConnector:
    return IseriesConnector(config.read(options, pipeline))


class IseriesConnector:
    def __init__(self, settings: Config) -> None:
        self._config = settings
        self._session: Session | None = None
        self._lock = threading.RLock()
        self._found: tuple[str, str] | None = None
        self._anchor: dict[str, int] = {}
        self._tail: IseriesTail | None = None

    def selection(self) -> Selection:
        return self._config.selection

    def decoder(self) -> decode.IseriesDecoder:
        return decode.create()

    def snapshot_settings(self) -> SnapshotSettings:
        return self._config.snapshot

    def check(self) -> list[Finding]:
        return check.findings(self._config)

    def close(self) -> None:
        with self._lock:
            if self._session is not None:
                self._session.close()
            self._session = None

    # -- the journal -------------------------------------------------------------------------------------------

    def prepare(
        self,
        *,
        resuming: bool = False,  # noqa: ARG002
        looking: bool = False,  # noqa: ARG002  nothing holds our place
        watch: WatchWait = ignore_wait,  # noqa: ARG002  no statement of it waits for others
    ) -> int:
        """Nothing is created: the tables are journaled, or they are not captured."""
        files = self._catalog().files()
        if not any(file.table.qualified != self._config.snapshot.signal_table for file in files):
            raise self._no_tables()
        self._found = of_files(files, self._config)
        for file in files:
            wrong = [found for found in needs.of(file, self._found, self._config.selection) if found.level == "error"]
            if wrong:
                raise ConfigError(
                    f"The table {file.table.qualified} can't be captured. {wrong[0].meaning}", hint=wrong[0].cure
                )
        return self.log_end()

    def _no_tables(self) -> ConfigError:
        wanted = self._config.selection.include_tables
        everything = [t.qualified for t in Catalog(self._reader(), Selection()).captured()] if wanted else []
        near = nearest(wanted.replace("\\", ""), everything)
        return ConfigError(
            f"No table of {self._config.host} matches table.include.list {wanted!r} and the other lists.",
            hint=f"Did you mean {near!r}?" if near else "Names are those of SQL, mostly in capitals: LIBRARY.TABLE.",
        )

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
    ) -> IseriesTail:
        self._anchor |= anchor(note)
        self._tail = tail = IseriesTail(
            self._config,
            self._journal(),
            start,
            known,
            memory_bytes=memory_bytes,
            anchor=self._anchor,
            kept=kept,
        )
        self._anchor |= tail.anchor
        return tail

    def scope(self) -> str:
        return self._config.selection.fingerprint

    def limits(self) -> Limits:
        return self._config.limits

    def log_end(self) -> int:
        return end_of(self._reader(), self._journal(), self._anchor)

    def reach(self) -> int:
        first = self._chain()[0]
        return position.of(first.minute, first.first)

    def through(self, log_end: int) -> int:
        return log_end

    def names(self) -> Mapping[str, str]:
        return {"server": self._config.selection.topic_prefix, "database": self._config.selection.database}

    def position_of(self, document: Mapping[str, Any]) -> int:
        spot = offset.spot_of(document)
        if spot is None:
            return self.reach()
        receiver = receivers.named(self._chain(), spot.receiver, spot.library)
        return position.of(receiver.minute, spot.following)

    def document(self, at: int, xid: int, committed: int, note: str | None = None) -> dict[str, Any]:  # noqa: ARG002
        """The last commit, if reading goes on behind it; else the entry that comes next."""
        told = json.loads(note) if note else {}
        if "sequence" in told and position.of(told["minute"], told["sequence"] + 1) == at:
            spot = Spot(told["sequence"], told["receiver"], told["library"], processed=True)
            return dict(offset.document(spot, told["time"]))
        place = position.place(at)
        receiver = self._receiver_at(at)
        return dict(
            offset.document(Spot(place.sequence, receiver.name, receiver.library), committed // 1_000_000 or None)
        )

    def _receiver_at(self, at: int) -> Receiver:
        chain = self._chain()
        return chain[receivers.index_of(chain, position.place(at))]

    def lag(self) -> Lag:
        """The system keeps its receivers as its own settings say, for nobody in particular."""
        return Lag(self._pending(self._tail.acknowledged) if self._tail is not None else 0, 0)

    def _pending(self, since: int) -> int:
        """Receivers have a size, entries do not: each counts as much as another of its receiver."""
        place = position.place(since)
        return sum(round(r.size_kb * _KB * _left(r, place)) for r in self._chain())

    # -- present rows ------------------------------------------------------------------------------------------

    def tables(self) -> list[Table]:
        return self._catalog().captured()

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
        return self._catalog().present(ids)

    def parse(self, text: str, table: Table, column: Column) -> pa.Scalar:
        return decode.values(pa.array([text]), table, column, self._config.selection)[0][0]

    def read(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for now in self.present([table.id]):
            yield from self._select(now, table, columns, "")

    def read_keys(self, table: Table, columns: Sequence[str], keys: pa.Table) -> Iterator[pa.RecordBatch]:
        """Masked keys mean nothing to the database: then all rows come."""
        if any(self._config.selection.rules_for(table, table.column(c)) for c in keys.column_names):
            yield from self.read(table, columns)
            return
        for now in self.present([table.id]):
            key = [now.column(name) for name in keys.column_names if name in {c.name for c in now.columns}]
            for start in range(0, keys.num_rows if len(key) == keys.num_columns else 0, _KEYS_PER_QUERY):
                where = _among(keys[start : start + _KEYS_PER_QUERY], key)
                yield from self._select(now, table, columns, where)

    def read_range(
        self, table: Table, columns: Sequence[str], low: str | None, high: str | None
    ) -> Iterator[pa.RecordBatch]:
        planned = walk.Walk(table, (table.column(table.key[0]),))
        limits = [walk.above(planned, (low,))] if low is not None else []
        limits += [walk.below(planned, (high,))] if high is not None else []
        return self._select(table, table, columns, f" WHERE {' AND '.join(limits)}" if limits else "")

    def _select(self, now: Table, table: Table, columns: Sequence[str], where: str) -> Iterator[pa.RecordBatch]:
        """By the columns of today: one that is gone or has another type by now is null."""
        same = [c for c in now.columns if c.name in columns and _same(c, table)]
        with Session(self._config) as session:
            for batch in texts.read(session, now, same, where):
                rows = texts.typed(batch, table, self._config.selection).rows
                yield pa.RecordBatch.from_arrays(
                    [self._column(rows, table.column(name)) for name in columns], names=list(columns)
                )

    def _column(self, rows: pa.RecordBatch, column: Column) -> pa.Array:
        if column.name in rows.schema.names:
            return rows.column(column.name)
        return pa.nulls(rows.num_rows, types.arrow_type(column, self._config.selection))

    def bounds(self, table: Table, rows: int) -> list[str]:
        if not table.key:
            return []
        column = table.column(table.key[0])
        planned = walk.Walk(table, (column,))
        found: list[str] = []
        last = self._key(walk.maximum(planned), planned.key)
        while last is not None:
            after = (found[-1],) if found else None
            key = self._key(walk.boundary(planned, after, last, rows), planned.key)
            if key is None or key == last or key[0] is None:
                return found
            found.append(key[0])
        return found

    # -- walks -------------------------------------------------------------------------------------------------

    def walked(self, table: Table, surrogate: str = "") -> tuple[str, ...]:
        if surrogate:
            walk.require(table, [surrogate])
            return (surrogate,)
        known = {column.name for column in table.columns}
        key = table.key or tuple(name for name in self._config.selection.key_of(table) if name in known)
        if not key:
            raise ConfigError(
                f"The table {table.qualified} has no key: the rows of a snapshot could not be told from those that "
                "change meanwhile.",
                hint="Add a primary key, name one in message.key.columns, or a surrogate key in the signal.",
            )
        return key

    def maximum(self, scan: Scan) -> Key | None:
        planned = self._walk(scan)
        return self._key(walk.maximum(planned), planned.key)

    def boundaries(self, scan: Scan, low: Key | None, maximum: Key, rows: int, count: int) -> list[Key]:
        planned, found = self._walk(scan), list[Key]()
        while len(found) < count and maximum not in found:
            key = self._key(walk.boundary(planned, found[-1] if found else low, maximum, rows), planned.key)
            if key is None:
                return walk.ends(found, True, maximum)
            found.append(key)
        return walk.ends(found, False, maximum)

    def _walk(self, scan: Scan) -> walk.Walk:
        found = self.present([scan.table.id])
        if not found:
            raise ConfigError(f"The table {scan.table.qualified} does not exist any more.", hint=walk.GONE)
        return walk.plan(scan, found[0])

    def _key(self, sql: str, columns: Sequence[Column]) -> Key | None:
        rows = self._query(sql)
        if not rows:
            return None
        found = texts.batch(rows, columns)
        return tuple(found.column(i)[0].as_py() for i in range(len(columns)))

    def estimate(self, scan: Scan) -> int:
        found = self._query(walk.ESTIMATE, [scan.table.schema, scan.table.name])
        return int(found[0][0] or 0) if found and not scan.condition else 0

    def row_bytes(self, table: Table) -> int:  # noqa: ARG002
        return 0

    def export(self, scan: Scan) -> str:
        raise UnsupportedChange(
            f"The table {scan.table.qualified} has no key, and IBM i has no snapshots to share.",
            hint="Name a key in message.key.columns, or a surrogate key.",
        )

    def release(self, exports: Collection[str]) -> None:
        """There are none."""

    def exported(self, name: str) -> bool:  # noqa: ARG002
        return False

    def horizon(self) -> Watermark:
        return Replayed(self.log_end())

    def settled(self, xid: int) -> bool:  # noqa: ARG002  a transaction that was open before is read from its beginning
        return True

    def next_xid(self) -> int:
        return position.place(self.log_end()).sequence

    # -- the system --------------------------------------------------------------------------------------------

    def _journal(self) -> tuple[str, str]:
        if self._found is None:
            self._found = of_files(self._catalog().files(), self._config)
        return self._found

    def _chain(self) -> tuple[Receiver, ...]:
        return chain_of(self._reader(), self._journal(), self._anchor)

    def _catalog(self) -> Catalog:
        settings = self._config
        return Catalog(self._reader(), settings.selection, settings.snapshot.heard_table, settings.ccsids)

    def _query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._reader().query(sql, parameters)

    def _reader(self) -> _Shared:
        """Asked by the capture's thread and by the query's: one job serves both, one at a time."""
        return _Shared(self)

    def ask(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._lock:
            if self._session is None or self._session.closed:
                self._session = Session(self._config)
            return self._session.query(sql, parameters)


class _Shared:
    """The connector's job, as the catalog asks it."""

    def __init__(self, connector: IseriesConnector) -> None:
        self._connector = connector

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._connector.ask(sql, parameters)


def anchor(note: str | None) -> dict[str, int]:
    """Which minute the positions of a receiver were given out with; a document of others does not tell."""
    told = json.loads(note) if note else {}
    return {f"{told['library']}/{told['receiver']}": int(told["minute"])} if "minute" in told else {}


def _left(receiver: Receiver, place: position.Place) -> float:
    """Which part of a receiver lies behind a place."""
    if receiver.minute != place.minute:
        return float(receiver.minute > place.minute)
    entries = max(1, receiver.last - receiver.first + 1)
    return min(1.0, max(0.0, (receiver.last + 1 - place.sequence) / entries))


def _same(column: Column, table: Table) -> bool:
    return any((c.name, c.type, c.modifier) == (column.name, column.type, column.modifier) for c in table.columns)


def _among(keys: pa.Table, columns: Sequence[Column]) -> str:
    found = [keys.column(i).to_pylist() for i in range(keys.num_columns)]
    rows = [
        " AND ".join(walk.same(c, None if v is None else _text(v)) for c, v in zip(columns, row, strict=True))
        for row in zip(*found, strict=True)
    ]
    return f" WHERE {' OR '.join(f'({row})' for row in rows)}"


def _text(value: Any) -> str:
    return "\\x" + value.hex() if isinstance(value, bytes) else str(value)
