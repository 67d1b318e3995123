"""The database as the planner sees it, with the journal and the stage around it.

`Faults` are the mistakes that others have shipped, or that look right at first: with one of them switched on, the
simulation has to notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from tests.simulation.model import NOTE, Commit, Database, Event, Key, Relation, Row
from tidelog.contracts import Key as TextKey
from tidelog.contracts import Scan, Watermark
from tidelog.core import metadata
from tidelog.core.fold import META, Run
from tidelog.core.snapshot import watermark as watermarks
from tidelog.core.snapshot.state import Chunk, Entry
from tidelog.core.snapshot.watermark import Replayed
from tidelog.core.snapshot.window import reconcile, stamp, uncovered
from tidelog.core.snapshot.world import Manifest
from tidelog.model.schema import Table

FAULTS = {
    "window-to-passed": "the window ends where the log had come when the chunk was read",
    "window-of-batch": "only events of the delivering batch are in the window",
    "by-position": "on a primary, a chunk has seen what stands in the log before it",
    "short-xid": "32-bit transaction ids are compared with 64-bit ones",
    "other-watermark": "the rows of one attempt go with the watermark of another",
    "reread-early": "a lost stage is read again at the restart, and delivered later without a window",
    "reread-bare": "a lost stage is read again in place, and delivered without a window",
    "no-deletes": "deletes in the window do not count",
    "no-floor": "windows start where the planning batch ends",
    "drop-toast": "a row that the window touches is dropped, whatever the window leaves out",
    "no-shape": "a change of the table's columns does not count",
    "no-truncate": "a truncate in the window does not count",
    "lost-is-empty": "a stage that was lost counts as an empty one",
    "no-after": "the first chunk of a new table does not wait for transactions that are older than it",
    "reads-first": "a change of key takes what it leaves out from a row that was read under its old key",
    "trust-origin": "a change of key takes what it leaves out from the target's row, whenever that was read",
    "trust-absence": "when a snapshot is over, a row that the target lacks is taken to be without the values left out",
    "trust-answers": "what the source has answered counts as what was there when the batch ended",
    "answer-early": "the source is asked for rows of a commit that is not visible yet",
}


class Wrong(AssertionError):
    """The simulation has noticed a mistake."""


@dataclass(frozen=True)
class Attempt:
    """One reading of a chunk."""

    id: str
    table: Table
    chunk: Chunk
    rows: dict[Key, Row]
    watermark: str
    passed: int

    @property
    def version(self) -> int:
        return int(any(c.name == "extra" for c in self.table.columns))


@dataclass
class Stage:
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)

    def named(self, attempt: str) -> Attempt:
        return next(a for some in self.attempts.values() for a in some if a.id == attempt)

    def last(self, attempt: Attempt) -> Attempt:
        """The last reading of the same chunk."""
        return next((some[-1] for some in self.attempts.values() if attempt in some), attempt)


class Journal:
    """The part of the log that is captured and not released."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.captured = database.log_end()
        self.released = 0
        self.told: dict[str, int] = {}

    def capture(self, end: int) -> None:
        for commit in self._database.log:
            if self.captured <= commit.position < end:
                self.told.update({e.table: e.version for e in commit.events})
        self.captured = max(self.captured, end)

    def between(self, low: int, high: int) -> list[Commit]:
        if low < self.released and low < high:
            raise Wrong(f"the journal was asked from {low} on, and has released everything before {self.released}")
        return [c for c in self._database.log if low <= c.position < high]


class World:
    """`plan.World` over the model. Between any two questions the database goes on."""

    def __init__(self, rng: Random, database: Database, fault: str) -> None:
        self.rng, self.database, self.fault = rng, database, fault
        self.journal, self.stage = Journal(database), Stage()
        self._attempts = 0
        self._tired = False

    def tick(self) -> None:
        for _ in range(self.rng.choice((0, 1, 2, 5))):
            self.database.step()

    # -- plan.World ---------------------------------------------------------------------------------------------

    def present(self, entry: Entry, *, again: bool = False) -> Table | None:  # noqa: ARG002
        self.tick()
        relation = self.database.relations.get(entry.table)
        return relation.table(self._version(entry.table)) if relation else None

    def rests(self) -> bool:
        """After a failure; some worlds know no rest."""
        tired, self._tired = self._tired, False
        return tired and not self.database.standby

    def walked(self, table: Table, surrogate: str) -> tuple[str, ...]:  # noqa: ARG002
        return table.key

    def maximum(self, scan: Scan) -> TextKey | None:
        rows = self._rows(scan.table.qualified)
        return _text(max(rows)) if rows else None

    def boundaries(self, scan: Scan, low: TextKey | None, maximum: TextKey, rows: int, count: int) -> list[TextKey]:
        inside = sorted(k for k in self._rows(scan.table.qualified) if within(k, low, maximum))
        cuts = [_text(k) for k in inside[rows - 1 :: rows]]
        return [*(k for k in cuts if k != maximum), maximum][:count]

    def estimate(self, scan: Scan) -> int:
        return len(self.database.shown.rows[scan.table.qualified])

    def row_bytes(self, table: Table) -> int:  # noqa: ARG002
        return 0

    def settled(self, xid: int) -> bool:
        self.tick()
        return self.database.settled(xid)

    def log_end(self) -> int:
        return self.database.log_end()

    def export(self, scan: Scan) -> str:
        raise NotImplementedError(f"{scan.table.name} has a key")

    def exported(self, name: str) -> bool:
        raise NotImplementedError(name)

    def logged(self, oid: int) -> str:
        relation = next(r for r in self.database.relations.values() if r.oid == oid)
        version = 0 if self.fault == "no-shape" else self.journal.told.get(f"public.{relation.name}")
        return "" if version is None else relation.table(version).shape

    def manifest(self, name: str) -> Manifest | None:
        if good := self.stage.attempts.get(name):
            one = self.rng.choice(good)
            return Manifest(one.id, len(one.rows), passed=one.passed, shape=one.table.shape)
        failed = self.stage.failed.pop(name, "")
        self._tired |= bool(failed)
        return Manifest("", failed=failed) if failed else None

    # -- chunks -------------------------------------------------------------------------------------------------

    def read(self, table: str, chunk: Chunk) -> Attempt:
        """Read a span at one moment. The lock comes first: nobody empties or alters the table meanwhile."""
        db = self.database
        db.unlock(table)
        db.readers.append(table)
        watermark = self._low()
        if db.standby:
            self.tick()
        inside = {k: r for k, r in sorted(db.shown.rows[table].items()) if within(k, chunk.low, chunk.high)}
        version = self._version(table)
        self.tick()
        passed = db.log_end()
        db.readers.remove(table)
        self._attempts += 1
        return Attempt(
            f"a{self._attempts}", db.relations[table].table(version), chunk, inside, watermark.to_json(), passed
        )

    def again(self, attempt: Attempt) -> Attempt:
        return replace(attempt, rows=self.read(attempt.table.qualified, attempt.chunk).rows)

    def _low(self) -> Watermark:
        by_position = self.fault == "by-position" and not self.database.standby
        return Replayed(self.database.log_end()) if by_position else self.database.horizon()

    def emitted(self, table: str, chunk: Chunk, start: int, end: int, version: int) -> tuple[pa.Table, int]:
        """What a batch delivers of a chunk, and the version that it was read under (or what is there now)."""
        relation = self.database.relations[table]
        attempt, window = self.stage.named(chunk.attempt), True
        if attempt.id in self.stage.lost:
            if self.fault == "lost-is-empty":
                return typed_rows(relation, {}, version, end), version
            attempt = self.read(table, chunk) if self.fault != "reread-early" else attempt
            window = self.fault not in ("reread-early", "reread-bare")
            version = max(version, attempt.version)
        rows = typed_rows(relation, attempt.rows, version, end)
        if not window:
            return rows, version
        seen = self.stage.last(attempt) if self.fault == "other-watermark" else attempt
        runs = self._window(relation, chunk, seen, start, end, version)
        if self.fault == "drop-toast":
            runs = [Run(run.rows.set_column(*_no_unchanged(run.rows))) for run in runs]
        return reconcile(rows, runs, relation.key, exact=watermarks.from_json(seen.watermark).exact), version

    def _window(self, relation: Relation, chunk: Chunk, seen: Attempt, start: int, end: int, version: int) -> list[Run]:
        low = max(start, chunk.since) if self.fault == "window-of-batch" else chunk.since
        high = seen.passed if self.fault == "window-to-passed" else end
        skipped = {"no-deletes": "d", "no-truncate": "t"}.get(self.fault, NOTE)
        commits = self.journal.between(low, high)
        told = [(c, i, e) for c, i, e in events_of(commits, f"public.{relation.name}") if e.op != skipped]
        watermark = watermarks.from_json(seen.watermark)
        return [Run(uncovered(run.rows, watermark), run.unknown) for run in self.runs(relation, told, version)]

    def runs(self, relation: Relation, told: Sequence[Told], version: int) -> list[Run]:
        """Events as runs of one version each, in the shape of `version`."""
        unknown = frozenset({"extra"} if relation.rewritten else ())
        found = []
        for own in sorted({e.version for _, _, e in told}):
            rows = typed_events(relation, [t for t in told if t[2].version == own], version, self.fault == "short-xid")
            found.append(Run(rows, unknown if own < version else frozenset()))
        return found

    def xids(self, commits: Sequence[Commit]) -> np.ndarray:
        short = (1 << 32) - 1 if self.fault == "short-xid" else -1
        return np.array([c.xid & short for c in commits], np.int64)

    # -- small steps --------------------------------------------------------------------------------------------

    def _version(self, table: str) -> int:
        return 0 if self.fault == "no-shape" else self.database.shown.versions[table]

    def _rows(self, table: str) -> dict[Key, Row]:
        self.tick()
        self.database.unlock(table)
        return self.database.shown.rows[table]


Told = tuple[Commit, int, Event]


def events_of(commits: Sequence[Commit], table: str) -> list[Told]:
    return [(c, i, e) for c in commits for i, e in enumerate(c.events) if e.table == table and e.op != NOTE]


def within(key: Key, low: TextKey | None, high: TextKey | None) -> bool:
    return (low is None or _number(low) < key) and (high is None or key <= _number(high))


def _text(key: Key) -> TextKey:
    return tuple(str(k) for k in key)


def _number(key: TextKey) -> Key:
    return tuple(int(k or 0) for k in key)


# -- the typed shape ---------------------------------------------------------------------------------------------

_INT, _TEXT, _TS, _NAMES = pa.int64(), pa.string(), pa.timestamp("us", "UTC"), pa.list_(pa.string())


def _fields(relation: Relation, version: int) -> list[pa.Field]:
    return [pa.field(c.name, _TEXT if c.type == "text" else _INT) for c in relation.table(version).columns]


def typed_rows(relation: Relation, rows: dict[Key, Row], version: int, position: int) -> pa.Table:
    fields = _fields(relation, version)
    lists = _columns(relation, fields, list(rows), list(rows.values()))
    return stamp(pa.table(lists, schema=pa.schema(fields)), position=position, ts_us=position)


def typed_events(relation: Relation, told: Sequence[Told], version: int, short: bool) -> pa.Table:
    fields = _fields(relation, version)
    mask = (1 << 32) - 1 if short else -1
    blank = (None,) * len(relation.key)
    columns = _columns(relation, fields, [e.key or blank for _, _, e in told], [e.row or {} for _, _, e in told])
    old = [dict(zip(relation.key, e.old, strict=True)) if e.old else None for _, _, e in told]
    meta = [
        pa.array([e.op for _, _, e in told], _TEXT),
        pa.array([c.position for c, _, _ in told], _INT),
        pa.array([c.position for c, _, _ in told], _INT).cast(_TS),
        pa.array([c.xid & mask for c, _, _ in told], _INT),
        pa.array([i for _, i, _ in told], _INT),
        pa.array(old, pa.struct(fields)) if any(old) else pa.nulls(len(told), pa.struct(fields)),
        pa.array([["toast"] if e.unchanged else None for _, _, e in told], _NAMES),
    ]
    return pa.table([*columns, *meta], schema=schema_of(relation, version))


def schema_of(relation: Relation, version: int) -> pa.Schema:
    fields = _fields(relation, version)
    types = (_TEXT, _INT, _TS, _INT, _INT, pa.struct(fields), _NAMES)
    return pa.schema([*fields, *map(pa.field, META, types)])


def _columns(relation: Relation, fields: list[pa.Field], keys: Sequence[Any], rows: Sequence[Row]) -> list[pa.Array]:
    parts = [pa.array([k[i] for k in keys], _INT) for i in range(len(relation.key))]
    return parts + [pa.array([r.get(f.name) for r in rows], f.type) for f in fields[len(parts) :]]


def _no_unchanged(rows: pa.Table) -> tuple[int, str, pa.Array]:
    return rows.column_names.index(metadata.UNCHANGED), metadata.UNCHANGED, pa.nulls(rows.num_rows, _NAMES)
