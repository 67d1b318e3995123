"""Redo SQL of one table to columns, vectorised by statement shape.

A statement's shape is its text without the contents of its literals. Statements of the same shape have each value at
the same place among the cuts that their apostrophes make, and parsing the shape alone tells where: no row is looked
at by itself, and a shape only when it is new.

What fits no shape is parsed by itself, exactly (`dml`): apostrophes that do not close, or are not doubled, and names
with apostrophes in them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.connectors.oracle.redo import cuts, dml
from tidelog.connectors.oracle.redo.cuts import Cuts
from tidelog.connectors.oracle.redo.dml import Known, Span, Unknown
from tidelog.connectors.oracle.redo.images import NULL, SQL, TEXT, UNCHANGED, Image, Layout, Own
from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Change, Sql, Value
from tidelog.core.strings import Bytes, Mask, Places
from tidelog.errors import UnsupportedChange
from tidelog.model.record import Op
from tidelog.model.schema import Table

_SHAPES_MAX = 4096
_TABLES_MAX = 64


@dataclass(frozen=True)
class Changes:
    """A block's statements, read."""

    ops: Bytes
    """Codes of `Op`; 0 where the statement could not be read."""
    before: Image
    after: Image
    """The row as the statement leaves it; for a delete, the old row."""
    failed: Mapping[int, str]
    """Rows that could not be read, with the reason."""
    columns: tuple[str, ...]

    def change(self, row: int) -> Change:
        """One of them alone."""
        op = Op(chr(self.ops[row]))
        before, after = self._values(self.before, row), self._values(self.after, row)
        return Change(op, None if op is Op.CREATE else before, None if op is Op.DELETE else after)

    def _values(self, image: Image, row: int) -> dict[str, Value]:
        one = image.at(np.arange(len(self.ops)) == row)
        return {name: _value(one, column) for column, name in enumerate(self.columns)}


def _value(image: Image, column: int) -> Value:
    (kind,), (text,) = image.kind(column).tolist(), image.texts(column).to_pylist()
    if kind == UNCHANGED:
        return UNAVAILABLE
    return Sql(text) if kind == SQL else text


def read(
    statements: pa.BinaryArray,
    table: Table,
    relaxed: Mask | None = None,
    given: Mapping[int, Change | str] = MappingProxyType({}),
    untold: Unknown = None,
) -> Changes:
    """`relaxed`: statements whose literals do not double their apostrophes; `given`: rows that are known already, as a
    change, or by the reason why there is none; `untold`: as in `dml.parse`."""
    shapes, left = _shapes(table, untold), np.zeros(len(statements), np.bool_)
    relaxed = left if relaxed is None else relaxed
    left = relaxed | shapes.unsafe
    left[list(given)] = True
    found = cuts.cut(statements, left)
    coded = found.skeletons.dictionary_encode()
    known = [shapes.shape(skeleton) for skeleton in coded.dictionary.to_pylist()]
    which = coded.indices.to_numpy()
    alone = np.array([shape is None for shape in known], np.bool_).take(which)
    changes = _vectorised(found, [shape or shapes.blank for shape in known], which, table)
    if not alone.any():
        return changes
    own = {
        row: given[row] if row in given else shapes.parsed(statements[row].as_py(), bool(relaxed[row]))
        for row in np.flatnonzero(alone).tolist()
    }
    return _completed(changes, own, alone)


@dataclass(frozen=True)
class Shape:
    op: int
    places: npt.NDArray[np.int32]
    """Of the shape (2, 5, columns): before and after, each as in `Layout`."""


def _vectorised(found: Cuts, known: Sequence[Shape], which: Places, table: Table) -> Changes:
    ops = np.array([shape.op for shape in known], np.uint8).take(which)
    places = np.stack([shape.places for shape in known]) if known else np.empty((0, 2, 5, len(table.columns)), np.int32)
    before, after = (Image(found, Layout.of(places[:, i]), which, found.starts, found.rows[:-1]) for i in (0, 1))
    return Changes(ops, before, after, {}, tuple(column.name for column in table.columns))


def _completed(changes: Changes, own: Mapping[int, Change | str], alone: Mask) -> Changes:
    """With the rows that were parsed by themselves, in their order."""
    ops, failed = changes.ops.copy(), {row: found for row, found in own.items() if isinstance(found, str)}
    before: list[list[Value]] = []
    after: list[list[Value]] = []
    for row, found in own.items():
        old, new = (found.before, found.after) if isinstance(found, Change) else (None, None)
        ops[row] = ord(found.op) if isinstance(found, Change) else 0
        before.append(_listed(old, changes.columns))
        after.append(_listed(old if new is None else new, changes.columns))
    old_rows, new_rows = replace(changes.before, own=Own(alone, before)), replace(changes.after, own=Own(alone, after))
    return Changes(ops, old_rows, new_rows, failed, changes.columns)


def _listed(row: Mapping[str, Value] | None, columns: Sequence[str]) -> list[Value]:
    return [None] * len(columns) if row is None else [row.get(name) for name in columns]


class Shapes:
    """The shapes of one table's statements that were met so far."""

    def __init__(self, table: Table, untold: Unknown) -> None:
        names = [column.name for column in table.columns]
        self.unsafe = any("'" in name for name in (table.schema, table.name, *names))
        # Shapes are parsed as bytes, a character each, so that places in them are places in bytes.
        columns = (replace(column, name=column.name.encode().decode("latin-1")) for column in table.columns)
        self._table, self._untold = table, untold
        self._plain = replace(table, columns=tuple(columns))
        self._known: dict[bytes, Shape | None] = {}
        self.blank = Shape(0, np.zeros((2, 5, len(names)), np.int32))
        self.blank.places[:, 0] = NULL

    def shape(self, skeleton: bytes) -> Shape | None:
        """None for what has to be parsed by itself."""
        if skeleton not in self._known:
            if len(self._known) >= _SHAPES_MAX:
                self._known.clear()
            self._known[skeleton] = self._shape(skeleton.decode("latin-1"))
        return self._known[skeleton]

    def parsed(self, statement: bytes | None, relaxed: bool) -> Change | str:
        """A statement by itself: the change, or why there is none."""
        try:
            return dml.parse((statement or b"").decode(), self._table, relaxed=relaxed, untold=self._untold)
        except UnicodeDecodeError:
            return "the redo SQL is not valid UTF-8"
        except UnsupportedChange as unsupported:
            return unsupported.message

    def _shape(self, skeleton: str) -> Shape | None:
        try:
            told = dml.statement(skeleton)
            before, after = dml.images(told, self._plain, self._untold)
        except UnsupportedChange:
            return None
        marks = [i for i, char in enumerate(skeleton) if char == "'"]
        rows = [self._places(image, marks) for image in (before, after if after is not None else before)]
        return None if None in rows else Shape(ord(told.op), np.array(rows, np.int32).transpose(0, 2, 1))

    def _places(self, image: Mapping[str, Known] | None, marks: list[int]) -> list[_Place] | None:
        if image is None:
            return [(NULL, 0, 0, 0, 0)] * len(self._plain.columns)
        found = [_place(image[column.name], marks) for column in self._plain.columns]
        return None if None in found else [place for place in found if place is not None]


@lru_cache(maxsize=_TABLES_MAX)
def _shapes(table: Table, untold: Unknown) -> Shapes:
    return Shapes(table, untold)


_Place = tuple[int, int, int, int, int]


def _place(known: Known, marks: list[int]) -> _Place | None:
    """A value of a shape as in `Layout`; None when there is no mark to count from."""
    if not isinstance(known, Span):
        return (UNCHANGED if known is UNAVAILABLE else NULL), 0, 0, 0, 0
    first, behind = bisect_left(marks, known.start), bisect_left(marks, known.end)
    if known.literal:
        return TEXT, first - 1, 1, first, 0
    if first < behind:
        return SQL, first, known.start - marks[first], behind - 1, known.end - marks[behind - 1]
    if not marks:
        return None
    anchor = max(first - 1, 0)
    return SQL, anchor, known.start - marks[anchor], anchor, known.end - marks[anchor]
