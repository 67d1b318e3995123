"""Journal entries to blocks of raw records and marks: who changed what in which transaction, nothing decoded.

A commit cycle is a transaction; its id is the number of the entry that began it. A change outside commitment control
is a transaction of its own, committed at once: its id is the entry's number, negative, so that the two never meet.

A roll-back tells what it takes back, row by row, before it ends: each of these entries undoes the newest record that
the same transaction wrote to the same row, by its file, member and relative record number. So a roll-back to a
savepoint leaves exactly what stood before, and neither inserts nor updates leak.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidelog.connectors.iseries import payload, position
from tidelog.connectors.iseries.catalog import identity
from tidelog.connectors.iseries.entries import Entry, Kind
from tidelog.contracts import MARKS, RECORDS, Block, Mixed
from tidelog.model.record import Mark, Op
from tidelog.model.schema import Table

_OPS = {Kind.CREATE: Op.CREATE, Kind.UPDATE: Op.UPDATE, Kind.DELETE: Op.DELETE, Kind.CLEAR: Op.TRUNCATE}
_ROWS = frozenset(_OPS)

Describe = Callable[[str, str], Table | None]


@dataclass
class _Records:
    """Columns of one block, while it grows."""

    table: Table
    ordinals: list[int] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    xids: list[int] = field(default_factory=list)
    lsns: list[int] = field(default_factory=list)
    ops: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)

    def block(self) -> Block:
        zeros, count = [0] * len(self.ordinals), len(self.ordinals)
        columns = [self.keys, self.ordinals, zeros, self.xids, zeros, self.lsns, self.ops]
        arrays = [pa.array(values, f.type) for values, f in zip(columns, list(RECORDS)[:7], strict=True)]
        arrays += [pa.nulls(count, pa.string()), pa.array(self.payloads, pa.binary())]
        return Block(self.table, pa.RecordBatch.from_arrays(arrays, schema=RECORDS))


class Framer:
    """Knows which transactions are open and which version of a table the journal is at. Used by one thread."""

    def __init__(
        self, describe: Describe, known: Iterable[Table] = (), opened: Iterable[int] = (), start: int = 0
    ) -> None:
        """`known` are the tables as they were at the place `start`; what is read from before it is read again."""
        self._describe = describe
        self._start = start
        self._known = {table.id: table for table in known}
        self._tables: dict[tuple[str, str], Table | None] = {}
        self._open = set(opened)
        self._begins: dict[int, int] = {}
        self._marks: list[tuple[Any, ...]] = []
        self._blocks: dict[str, _Records] = {}
        self._next = 0

    def look_again(self, entry: Entry) -> None:
        """A file that was not ours, or not there, may be by now."""
        if self._tables.get((entry.library, entry.file)) is None:
            self._tables.pop((entry.library, entry.file), None)

    def captures(self, entry: Entry) -> bool:
        return self._table(entry) is not None

    def frame(self, entries: Sequence[Entry], resume: int) -> Mixed:
        self._marks, self._blocks, self._next = [], {}, 0
        before: dict[tuple[object, ...], Entry] = {}
        for entry in entries:
            self._take(entry, before)
        marks = [pa.array([mark[i] for mark in self._marks], f.type) for i, f in enumerate(MARKS)]
        blocks = [records.block() for records in self._blocks.values()]
        return Mixed(blocks, pa.RecordBatch.from_arrays(marks, schema=MARKS), resume)

    def _take(self, entry: Entry, before: dict[tuple[object, ...], Entry]) -> None:
        kind = entry.kind
        if kind in _ROWS:
            old = before.pop(row_of(entry), None) if kind is Kind.UPDATE else None
            self._record(entry, _OPS[kind], old)
        elif kind is Kind.BEFORE:
            before[row_of(entry)] = entry
        elif kind is Kind.UNDO:
            if entry.cycle in self._open and self.captures(entry):
                self._mark(entry, Mark.UNDO, key=_key(entry))
        elif kind is Kind.BEGIN:
            self._begins[entry.cycle or entry.sequence] = entry.position
        elif kind is Kind.COMMIT or kind is Kind.ROLLBACK:
            self._end(entry, Mark.COMMIT if kind is Kind.COMMIT else Mark.ROLLBACK)
        elif kind is Kind.SCHEMA:
            self._schema(entry)

    def _record(self, entry: Entry, op: Op, before: Entry | None = None) -> None:
        table = self._table(entry)
        if table is None:
            return
        if entry.cycle and entry.cycle not in self._open:
            self._open.add(entry.cycle)
            self._mark(entry, Mark.BEGIN, at=self._begins.get(entry.cycle, entry.position))
        self._append(table, entry, op, payload.pack(entry, before) if op is not Op.SCHEMA else b"")
        if not entry.cycle:
            self._mark(entry, Mark.COMMIT)

    def _append(self, table: Table, entry: Entry, op: Op, content: bytes) -> None:
        records = self._blocks.get(table.fingerprint)
        if records is None:
            records = self._blocks[table.fingerprint] = _Records(table)
        records.ordinals.append(self._count())
        records.keys.append(_key(entry) if op in (Op.CREATE, Op.UPDATE, Op.DELETE) else 0)
        records.xids.append(xid_of(entry))
        records.lsns.append(entry.position)
        records.ops.append(ord(op))
        records.payloads.append(content)

    def _end(self, entry: Entry, mark: Mark) -> None:
        self._begins.pop(entry.cycle, None)
        if entry.cycle in self._open:
            self._open.discard(entry.cycle)
            self._mark(entry, mark)

    def _mark(self, entry: Entry, mark: Mark, *, key: int = 0, at: int | None = None) -> None:
        place = entry.position if at is None else at
        told = note(entry) if mark is Mark.COMMIT else None
        self._marks.append(
            (self._count(), xid_of(entry), ord(mark), key, place, place + 1, entry.time_us, told),
        )

    def _count(self) -> int:
        self._next += 1
        return self._next - 1

    # -- tables ------------------------------------------------------------------------------------------------

    def _table(self, entry: Entry) -> Table | None:
        """The version that the journal is at: as it was last seen, else as the catalog has it now."""
        file = (entry.library, entry.file)
        if file not in self._tables:
            known = self._known.get(identity(*file))
            self._tables[file] = known if known is not None else self._describe(*file)
        return self._tables[file]

    def _schema(self, entry: Entry) -> None:
        file = (entry.library, entry.file)
        if entry.position < self._start and identity(*file) in self._known:
            return
        before, now = self._tables.get(file) or self._known.get(identity(*file)), self._describe(*file)
        if now is None:  # gone by now, or not ours: what was known is all that there will be
            return
        self._tables[file] = now
        if before is None or before.shape != now.shape:
            self._record(entry, Op.SCHEMA)


def row_of(entry: Entry) -> tuple[object, ...]:
    """A row, as far as one transaction knows it: what an old image and its new one have in common."""
    return entry.library, entry.file, entry.member, entry.rrn, entry.cycle


def xid_of(entry: Entry) -> int:
    return entry.cycle or -entry.sequence


def _key(entry: Entry) -> int:
    """By what an undo finds its record; never 0."""
    name = f"{entry.library}/{entry.file}/{entry.member}".encode()
    return (zlib.crc32(name) >> 1) << 32 | entry.rrn & 0xFFFFFFFF


def note(entry: Entry) -> str:
    """What an offset tells of the last commit, and what reading on needs."""
    told = {
        "receiver": entry.receiver,
        "library": entry.receiver_library,
        "sequence": entry.sequence,
        "minute": position.place(entry.position).minute,
        "time": entry.time_us // 1_000_000,
    }
    return json.dumps(told, separators=(",", ":"))
