"""A pipeline without Spark: the real source, planned and executed batch by batch in this process, into dictionaries.

A test decides what happens between any two steps: before a chunk's rows are read, before its transaction ends, before
a batch is planned, executed, committed. A hook that raises `Crash` ends the process there; `survive` goes on from the
logged offsets as Spark does: the batch that was planned last is executed again, and applied once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql.types import StructType

from tests.servers import Database
from tidelog import connectors
from tidelog.contracts import OpenChunk, Scan, Span
from tidelog.core import metadata
from tidelog.core.fold import META, ROW, Run, fold
from tidelog.engine.stage import Stage
from tidelog.journal.files import Files
from tidelog.model.schema import Table
from tidelog.spark import arrow_files
from tidelog.spark.source import STAGE, StreamReader

Row = dict[str, Any]
Hook = Callable[[], None]


class Crash(Exception):
    """Raised by a hook: everything that lives in the process is lost."""


def nothing() -> None:
    """The default of every hook."""


@dataclass
class Hooks:
    opened: Hook = nothing
    """A chunk's transaction has begun, its rows are read next."""
    read: Hook = nothing
    """The rows are read, the transaction ends next."""
    staged: Hook = nothing
    """A chunk was read, and lies in its file next."""
    planned: Hook = nothing
    """The batch's offset is logged, nothing of it has run."""
    executed: Hook = nothing
    """Every partition has run, nothing is applied."""
    applied: Hook = nothing
    """The batch is applied, and not committed."""
    committed: Hook = nothing


HOOKS = tuple(Hooks.__dataclass_fields__)


class Watched:
    """A chunk that tells when it is read."""

    def __init__(self, chunk: OpenChunk, hooks: Hooks) -> None:
        self._chunk = chunk
        self._hooks = hooks
        self._ended = False
        self.table, self.watermark = chunk.table, chunk.watermark

    def rows(self) -> Iterator[pa.RecordBatch]:
        self._hooks.opened()
        yield from self._chunk.rows()
        self._hooks.read()

    def letters(self) -> pa.Table:
        return self._chunk.letters()

    def end(self) -> int:
        position = self._chunk.end()
        self._ended = True
        return position

    def close(self) -> None:
        self._chunk.close()
        if self._ended:
            self._hooks.staged()


@dataclass
class Rig:
    database: Database
    folder: Path
    source: dict[str, str] = field(default_factory=dict)
    hooks: Hooks = field(default_factory=Hooks)
    target: dict[str, dict[tuple[Any, ...], Row]] = field(default_factory=lambda: defaultdict(dict))
    reads: list[tuple[str, Row]] = field(default_factory=list)
    """Every row that was delivered as `r`."""
    letters: list[Row] = field(default_factory=list)
    """Every dead letter that was delivered."""
    log: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    """Spark's offset log: (start, end) of each planned batch."""
    committed: int = 0
    applied: int = 0
    """How many batches the target has: one that comes again is not applied again."""
    partitions: int | None = None
    """How many partitions run before the process dies."""
    reader: StreamReader | None = None
    parallelism: int = 2

    @property
    def options(self) -> dict[str, str]:
        database = self.database
        return {
            "name": self.folder.name,
            "home": str(self.folder),
            STAGE: str(self.folder / "stage"),
            "shape": "staged",
            "incremental.snapshot.parallelism": str(self.parallelism),
            "incremental.snapshot.chunk.target.ms": "0",  # a chunk is a chunk, however quickly it is read
            "database.hostname": database.host,
            "database.port": str(database.port),
            "database.user": database.user,
            "database.password": database.password,
            "database.dbname": database.dbname,
            "slot.name": f"{database.dbname}_rig",
            "publication.name": f"{database.dbname}_rig",
            "schema.refresh.interval.ms": "100",
            **self.source,
        }

    # -- batches, step by step -----------------------------------------------------------------------------------

    @property
    def start(self) -> dict[str, Any]:
        """The last committed offset."""
        if not self.log:
            initial = self._reader().initialOffset()
            self.log.append((initial, initial))
            self.committed = self.applied = 1
        return self.log[self.committed - 1][1]

    def plan(self) -> bool:
        """Log the offset of the next batch; whether there is one. A batch that was not committed comes again."""
        start = self.start
        if len(self.log) > self.committed:
            return True
        end = self._reader().latestOffset(start)
        json.dumps(end)
        if end == start:
            return False
        self.log.append((start, end))
        self._reader().commit(start)  # Spark tells of a batch when it plans the next one
        self.hooks.planned()
        return True

    def execute(self) -> None:
        """Run the partitions of the planned batch and apply what they give."""
        start, end = self.log[self.committed]
        reader = self._reader()
        rows: list[Row] = []
        with self._watched():
            for done, partition in enumerate(reader.partitions(start, end)):
                if done == self.partitions:
                    raise Crash
                for batch in reader.read(partition):
                    rows += batch.to_pylist()
        self.hooks.executed()
        if self.applied == self.committed:
            self._apply(rows)
            self.applied += 1
        self.hooks.applied()

    def commit(self) -> None:
        self.committed += 1
        self.hooks.committed()

    def batch(self) -> bool:
        if not self.plan():
            return False
        self.execute()
        self.commit()
        return True

    def survive(self, *, restarted: Hook = nothing, batches: int = 400) -> int:
        """Run to the end through every crash; returns how many there were."""
        for crashes in range(200):
            try:
                self.run(batches=batches)
            except Crash:
                self.crash()
                self.partitions = None
                restarted()
            else:
                return crashes
        raise AssertionError("it never gets past the crash")

    def run(self, *, batches: int = 400, until: Callable[[Rig], bool] | None = None) -> None:
        """Until the snapshots are done and the log is delivered, in so many batches and looks in vain."""
        quiet = count = 0
        while quiet < 6:  # a schema is looked at now and then
            assert count < batches, f"not done after {count} batches: {self.snapshot}"
            if until is not None and until(self):
                return
            if self.batch():
                count, quiet = count + 1, 0
            elif not self.snapshot.get("entries") and not self.snapshot.get("heard"):
                if not quiet:
                    self.catch_up()
                quiet += 1
            else:
                count += 1

    @property
    def snapshot(self) -> dict[str, Any]:
        found: dict[str, Any] = self.start.get("tidelog_snapshot", {})
        return found

    def told(self, type: str = "") -> list[dict[str, Any]]:
        """The notifications so far."""
        file = self.folder / "notifications.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [n for n in map(json.loads, lines) if not type or n["type"] == type]

    def statuses(self) -> list[tuple[str, str, str]]:
        """(id, table, how it ended) of every table that was walked."""
        ended = [(n["id"], n["additional_data"]) for n in self.told("TABLE_SCAN_COMPLETED")]
        return [(id, data["scanned_collection"], data["status"]) for id, data in ended]

    def check(self, table: str, key: str = "id") -> None:
        """The target equals the source."""
        have, want = self.target[f"public.{table}"], rows_of(self.database, table, key)
        wrong = {k: (have.get(k), want.get(k)) for k in have.keys() | want.keys() if have.get(k) != want.get(k)}
        assert not wrong, f"{len(wrong)} rows differ (target, source): {dict(list(wrong.items())[:5])}"
        assert want

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """Of the target, sorted."""
        return sorted(tuple(row.values()) for row in self.target[f"public.{table}"].values())

    def check_loosely(self, table: str, key: str = "id") -> None:
        """The same rows; of a table that was altered, values in columns that both sides know."""
        have, want = self.target[f"public.{table}"], rows_of(self.database, table, key)
        assert have.keys() == want.keys()
        for id, row in want.items():
            both = {name: (str(have[id][name]), str(row[name])) for name in row if name in have[id]}
            assert not {n: pair for n, pair in both.items() if pair[0] != pair[1]}, id

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.crash()

    def catch_up(self) -> None:
        """Wait until the capture has everything that is in the log now."""
        reading = self._reader().reading
        assert reading._log is not None
        assert reading._log.caught_up(reading.connector.log_end(), 60)

    def crash(self) -> None:
        """Lose everything that lives in the process."""
        if self.reader is not None:
            self.reader.stop()
            self.reader = None

    # -- inside --------------------------------------------------------------------------------------------------

    def _reader(self) -> StreamReader:
        if self.reader is None:
            self.folder.mkdir(exist_ok=True)
            self.reader = StreamReader(self.options, StructType())
        return self.reader

    @contextmanager
    def _watched(self) -> Iterator[None]:
        create, hooks = connectors.chunk_reader, self.hooks

        class Reader:
            def __init__(self, *arguments: Any) -> None:
                self._reader = create(*arguments)

            def open(self, scan: Scan, span: Span, **more: Any) -> Watched:
                return Watched(self._reader.open(scan, span, **more), hooks)

        with mock.patch.object(connectors, "chunk_reader", Reader):
            yield

    def _apply(self, staged: list[Row]) -> None:
        for row in staged:
            if row["failures"]:
                self.letters += self._letters(row["failures"])
        by_table: dict[int, list[Row]] = defaultdict(list)
        for row in sorted(staged, key=lambda r: r["sequence"]):
            by_table[Table.from_json(row["table"]).id].append(row)
        for rows in by_table.values():
            self._apply_table(rows)

    def _sweep(self, rows: list[Row]) -> None:
        """Only these keys stay."""
        table = Table.from_json(rows[0]["table"])
        keys = [key for row in rows if row["path"] for key in self._load(row).to_pylist()]
        kept = {tuple(key[name] for name in table.key) for key in keys}
        for key in self.target[table.qualified].keys() - kept:
            del self.target[table.qualified][key]

    def _apply_table(self, rows: list[Row]) -> None:
        if kept := [row for row in rows if row["keep"]]:
            self._sweep(kept)
        rows = [row for row in rows if not row["keep"]]
        if not rows:
            return
        tables = [Table.from_json(row["table"]) for row in rows]
        newest = max(tables, key=lambda t: len(t.columns))
        parts = [(t, self._load(row)) for t, row in zip(tables, rows, strict=True) if row["path"]]
        if not parts:
            return
        for _, part in parts:
            for event in part.to_pylist():
                if event[metadata.OP] == "r":
                    self.reads.append((newest.qualified, {k: v for k, v in event.items() if k not in META}))
        for runs in _alike([part for _, part in parts]):
            self._merge(newest, runs, any(row["snapshotting"] for row in rows))

    def _merge(self, table: Table, runs: list[Run], snapshotting: bool) -> None:
        target, folded = self.target[table.qualified], fold(runs, table.key, reads_last=True)
        before = dict(target)
        if folded.truncate:
            target.clear()
        origins = {o[ROW]: tuple(o[k] for k in table.key) for o in folded.origins.to_pylist()}
        for row in folded.deletes.to_pylist():
            target.pop(tuple(row[k] for k in table.key), None)
        names = [c for c in folded.upserts.column_names if c not in META]
        for i, row in enumerate(folded.upserts.to_pylist()):
            key = tuple(row[k] for k in table.key)
            kept = [n for n, mask in folded.keeps.items() if mask[i]]
            base = before.get(origins.get(i, key))
            if kept and (base is None or (snapshotting and i in origins)):  # as the sinks do
                base = self._ask(table, row)
                if base is None:
                    target.pop(key, None)
                    continue
            new = {n: row[n] for n in names}
            target[key] = new | {n: (base or {}).get(n) for n in kept}

    def _ask(self, table: Table, row: Row) -> Row | None:
        where = " AND ".join(f'"{k}" = %s' for k in table.key)
        with self.database.connect() as connection:
            cursor = connection.execute(f"SELECT * FROM {table.qualified} WHERE {where}", [row[k] for k in table.key])
            found = cursor.fetchone()
            assert cursor.description is not None
            return None if found is None else dict(zip([d.name for d in cursor.description], found, strict=True))

    def _letters(self, path: str) -> list[Row]:
        found = arrow_files.load(Files(self.options[STAGE]), path)
        assert found is not None
        return found.to_pylist()

    def _load(self, row: Row) -> pa.Table:
        stage = Stage(str(self.folder / "journal"), "main").files if row["chunk"] else Files(self.options[STAGE])
        found = arrow_files.load(stage, row["path"])
        assert found is not None
        return found


def _alike(parts: list[pa.Table]) -> list[list[Run]]:
    """Parts that can be folded together; where the table changed, the log comes first, then what was read."""
    if len({str(part.schema) for part in parts}) == 1:
        return [[Run(part) for part in parts]]
    order = sorted(parts, key=lambda part: part[metadata.OP][0].as_py() == "r" if part.num_rows else False)
    return [[Run(part) for part in group] for _, group in groupby(order, lambda part: str(part.schema))]


def rows_of(database: Database, table: str, key: str = "id") -> dict[tuple[Any, ...], Row]:
    """The source's rows by key."""
    with database.connect() as connection:
        cursor = connection.execute(f"SELECT * FROM {table}")
        assert cursor.description is not None
        names = [d.name for d in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return {tuple(row[k] for k in key.split(",")): row for row in rows}
