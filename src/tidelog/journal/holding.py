"""What open transactions hold, in memory and on disk.

A reading leaves *runs*: records of one table version, the transactions one after the other. What a transaction has in a
run is a *stretch* of it, known by its number: nothing is made for it but a pair. Only at the commit, or where records
are moved, a stretch becomes a `Part`. A run takes its memory until nobody needs a stretch of it any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.journal.spill import Ranges, Spilled
from tidelog.model.schema import Table

Ints = NDArray[np.int64]
_ROW_BYTES = 64
"""What a record takes beside its payload."""
_TINY_ROWS = 16
_MOSTLY = 0.75
_LISTED = 50_000
_NUMBERS = count()


@dataclass(slots=True)
class Part:
    """Rows [first, last): records of one transaction and one table version, in log order; `undo`: what takes records
    back."""

    rows: pa.RecordBatch
    first: int
    last: int
    table: Table | None
    undo: bool
    bytes: int

    @staticmethod
    def of(records: pa.RecordBatch, table: Table | None, *, undo: bool = False) -> Part:
        return Part(records, 0, records.num_rows, table, undo, int(np.diff(payload_edges(records, [0, -1]))[0]))

    @property
    def count(self) -> int:
        return self.last - self.first

    @property
    def ordinal(self) -> int:
        """Of its first record."""
        return int(self.rows.column("ordinal")[self.first].as_py())

    @property
    def records(self) -> pa.RecordBatch:
        return self.rows.slice(self.first, self.last - self.first)


Version = tuple[str, bool]
"""Which records may lie together: of one version of a table, or what takes some back."""


class Run:
    """Records that lie in memory together, and go together when no transaction needs one of them."""

    __slots__ = ("alive", "edges", "number", "rows", "sizes", "table", "undo", "version", "weight", "weights")

    def __init__(self, rows: pa.RecordBatch, table: Table | None, undo: bool, edges: Sequence[int]) -> None:
        """Stretch `k` has the rows from one edge to the next."""
        sizes = np.diff(payload_edges(rows, edges))
        weights = sizes + _ROW_BYTES * np.diff(edges)
        self.rows, self.table, self.undo, self.edges = rows, table, undo, edges
        self.version: Version = (table.fingerprint if table is not None else "", undo)
        self.sizes: list[int] = sizes.tolist()
        self.weights: list[int] = weights.tolist()
        self.weight = int(weights.sum())
        self.alive = 0
        """Weight of the stretches that somebody needs."""
        self.number = next(_NUMBERS)
        """A transaction has its later records in a later run."""

    def part(self, k: int) -> Part:
        return Part(self.rows, self.edges[k], self.edges[k + 1], self.table, self.undo, self.sizes[k])


Stretch = tuple[Run, int]


@dataclass(slots=True, eq=False)
class Open:
    """A transaction whose end has not come yet."""

    xid: int
    begin: int
    since_us: int
    events: int = 0
    bytes: int = 0
    undos: int = 0
    """How many marks take records of it back."""
    unwatched_us: int = 0
    """How long nobody read the log since then: that is no age of its own."""
    by_table: dict[int, int] = field(default_factory=dict)
    merged: frozenset[str] = frozenset()
    held: int = 0
    """Bytes in memory."""
    stretches: list[Stretch] = field(default_factory=list)
    """Its records in memory."""
    pieces: list[Spilled] = field(default_factory=list)
    """Its records on disk; they come before those in memory."""

    @property
    def life(self) -> tuple[int, int, int]:
        """Ids come again: this tells whether it is the same transaction."""
        return self.xid, self.begin, self.since_us

    def parts(self) -> list[Part]:
        """What it has in memory, as the log told it."""
        parts = [run.part(k) for run, k in self.stretches]
        return sorted(parts, key=lambda part: part.ordinal) if len(parts) > 1 else parts


class Memory:
    """How much of it is taken."""

    def __init__(self) -> None:
        self.held = 0
        """By the records of open transactions."""
        self.pinned = 0
        """By the runs that these lie in."""

    def keep(self, one: Open, run: Run, k: int) -> None:
        weight = run.weights[k]
        one.stretches.append((run, k))
        one.held += weight
        self.held += weight
        if not run.alive:
            self.pinned += run.weight
        run.alive += weight

    def release(self, one: Open) -> list[Stretch]:
        """What it had, which is not counted from now on."""
        for run, k in one.stretches:
            run.alive -= run.weights[k]
            if not run.alive:
                self.pinned -= run.weight
        self.held -= one.held
        released, one.held, one.stretches = one.stretches, 0, []
        return released

    def compact(self, transactions: Iterable[Open]) -> None:
        """Let go the runs that these transactions lie in: their own records are a part of them."""
        versions: dict[Version, list[tuple[Open, Stretch]]] = {}
        for one in transactions:
            for stretch in self.release(one):
                versions.setdefault(stretch[0].version, []).append((one, stretch))
        for found in versions.values():
            run = _copied([stretch for _, stretch in found])
            for k, (one, _) in enumerate(found):
                self.keep(one, run, k)


class Disk:
    """Where their records lie on disk."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.pieces = dict.fromkeys(paths, 0)
        """By spill, how many of its ranges somebody needs."""
        self._alive = self._pinned = 0

    def keep(self, ranges: Ranges, owners: Sequence[Open]) -> None:
        """A whole block."""
        for k, one in enumerate(owners):
            one.pieces.append((ranges, k))
        self.count(ranges, len(owners))

    def count(self, ranges: Ranges, n: int = 1) -> None:
        self.pieces[ranges.path] += n
        self._alive += n
        if not ranges.alive:
            self._pinned += len(ranges.firsts)
        ranges.alive += n

    def release(self, one: Open) -> list[Spilled]:
        for ranges, _ in one.pieces:
            self.pieces[ranges.path] -= 1
            self._alive -= 1
            ranges.alive -= 1
            if not ranges.alive:
                self._pinned -= len(ranges.firsts)
        released, one.pieces = one.pieces, []
        return released

    def loosen(self, transactions: Iterable[Open]) -> None:
        """Whoever needs one range of a block keeps the list of all: if most of them are gone, it gets its own."""
        if self._pinned > 2 * self._alive + _LISTED:
            for one in transactions:
                one.pieces = [(ranges.alone(k), 0) for ranges, k in self.release(one)]
                for ranges, _ in one.pieces:
                    self.count(ranges)

    def used(self) -> set[str]:
        return {path for path, pieces in self.pieces.items() if pieces}


@dataclass(frozen=True)
class Bundle:
    """Records of one table version that are laid down together, the transactions one after the other."""

    table: Table | None
    undo: bool
    rows: pa.RecordBatch
    owners: Sequence[Open]
    firsts: Sequence[int]
    lasts: Sequence[int]
    """Of each owner the rows [first, last)."""


@dataclass(slots=True)
class _Lying:
    """What some transactions have in a run."""

    run: Run
    owners: list[Open] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """Of the stretches."""

    def is_alive(self) -> bool:
        """Whether most of the run is still needed, and the stretches are not tiny."""
        edges = self.run.edges
        wanted = sum([edges[k + 1] - edges[k] for k in self.numbers])
        return wanted >= _MOSTLY * self.run.rows.num_rows and wanted >= _TINY_ROWS * len(self.numbers)

    def bundle(self, most: int) -> Bundle:
        edges = self.run.edges
        firsts, lasts = [edges[k] for k in self.numbers], [edges[k + 1] for k in self.numbers]
        return _bundle(self.run, self.run.rows, self.owners, firsts, lasts, most)


def bundled(transactions: Iterable[Open], most: int) -> Iterator[Bundle]:
    """What these hold, by table version. A run is laid down as it lies in memory if it is alive, because then nothing
    is copied; else it is gathered with its neighbours. Runs follow each other as they were read, so each transaction's
    records stay in order. No range has more than so many rows."""
    lying: dict[Run, _Lying] = {}
    for one in transactions:
        for run, k in one.stretches:
            found = lying.get(run) or lying.setdefault(run, _Lying(run))
            found.owners.append(one)
            found.numbers.append(k)
    in_turn = sorted(lying.values(), key=lambda found: (found.run.version, found.run.number))
    for (_, alive), some in groupby(in_turn, lambda found: (found.run.version, found.is_alive())):
        neighbours = list(some)
        yield from (found.bundle(most) for found in neighbours) if alive else [_gathered(neighbours, most)]


def _gathered(lying: Sequence[_Lying], most: int) -> Bundle:
    """Transaction by transaction."""
    owned = [(one, (found.run, k)) for found in lying for one, k in zip(found.owners, found.numbers, strict=True)]
    owned.sort(key=lambda pair: pair[0].xid)
    rows, edges = _joined([stretch for _, stretch in owned])
    return _bundle(lying[0].run, rows, [one for one, _ in owned], edges[:-1], edges[1:], most)


def _bundle(
    like: Run, rows: pa.RecordBatch, owned: Sequence[Open], firsts: Sequence[int], lasts: Sequence[int], most: int
) -> Bundle:
    """Neighbours of one transaction are one range, unless it has too many rows."""
    owners: list[Open] = []
    lows: list[int] = []
    highs: list[int] = []
    for one, first, last in zip(owned, firsts, lasts, strict=True):
        low = first
        if owners and owners[-1] is one and highs[-1] == first:
            low = lows.pop()
            del owners[-1], highs[-1]
        while last - low > most:
            owners.append(one)
            lows.append(low)
            low += most
            highs.append(low)
        owners.append(one)
        lows.append(low)
        highs.append(last)
    return Bundle(like.table, like.undo, rows, owners, lows, highs)


# -- moving records ------------------------------------------------------------------------------------------------


def together(parts: Sequence[Part]) -> pa.RecordBatch:
    """The records of many parts, one after the other: copied at once, because parts may be tiny."""
    if len(parts) == 1:
        return parts[0].records
    return _picked([p.rows for p in parts], _ints([p.first for p in parts]), _ints([p.last for p in parts]))


def _joined(stretches: Sequence[Stretch]) -> tuple[pa.RecordBatch, list[int]]:
    """The records of many stretches, one after the other, and their edges."""
    firsts, lasts = (_ints([run.edges[k + i] for run, k in stretches]) for i in (0, 1))
    edges: list[int] = np.concatenate([[0], np.cumsum(lasts - firsts)]).tolist()
    return _picked([run.rows for run, _ in stretches], firsts, lasts), edges


def _copied(stretches: Sequence[Stretch]) -> Run:
    """A run of its own: never a view of something larger."""
    rows, edges = _joined(stretches)
    run = stretches[0][0]
    return Run(rows, run.table, run.undo, edges)


def _picked(batches: Sequence[pa.RecordBatch], firsts: Ints, lasts: Ints) -> pa.RecordBatch:
    """Of each batch these rows, one after the other; a batch may come many times."""
    by_batch: dict[int, list[int]] = {}
    for i, batch in enumerate(batches):
        by_batch.setdefault(id(batch), []).append(i)
    counts, at = lasts - firsts, np.empty(len(firsts), np.int64)
    taken, total = [], 0
    for mine in by_batch.values():
        lying = np.array(mine)[np.argsort(firsts[mine], kind="stable")]  # as they lie: often that is all of it
        at[lying] = total + np.cumsum(counts[lying]) - counts[lying]
        total += int(counts[lying].sum())
        taken.append(_taken(batches[mine[0]], _stretched(firsts[lying], counts[lying])))
    joined = pa.concat_batches(taken)
    del taken
    return _taken(joined, _stretched(at, counts))


def _stretched(firsts: Ints, counts: Ints) -> Ints:
    """The numbers of all rows of stretches that begin there and have so many."""
    ends = np.cumsum(counts)
    return np.repeat(firsts - ends + counts, counts) + np.arange(ends[-1])


def _taken(rows: pa.RecordBatch, wanted: Ints) -> pa.RecordBatch:
    """These rows; a copy only if they are not all of them in their own order."""
    whole = len(wanted) == rows.num_rows and bool((wanted[1:] > wanted[:-1]).all())
    return rows if whole else rows.take(pa.array(wanted))


def payload_edges(rows: pa.RecordBatch, edges: Sequence[int]) -> Ints:
    """Where in the payloads these rows begin."""
    column = rows.column("payload")
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return offsets[edges].astype(np.int64)


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, np.int64)
