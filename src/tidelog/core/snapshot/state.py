"""How far the snapshots are: a value that lives in the offset.

A request (a signal, or the start of a pipeline) asks for tables; each is an *entry*, known by (signal id, table). An
entry is walked along its key from the beginning to the maximum that was fixed when it opened. Its chunks go from
*planned* (a span of keys, read by the batch that ends at this offset) over *staged* (one attempt to read it is named,
its rows lie in a file) to *emitted* (the cursor has passed it). Chunks are emitted in order, so a cursor and the few
chunks in flight are all there is to remember.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from tidelog.contracts import Key

INITIAL, INCREMENTAL, BLOCKING = "initial", "incremental", "blocking"
SIGNAL = "signal"
"""The kind of news that is about a signal itself."""
HANDLED_MAX = 100
AT_ONCE = HANDLED_MAX // 2
"""Signals from outside the log that one batch follows: they leave their channel by their ids, when it is committed, so
these must still be remembered then. The log's own come once anyway, by their place."""


Heard = tuple[int, tuple[str | None, ...]]
"""A row of the table of signals: where it stands in the log, and its columns."""


@dataclass(frozen=True)
class Chunk:
    number: int
    low: Key | None
    high: Key | None
    since: int
    """Every transaction that stands before it in the log is visible to whoever reads the chunk: the window with which
    the chunk is reconciled starts here."""
    logged: str = ""
    """The table's shape as the log had last told it when the chunk was planned."""
    attempt: str = ""
    """The reading that counts; none while the chunk is only planned."""
    passed: int = 0
    """Once the log is known up to here, it has told everything that the chunk has seen; 0 while that is not known."""
    rows: int = 0
    shape: str = ""
    """The table's shape as the chunk saw it."""
    keys: bool = False
    """It is the sweep: all keys of the table, and nothing but keys."""

    @property
    def staged(self) -> bool:
        return bool(self.attempt)


@dataclass(frozen=True)
class Entry:
    id: str
    """Of the signal that asked."""
    table: str
    kind: str
    condition: str = ""
    surrogate: str = ""
    sweep: bool = False
    """Whether, in the end, the target loses the rows that the source does not have."""
    only_sweep: bool = False
    """No row is read, only the keys for the sweep: the table has lost rows, and the others are as they were."""
    after: int = 0
    """The first chunk waits until every transaction below this id is over: what they wrote was not published yet."""
    oid: int = 0
    key: tuple[str, ...] = ()
    types: str = ""
    """Of the key's columns, with commas between them."""
    walk: str = ""
    """Names and types of the key's columns: when they change, the walk begins anew."""
    maximum: Key | None = None
    cursor: Key | None = None
    chunks: tuple[Chunk, ...] = ()
    next: int = 0
    """Number of the next chunk; never used twice."""
    export: str = ""
    """The snapshot that all chunks share, where rows are read by their place; it dies with the process that made it,
    and the walk begins anew."""
    swept: bool = False
    size: int = 0
    """Rows per chunk, as readings so far suggest."""
    rows: int = 0
    emitted: int = 0
    """Chunks that are delivered."""
    estimate: int = 0

    @property
    def opened(self) -> bool:
        return bool(self.oid)

    @property
    def front(self) -> Key | None:
        """Up to where chunks are planned."""
        return next((c.high for c in reversed(self.chunks) if not c.keys), self.cursor)

    @property
    def over(self) -> bool:
        """Reaching the maximum ends a table, and nothing else does."""
        return self.walked and not self.chunks and (self.swept or not self.sweep)

    @property
    def delivered(self) -> bool:
        """Whether every row that is to come has come."""
        return self.opened and self.cursor == self.maximum

    @property
    def walked(self) -> bool:
        """Whether every span is planned."""
        return self.opened and self.front == self.maximum

    def closed(self) -> Entry:
        """As it was before it opened: the walk begins anew."""
        fresh = Entry(self.id, self.table, self.kind, self.condition, self.surrogate, self.sweep)
        return replace(fresh, only_sweep=self.only_sweep, after=self.after, next=self.next)

    def name(self, chunk: Chunk) -> str:
        """What the files of a chunk are called."""
        identity = json.dumps([self.id, self.table, chunk.number, chunk.low, chunk.high])
        return hashlib.sha256(identity.encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Emission:
    """A chunk that the batch which ends at this offset delivers."""

    entry: Entry
    """Without its chunks."""
    chunk: Chunk
    last: bool = False
    """Whether it is the last chunk of the last initial table."""


@dataclass(frozen=True)
class News:
    """Something that happened to a snapshot; told once the offset that holds it is committed."""

    type: str
    id: str
    kind: str
    table: str = ""
    tables: tuple[str, ...] = ()
    """What was asked for, where that became no request; of a request, the state knows it."""
    status: str = ""
    rows: int = 0
    estimate: int = 0
    key: Key | None = None
    maximum: Key | None = None
    reason: str = ""


@dataclass(frozen=True)
class Snapshot:
    entries: tuple[Entry, ...] = ()
    asked: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """All tables of each request that is not over, also those that are done."""
    paused: bool = False
    emitting: tuple[Emission, ...] = ()
    news: tuple[News, ...] = ()
    windows: tuple[tuple[str, int], ...] = ()
    """Attempts whose closing row was met in the log, and where; until their chunks are emitted."""
    heard: tuple[Heard, ...] = ()
    """Signals of the log that could not be followed yet, because the database was away."""
    handled: tuple[str, ...] = ()
    """The last signals that were followed: one that comes again does nothing."""
    known: tuple[int, ...] = ()
    """The tables that were covered so far; another one is snapshotted by itself."""
    coverage: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Of each table that was captured once, the marks of `Connector.log_coverage`; none while the log leaves out
    changes of it."""
    contents: tuple[tuple[int, str], ...] = ()
    """By table, the digest of the connector's text of what the log does not tell (`Connector.contents`), as it was when
    the target last began to follow it."""
    settling: tuple[tuple[int, int], ...] = ()
    """Tables whose snapshot is over, and the position until which the log may still speak of rows that were left out
    because they had moved on; 0 while it is not known."""

    @property
    def since(self) -> int | None:
        """From where the log must be kept for windows; None when no chunk is in flight."""
        return min((c.since for e in self.entries for c in e.chunks), default=None)

    @property
    def planned(self) -> list[tuple[Entry, Chunk]]:
        """What the batch that ends here reads."""
        return [(e, c) for e in self.entries for c in e.chunks if not c.staged]

    @property
    def flying(self) -> int:
        return sum(len(e.chunks) for e in self.entries)

    @property
    def idle(self) -> bool:
        """Nothing is to be done before somebody asks."""
        return not self.heard and (self.paused or not self.entries)

    @property
    def blocking(self) -> bool:
        """Whether the stream waits; not yet while the table itself waits for transactions that are open."""
        first = self.entries[0] if self.entries else None
        return not self.paused and first is not None and first.kind == BLOCKING and (first.opened or not first.after)

    @property
    def incomplete(self) -> frozenset[int]:
        """Tables of which a row may exist that the target lacks."""
        delivered = {e.entry.oid for e in self.emitting}
        return frozenset(e.oid for e in self.entries) | delivered | {oid for oid, _ in self.settling}

    def settled(self) -> Snapshot:
        """Without what concerned only the batch that ended here."""
        alive = {e.id for e in self.entries}
        return replace(self, emitting=(), news=(), asked=tuple(a for a in self.asked if a[0] in alive))

    def tables_of(self, id: str) -> tuple[str, ...]:
        """The tables that a request asked for; of one that another connector wrote, those that are left."""
        return dict(self.asked).get(id) or tuple(e.table for e in self.entries if e.id == id)

    def to_json(self) -> dict[str, Any]:
        """Compact: what has its default is left out."""
        return {k: v for k, v in _compact(asdict(self)).items() if v}

    @staticmethod
    def from_json(raw: Mapping[str, Any] | None) -> Snapshot:
        raw = raw or {}
        return Snapshot(
            entries=tuple(_entry(e) for e in raw.get("entries", ())),
            asked=tuple((id, tuple(tables)) for id, tables in raw.get("asked", ())),
            paused=raw.get("paused", False),
            emitting=tuple(
                Emission(_entry(e["entry"]), _chunk(e["chunk"]), e.get("last", False)) for e in raw.get("emitting", ())
            ),
            news=tuple(_news(n) for n in raw.get("news", ())),
            windows=tuple((attempt, at) for attempt, at in raw.get("windows", ())),
            heard=tuple((at, tuple(values)) for at, values in raw.get("heard", ())),
            handled=tuple(raw.get("handled", ())),
            known=tuple(raw.get("known", ())),
            coverage=tuple((oid, tuple(marks)) for oid, marks in raw.get("coverage", ())),
            contents=tuple((oid, text) for oid, text in raw.get("contents", ())),
            settling=tuple((oid, until) for oid, until in raw.get("settling", ())),
        )


def _compact(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _compact(v) for k, v in value.items() if v is not None and v != "" and v is not False and v != ()}
    if isinstance(value, (list, tuple)):
        return [_compact(v) for v in value]
    return value


def _key(raw: list[str | None] | None) -> Key | None:
    return None if raw is None else tuple(raw)


def _chunk(raw: Mapping[str, Any]) -> Chunk:
    return Chunk(**{**raw, "low": _key(raw.get("low")), "high": _key(raw.get("high"))})


def _entry(raw: Mapping[str, Any]) -> Entry:
    return Entry(
        **{
            **raw,
            "key": tuple(raw.get("key", ())),
            "maximum": _key(raw.get("maximum")),
            "cursor": _key(raw.get("cursor")),
            "chunks": tuple(_chunk(c) for c in raw.get("chunks", ())),
        }
    )


def _news(raw: Mapping[str, Any]) -> News:
    return News(
        **{
            **raw,
            "tables": tuple(raw.get("tables", ())),
            "key": _key(raw.get("key")),
            "maximum": _key(raw.get("maximum")),
        }
    )
