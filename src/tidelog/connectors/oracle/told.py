"""A block's records as rows of canonical texts: payloads unpacked, statements read, values plain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.connectors.oracle import payload, plain
from tidelog.connectors.oracle.payload import RELAXED, Payloads
from tidelog.connectors.oracle.plain import Plain
from tidelog.connectors.oracle.redo import shapes
from tidelog.connectors.oracle.redo.images import NULL, TEXT, Image
from tidelog.connectors.oracle.redo.shapes import Changes
from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Change
from tidelog.core.faults import Fault
from tidelog.core.strings import Bytes, Mask
from tidelog.model.record import Op
from tidelog.model.schema import Column, Table

_LOGGING = "Run ALTER TABLE … ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS for the table."
_CHANGES = (Op.CREATE, Op.UPDATE, Op.DELETE)


@dataclass(frozen=True)
class Columns:
    """Some columns of the rows, by their index in the table."""

    found: Mapping[int, Plain]
    width: int
    rows: int

    @cached_property
    def kinds(self) -> Bytes:
        """By column and row; what was not asked for is null."""
        kinds = np.full((self.width, self.rows), NULL, np.uint8)
        for index, column in self.found.items():
            kinds[index] = column.kinds
        return kinds

    def texts(self, column: int) -> pa.StringArray:
        return self.found[column].texts

    def at(self, rows: Mask) -> Columns:
        if rows.all():
            return self
        some = {index: column.at(rows) for index, column in self.found.items()}
        return Columns(some, self.width, int(rows.sum()))


@dataclass(frozen=True)
class Told:
    payloads: Payloads
    before: Columns
    after: Columns
    """The row as the change leaves it; for a delete, the old row."""
    has_before: Mask
    faults: list[Fault]

    @property
    def known_before(self) -> Mask:
        """By column and row: the old value is told."""
        known: Mask = self.before.kinds == TEXT
        return known

    def old_or_new(self) -> Columns:
        """The old value where it is told, else the new one."""
        found = {index: _either(column, self.after.found[index]) for index, column in self.before.found.items()}
        return replace(self.after, found=found)


def _either(old: Plain, new: Plain) -> Plain:
    told = old.kinds == TEXT
    texts = pc.if_else(pa.array(told), old.texts, new.texts)
    return Plain(texts, np.where(told, old.kinds, new.kinds), old.failed | new.failed)


def read(records: pa.RecordBatch, table: Table, indices: Iterable[int]) -> Told:
    """The columns `indices` of a table's records."""
    payloads = payload.unpack(records.column("payload"))
    ops = records.column("op").to_numpy(zero_copy_only=False)
    has_row = np.isin(ops, [ord(op) for op in _CHANGES])
    whole = payloads.merged & ~payloads.damaged
    changes = _changes(payloads, whole, table)
    wanted = {index: table.columns[index] for index in indices}
    has_before = has_row & (ops != ord(Op.CREATE))
    before = _columns(changes.before, wanted, whole, has_before)
    after = _columns(changes.after, wanted, whole, has_row)
    misread = _misread(changes, ops, has_row, payloads.damaged)
    faults = [*misread, *_unread(wanted, before, after), *_keyless(table, after, has_row)]
    return Told(payloads, before, after, has_before, faults)


def _changes(payloads: Payloads, whole: Mask, table: Table) -> Changes:
    given = {int(row): _merged(payloads.sql[row].as_py()) for row in np.flatnonzero(whole)}
    return shapes.read(payloads.sql, table, payloads.flagged(RELAXED), given, UNAVAILABLE)


def _merged(text: bytes) -> Change | str:
    try:
        return payload.read_merged(text)
    except (ValueError, KeyError, TypeError):
        return "a merged record is damaged"


def _columns(image: Image, wanted: Mapping[int, Column], whole: Mask, rows: Mask) -> Columns:
    """Only `rows` have any values."""
    some, part = image.at(rows), whole[rows]
    found = {index: plain.read(some, index, column, part).across(rows) for index, column in wanted.items()}
    return Columns(found, image.layout.kinds.shape[1], len(rows))


def _misread(changes: Changes, ops: Bytes, has_row: Mask, damaged: Mask) -> list[Fault]:
    faults = [Fault(damaged, "the record is damaged")]
    for reason in dict.fromkeys(changes.failed.values()):
        rows = np.zeros(len(ops), np.bool_)
        rows[[row for row, why in changes.failed.items() if why == reason]] = True
        faults.append(Fault(rows & has_row, reason.rstrip(".")))
    other = has_row & (changes.ops != ops) & (changes.ops != 0)
    return [*faults, Fault(other, "the redo SQL is of another operation")]


def _unread(wanted: Mapping[int, Column], before: Columns, after: Columns) -> list[Fault]:
    return [
        Fault(
            image.found[index].failed, f"column {column.name}: a {column.type} value of the redo SQL is not understood"
        )
        for index, column in wanted.items()
        for image in (before, after)
        if image.found[index].failed.any()
    ]


def _keyless(table: Table, after: Columns, has_row: Mask) -> list[Fault]:
    """Nobody can say which row such a change is of."""
    columns = [(index, table.columns[index]) for index in after.found if table.columns[index].name in table.key]
    return [
        Fault(
            has_row & (after.found[index].kinds != TEXT), f"the redo SQL does not tell the key {column.name}", _LOGGING
        )
        for index, column in columns
        if not column.nullable
    ]
