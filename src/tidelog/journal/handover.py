"""From transactions that committed to portions of the journal, in commit order.

Most transactions are in memory, and share portions. A large one whose records lie on disk is not read: its portion
refers to them, and holds only what came after the last spill. Only where records were taken back, or several of them
tell one change, a transaction is read again and written clean, a piece at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.contracts import RECORDS, TRANSACTIONS, Block, Merging, Portion
from tidelog.core.undo import undone
from tidelog.journal import spill
from tidelog.journal.files import Files
from tidelog.journal.holding import Part, together
from tidelog.journal.spill import Piece
from tidelog.model.record import Mark
from tidelog.model.schema import Table

_INLINE_BYTES = 1 << 20
"""A transaction that has less than this on disk is copied: many small files are worse than one copy."""
_UNDO_ALL = ord(Mark.UNDO_ALL)

Ints = NDArray[np.int64]
MakeMerging = Callable[[int], Merging] | None


@dataclass(frozen=True)
class Commit:
    """A transaction that counts."""

    xid: int
    ordinal: int
    """Of its commit, in the reading."""
    position: int
    end: int
    committed: int
    note: str | None
    events: int
    bytes: int
    undone: bool
    merged: frozenset[str]
    """Fingerprints of its table versions of which several records may tell one change."""
    pieces: Sequence[Piece]
    parts: Sequence[Part]
    """What comes behind the pieces. Both are in the log's order."""

    @property
    def clean(self) -> bool:
        return not self.undone and not self.merged

    @property
    def spilled(self) -> int:
        return sum(p.bytes for p in self.pieces)


class Handover:
    def __init__(self, files: Files, merging: MakeMerging, portion_bytes: int, collections: bool) -> None:
        self._spills = spill.Reader(files)
        self._merging = merging
        self._portion = portion_bytes
        self._collections = collections

    def portions(self, commits: Sequence[Commit]) -> Iterator[Portion]:
        together: list[tuple[Commit, Sequence[Part]]] = []
        size = 0
        for commit in commits:
            if commit.spilled > _INLINE_BYTES and (commit.clean or commit.bytes > self._portion):
                yield from self._joined(together)
                yield from [self._referring(commit)] if commit.clean else self._rewritten(commit)
                together, size = [], 0
                continue
            together.append(self._cleaned(commit))
            size += commit.bytes
            if size > self._portion:
                yield from self._joined(together)
                together, size = [], 0
        yield from self._joined(together)

    def _joined(self, commits: Sequence[tuple[Commit, Sequence[Part]]]) -> Iterator[Portion]:
        told = [(commit, parts) for commit, parts in commits if parts]  # of some, everything was taken back
        if told:
            yield Portion(told[-1][0].end, blocks_of(told), self._transactions([c for c, _ in told]))

    def _referring(self, commit: Commit) -> Portion:
        extents = [piece.extent() for piece in commit.pieces]
        return Portion(commit.end, blocks_of([(commit, commit.parts)]), self._transactions([commit]), extents)

    # -- records that were taken back, or belong together ------------------------------------------------------

    def _cleaned(self, commit: Commit) -> tuple[Commit, Sequence[Part]]:
        """A transaction that fits into memory, as it counts."""
        parts = [*map(self._loaded, commit.pieces), *commit.parts]
        if commit.clean:
            return commit, parts
        kept = _kept(parts) if commit.undone else parts
        return _recounted(commit, _renumbered(self._merged(commit, kept)))

    def _rewritten(self, commit: Commit) -> Iterator[Portion]:
        """A transaction that does not: which records count is decided by their keys alone, then it is read a piece
        at a time. Its commit comes with the last portion."""
        lost = self._lost(commit)
        merging = self._merging(commit.xid) if commit.merged and self._merging is not None else None
        yield from _Rewriting(self, commit, lost, merging).portions()

    def _lost(self, commit: Commit) -> Ints:
        """The ordinals of the records that were taken back, in order."""
        if not commit.undone:
            return np.empty(0, np.int64)
        parts = [_Keys.of(p) for p in self.parts_of(commit)]
        return _lost([p for p in parts if not p.undo], [p for p in parts if p.undo])

    def parts_of(self, commit: Commit) -> Iterator[Part]:
        yield from map(self._loaded, commit.pieces)
        yield from commit.parts

    def _loaded(self, piece: Piece) -> Part:
        return Part.of(self._spills.read(piece), piece.table, undo=piece.undo)

    def _merged(self, commit: Commit, parts: Sequence[Part]) -> Sequence[Part]:
        if not commit.merged or self._merging is None:
            return parts
        merging = self._merging(commit.xid)
        others = [p for p in parts if not _belongs(p, commit)]
        return [*others, *merge(merging, [p for p in parts if _belongs(p, commit)])]

    # -- transactions ------------------------------------------------------------------------------------------

    def _transactions(self, commits: Sequence[Commit]) -> pa.RecordBatch:
        return self.transactions(
            [(c, c.events, c.bytes, self._counts(c) if self._collections else {}) for c in commits]
        )

    def _counts(self, commit: Commit) -> dict[str, int]:
        """Its events by table."""
        counts: dict[str, int] = {}
        told: list[Piece | Part] = [*commit.pieces, *commit.parts]
        for some in told:
            if some.table is not None:
                name = some.table.qualified
                counts[name] = counts.get(name, 0) + some.last - some.first
        return counts

    def transactions(self, told: Sequence[tuple[Commit, int, int, Mapping[str, int]]]) -> pa.RecordBatch:
        columns = [
            [c.position for c, *_ in told],
            [c.end for c, *_ in told],
            [c.xid for c, *_ in told],
            [c.committed for c, *_ in told],
            [events for _, events, _, _ in told],
            [size for _, _, size, _ in told],
            [json.dumps(dict(counts)) if self._collections else None for *_, counts in told],
            [c.note for c, *_ in told],
        ]
        arrays = [pa.array(values, kind.type) for values, kind in zip(columns, TRANSACTIONS, strict=True)]
        return pa.record_batch(arrays, schema=TRANSACTIONS)


class _Rewriting:
    """A large transaction on its way through: numbered without those that are lost."""

    def __init__(self, handover: Handover, commit: Commit, lost: Ints, merging: Merging | None) -> None:
        self._handover = handover
        self._commit = commit
        self._lost = lost
        self._merging = merging
        self._events = self._bytes = 0
        self._by_table: dict[int, int] = {}
        self._counts: dict[str, int] = {}

    def portions(self) -> Iterator[Portion]:
        none = self._handover.transactions([])
        for part in self._handover.parts_of(self._commit):
            if part.undo:
                continue
            rest = _without(part, self._lost)
            found = self._joined(rest)
            if found:
                yield Portion(0, found, none)
        last = self._numbered(self._merging.close() if self._merging is not None else ())
        if self._events:
            commit = (self._commit, self._events, self._bytes, self._counts)
            yield Portion(self._commit.end, last, self._handover.transactions([commit]))

    def _joined(self, part: Part) -> list[Block]:
        if not part.count:
            return []
        block = Block(part.table, part.records)
        merges = self._merging is not None and _belongs(part, self._commit)
        return self._numbered(self._merging.feed(block) if merges and self._merging is not None else [block])

    def _numbered(self, blocks: Sequence[Block]) -> list[Block]:
        return [self._number(block) for block in blocks if block.records.num_rows]

    def _number(self, block: Block) -> Block:
        n, number = block.records.num_rows, block.table.id if block.table is not None else -2
        within, old = self._by_table.get(number, 0), block.records.column("ordinal").to_numpy()
        rows = _with_ordinals(block.records, old - np.searchsorted(self._lost, old), np.arange(n) + within)
        self._events += n
        self._bytes += Part.of(rows, block.table).bytes
        self._by_table[number] = within + n
        if block.table is not None:
            self._counts[block.table.qualified] = self._counts.get(block.table.qualified, 0) + n
        return Block(block.table, spill.stamped(rows, self._commit.position, self._commit.committed))


@dataclass(frozen=True)
class _Keys:
    """What decides whether records count."""

    ordinals: Ints
    keys: Ints
    ops: NDArray[np.uint8]
    undo: bool

    @staticmethod
    def of(part: Part) -> _Keys:
        ordinals, keys, ops = (np.array(part.records.column(c).to_numpy()) for c in ("ordinal", "position", "op"))
        return _Keys(ordinals, keys, ops, part.undo)


def _lost(records: Sequence[_Keys], undos: Sequence[_Keys]) -> Ints:
    ordinals, keys = (np.concatenate([getattr(k, name) for k in records]) for name in ("ordinals", "keys"))
    at, undo_keys, ops = (np.concatenate([getattr(k, name) for k in undos]) for name in ("ordinals", "keys", "ops"))
    return np.sort(ordinals[undone(ordinals, keys, at, undo_keys, ops == _UNDO_ALL)])


def _kept(parts: Sequence[Part]) -> list[Part]:
    keys = [_Keys.of(p) for p in parts]
    if not any(not k.undo for k in keys):
        return []
    lost = _lost([k for k in keys if not k.undo], [k for k in keys if k.undo])
    return [rest for p in parts if not p.undo and (rest := _without(p, lost)).count]


def _without(part: Part, lost: Ints) -> Part:
    if not len(lost):
        return part
    mask = ~np.isin(part.records.column("ordinal").to_numpy(), lost)
    if mask.all():
        return part
    return Part.of(part.records.filter(pa.array(mask)), part.table)


def _belongs(part: Part, commit: Commit) -> bool:
    return part.table is not None and part.table.fingerprint in commit.merged


def merge(merging: Merging, parts: Sequence[Part]) -> list[Part]:
    """Feed the records in log order across tables: runs of neighbours of one table at a time."""
    found = [block for part, first, last in _in_log_order(parts) for block in _fed(merging, part, first, last)]
    found += merging.close()
    return [Part.of(b.records, b.table) for b in found if b.records.num_rows]


def _fed(merging: Merging, part: Part, first: int, last: int) -> Sequence[Block]:
    return merging.feed(Block(part.table, part.records.slice(first, last - first)))


def _in_log_order(parts: Sequence[Part]) -> Iterator[tuple[Part, int, int]]:
    if not parts:
        return
    ordinals = np.concatenate([p.records.column("ordinal").to_numpy() for p in parts])
    order = np.argsort(ordinals, kind="stable")
    owners = np.repeat(np.arange(len(parts)), [p.count for p in parts])[order]
    rows = np.concatenate([np.arange(p.count) for p in parts])[order]
    cuts = [*np.flatnonzero(np.concatenate([[True], owners[1:] != owners[:-1]])).tolist(), len(owners)]
    for low, high in pairwise(cuts):
        first = int(rows[low])
        yield parts[int(owners[low])], first, first + high - low


def _renumbered(parts: Sequence[Part]) -> list[Part]:
    """Ordinals without gaps, for the transaction and for each table."""
    if not parts:
        return []
    everything = np.sort(np.concatenate([p.records.column("ordinal").to_numpy() for p in parts]))
    by_table: dict[int, list[Ints]] = {}
    for part in parts:
        by_table.setdefault(_number_of(part), []).append(part.records.column("ordinal").to_numpy())
    ranks = {number: np.sort(np.concatenate(some)) for number, some in by_table.items()}
    found = []
    for part in sorted(parts, key=lambda part: part.ordinal):
        own = part.records.column("ordinal").to_numpy()
        rows = _with_ordinals(
            part.records, np.searchsorted(everything, own), np.searchsorted(ranks[_number_of(part)], own)
        )
        found.append(Part.of(rows, part.table))
    return found


def _recounted(commit: Commit, parts: Sequence[Part]) -> tuple[Commit, Sequence[Part]]:
    events, size = sum(p.count for p in parts), sum(p.bytes for p in parts)
    return replace(commit, events=events, bytes=size, pieces=(), parts=parts), parts


def blocks_of(commits: Sequence[tuple[Commit, Sequence[Part]]]) -> list[Block]:
    """One block for each run of records of one table version: where a table's version changes, another begins."""
    runs: dict[int, list[tuple[Table | None, list[tuple[Commit, Part]]]]] = {}
    for commit, parts in commits:
        for part in parts:
            mine = runs.setdefault(_number_of(part), [])
            if not mine or part.table is None or (mine[-1][0] is not part.table and mine[-1][0] != part.table):
                mine.append((part.table, []))
            mine[-1][1].append((commit, part))
    return [_block(table, pieces) for mine in runs.values() for table, pieces in mine]


def _block(table: Table | None, pieces: Sequence[tuple[Commit, Part]]) -> Block:
    rows = together([part for _, part in pieces])
    sizes = [part.count for _, part in pieces]
    columns = list(rows.columns)
    columns[0] = pa.array(np.repeat(np.array([c.position for c, _ in pieces], np.int64), sizes))
    columns[4] = pa.array(np.repeat(np.array([c.committed for c, _ in pieces], np.int64), sizes))
    return Block(table, pa.record_batch(columns, schema=RECORDS))


def _with_ordinals(rows: pa.RecordBatch, ordinals: Ints, within: Ints) -> pa.RecordBatch:
    columns = list(rows.columns)
    columns[1], columns[2] = pa.array(ordinals.astype(np.int64)), pa.array(within.astype(np.int64))
    return pa.record_batch(columns, schema=RECORDS)


def _number_of(part: Part) -> int:
    return part.table.id if part.table is not None else -2
