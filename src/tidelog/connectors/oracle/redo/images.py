"""The rows of a block of statements, by column: texts, and what kind of value each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.connectors.oracle.redo.cuts import Cuts
from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Sql, Value
from tidelog.core.strings import Bytes, Ints, Mask, Places, gather

NULL, TEXT, SQL, UNCHANGED = ord("n"), ord("t"), ord("s"), ord("u")
"""Kinds of values: null, a literal's text, an expression, not told by the log."""


@dataclass(frozen=True)
class Layout:
    """For each shape (row) and column: what kind of value it is, and its place, relative to marks of the statement."""

    kinds: Bytes
    first: Places
    ahead: Places
    """The value begins so many bytes after the mark `first`."""
    last: Places
    behind: Places
    """It ends so many bytes after the mark `last`."""

    @staticmethod
    def of(table: npt.NDArray[np.int32]) -> Layout:
        """From an array of shape (shapes, 5, columns)."""
        kinds, first, ahead, last, behind = np.ascontiguousarray(table.transpose(1, 0, 2))
        return Layout(kinds.astype(np.uint8), first, ahead, last, behind)


@dataclass(frozen=True)
class Own:
    """Rows that were parsed by themselves, with a value for each column."""

    rows: Mask
    values: Sequence[Sequence[Value]]

    def texts(self, column: int) -> pa.StringArray:
        found = [row[column] for row in self.values]
        return pa.array([value if isinstance(value, str) else None for value in found], pa.string())

    def kinds(self, column: int) -> Bytes:
        return np.array([_kind(row[column]) for row in self.values], np.uint8)

    def at(self, rows: Mask) -> Own:
        kept = rows[self.rows].tolist()
        return Own(self.rows[rows], [row for row, keep in zip(self.values, kept, strict=True) if keep])


def _kind(value: Value) -> int:
    if value is None or value is UNAVAILABLE:
        return NULL if value is None else UNCHANGED
    return SQL if isinstance(value, Sql) else TEXT


@dataclass(frozen=True)
class Image:
    """A row for each statement; nulls where a change has no such row."""

    cuts: Cuts
    layout: Layout
    shapes: Places
    """Each row's shape."""
    starts: Ints
    marks: Ints
    """Where each row, and its marks among all, begin."""
    own: Own | None = None

    @property
    def kinds(self) -> Bytes:
        """By column and row."""
        return np.stack([self.kind(i) for i in range(self.layout.kinds.shape[1])])

    def kind(self, column: int) -> Bytes:
        found = self.layout.kinds[:, column].take(self.shapes)
        if self.own is not None:
            found[self.own.rows] = self.own.kinds(column)
        return found

    def texts(self, column: int) -> pa.StringArray:
        """Literals without their quotes, and expressions as they are; null elsewhere. UTF-8 is not checked here."""
        found = self._told(column)
        if self.own is None:
            return found
        return pc.replace_with_mask(found, pa.array(self.own.rows), self.own.texts(column))

    def _told(self, column: int) -> pa.StringArray:
        kinds, layout = self.layout.kinds[:, column].take(self.shapes), self.layout
        told = (kinds == TEXT) | (kinds == SQL)
        if not told.any():
            return pa.nulls(len(told), pa.string())
        start, first = self._place(layout.first[:, column], layout.ahead[:, column])
        end, _ = self._place(layout.last[:, column], layout.behind[:, column])
        if not told.all():
            start, end = np.where(told, start, self.starts), np.where(told, end, self.starts)
        texts = gather(self.cuts.data, start, end, told)
        doubled = self.cuts.doubled
        return texts if doubled is None else _undoubled(texts, kinds, doubled.take(first, mode="clip"))

    def _place(self, mark: Places, distance: Places) -> tuple[Ints, Ints]:
        """Places in the bytes, and the marks that they were counted from. (A row without a value may have no marks.)"""
        which = self.marks + mark.take(self.shapes)
        return self.cuts.marks.take(which, mode="clip") + distance.take(self.shapes), which

    def at(self, rows: Mask) -> Image:
        """The same columns for some rows only."""
        if rows.all():
            return self
        own = None if self.own is None else self.own.at(rows)
        return replace(self, shapes=self.shapes[rows], starts=self.starts[rows], marks=self.marks[rows], own=own)


def _undoubled(texts: pa.StringArray, kinds: Bytes, doubled: Mask) -> pa.StringArray:
    """A doubled apostrophe inside a literal is one; expressions stay what they are."""
    literal = kinds == TEXT
    if not (doubled & literal).any():
        return texts
    single = pc.replace_substring(texts, "''", "'")
    return single if not (kinds == SQL).any() else pc.if_else(pa.array(literal), single, texts)
