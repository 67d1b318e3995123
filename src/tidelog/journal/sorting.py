"""One reading of a mixed log, sorted by transaction.

Everything is done with numpy over the whole reading. What it says of one transaction, until that ends or the reading
does, is a *group*: a transaction that ends and begins again in one reading (ids of our own do) has several. First the
groups are told, then whoever owns them gets the records: an owner tells from where its records are counted on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.contracts import RECORDS, Block, Mixed
from tidelog.journal.holding import Ints, Open, Run
from tidelog.model.record import Mark

_BEGIN, _UNDO, _UNDO_ALL = ord(Mark.BEGIN), ord(Mark.UNDO), ord(Mark.UNDO_ALL)
_IS_END = np.isin(np.arange(256), [ord(Mark.COMMIT), ord(Mark.ROLLBACK)])
"""By the code of a mark."""
_NO_TABLE = -2

Owners = Sequence[Open | None]
"""None: nobody wants these records."""


@dataclass(slots=True)
class Ending:
    """The mark that ends a transaction."""

    kind: int
    ordinal: int
    position: int
    end: int
    committed: int
    note: str | None


Group = tuple[int, bool, int, Ending | None]
"""The transaction; whether what was known of it counts no more; where it begins, if this is the first that is seen of
it; and how it ends."""


class Reading:
    """All records and marks of a reading by transaction, then by their place in it."""

    def __init__(self, mixed: Mixed) -> None:
        self._mixed = mixed
        batches = [*(b.records for b in mixed.blocks), mixed.marks]
        self._sizes = [batch.num_rows for batch in batches]
        self._records = sum(self._sizes[:-1])
        xids = np.concatenate([batch.column("xid").to_numpy() for batch in batches])
        ordinals = np.concatenate([batch.column("ordinal").to_numpy() for batch in batches])
        self._order = _order(xids, ordinals)
        self._xids, self._codes = xids[self._order], self._sorted_codes()
        self._fresh = _changes(self._xids)
        cuts = self._fresh | (self._codes == _BEGIN)
        cuts[1:] |= _IS_END[self._codes[:-1]]
        self._group = np.cumsum(cuts) - 1
        self._firsts = np.flatnonzero(cuts)
        self._lasts = np.append(self._firsts, len(xids))[1:] - 1
        self._by_batch = self._places()

    def _sorted_codes(self) -> NDArray[np.uint8]:
        """What each mark is; records have 0."""
        codes = np.zeros(len(self._order), np.uint8)
        if self._sizes[-1]:
            codes[self._records :] = self._mixed.marks.column("kind").to_numpy()
            codes = codes[self._order]
        return codes

    def _places(self) -> Ints:
        if max(self._sizes, default=0) == len(self._order):
            return np.arange(len(self._order))
        owners = np.repeat(np.arange(len(self._sizes), dtype=np.uint16), self._sizes)
        return np.argsort(owners[self._order], kind="stable")

    def _of(self, batch: int) -> tuple[Ints, Ints]:
        """Where a block's records stand here, or the marks (-1), and which row each of them is, in this order."""
        start = sum(self._sizes[:batch] if batch >= 0 else self._sizes[:-1])
        places = self._by_batch[start : start + self._sizes[batch]]
        return places, self._order[places] - start

    # -- groups ------------------------------------------------------------------------------------------------

    def groups(self) -> Iterator[Group]:
        begins = self._codes[self._firsts] == _BEGIN
        xids = self._xids[self._firsts]
        return zip(xids.tolist(), begins.tolist(), self._begin_places(), self.endings, strict=True)

    @cached_property
    def endings(self) -> list[Ending | None]:
        """Of each group; None: it is still open."""
        endings: list[Ending | None] = [None] * len(self._firsts)
        ended = np.flatnonzero(_IS_END[self._codes[self._lasts]])
        marks = self._mixed.marks.take(pa.array(self._order[self._lasts[ended]] - self._records))
        names = ("kind", "ordinal", "position", "end", "committed", "note")
        told = map(Ending, *(marks.column(name).to_pylist() for name in names))
        for g, ending in zip(ended.tolist(), told, strict=True):
            endings[g] = ending
        return endings

    def _begin_places(self) -> list[int]:
        """Of a begin its position, else where the first record stands in the log."""
        columns = [*(b.records.column("lsn") for b in self._mixed.blocks), self._mixed.marks.column("position")]
        lsns = np.concatenate([column.to_numpy() for column in columns])
        places: list[int] = lsns[self._order[self._firsts]].tolist()
        return places

    # -- runs --------------------------------------------------------------------------------------------------

    def runs(self, owners: Owners) -> list[tuple[Run, Owners]]:
        """The records, each run with the owners of its stretches. They count them from now on."""
        ordinals = self._numbered(owners)
        runs = [
            self._run(i, block, ordinals, owners)
            for i, block in enumerate(self._mixed.blocks)
            if block.records.num_rows
        ]
        return [*runs, *self._undos(ordinals, owners)]

    def _numbered(self, owners: Owners) -> Ints:
        """Each record's ordinal in its transaction; of a mark, how many records come before it."""
        is_record = self._codes == 0
        before = np.cumsum(is_record) - is_record
        counts = np.bincount(self._group[is_record], minlength=len(self._firsts))
        bases = np.array([one.events if one is not None else 0 for one in owners], np.int64)
        for one, n in zip(owners, counts.tolist(), strict=True):
            if one is not None:
                one.events += n
        numbers: Ints = before + (bases - before[self._firsts])[self._group]
        return numbers

    def _run(self, batch: int, block: Block, ordinals: Ints, owners: Owners) -> tuple[Run, Owners]:
        places, order = self._of(batch)
        edges, mine = self._stretches(places, owners)
        counts = np.diff(edges)
        bases = _counted(mine, block.table.id if block.table is not None else _NO_TABLE, counts.tolist())
        within = np.arange(len(places)) - np.repeat(edges[:-1] - bases, counts)
        rows = _rearranged(block.records, order, ordinals[places], within)
        return Run(rows, block.table, False, edges.tolist()), mine

    def _undos(self, ordinals: Ints, owners: Owners) -> Iterator[tuple[Run, Owners]]:
        kinds = self._mixed.marks.column("kind").to_numpy()
        undo = (kinds == _UNDO) | (kinds == _UNDO_ALL)
        if undo.any():
            places, which = self._of(-1)
            places, which = places[undo[which]], which[undo[which]]
            edges, mine = self._stretches(places, owners)
            rows = _as_records(self._mixed.marks.take(pa.array(which)), ordinals[places])
            yield Run(rows, None, True, edges.tolist()), mine

    def _stretches(self, places: Ints, owners: Owners) -> tuple[Ints, Owners]:
        """Where a new group begins, and the end; and whose these are."""
        group = self._group[places]
        firsts = np.flatnonzero(_changes(group))
        return np.append(firsts, len(group)), [owners[g] for g in group[firsts].tolist()]


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


def _changes(values: Ints) -> NDArray[np.bool_]:
    """Where a value differs from the one before."""
    changes = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes


def _counted(owners: Owners, table: int, counts: Sequence[int]) -> Ints:
    """From where the owners have counted their records of this table so far."""
    bases = [one.by_table.get(table, 0) if one is not None else 0 for one in owners]
    for one, base, n in zip(owners, bases, counts, strict=True):
        if one is not None:
            one.by_table[table] = base + n
    return np.array(bases, np.int64)


def _rearranged(records: pa.RecordBatch, order: Ints, ordinals: Ints, within: Ints) -> pa.RecordBatch:
    """The records in their new order; what is counted anew, or not known yet, is not copied."""
    columns = list(records.columns)
    columns[1], columns[2] = pa.array(ordinals), pa.array(within)
    if not bool((order[1:] > order[:-1]).all()):
        rows = pa.array(order)
        for i in (0, 3, 5, 6, 7, 8):
            if columns[i].null_count < len(columns[i]):
                columns[i] = columns[i].take(rows)
    return pa.record_batch(columns, schema=RECORDS)


def _as_records(undos: pa.RecordBatch, ordinals: Ints) -> pa.RecordBatch:
    """Marks that take records back, in the shape of records."""
    n, zeros = len(ordinals), pa.array(np.zeros(len(ordinals), np.int64))
    columns = {
        "position": undos.column("key"),
        "ordinal": pa.array(ordinals),
        "xid": undos.column("xid"),
        "op": undos.column("kind"),
        "origin": pa.nulls(n, pa.string()),
        "payload": pa.array([b""] * n, pa.binary()),
    }
    return pa.record_batch([columns.get(name, zeros) for name in RECORDS.names], schema=RECORDS)
