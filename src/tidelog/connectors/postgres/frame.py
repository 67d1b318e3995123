"""From raw replication messages to blocks of records: framing only, one vectorised pass, nothing is decoded.

A message is a 25-byte header (kind, LSN, end of log, server clock) and one pgoutput message. Rows, begins and commits
are taken apart with numpy over the joined buffer; only what is rare (relations, truncates, logical messages, origins)
is looked at one by one. The framer remembers the transaction that is still open, so a transaction may span any
number of portions: its commit LSN stands already in its begin.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.connectors.postgres import position
from tidelog.connectors.postgres.wire import EPOCH_US, HEADER, Ints, Log, Relation, parse_relation
from tidelog.contracts import RECORDS, TRANSACTIONS, Block, Portion
from tidelog.errors import CorruptState
from tidelog.model.record import Op
from tidelog.model.schema import Table

_OPS = {"I": Op.CREATE, "U": Op.UPDATE, "D": Op.DELETE, "T": Op.TRUNCATE, "M": Op.MESSAGE}
_CODES = np.zeros(256, np.uint8)
for _kind, _op in _OPS.items():
    _CODES[ord(_kind)] = ord(_op)
_BEGIN, _COMMIT, _RELATION, _TYPE = ord("B"), ord("C"), ord("R"), ord("Y")
_ORIGIN, _TRUNCATE, _MESSAGE = ord("O"), ord("T"), ord("M")


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
        describe: Callable[[Relation, Table | None], Table],
        *,
        next_xid: int,
        tables: Sequence[Table] = (),
        with_collections: bool = False,
    ) -> None:
        self._describe = describe
        self._next_xid = next_xid
        self.with_collections = with_collections
        self.open: Open | None = None
        self._relations: dict[int, Relation] = {}
        self.tables: dict[int, Table] = {t.id: t for t in tables}
        self.end = 0

    def frame(self, messages: Sequence[memoryview | bytes]) -> Portion:
        portion = _Pass(self, Log(messages)).portion()
        self.end = max(self.end, portion.end)
        return portion

    def own(self, op: Op, tables: Sequence[Table | None], at: int, committed: int) -> Portion:
        """Records of our own at a free place: schema changes that wrote no row, heartbeats."""
        blocks = [Block(t, _own_record(op, at, committed)) for t in tables]
        for table in tables:
            if table is not None:
                self.tables[table.id] = table
                self._relations.pop(table.id, None)  # the next relation message is news, whatever it says
        self.end = at + 1
        return Portion(at + 1, blocks, _transactions([(at, at + 1, 0, committed, len(blocks), 0, None)]))

    def relate(self, relation: Relation) -> Table:
        """The table version of a relation message; described anew only when the message differs."""
        if self._relations.get(relation.oid) != relation:
            self._relations[relation.oid] = relation
            self.tables[relation.oid] = self._describe(relation, self.tables.get(relation.oid))
        return self.tables[relation.oid]

    def widen(self, xids: Ints) -> Ints:
        """Give 32-bit ids their epoch: the nearest to the newest id that the server has handed out."""
        wide = (self._next_xid & ~0xFFFFFFFF) | xids
        wide = np.where(wide - self._next_xid > 1 << 31, wide - (1 << 32), wide)
        wide = np.where(self._next_xid - wide > 1 << 31, wide + (1 << 32), wide)
        if len(wide):
            self._next_xid = max(self._next_xid, int(wide.max()))
        return wide


class _Pass:
    """One pass over a log: transactions, then records by table, cut where a table's description changes."""

    def __init__(self, framer: Framer, log: Log) -> None:
        self._framer = framer
        self._log = log
        self._known = dict(framer.tables)
        is_row = np.isin(log.kinds, [ord("I"), ord("U"), ord("D")])
        self._weights = is_row.astype(np.int64)
        self._index = np.flatnonzero(is_row)
        self._oid = log.be32(log.starts[self._index] + HEADER + 1)
        self._within = np.zeros(len(self._index), np.int64)
        self._messages: list[tuple[int, int | None]] = []
        self._cuts: dict[int, list[tuple[int, Table]]] = {}
        self._origins: dict[int, str] = {}
        self._outside: list[int] = []
        self._counts: dict[int, dict[str, int]] = {}
        self._rare(is_row)
        self._begins()

    def portion(self) -> Portion:
        blocks = self._table_blocks() + self._message_blocks()
        transactions, end = self._commits()
        self._remember()
        return Portion(end, [b for b in blocks if b.records.num_rows], transactions)

    # -- what is rare, one by one ------------------------------------------------------------------------------

    def _rare(self, is_row: NDArray[np.bool_]) -> None:
        truncates: list[tuple[int, int, int]] = []
        plain = is_row | np.isin(self._log.kinds, [_BEGIN, _COMMIT, _TYPE])
        for index in np.flatnonzero(~plain).tolist():
            kind, body = int(self._log.kinds[index]), self._log.body(index)
            if kind == _RELATION:
                self._relation(index, parse_relation(body))
            elif kind == _TRUNCATE:
                truncates += self._truncate(index, body)
            elif kind == _MESSAGE:
                self._message(index, body)
            elif kind == _ORIGIN:
                self._origins[index] = body[9:-1].decode()
            else:
                raise CorruptState(
                    f"The server sent a message of unknown kind {chr(kind)!r}.",
                    hint="Is the plugin of the slot pgoutput, and the server not newer than this tidelog knows?",
                )
        if truncates:
            self._insert(np.array(truncates, np.int64))

    def _relation(self, index: int, relation: Relation) -> None:
        before = self._framer.tables.get(relation.oid)
        table = self._framer.relate(relation)
        if before is None or before.fingerprint != table.fingerprint:
            self._cuts.setdefault(relation.oid, []).append((index, table))

    def _truncate(self, index: int, body: bytes) -> list[tuple[int, int, int]]:
        """One message, one record for each table that it names."""
        (count,) = struct.unpack_from(">i", body, 1)
        oids = struct.unpack_from(f">{count}I", body, 6)
        self._weights[index] = count
        return [(index, oid, k) for k, oid in enumerate(oids)]

    def _message(self, index: int, body: bytes) -> None:
        transactional, lsn = struct.unpack_from(">BQ", body, 1)
        self._weights[index] = 1 if transactional else 0
        if not transactional:
            self._outside.append(index)
        self._messages.append((index, None if transactional else position.of_message(lsn)))

    def _insert(self, truncates: Ints) -> None:
        index = np.concatenate([self._index, truncates[:, 0]])
        order = np.argsort(index, kind="stable")
        self._index = index[order]
        self._oid = np.concatenate([self._oid, truncates[:, 1]])[order]
        self._within = np.concatenate([self._within, truncates[:, 2]])[order]

    # -- transactions ------------------------------------------------------------------------------------------

    def _begins(self) -> None:
        """Number the transactions of this log; number 0 is the one that was open before."""
        log, carried = self._log, self._framer.open or Open()
        is_begin = log.kinds == _BEGIN
        at = log.starts[is_begin] + HEADER
        self._number = np.cumsum(is_begin)
        self._position = _prepend(carried.position, log.be64(at + 1) | (position.SLOTS - 1))
        self._committed = _prepend(carried.committed, log.be64(at + 9) + EPOCH_US)
        self._xid = _prepend(carried.xid, self._framer.widen(log.be32(at + 17)))
        before = np.cumsum(self._weights) - self._weights
        first = _prepend(-carried.events, before[is_begin])
        self._ordinal = before - first[self._number]
        self._carried = carried
        lengths = log.lengths.copy()
        lengths[self._outside] = 0
        self._sizes = np.bincount(self._number, weights=lengths, minlength=len(self._position)).astype(np.int64)
        self._sizes[0] += carried.bytes
        self._origin_of: dict[int, str | None] = {0: carried.origin}
        self._origin_of |= {int(self._number[index]): name for index, name in self._origins.items()}
        self._counts = {0: dict(carried.collections)}

    def _commits(self) -> tuple[pa.RecordBatch, int]:
        """The transactions that end here; those without an event are no news for anybody."""
        log = self._log
        indices = np.flatnonzero((log.kinds == _COMMIT) & (self._ordinal > 0))
        of = self._number[indices]
        ends = log.be64(log.starts[indices] + HEADER + 10)
        columns = [
            self._position[of],
            ends,
            self._xid[of],
            self._committed[of],
            self._ordinal[indices],
            self._sizes[of],
        ]
        lists = pa.array(map(self._collections, of.tolist()), pa.string())
        batch = pa.record_batch([*map(pa.array, columns), lists], schema=TRANSACTIONS)
        return self._with_loose_messages(batch, int(ends[-1]) if len(ends) else 0)

    def _collections(self, number: int) -> str | None:
        return json.dumps(self._counts.get(number, {})) if self._framer.with_collections else None

    def _with_loose_messages(self, batch: pa.RecordBatch, end: int) -> tuple[pa.RecordBatch, int]:
        """A message outside any transaction is one of its own."""
        rows = [(at, at + 1, 0, self._clock(i), 1, 0, None) for i, at in self._messages if at is not None]
        if not rows:
            return batch, end
        both = pa.Table.from_batches([batch, _transactions(rows)]).sort_by("position")
        return both.combine_chunks().to_batches()[0], max(end, rows[-1][1])

    def _clock(self, index: int) -> int:
        """The server's clock when it sent the message."""
        return int(self._log.be64(self._log.starts[index : index + 1] + 17)[0]) + EPOCH_US

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
                events=int(self._ordinal[-1] + self._weights[-1]),
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
        log, index = self._log, self._index[mine]
        numbers = self._number[index]
        return pa.record_batch(
            [
                pa.array(self._position[numbers]),
                pa.array(self._ordinal[index] + self._within[mine]),
                pa.array(table_ordinals),
                pa.array(self._xid[numbers]),
                pa.array(self._committed[numbers]),
                pa.array(log.be64(log.starts[index] + 1)),
                pa.array(_CODES[log.kinds[index]]),
                self._origin_column(numbers),
                log.payloads(index),
            ],
            schema=RECORDS,
        )

    def _origin_column(self, numbers: Ints) -> pa.Array:
        if not self._origins and self._carried.origin is None:
            return pa.nulls(len(numbers), pa.string())
        present, which = np.unique(numbers, return_inverse=True)
        return pa.array(map(self._origin_of.get, present.tolist()), pa.string()).take(pa.array(which))

    def _message_blocks(self) -> list[Block]:
        return [Block(None, self._message_record(index, at)) for index, at in self._messages]

    def _message_record(self, index: int, at: int | None) -> pa.RecordBatch:
        number = int(self._number[index])
        inside = at is None
        row = {
            "position": int(self._position[number]) if inside else at,
            "ordinal": int(self._ordinal[index]) if inside else 0,
            "table_ordinal": 0,
            "xid": int(self._xid[number]) if inside else 0,
            "committed": int(self._committed[number]) if inside else self._clock(index),
            "lsn": int(self._log.be64(self._log.starts[index : index + 1] + 1)[0]),
            "op": ord(Op.MESSAGE),
            "origin": self._origin_of.get(number) if inside else None,
            "payload": self._log.body(index),
        }
        return pa.RecordBatch.from_pylist([row], schema=RECORDS)


def _prepend(first: int, rest: Ints) -> Ints:
    return np.concatenate([np.array([first], np.int64), rest])


def _own_record(op: Op, at: int, committed: int) -> pa.RecordBatch:
    row = dict.fromkeys(RECORDS.names, 0) | {"position": at, "committed": committed, "lsn": position.resume(at)}
    return pa.RecordBatch.from_pylist([{**row, "op": ord(op), "origin": None, "payload": b""}], schema=RECORDS)


def _transactions(rows: Sequence[tuple[int, int, int, int, int, int, str | None]]) -> pa.RecordBatch:
    names = TRANSACTIONS.names
    return pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=TRANSACTIONS)
