"""Statements cut at their apostrophes, all of a block at once.

An apostrophe inside a literal is doubled, so every second one closes a literal. One that opens right where the last
one closed is the second half of a doubled one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelog.core.strings import Ints, Mask, flat, gather

_QUOTE = ord("'")


@dataclass(frozen=True)
class Cuts:
    data: pa.Buffer
    starts: Ints
    """Where each statement begins."""
    marks: Ints
    """Of all literals, one after another, where the opening apostrophe stands and where the closing one."""
    rows: Ints
    """Where each statement's marks begin among all, and behind them their number."""
    doubled: Mask | None
    """By mark: it opens a literal that holds doubled apostrophes. None: there are no such literals."""
    skeletons: pa.BinaryArray
    """The statements without the contents of their literals; empty for those that were not cut."""


def cut(statements: pa.BinaryArray, left: Mask) -> Cuts:
    """Cut all statements but those to be `left`, those whose apostrophes do not close, and those that begin with one:
    it would touch the statement before."""
    data, offsets = flat(statements)
    marks = np.flatnonzero(data == _QUOTE)
    rows = np.searchsorted(marks, offsets)
    left = left | (np.diff(rows) % 2 == 1) | (np.append(marks, -1)[rows[:-1]] == offsets[:-1])
    if left.any():
        counts = np.diff(rows)
        marks = marks[np.repeat(~left, counts)]
        rows = np.concatenate(([0], np.cumsum(np.where(left, 0, counts))))
    marks, rows, doubled = _joined(marks, rows)
    buffer = pa.py_buffer(data)
    ends = np.where(left, offsets[:-1], offsets[1:]) if left.any() else offsets[1:]
    return Cuts(buffer, offsets[:-1], marks, rows, doubled, _skeletons(buffer, offsets[:-1], ends, marks, rows))


def _joined(marks: Ints, rows: Ints) -> tuple[Ints, Ints, Mask | None]:
    """Literals that touch are one."""
    touching = marks[2::2] == marks[1:-1:2] + 1
    if not touching.any():
        return marks, rows, None
    kept = np.ones(len(marks), np.bool_)
    kept[1:-1] = np.repeat(~touching, 2)
    places = np.concatenate(([0], np.cumsum(kept)))
    doubled = np.zeros(places[-1], np.bool_)
    # Of the marks before a closing one that goes, the last that stays opens the literal.
    doubled[places[1:-2:2][touching] - 1] = True
    return marks[kept], places[rows], doubled


def _skeletons(data: pa.Buffer, starts: Ints, ends: Ints, marks: Ints, rows: Ints) -> pa.BinaryArray:
    """What stands before, between and behind the literals, their apostrophes included."""
    n, count = len(starts), len(starts) + len(marks) // 2
    edges = np.arange(n + 1) + rows // 2
    from_start, to_end = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    from_start[edges[:-1]] = True
    to_end[edges[1:] - 1] = True
    begins, stops = np.empty(count, np.int32), np.empty(count, np.int32)
    begins[from_start], begins[~from_start] = starts, marks[1::2]
    stops[to_end], stops[~to_end] = ends, marks[0::2] + 1
    pieces = gather(data, begins, stops, np.ones(count, np.bool_))
    _, offsets, content = pieces.buffers()
    places = np.frombuffer(offsets, np.int32)[edges] if n else np.zeros(1, np.int32)
    return pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(places), content])
