"""What the next start begins with.

A state is a spill that gives way to the next one: it has all that is known of the open transactions at that moment, and
the records that are still in memory. With the spills that it names, it is complete, or it does not count: then the
reader goes back to where the log has to be read from anyway.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from tidelog.errors import CorruptState
from tidelog.journal import spill
from tidelog.journal.files import Files
from tidelog.journal.holding import Open
from tidelog.journal.spill import Life, Ranges, Spilled
from tidelog.model.schema import Table

_KEY, _OPEN = b"tidelog", b"tidelog.open"
_NUMBERS = ("xid", "begin", "since_us", "events", "bytes", "undos", "unwatched_us")
OPEN = pa.schema(
    [
        *((name, pa.int64()) for name in _NUMBERS),
        ("by_table", pa.map_(pa.int64(), pa.int64())),
        ("merged", pa.list_(pa.string())),
    ]
)
"""Open transactions, as `holding.Open` knows them."""


@dataclass(frozen=True)
class State:
    resume: int
    end: int
    """How far the journal was: if it is not any more, what committed between the two has to be read again."""
    versions: Sequence[Table]
    """The tables as the log had last told them."""
    scope: str
    """What was captured: under other filters, an open transaction would lack records."""
    saved_us: int
    given_up: Sequence[int]
    """Transactions of which nothing is wanted."""
    spills: Sequence[str]
    """Where the rest of the records lies. Others may have some of them too: left by a process that died, and kept for
    the sake of the journal."""
    open: Sequence[Open]
    path: str = ""
    """Where it was read from."""
    carried: Mapping[Life, Sequence[Spilled]] = field(default_factory=dict)
    """What it has of the records itself; its transactions know their pieces in the spills."""

    def everything(self) -> Iterator[tuple[Open, list[Spilled]]]:
        return ((one, [*one.pieces, *self.carried.get(one.life, ())]) for one in self.open)

    def to_metadata(self) -> dict[bytes, bytes]:
        tables = [table.to_json() for table in self.versions]
        places = {"resume": self.resume, "end": self.end, "scope": self.scope, "us": self.saved_us}
        lists = {"versions": tables, "given_up": list(self.given_up), "spills": list(self.spills)}
        text = json.dumps({**places, **lists}).encode()
        return spill.signed({_KEY: text, _OPEN: spill.packed(_columns(self.open))})

    @staticmethod
    def from_metadata(metadata: Mapping[bytes, bytes]) -> State:
        raw: dict[str, Any] = json.loads(spill.verified(metadata)[_KEY])
        tables = [Table.from_json(text) for text in raw["versions"]]
        batch = pa.ipc.read_record_batch(pa.py_buffer(metadata[_OPEN]), OPEN)
        resume, end, saved_us = (int(raw[name]) for name in ("resume", "end", "us"))
        lists = raw["given_up"], raw["spills"], list(_opened(batch))
        return State(resume, end, tables, raw["scope"], saved_us, *lists)


def _columns(transactions: Sequence[Open]) -> pa.RecordBatch:
    columns: list[list[Any]] = [[getattr(one, name) for one in transactions] for name in _NUMBERS]
    columns.append([list(one.by_table.items()) for one in transactions])
    columns.append([list(one.merged) for one in transactions])
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, OPEN, strict=True)]
    return pa.record_batch(arrays, schema=OPEN)


def _opened(batch: pa.RecordBatch) -> Iterator[Open]:
    for row in batch.to_pylist():
        yield Open(**{**row, "by_table": dict(row["by_table"]), "merged": frozenset(row["merged"])})


def restore(files: Files) -> State | None:
    """What was open when the last state was written; None unless all that it speaks of is there, and intact. One that
    was never finished, which an object store shows, does not hide the one before it."""
    paths = sorted(filter(spill.is_state, spill.paths(files)), reverse=True)
    state = next((found for path in paths if (found := _described(files, path)) is not None), None)
    if state is None:
        return None
    pieces = _by_owner(block for other in state.spills for block in _blocks(files, other))
    for one in state.open:
        one.pieces = pieces.get(one.life, [])
    return state if all(_is_whole(*owned) for owned in state.everything()) and _is_intact(files, state) else None


def _described(files: Files, path: str) -> State | None:
    try:
        state = State.from_metadata(_metadata(files, path))
        return replace(state, path=path, carried=_by_owner(spill.describe(files, path)))
    except spill.UNREADABLE:
        return None


def _metadata(files: Files, path: str) -> Mapping[bytes, bytes]:
    with files.open(path) as source:
        return dict(pa.ipc.open_file(source).schema.metadata or {})


def _blocks(files: Files, path: str) -> list[tuple[Ranges, list[Life]]]:
    """Of a spill that is torn, none: whoever needs it is not whole."""
    try:
        return spill.describe(files, path)
    except spill.UNREADABLE:
        return []


def _by_owner(blocks: Iterable[tuple[Ranges, list[Life]]]) -> dict[Life, list[Spilled]]:
    found: dict[Life, list[Spilled]] = {}
    for ranges, owners in blocks:
        for k, life in enumerate(owners):
            found.setdefault(life, []).append((ranges, k))
    return found


def _is_whole(one: Open, everything: Sequence[Spilled]) -> bool:
    counts = {False: 0, True: 0}
    for ranges, k in everything:
        counts[ranges.undo] += ranges.lasts[k] - ranges.firsts[k]
    return counts == {False: one.events, True: one.undos}


def _is_intact(files: Files, state: State) -> bool:
    reader = spill.Reader(files)
    try:
        for _, everything in state.everything():
            for ranges, k in everything:
                reader.read(ranges.piece(k))
    except CorruptState:
        return False
    return True
