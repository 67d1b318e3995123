"""One reading of a mixed log, sorted by transaction.

Everything is done with numpy over the whole reading; Python sees one `Group` for each transaction that the reading
touches. A transaction that ends and begins again in one reading (ids of our own do) has a group for each of its lives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.contracts import RECORDS, Block, Mixed
from tidelog.model.record import Mark
from tidelog.model.schema import Table

Ints = NDArray[np.int64]
_BEGIN, _UNDO, _UNDO_ALL = ord(Mark.BEGIN), ord(Mark.UNDO), ord(Mark.UNDO_ALL)
_ENDS = [ord(Mark.COMMIT), ord(Mark.ROLLBACK)]
_ROW_BYTES = 64
"""What a record takes beside its payload."""
_TINY_ROWS = 16
_MOSTLY = 0.75


Version = tuple[str | None, bool]
"""Which records lie together: of one version of a table, or what takes some back."""


@dataclass(slots=True)
class Run:
    """Records that lie in memory together, and go together when no transaction needs one of them."""

    weight: int
    alive: int = 0


@dataclass(slots=True)
class Part:
    """Rows [first, last) of a run: records of one transaction and one table version, in log order; `undo`: what takes
    records back."""

    rows: pa.RecordBatch
    first: int
    last: int
    table: Table | None
    undo: bool
    bytes: int
    weight: int
    run: Run | None = None

    @staticmethod
    def of(records: pa.RecordBatch, table: Table | None, *, undo: bool = False, run: Run | None = None) -> Part:
        n, size = records.num_rows, payload_bytes(records)
        return Part(records, 0, n, table, undo, size, size + _ROW_BYTES * n, run)

    @property
    def count(self) -> int:
        return self.last - self.first

    @property
    def version(self) -> Version:
        return (self.table.fingerprint if self.table is not None else None, self.undo)

    @property
    def records(self) -> pa.RecordBatch:
        return self.rows.slice(self.first, self.last - self.first)


def together(parts: Sequence[Part]) -> pa.RecordBatch:
    """The records of many parts, one after the other: copied at once, because parts may be tiny."""
    if len(parts) == 1:
        return parts[0].records
    by_run: dict[int, list[int]] = {}
    for i, part in enumerate(parts):
        by_run.setdefault(id(part.rows), []).append(i)
    firsts, lasts = (np.array([getattr(p, name) for p in parts], np.int64) for name in ("first", "last"))
    counts, at = lasts - firsts, np.empty(len(parts), np.int64)
    taken, total = [], 0
    for mine in by_run.values():
        at[mine] = total + np.cumsum(counts[mine]) - counts[mine]
        total += int(counts[mine].sum())
        taken.append(_taken(parts[mine[0]].rows, _stretched(firsts[mine], counts[mine])))
    return _taken(pa.concat_batches(taken), _stretched(at, counts))


def _stretched(firsts: Ints, counts: Ints) -> Ints:
    """The numbers of all rows of stretches that begin there and have so many."""
    ends = np.cumsum(counts)
    return np.repeat(firsts - ends + counts, counts) + np.arange(ends[-1])


def _taken(rows: pa.RecordBatch, wanted: Ints) -> pa.RecordBatch:
    """These rows; a copy only if they are not all of them in their own order."""
    whole = len(wanted) == rows.num_rows and bool((wanted[1:] > wanted[:-1]).all())
    return rows if whole else rows.take(pa.array(wanted))


def copied(parts: Sequence[Part]) -> pa.RecordBatch:
    """As `together`, but never a view of something larger."""
    rows = together(parts)
    alone = len(parts) == 1 and parts[0].count < parts[0].rows.num_rows
    return rows.take(pa.array(np.arange(len(rows)))) if alone else rows


Owned = tuple[int, Part]
"""A part, and whose it is."""


@dataclass(frozen=True)
class Bundle:
    """Records of one table version that are laid down together: the transactions one after the other."""

    table: Table | None
    undo: bool
    rows: pa.RecordBatch
    stretches: Sequence[tuple[int, int, int]]
    """Of a transaction the first row, and the one behind its last."""

    def pieces(self, most: int) -> tuple[list[tuple[int, int]], list[int]]:
        """Rows of at most so many, and whose they are; neighbours of one transaction are one piece."""
        edges: list[tuple[int, int]] = []
        owners: list[int] = []
        for xid, begin, end in self.stretches:
            first = begin
            if owners and owners[-1] == xid and edges[-1][1] == begin:
                first = edges.pop()[0]
                owners.pop()
            for low in range(first, end, most):
                edges.append((low, min(low + most, end)))
                owners.append(xid)
        return edges, owners


def bundled(parts: Iterable[Owned]) -> Iterator[Bundle]:
    """What comes by transaction, by table version: its runs as they lie in memory, if most of them is still needed and
    their parts are not tiny, because then nothing is copied; else all in one bundle. Never both: the records of a
    transaction would be out of order."""
    versions: dict[Version, list[Owned]] = {}
    for owned in parts:
        versions.setdefault(owned[1].version, []).append(owned)
    for found in versions.values():
        runs: dict[int, list[Owned]] = {}
        for owned in found:
            runs.setdefault(id(owned[1].rows), []).append(owned)
        if _are_alive(runs.values()):
            yield from map(_as_it_lies, runs.values())
        else:
            yield _gathered(found)


def _are_alive(runs: Collection[Sequence[Owned]]) -> bool:
    wanted = sum(part.count for parts in runs for _, part in parts)
    there = sum(parts[0][1].rows.num_rows for parts in runs)
    return wanted >= _MOSTLY * there and wanted >= _TINY_ROWS * sum(map(len, runs))


def _as_it_lies(parts: Sequence[Owned]) -> Bundle:
    stretches = sorted(((xid, part.first, part.last) for xid, part in parts), key=lambda s: s[1])
    one = parts[0][1]
    return Bundle(one.table, one.undo, one.rows, stretches)


def _gathered(parts: Sequence[Owned]) -> Bundle:
    ends = np.cumsum([part.count for _, part in parts]).tolist()
    stretches = [(xid, end - part.count, end) for (xid, part), end in zip(parts, ends, strict=True)]
    one = parts[0][1]
    return Bundle(one.table, one.undo, together([part for _, part in parts]), stretches)


def payload_bytes(rows: pa.RecordBatch) -> int:
    column = rows.column("payload")
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    return int(offsets[column.offset + len(column)] - offsets[column.offset])


@dataclass(slots=True)
class Group:
    """What a reading says of one transaction, until it ends or the reading does."""

    xid: int
    begins: bool
    """Whatever was known of this transaction counts no more."""
    begin: int
    """Where it begins, if this is the first that is seen of it."""
    end: int = 0
    """The mark that ends it; 0: still open."""
    at: int = 0
    position: int = 0
    after: int = 0
    committed: int = 0
    note: str | None = None
    events: int = 0
    parts: list[Part] = field(default_factory=list)


class _Sorted:
    """All records and marks of a reading by transaction, then by their place in it."""

    def __init__(self, mixed: Mixed) -> None:
        marks = mixed.marks
        batches = [*(b.records for b in mixed.blocks), marks]
        self.sizes = [batch.num_rows for batch in batches]
        self.records = sum(self.sizes[:-1])
        xids = np.concatenate([batch.column("xid").to_numpy() for batch in batches])
        ordinals = np.concatenate([batch.column("ordinal").to_numpy() for batch in batches])
        codes = np.zeros(len(xids), np.uint8)
        codes[self.records :] = marks.column("kind").to_numpy()
        self.order = _order(xids, ordinals)
        self.xids, self.codes = xids[self.order], codes[self.order]
        self.fresh = np.concatenate([[True], self.xids[1:] != self.xids[:-1]])
        ends = np.isin(self.codes, _ENDS)
        cuts = self.fresh | np.concatenate([[False], ends[:-1]]) | (self.codes == _BEGIN)
        self.group = np.cumsum(cuts) - 1
        self.firsts = np.flatnonzero(cuts)
        self.lasts = np.concatenate([self.firsts[1:], [len(self.xids)]]) - 1
        owners = np.repeat(np.arange(len(self.sizes), dtype=np.uint16), self.sizes)
        self._by_batch = np.argsort(owners[self.order], kind="stable")

    def of(self, batch: int) -> tuple[Ints, Ints]:
        """Where a block's records stand here, or the marks (-1), and which row each of them is, in this order."""
        start = sum(self.sizes[:batch] if batch >= 0 else self.sizes[:-1])
        places = self._by_batch[start : start + self.sizes[batch]]
        return places, self.order[places] - start

    def numbered(self, bases: Ints) -> Ints:
        """Each record's ordinal in its transaction; of a mark, how many records come before it."""
        is_record = self.codes == 0
        before = np.cumsum(is_record) - is_record
        numbers: Ints = before - before[self.firsts][self.group] + bases[self.group]
        return numbers

    def counts(self) -> Ints:
        return np.bincount(self.group[self.codes == 0], minlength=len(self.firsts))


def _order(xids: Ints, ordinals: Ints) -> Ints:
    """By transaction, then by ordinal. Small numbers are sorted in linear time: transactions are counted for it."""
    seen = pa.array(xids).dictionary_encode()
    few = len(seen.dictionary) <= np.iinfo(np.uint16).max
    numbers = seen.indices.to_numpy().astype(np.uint16 if few else np.int64)
    if bool((ordinals[1:] > ordinals[:-1]).all()):
        return np.argsort(numbers, kind="stable")
    in_turn = np.argsort(ordinals, kind="stable")
    order: Ints = in_turn[np.argsort(numbers[in_turn], kind="stable")]
    return order


def grouped(mixed: Mixed, continued: Callable[[Sequence[int]], Sequence[Mapping[int, int]]]) -> list[Group]:
    """`continued` tells for each transaction from where its records are counted on: -1 for all, then by table."""
    if not mixed.blocks and not mixed.marks.num_rows:
        return []
    found = _Sorted(mixed)
    xids: list[int] = found.xids[found.firsts].tolist()
    begins = found.codes[found.firsts] == _BEGIN
    goes_on = found.fresh[found.firsts] & ~begins
    counts: list[dict[int, int]] = [{} for _ in xids]
    known = np.flatnonzero(goes_on).tolist()
    for i, counted in zip(known, continued([xids[i] for i in known]), strict=True):
        counts[i] = dict(counted)
    ordinals = found.numbered(np.array([c.get(-1, 0) for c in counts], np.int64))
    groups = _groups(found, mixed, xids, begins)
    for group, events in zip(groups, found.counts().tolist(), strict=True):
        group.events = events
    for i, block in enumerate(mixed.blocks):
        if block.records.num_rows:
            _share(block, found, ordinals, i, groups, counts)
    _share_undo(mixed.marks, found, ordinals, groups)
    return groups


def _groups(found: _Sorted, mixed: Mixed, xids: Sequence[int], begins: NDArray[np.bool_]) -> list[Group]:
    places = _begin_places(found, mixed)
    groups = [Group(x, b, p) for x, b, p in zip(xids, begins.tolist(), places, strict=True)]
    ends = np.flatnonzero(np.isin(found.codes[found.lasts], _ENDS))
    rows = found.order[found.lasts[ends]] - found.records
    told = mixed.marks.take(pa.array(rows)).to_pydict() if len(rows) else {}
    for i, g in enumerate(ends.tolist()):
        group = groups[g]
        group.end, group.at, group.position = told["kind"][i], told["ordinal"][i], told["position"][i]
        group.after, group.committed, group.note = told["end"][i], told["committed"][i], told["note"][i]
    return groups


def _begin_places(found: _Sorted, mixed: Mixed) -> list[int]:
    """Of a begin its position, else where the first record stands in the log."""
    columns = [b.records.column("lsn") for b in mixed.blocks] + [mixed.marks.column("position")]
    lsns = np.concatenate([column.to_numpy() for column in columns])
    places: list[int] = lsns[found.order[found.firsts]].tolist()
    return places


def _share(
    block: Block,
    found: _Sorted,
    ordinals: Ints,
    batch: int,
    groups: Sequence[Group],
    counts: Sequence[dict[int, int]],
) -> None:
    """Give each transaction its records of a block."""
    places, order = found.of(batch)
    edges, owners = _edges(found.group[places])
    sizes = np.diff(edges)
    number = block.table.id if block.table is not None else -2
    bases = np.array([counts[g].get(number, 0) for g in owners], np.int64)
    for g, n in zip(owners, sizes.tolist(), strict=True):
        counts[g][number] = counts[g].get(number, 0) + n
    within = np.arange(len(places)) - np.repeat(edges[:-1] - bases, sizes)
    rows = _numbered(block.records, order, ordinals[places], within)
    _hand_out(rows, block.table, False, edges.tolist(), owners, groups)


def _numbered(records: pa.RecordBatch, order: Ints, ordinals: Ints, within: Ints) -> pa.RecordBatch:
    """The records in their new order; what is counted anew, or not known yet, is not copied."""
    columns = list(records.columns)
    columns[1], columns[2] = pa.array(ordinals), pa.array(within)
    if not bool((order[1:] > order[:-1]).all()):
        rows = pa.array(order)
        for i in (0, 3, 5, 6, 7, 8):
            columns[i] = columns[i].take(rows)
    return pa.record_batch(columns, schema=RECORDS)


def _share_undo(marks: pa.RecordBatch, found: _Sorted, ordinals: Ints, groups: Sequence[Group]) -> None:
    kinds = marks.column("kind").to_numpy()
    undo = (kinds == _UNDO) | (kinds == _UNDO_ALL)
    if not undo.any():
        return
    places, which = found.of(-1)
    places, which = places[undo[which]], which[undo[which]]
    n, zeros = len(which), pa.array(np.zeros(len(which), np.int64))
    columns = {
        "position": pa.array(marks.column("key").to_numpy()[which]),
        "ordinal": pa.array(ordinals[places]),
        "xid": pa.array(marks.column("xid").to_numpy()[which]),
        "op": pa.array(kinds[which]),
        "origin": pa.nulls(n, pa.string()),
        "payload": pa.array([b""] * n, pa.binary()),
    }
    rows = pa.record_batch([columns.get(name, zeros) for name in RECORDS.names], schema=RECORDS)
    edges, owners = _edges(found.group[places])
    _hand_out(rows, None, True, edges.tolist(), owners, groups)


def _hand_out(
    rows: pa.RecordBatch,
    table: Table | None,
    undo: bool,
    edges: Sequence[int],
    owners: Sequence[int],
    groups: Sequence[Group],
) -> None:
    payload = rows.column("payload")
    offsets = np.frombuffer(payload.buffers()[1], np.int32)[payload.offset :]
    sizes = np.diff(offsets[edges])
    weights = sizes + _ROW_BYTES * np.diff(edges)
    run = Run(int(weights.sum()))
    told = zip(owners, edges, edges[1:], sizes.tolist(), weights.tolist(), strict=False)
    for g, first, last, size, weight in told:
        groups[g].parts.append(Part(rows, first, last, table, undo, size, weight, run))


def _edges(group: Ints) -> tuple[Ints, list[int]]:
    """Where a new group begins, and the end; and which groups these are."""
    firsts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    owners: list[int] = group[firsts].tolist()
    return np.concatenate([firsts, [len(group)]]), owners
