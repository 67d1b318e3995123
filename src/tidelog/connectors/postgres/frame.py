"""From raw replication messages to blocks of records: framing only, one vectorised pass, nothing is decoded.

A message is a 25-byte header (kind, LSN, end of log, server clock) and one pgoutput message. Begins and commits are
taken apart with numpy over the joined buffer, as `changes` does it with rows. The framer remembers the transaction
that is still open, so a transaction may span any number of portions: its commit LSN stands already in its begin.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidelog.connectors.postgres import position
from tidelog.connectors.postgres.changes import Changes, own_record
from tidelog.connectors.postgres.versions import Describe, Versions
from tidelog.connectors.postgres.wire import EPOCH_US, Ints, Log, parse_relation
from tidelog.connectors.postgres.xids import Xids
from tidelog.contracts import RECORDS, TRANSACTIONS, Block, Portion
from tidelog.errors import CorruptState
from tidelog.model.record import Op
from tidelog.model.schema import Table

_BEGIN, _COMMIT = ord("B"), ord("C")
_PASSED = "BCYA"
"""What needs no look here. PostgreSQL 18 says of transactions that they are not streamed any more (A), although it was
never asked to: nothing of them has come."""


@dataclass(frozen=True)
class Open:
    """The transaction whose commit has not come yet."""

    position: int = 0
    xid: int = 0
    committed: int = 0
    events: int = 0
    bytes: int = 0
    origin: str | None = None
    by_table: dict[int, int] = field(default_factory=dict)
    collections: dict[str, int] = field(default_factory=dict)
    """The same by name, for the transaction metadata: a table may change its name on the way."""


class Framer:
    def __init__(
        self,
        describe: Describe,
        *,
        next_xid: int,
        tables: Sequence[Table] = (),
        with_collections: bool = False,
    ) -> None:
        self.versions = Versions(describe, tables)
        self.xids = Xids(next_xid)
        self.with_collections = with_collections
        self.open: Open | None = None
        self.end = 0

    @property
    def tables(self) -> dict[int, Table]:
        return self.versions.tables

    def frame(self, messages: Sequence[memoryview | bytes]) -> Portion:
        return self.read(Log(messages))

    def read(self, log: Log) -> Portion:
        self.versions.refresh()
        portion = _Pass(self, log).portion()
        self.end = max(self.end, portion.end)
        return portion

    def own(self, op: Op, tables: Sequence[Table | None], at: int, committed: int) -> Portion:
        """Records of our own at a free place: schema changes that wrote no row, heartbeats."""
        record = pa.RecordBatch.from_pylist([own_record(op, at, committed)], schema=RECORDS)
        blocks = [Block(table, record) for table in tables]
        for table in tables:
            if table is not None:
                self.versions.replace(table)
        self.end = at + 1
        return Portion(at + 1, blocks, _transactions([(at, at + 1, 0, committed, len(blocks), 0, None)]))


class _Pass:
    """One pass over a log: transactions, then records by table, cut where a table's description changes."""

    def __init__(self, framer: Framer, log: Log) -> None:
        self._framer = framer
        self._log = log
        self._known = dict(framer.tables)
        self._cuts: dict[int, list[tuple[int, Table]]] = {}
        self._changes = changes = Changes(log, _PASSED, {"R": self._relation})
        self._index, self._oid = changes.index, changes.oid
        self._begins()

    def portion(self) -> Portion:
        blocks = self._table_blocks() + self._message_blocks()
        transactions, end = self._commits()
        self._remember()
        return Portion(end, [b for b in blocks if b.records.num_rows], transactions)

    def _relation(self, index: int, body: bytes) -> None:
        relation = parse_relation(body)
        before = self._framer.tables.get(relation.oid)
        table = self._framer.versions.relate(relation)
        if before is None or before.fingerprint != table.fingerprint:
            self._cuts.setdefault(relation.oid, []).append((index, table))

    # -- transactions ------------------------------------------------------------------------------------------

    def _begins(self) -> None:
        """Number the transactions of this log; number 0 is the one that was open before."""
        log, carried = self._log, self._framer.open or Open()
        is_begin = log.kinds == _BEGIN
        at = log.bodies[is_begin]
        self._number = np.cumsum(is_begin)
        self._position = _prepend(carried.position, log.be64(at + 1) | (position.SLOTS - 1))
        self._committed = _prepend(carried.committed, log.be64(at + 9) + EPOCH_US)
        self._xid = _prepend(carried.xid, self._framer.xids.widen(log.be32(at + 17)))
        before = np.cumsum(self._changes.weights) - self._changes.weights
        first = _prepend(-carried.events, before[is_begin])
        self._ordinal = before - first[self._number]
        self._carried = carried
        lengths = log.lengths.copy()
        lengths[[index for index, _ in self._changes.loose]] = 0
        self._sizes = np.bincount(self._number, weights=lengths, minlength=len(self._position)).astype(np.int64)
        self._sizes[0] += carried.bytes
        self._origin_of: dict[int, str | None] = {0: carried.origin}
        self._origin_of |= {int(self._number[index]): name for index, name in self._changes.origins.items()}
        self._counts: dict[int, dict[str, int]] = {0: dict(carried.collections)}

    def _commits(self) -> tuple[pa.RecordBatch, int]:
        """The transactions that end here; those without an event are no news for anybody."""
        log = self._log
        indices = np.flatnonzero((log.kinds == _COMMIT) & (self._ordinal > 0))
        of = self._number[indices]
        ends = log.be64(log.bodies[indices] + 10)
        columns = [
            self._position[of],
            ends,
            self._xid[of],
            self._committed[of],
            self._ordinal[indices],
            self._sizes[of],
        ]
        lists = pa.array(map(self._collections, of.tolist()), pa.string())
        notes = pa.nulls(len(of), pa.string())  # where a commit ends is all that it takes to read on
        batch = pa.record_batch([*map(pa.array, columns), lists, notes], schema=TRANSACTIONS)
        return self._with_loose_messages(batch, int(ends[-1]) if len(ends) else 0)

    def _collections(self, number: int) -> str | None:
        return json.dumps(self._counts.get(number, {})) if self._framer.with_collections else None

    def _with_loose_messages(self, batch: pa.RecordBatch, end: int) -> tuple[pa.RecordBatch, int]:
        """A message outside any transaction is one of its own."""
        rows = [(at, at + 1, 0, self._clock(i), 1, 0, None) for i, at in self._changes.loose]
        if not rows:
            return batch, end
        both = pa.Table.from_batches([batch, _transactions(rows)]).sort_by("position")
        return both.combine_chunks().to_batches()[0], max(end, rows[-1][1])

    def _clock(self, index: int) -> int:
        return int(self._log.clocks(np.array([index]))[0])

    def _remember(self) -> None:
        """Keep the transaction that this log leaves open."""
        marks = np.flatnonzero(np.isin(self._log.kinds, [_BEGIN, _COMMIT]))
        if len(marks) and self._log.kinds[marks[-1]] == _COMMIT:
            self._framer.open = None
        elif len(marks) or (self._framer.open and len(self._number)):
            last = int(self._number[-1])
            self._framer.open = Open(
                position=int(self._position[last]),
                xid=int(self._xid[last]),
                committed=int(self._committed[last]),
                events=int(self._ordinal[-1] + self._changes.weights[-1]),
                bytes=int(self._sizes[last]),
                origin=self._origin_of.get(last),
                by_table=self._table_counts(last),
                collections=self._counts.get(last, {}),
            )

    def _table_counts(self, number: int) -> dict[int, int]:
        counts = dict(self._carried.by_table) if number == 0 else {}
        oids = self._oid[self._number[self._index] == number]
        for oid, n in zip(*np.unique(oids, return_counts=True), strict=True):
            counts[int(oid)] = counts.get(int(oid), 0) + int(n)
        return counts

    # -- records -----------------------------------------------------------------------------------------------

    def _table_blocks(self) -> list[Block]:
        oids = np.unique(self._oid).tolist()
        whole = np.arange(len(self._index))
        return [
            b for oid in oids for b in self._cut(oid, whole if len(oids) == 1 else np.flatnonzero(self._oid == oid))
        ]

    def _cut(self, oid: int, mine: Ints) -> list[Block]:
        """One block per version of the table that these records were written under."""
        cuts = self._cuts.get(oid, [])
        versions = [*([self._known[oid]] if oid in self._known else []), *(table for _, table in cuts)]
        if not versions:
            raise CorruptState(f"Rows of an unknown relation {oid} came from the server.", hint="Restart the capture.")
        edges = np.searchsorted(self._index[mine], [index for index, _ in cuts]).tolist()
        starts = [0, *edges[-(len(versions) - 1) :]] if len(versions) > 1 else [0]
        ordinals = self._table_ordinals(mine, self._carried.by_table.get(oid, 0))
        blocks = []
        for table, low, high in zip(versions, starts, [*starts[1:], len(mine)], strict=True):
            self._count(table, mine[low:high])
            blocks.append(Block(table, self._records(mine[low:high], ordinals[low:high])))
        return blocks

    def _table_ordinals(self, mine: Ints, carried: int) -> Ints:
        numbers = self._number[self._index[mine]]
        ordinals = np.arange(len(mine)) - np.searchsorted(numbers, numbers, side="left")
        return np.where(numbers == 0, ordinals + carried, ordinals)

    def _count(self, table: Table, mine: Ints) -> None:
        """Events per table of each transaction, for the transaction metadata."""
        if not self._framer.with_collections:
            return
        for number, n in zip(*np.unique(self._number[self._index[mine]], return_counts=True), strict=True):
            counts = self._counts.setdefault(int(number), {})
            counts[table.qualified] = counts.get(table.qualified, 0) + int(n)

    def _records(self, mine: Ints, table_ordinals: Ints) -> pa.RecordBatch:
        index = self._index[mine]
        numbers = self._number[index]
        return self._changes.records(
            index,
            position=self._position[numbers],
            ordinal=self._ordinal[index] + self._changes.within[mine],
            table_ordinal=table_ordinals,
            xid=self._xid[numbers],
            committed=self._committed[numbers],
            origin=self._origin_column(numbers),
        )

    def _origin_column(self, numbers: Ints) -> pa.StringArray:
        if not self._changes.origins and self._carried.origin is None:
            return pa.nulls(len(numbers), pa.string())
        present, which = np.unique(numbers, return_inverse=True)
        return pa.array(map(self._origin_of.get, present.tolist()), pa.string()).take(pa.array(which))

    def _message_blocks(self) -> list[Block]:
        return [Block(None, self._message_record(index, at)) for index, at in self._changes.messages]

    def _message_record(self, index: int, at: int | None) -> pa.RecordBatch:
        one, number = np.array([index]), self._number[[index]]
        if at is None:
            place, ordinal, origin = self._position[number], self._ordinal[one], self._origin_column(number)
            xid, committed = self._xid[number], self._committed[number]
        else:
            place, ordinal, origin = np.array([at]), np.array([0]), pa.nulls(1, pa.string())
            xid, committed = np.array([0]), self._log.clocks(one)
        return self._changes.records(
            one,
            position=place,
            ordinal=ordinal,
            table_ordinal=np.array([0]),
            xid=xid,
            committed=committed,
            origin=origin,
        )


def _prepend(first: int, rest: Ints) -> Ints:
    return np.concatenate([np.array([first], np.int64), rest])


def _transactions(rows: Sequence[tuple[int, int, int, int, int, int, str | None]]) -> pa.RecordBatch:
    names = TRANSACTIONS.names[:7]  # without a note
    return pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=TRANSACTIONS)
