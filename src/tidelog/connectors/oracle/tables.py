"""Tables as they are now: what the engine asks of a connector about them, apart from the log.

One session serves all questions, in the pluggable database and as the user who reads tables. Rows come as texts and
take the stream's way to their types.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa

from tidelog.connectors.oracle import columns, queries, walk
from tidelog.connectors.oracle.catalog import Catalog
from tidelog.connectors.oracle.chunks import described, watermark
from tidelog.connectors.oracle.client import Session, as_reader
from tidelog.connectors.oracle.config import Config
from tidelog.connectors.oracle.faults import ConnectionLost, SnapshotTooOld
from tidelog.connectors.oracle.queries import Statement, identifier
from tidelog.connectors.oracle.walk import Binds, Walk
from tidelog.contracts import Key, Scan, Watermark
from tidelog.model.schema import Column, Table

_KEYS_PER_QUERY = 500
T = TypeVar("T")


class Tables:
    """Used by the capture's thread and by the query's: a lock keeps their questions apart."""

    def __init__(self, settings: Config) -> None:
        self._config = as_reader(settings)
        self._session: Session | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            if self._session is not None:
                self._session.close()
            self._session = None

    def query(self, statement: Statement | str) -> list[tuple[Any, ...]]:
        """Asked over the session that is shared."""
        return self._ask(lambda session: session.query(statement))

    def _ask(self, question: Callable[[Session], T]) -> T:
        """A session that was cut while nobody used it is not the fault of who asks next."""
        with self._lock:
            used = self._session is not None and not self._session.closed
            try:
                return question(self._reader())
            except ConnectionLost:
                if not used:
                    raise
                return question(self._reader())

    def _reader(self) -> Session:
        if self._session is None or self._session.closed:
            self._session = Session(self._config, inside=True)
        return self._session

    def _catalog(self, question: Callable[[Catalog], T]) -> T:
        return self._ask(lambda session: question(Catalog(session, self._config.selection)))

    # -- the catalog -------------------------------------------------------------------------------------------

    def captured(self) -> list[Table]:
        """What is delivered: the table of signals is not, whatever the lists say."""
        found = self._catalog(lambda catalog: catalog.captured())
        return [table for table in found if table.qualified != self._config.snapshot.signal_table]

    def present(self, ids: Sequence[int]) -> list[Table]:
        return self._catalog(lambda catalog: catalog.present(ids))

    def named(self, schema: str, name: str) -> Table | None:
        return self._catalog(lambda catalog: catalog.named(schema, name))

    def by_object(self, number: int) -> Table | None:
        return self._catalog(lambda catalog: catalog.by_object(number))

    # -- walks -------------------------------------------------------------------------------------------------

    def walked(self, table: Table, surrogate: str = "") -> tuple[str, ...]:
        known = {column.name for column in table.columns}
        if surrogate:
            walk.require(table, [surrogate], known)
            return (surrogate,)
        return table.key or tuple(name for name in self._config.selection.key_of(table) if name in known)

    def maximum(self, scan: Scan) -> Key | None:
        found = self.query(walk.maximum(self._walk(scan)))
        return tuple(found[0]) if found else None

    def boundaries(self, scan: Scan, low: Key | None, maximum: Key, rows: int, count: int) -> list[Key]:
        planned = self._walk(scan)
        if planned.by_place:
            places = [tuple(row) for row in self.query(walk.places(planned, low, rows, count))]
            return walk.ends(places, len(places) < count, maximum)
        found: list[Key] = []
        while len(found) < count and maximum not in found:
            key = self.query(walk.boundary(planned, found[-1] if found else low, maximum, rows))
            if not key:
                return walk.ends(found, True, maximum)
            found.append(tuple(key[0]))
        return walk.ends(found, False, maximum)

    def estimate(self, scan: Scan) -> int:
        found = self.query(walk.estimate(scan.table))
        return int(found[0][0] or 0) if found and not scan.condition else 0

    def _walk(self, scan: Scan) -> Walk:
        return walk.plan(scan, self._ask(lambda session: described(session, self._config, scan.table)))

    # -- one moment for all chunks of a table ------------------------------------------------------------------

    def export(self, scan: Scan) -> str:  # noqa: ARG002
        """An SCN: the undo of the database holds the snapshot, and nobody else has to."""
        return str(self._scn())

    def exported(self, name: str, table: Table | None = None) -> bool:
        """Whether a table can still be read as of that moment, as far as one row tells."""
        if not name.isdigit():
            return False
        if table is None:
            return True
        binds = {"scn": int(name)}
        try:
            self.query(Statement(f"SELECT 1 FROM {walk.quoted(table)} AS OF SCN :scn FETCH FIRST 1 ROWS ONLY", binds))
        except SnapshotTooOld:
            return False
        return True

    def horizon(self) -> Watermark:
        return watermark(self._scn())

    def _scn(self) -> int:
        return int(self.query(queries.CURRENT_SCN)[0][0])

    # -- present rows ------------------------------------------------------------------------------------------

    def read(self, table: Table, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """By the names of today. A column that is gone or has another type by now is null; the version of the table
        that says so is still to come, and asks again."""
        for now in self.present([table.id]):
            yield from self._select(now, table, names, "", Binds())

    def read_keys(self, table: Table, names: Sequence[str], keys: pa.Table) -> Iterator[pa.RecordBatch]:
        """Masked keys mean nothing to the database: then all rows come. So do they where a key's column is gone."""
        if any(self._config.selection.rules_for(table, table.column(c)) for c in keys.column_names):
            yield from self.read(table, names)
            return
        for now in self.present([table.id]):
            known = [_now(table.column(c), now) for c in keys.column_names]
            if all(known):
                for start in range(0, keys.num_rows, _KEYS_PER_QUERY):
                    binds = Binds()
                    some = keys.slice(start, _KEYS_PER_QUERY).to_pylist()
                    where = " OR ".join(_same(table, row, binds) for row in some)
                    yield from self._select(now, table, names, f" WHERE {where}", binds)

    def read_range(
        self, table: Table, names: Sequence[str], low: str | None, high: str | None
    ) -> Iterator[pa.RecordBatch]:
        binds, first = Binds(), table.column(table.key[0])
        kind, name = first.type, identifier(first.name)
        limits = [f"{name} > {columns.value(kind, binds.put(low))}"] if low is not None else []
        limits += [f"{name} <= {columns.value(kind, binds.put(high))}"] if high is not None else []
        where = f" WHERE {' AND '.join(limits)}" if limits else ""
        for now in self.present([table.id]):
            yield from self._select(now, table, names, where, binds)

    def bounds(self, table: Table, rows: int) -> list[str]:
        if not table.key:
            return []
        first = table.column(table.key[0])
        name = identifier(first.name)
        numbered = f"SELECT {name} AS K0, ROW_NUMBER() OVER (ORDER BY {name}) AS N FROM {walk.quoted(table)}"
        text = columns.text(first.type, "K0")
        found = self.query(f"SELECT {text} FROM ({numbered}) WHERE MOD(N, {int(rows)}) = 0 ORDER BY N")
        return list(dict.fromkeys(str(row[0]) for row in found))

    def _select(
        self, now: Table, table: Table, names: Sequence[str], where: str, binds: Binds
    ) -> Iterator[pa.RecordBatch]:
        wanted = [table.column(name) for name in names]
        chosen = ", ".join(_selected(column, _now(column, now)) for column in wanted)
        statement = Statement(f"SELECT {chosen} FROM {walk.quoted(now)}{where}", binds.values)
        with Session(self._config, inside=True) as session:
            for rows in session.batches(statement):
                yield columns.typed(columns.arrays(rows, wanted), wanted, table, self._config.selection).rows


def _selected(column: Column, now: Column | None) -> str:
    name = identifier(column.name)
    return f"NULL AS {name}" if now is None else f"{columns.text(now.type, identifier(now.name))} AS {name}"


def _now(column: Column, now: Table) -> Column | None:
    """The column of today, if it is still the same."""
    same = (c for c in now.columns if (c.name, c.type, c.modifier) == (column.name, column.type, column.modifier))
    return next(same, None)


def _same(table: Table, row: dict[str, Any], binds: Binds) -> str:
    terms = []
    for name, value in row.items():
        column, sql = table.column(name), identifier(name)
        written = None if value is None else columns.value(column.type, binds.put(_text(value, column)))
        terms.append(f"{sql} IS NULL" if written is None else f"{sql} = {written}")
    return f"({' AND '.join(terms)})"


def _text(value: Any, column: Column) -> str:
    """A typed key as the text that its column has."""
    match value:
        case bytes():
            return value.hex().upper()
        case datetime():
            plain = f"{value:%Y-%m-%d %H:%M:%S}" + (f".{value:%f}" if column.type.startswith("TIMESTAMP") else "")
            return f"{plain} {value.isoformat()[-6:]}" if column.type == "TIMESTAMP WITH TIME ZONE" else plain
        case date():
            return f"{value:%Y-%m-%d} 00:00:00"
        case Decimal():
            return f"{value:f}"
        case _:
            return str(value)
