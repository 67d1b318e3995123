"""Framing of a log that streams: large transactions come in pieces while they are open, between those that come whole.

A piece stands between a stream start and a stream stop, and each of its changes carries the id of its
sub-transaction, which is the key by which it is undone. What becomes of it (stream commit, stream abort) is told
later. Transactions that come whole are records and a commit. The server never puts one into the other, so at any
place of the log there is one transaction that speaks, or none.

As in `frame`, all is one vectorised pass; what is rare is looked at one by one, in the order of the log.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidelog.connectors.postgres import position
from tidelog.connectors.postgres.changes import Changes
from tidelog.connectors.postgres.versions import Locked, Own, Surely, Versions
from tidelog.connectors.postgres.wire import EPOCH_US, Ints, StreamedLog, parse_relation
from tidelog.connectors.postgres.xids import Xids
from tidelog.contracts import MARKS, Block, Merging, Mixed
from tidelog.errors import CorruptState
from tidelog.model.record import Mark
from tidelog.model.schema import Table

_BEGIN, _COMMIT, _START, _STOP = ord("B"), ord("C"), ord("S"), ord("E")
_PASSED = "BCYSE"
_FIRST = 5
"""Where a stream start says whether it is the transaction's first."""
_EVERYBODY = 0
"""Whose versions of tables the transactions see that come whole."""


@dataclass
class Stream:
    """A transaction that is open and partly told."""

    versions: Own = field(default_factory=Own)
    origin: str | None = None


@dataclass(frozen=True)
class Speaker:
    """The transaction that speaks where a log begins or ends."""

    xid: int = 0
    streams: bool = False
    events: int = 0
    origin: str | None = None


class Streams:
    """Frames a log that streams; what it also needs of a log that does not is shared with its `Framer`."""

    def __init__(self, versions: Versions, xids: Xids, locked: Locked) -> None:
        self.versions = versions
        self.xids = xids
        self.locked = locked
        self.streams: dict[int, Stream] = {}
        self.speaker: Speaker | None = None
        self.sure: dict[int, dict[str, Table]] = {}
        """What the commits of the last log made sure of, by transaction."""
        self.end = 0

    @property
    def inside(self) -> bool:
        """Whether a piece of a stream is half read."""
        return self.speaker is not None and self.speaker.streams

    def frame(self, messages: Sequence[memoryview | bytes]) -> Mixed:
        self.sure = {}
        self.versions.refresh()
        return _Pass(self, StreamedLog(messages, inside=self.inside)).mixed()

    def merging(self, xid: int) -> Merging:
        return Surely(self.sure.get(xid, {}))

    def drafts(self) -> frozenset[str]:
        return frozenset(name for stream in self.streams.values() for name in stream.versions.drafts)


class _Pass:
    """One pass over a log: who speaks, then records by table version, then what becomes of the transactions."""

    def __init__(self, framer: Streams, log: StreamedLog) -> None:
        self._framer = framer
        self._log = log
        self._speakers()
        self._known = {xid: {o: t.table for o, t in s.versions.told.items()} for xid, s in framer.streams.items()}
        self._known[_EVERYBODY] = dict(framer.versions.tables)
        self._cuts: dict[tuple[int, int], list[tuple[int, Table]]] = {}
        # Before the catalog is asked for anything: when there is no lock, whatever had one is over and shows there.
        related = log.streamed & (log.kinds == ord("R"))
        self._locked = framer.locked() if related.any() else ()
        self._ends: list[tuple[int, int, int, int]] = []
        self._drafts = framer.drafts()
        rare = {"R": self._relation, "c": self._stream_commit, "A": self._stream_abort}
        self._changes = Changes(log, _PASSED, rare)
        self._places()
        self._learn_origins()

    def mixed(self) -> Mixed:
        blocks = self._table_blocks() + self._message_blocks()
        marks = self._marks()
        self._remember()
        return Mixed(blocks, marks, self._framer.end, self._drafts)

    # -- who speaks --------------------------------------------------------------------------------------------

    def _speakers(self) -> None:
        """Number the transactions in the order in which they speak; number 0 is the one that spoke before."""
        log, carried = self._log, self._framer.speaker or Speaker()
        begins, starts = log.kinds == _BEGIN, log.kinds == _START
        speaks = np.flatnonzero(begins | starts)
        self._number = np.cumsum(begins | starts)
        self._streams = np.concatenate([[carried.streams], starts[speaks]])
        at = log.bodies[speaks] + np.where(starts[speaks], 1, 17)
        self._xid = np.concatenate([[carried.xid], self._framer.xids.widen(log.be32(at))]).astype(np.int64)
        self._undone_by = np.zeros(len(log.kinds), np.int64)
        self._undone_by[log.streamed] = self._framer.xids.widen(log.subs[log.streamed])
        self._carried = carried
        firsts = log.bytes[log.bodies[speaks] + _FIRST] == 1
        self._stream_of = {0: self._framer.streams[carried.xid]} if carried.streams else {}
        for number in (1 + np.flatnonzero(starts[speaks])).tolist():
            self._stream_of[number] = self._stream(int(self._xid[number]), bool(firsts[number - 1]))

    def _stream(self, xid: int, first: bool) -> Stream:
        if first:
            self._framer.streams[xid] = Stream()
        elif xid not in self._framer.streams:
            raise CorruptState(f"The transaction {xid} goes on that never began.", hint="Restart the capture.")
        return self._framer.streams[xid]

    def _places(self) -> None:
        """Number records and marks in the order of the log."""
        log, changes = self._log, self._changes
        own = np.isin(log.kinds, [_BEGIN, _COMMIT, _START, ord("c"), ord("A")]).astype(np.int64)
        own[[index for index, _ in changes.loose]] = 2  # a record and its commit
        weights = changes.weights + own
        self._place = np.cumsum(weights) - weights
        events = np.bincount(self._number, weights=changes.weights, minlength=len(self._xid)).astype(np.int64)
        events[0] += self._carried.events
        self._events = events

    def _remember(self) -> None:
        """Keep who speaks where this log ends."""
        log = self._log
        turns = np.flatnonzero(np.isin(log.kinds, [_BEGIN, _COMMIT, _START, _STOP]))
        if len(turns) and log.kinds[turns[-1]] in (_COMMIT, _STOP):
            self._framer.speaker = None
        elif len(turns) or self._framer.speaker is not None:
            last = len(self._xid) - 1
            xid, streams, events = int(self._xid[last]), bool(self._streams[last]), int(self._events[last])
            self._framer.speaker = Speaker(xid, streams, events, self._origin_of.get(last))

    # -- what is rare, one by one ------------------------------------------------------------------------------

    def _relation(self, index: int, body: bytes) -> None:
        relation = parse_relation(body)
        number = self._number[index]
        scope = int(self._xid[number]) if self._streams[number] else _EVERYBODY
        everybody = self._framer.versions
        if scope == _EVERYBODY:
            self._cut(index, scope, everybody.tables.get(relation.oid), everybody.relate(relation))
        else:
            own = self._framer.streams[scope].versions
            self._cut(index, scope, own.table(relation.oid), own.relate(relation, everybody, self._locked))
            self._drafts |= own.drafts.keys()

    def _cut(self, index: int, scope: int, before: Table | None, table: Table) -> None:
        if before is None or before.fingerprint != table.fingerprint:
            self._cuts.setdefault((scope, table.id), []).append((index, table))

    def _stream_commit(self, index: int, body: bytes) -> None:
        xid = self._wide(body, 1)
        stream = self._framer.streams.pop(xid, None)
        if stream is None:
            raise CorruptState(f"The transaction {xid} commits that never began.", hint="Restart the capture.")
        self._ends.append((index, ord(Mark.COMMIT), xid, 0))
        before = dict(self._framer.versions.tables)
        self._framer.sure[xid] = stream.versions.commit(self._framer.versions, self._framer.locked)
        for oid in stream.versions.told:
            self._cut(index, _EVERYBODY, before.get(oid), self._framer.versions.tables[oid])

    def _stream_abort(self, index: int, body: bytes) -> None:
        xid, sub = self._wide(body, 1), self._wide(body, 5)
        if xid not in self._framer.streams:
            return  # PostgreSQL 18 tells it also of transactions of which nothing has come
        self._ends.append((index, ord(Mark.ROLLBACK if sub == xid else Mark.UNDO_ALL), xid, sub))
        if sub == xid:
            del self._framer.streams[xid]
        else:
            self._framer.streams[xid].versions.undo()

    def _wide(self, body: bytes, at: int) -> int:
        return int(self._framer.xids.widen(np.array(struct.unpack_from(">I", body, at), np.int64))[0])

    # -- records -----------------------------------------------------------------------------------------------

    def _table_blocks(self) -> list[Block]:
        """One block for each table version; where a table has several here, one for each run of it."""
        runs: dict[int, list[tuple[Table, Ints]]] = {}
        for scope, oid, mine in self._grouped():
            runs.setdefault(oid, []).extend(self._runs(scope, oid, mine))
        blocks = []
        for pieces in runs.values():
            if len({table.fingerprint for table, _ in pieces}) == 1:
                pieces = [(pieces[0][0], np.sort(np.concatenate([mine for _, mine in pieces])))]
            blocks += sorted(pieces, key=lambda piece: int(piece[1][0]))
        return [Block(table, self._records(mine)) for table, mine in blocks]

    def _grouped(self) -> list[tuple[int, int, Ints]]:
        """The records by whose versions they are told under, and by table."""
        changes = self._changes
        if not len(changes.index):
            return []
        numbers = self._number[changes.index]
        scopes, which = np.unique(np.where(self._streams, self._xid, _EVERYBODY), return_inverse=True)
        keys = (which[numbers].astype(np.int64) << 32) | changes.oid
        order = np.argsort(keys, kind="stable")
        firsts = np.flatnonzero(np.concatenate([[True], np.diff(keys[order]) != 0]))
        found = [int(key) for key in keys[order[firsts]]]
        parts = np.split(order, firsts[1:])
        return [(int(scopes[k >> 32]), k & 0xFFFFFFFF, mine) for k, mine in zip(found, parts, strict=True)]

    def _runs(self, scope: int, oid: int, mine: Ints) -> list[tuple[Table, Ints]]:
        cuts = self._cuts.get((scope, oid), [])
        edges = np.searchsorted(self._changes.index[mine], [index for index, _ in cuts])
        runs = np.split(mine, edges)
        tables = [self._known.get(scope, {}).get(oid), *(table for _, table in cuts)]
        found = [(table, run) for table, run in zip(tables, runs, strict=True) if len(run)]
        if any(table is None for table, _ in found):
            raise CorruptState(f"Rows of an unknown relation {oid} came from the server.", hint="Restart the capture.")
        return [(table, run) for table, run in found if table is not None]

    def _records(self, mine: Ints) -> pa.RecordBatch:
        index = self._changes.index[mine]
        return self._told(index, self._changes.within[mine])

    def _told(self, index: Ints, within: Ints) -> pa.RecordBatch:
        numbers, zeros = self._number[index], np.zeros(len(index), np.int64)
        return self._changes.records(
            index,
            position=self._undone_by[index],
            ordinal=self._place[index] + within,
            table_ordinal=zeros,
            xid=self._xid[numbers],
            committed=zeros,
            origin=self._origin_column(numbers),
        )

    def _message_blocks(self) -> list[Block]:
        inside = np.array([index for index, at in self._changes.messages if at is None], np.int64)
        loose = np.array([index for index, _ in self._changes.loose], np.int64)
        blocks = [Block(None, self._told(inside, np.zeros(len(inside), np.int64)))] if len(inside) else []
        return [*blocks, Block(None, self._loose(loose))] if len(loose) else blocks

    def _loose(self, index: Ints) -> pa.RecordBatch:
        zeros, nobody = np.zeros(len(index), np.int64), pa.nulls(len(index), pa.string())
        return self._changes.records(
            index,
            position=zeros,
            ordinal=self._place[index],
            table_ordinal=zeros,
            xid=zeros,
            committed=zeros,
            origin=nobody,
        )

    # -- origins -----------------------------------------------------------------------------------------------

    def _learn_origins(self) -> None:
        """Of a stream it is told once, in its first piece."""
        self._origin_of = {0: self._carried.origin}
        for index, name in self._changes.origins.items():
            number = int(self._number[index])
            if number in self._stream_of:
                self._stream_of[number].origin = name
            self._origin_of[number] = name
        self._origin_of |= {n: s.origin for n, s in self._stream_of.items() if s.origin is not None}

    def _origin_column(self, numbers: Ints) -> pa.StringArray:
        if not any(self._origin_of.values()):
            return pa.nulls(len(numbers), pa.string())
        present, which = np.unique(numbers, return_inverse=True)
        return pa.array(map(self._origin_of.get, present.tolist()), pa.string()).take(pa.array(which))

    # -- what becomes of the transactions ----------------------------------------------------------------------

    def _marks(self) -> pa.RecordBatch:
        rows = _in_order([self._starts(), self._commits(), self._stream_ends(), self._loose_commits()])
        commits = rows[:, 2] == ord(Mark.COMMIT)
        self._framer.end = max(self._framer.end, int(rows[commits, 5].max(initial=0)))
        return _marks(rows)

    def _starts(self) -> Ints:
        """Streams that begin: whatever was known of them counts no more."""
        log = self._log
        index = np.flatnonzero(log.kinds == _START)
        index = index[log.bytes[log.bodies[index] + _FIRST] == 1]
        return _rows(self._place[index], self._xid[self._number[index]], Mark.BEGIN, position=log.lsns(index))

    def _commits(self) -> Ints:
        """Of transactions that came whole; those without an event are no news for anybody."""
        log = self._log
        index = np.flatnonzero((log.kinds == _COMMIT) & (self._events[self._number] > 0))
        return self._committed(index, self._xid[self._number[index]], log.bodies[index] + 2)

    def _stream_ends(self) -> Ints:
        index, kinds, xids, subs = np.array(self._ends, np.int64).reshape(-1, 4).T
        done = kinds == ord(Mark.COMMIT)
        commits = self._committed(index[done], xids[done], self._log.bodies[index[done]] + 6)
        undone = _rows(self._place[index[~done]], xids[~done], Mark.ROLLBACK)
        undone[:, 2], undone[:, 3] = kinds[~done], subs[~done]
        return np.concatenate([commits, undone])

    def _loose_commits(self) -> Ints:
        index, at = np.array(self._changes.loose, np.int64).reshape(-1, 2).T
        clocks = self._log.clocks(index)
        return _rows(self._place[index] + 1, 0, Mark.COMMIT, position=at, end=at + 1, committed=clocks)

    def _committed(self, index: Ints, xids: Ints, at: Ints) -> Ints:
        """Commits of which place, end and time stand at `at`."""
        log = self._log
        places, ends, times = log.be64(at) | (position.SLOTS - 1), log.be64(at + 8), log.be64(at + 16) + EPOCH_US
        return _rows(self._place[index], xids, Mark.COMMIT, position=places, end=ends, committed=times)


def _rows(
    ordinals: Ints,
    xids: Ints | int,
    kind: Mark,
    *,
    position: Ints | int = 0,
    end: Ints | int = 0,
    committed: Ints | int = 0,
) -> Ints:
    """Marks as a table of numbers: ordinal, xid, kind, key, position, end, committed."""
    columns = [ordinals, xids, ord(kind), 0, position, end, committed]
    return np.stack(np.broadcast_arrays(*(np.asarray(c, np.int64) for c in columns)), axis=1).copy()


def _in_order(parts: Sequence[Ints]) -> Ints:
    rows = np.concatenate(parts)
    return rows[np.argsort(rows[:, 0], kind="stable")]


def _marks(rows: Ints) -> pa.RecordBatch:
    columns = [pa.array(np.ascontiguousarray(c)) for c in rows.T]
    columns[2] = columns[2].cast(pa.uint8())
    return pa.record_batch([*columns, pa.nulls(len(rows), pa.string())], schema=MARKS)
