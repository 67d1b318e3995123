"""The rows of a block as columns of texts: what `decode` and `envelope` read.

A record is cut where the table's columns say; a record that is not exactly as wide as the table is damaged, never
guessed at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelog.connectors.iseries import fields, payload, types
from tidelog.connectors.iseries.payload import Payloads
from tidelog.core.envelope import UNCHANGED
from tidelog.core.faults import Fault
from tidelog.core.reads import TEXT
from tidelog.core.strings import Bytes, Mask
from tidelog.errors import UnsupportedChange
from tidelog.model.record import Op
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

NULL = ord("n")
DAMAGED = "the journal entry is damaged or does not match the table's columns"
_KINDS = np.full(256, TEXT, np.uint8)
_KINDS[ord("1")], _KINDS[ord("9")] = NULL, UNCHANGED


@dataclass(frozen=True)
class Image:
    """Texts by column, with what each value is: arrays of the shape (columns, rows)."""

    columns: Mapping[int, pa.StringArray]
    kinds: Bytes

    def texts(self, column: int) -> pa.StringArray:
        return self.columns[column]

    def at(self, rows: Mask) -> Image:
        if rows.all():
            return self
        return Image({i: texts.filter(pa.array(rows)) for i, texts in self.columns.items()}, self.kinds[:, rows])


@dataclass(frozen=True)
class _Raw:
    """Records as bytes, all of the same width."""

    records: Bytes
    kinds: Bytes

    def decoded(self, table: Table, starts: tuple[int, ...], wanted: Iterable[int]) -> tuple[Image, dict[int, Mask]]:
        found, broken = {}, {}
        for i in wanted:
            width = types.width(table.columns[i]) or 0
            field, valid = self.records[:, starts[i] : starts[i] + width], self.kinds[i] == TEXT
            found[i], broken[i] = fields.texts(field, table.columns[i], valid)
        return Image(found, self.kinds), broken


@dataclass(frozen=True)
class Rows:
    """The images of a block. `after` is the row as the entry leaves it; for a delete, the row that went."""

    before: Image
    after: Image
    has_before: Mask
    damaged: Mask
    broken: Mapping[int, Mask]
    """By column, the rows with a value that cannot be read."""
    heads: np.ndarray[tuple[int], np.dtype[np.void]]

    @property
    def known_before(self) -> Mask:
        """An old image that is there is complete."""
        known: Mask = np.broadcast_to(self.has_before, self.before.kinds.shape)
        return known

    def old_or_new(self) -> Image:
        """It is only asked for where there is an old row."""
        return self.before


def read(records: pa.RecordBatch, table: Table, wanted: Collection[int]) -> Rows:
    """`wanted` are the numbers of the columns that are looked at. A clear of the table has no row."""
    ops = records.column("op").to_numpy(zero_copy_only=False)
    found = payload.unpack(records.column("payload"))
    starts, width = layout(table.columns)
    changes = np.isin(ops, [ord(op) for op in (Op.CREATE, Op.UPDATE, Op.DELETE)])
    new, has_new, bad = _raw(found, 0, len(table.columns), width)
    old, has_old, old_bad = _raw(found, 2, len(table.columns), width)
    damaged = (changes & ~has_new) | bad | old_bad | ~found.sound | ~(changes | (ops == ord(Op.TRUNCATE)))
    gone = ops == ord(Op.DELETE)  # its row is the old one, too
    after, broken = new.decoded(table, starts, wanted)
    before, old_broken = _chosen(gone, new, old).decoded(table, starts, wanted)
    has_before = (has_old | (gone & has_new)) & ~damaged
    return Rows(before, after, has_before, damaged, {i: broken[i] | old_broken[i] for i in wanted}, found.heads)


def trouble(found: Rows, table: Table, selection: Selection) -> list[Fault]:
    """Records that are not what the table's columns say, and values that are none of their type."""
    return [Fault(found.damaged, DAMAGED)] + [
        Fault(rows, f"column {column.name}: {types.reason(column, selection)}", types.hint(column))
        for rows, column in ((rows, table.columns[i]) for i, rows in found.broken.items())
        if rows.any()
    ]


def layout(columns: Sequence[Column]) -> tuple[tuple[int, ...], int]:
    """Where each column begins in a record, and how wide the record is."""
    starts, at = [], 0
    for column in columns:
        width = types.width(column)
        if width is None:
            raise UnsupportedChange(
                f"The column {column.name} is {column.type}, which has no known place in a journal entry.",
                hint="Leave its table out with table.exclude.list: where the columns behind it begin, nobody knows.",
            )
        starts.append(at)
        at += width
    return tuple(starts), at


def _raw(found: Payloads, part: int, columns: int, width: int) -> tuple[_Raw, Mask, Mask]:
    """The records of one part, which rows have one, and which have something else."""
    places, lengths = found.part(part)
    there = lengths == width
    records = np.zeros((len(lengths), width), np.uint8)
    if there.any():
        records[there] = found.data[places[there, None] + np.arange(width)]
    kinds, bad = _nulls(found, part + 1, there, columns)
    return _Raw(records, kinds), there, (lengths > 0) & ~there | bad


def _nulls(found: Payloads, part: int, there: Mask, columns: int) -> tuple[Bytes, Mask]:
    """What each value is: there, NULL, or not recorded. No characters at all mean that none is NULL."""
    places, lengths = found.part(part)
    kinds = np.full((len(lengths), columns), NULL, np.uint8)
    kinds[there] = TEXT
    told = there & (lengths == columns) & (lengths > 0)
    if told.any():
        kinds[told] = _KINDS[found.data[places[told, None] + np.arange(columns)]]
    return np.ascontiguousarray(kinds.T), (lengths > 0) & (lengths != columns)


def _chosen(rows: Mask, one: _Raw, other: _Raw) -> _Raw:
    """The rows of `one` where so marked, of `other` elsewhere."""
    if not rows.any():
        return other
    return _Raw(np.where(rows[:, None], one.records, other.records), np.where(rows, one.kinds, other.kinds))
