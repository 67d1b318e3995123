"""pgoutput's row messages as columns of slices.

All messages of a block are read side by side: a cursor per row walks over the tuple, one column at a time. A length
is read as unsigned, so a cursor only moves forward; if every kind byte was known and the cursor ends exactly at the
message's end, then every slice on its way was inside the message. That one check makes damaged messages safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.core.strings import Bytes, Ints, Mask, Places, gather
from tidelog.model.record import Op

NULL, TEXT, UNCHANGED = ord("n"), ord("t"), ord("u")
_KNOWN = np.zeros(256, np.bool_)
_KNOWN[[NULL, TEXT, UNCHANGED]] = True
_HEAD = 5  # message type and relation id
_TYPES = {Op.CREATE: "I", Op.UPDATE: "U", Op.DELETE: "D"}


@dataclass(frozen=True)
class Image:
    """A tuple for each row, by column: what kind of value it is and which bytes of `data` hold it."""

    data: pa.Buffer
    kinds: Bytes
    starts: Places
    ends: Places
    """Arrays of shape (columns, rows)."""

    def texts(self, column: int) -> pa.StringArray:
        kinds = self.kinds[column]
        return gather(self.data, self.starts[column], self.ends[column], kinds == TEXT)

    def at(self, rows: Mask) -> Image:
        """The same columns for some rows only."""
        if rows.all():
            return self
        return Image(self.data, self.kinds[:, rows], self.starts[:, rows], self.ends[:, rows])


@dataclass(frozen=True)
class Messages:
    """The tuples of a block. `after` holds the row as the message leaves it; for a delete, the old row."""

    before: Image
    after: Image
    has_before: Mask
    full_before: Mask
    """The old row is complete, not only its key."""
    damaged: Mask

    @property
    def known_before(self) -> Mask:
        """By column and row: the old value is told. A key's old image tells nothing of the columns it leaves null."""
        known: Mask = self.full_before | (self.before.kinds == TEXT)
        return known

    def old_or_new(self) -> Image:
        """The old value where it is told, else the new one."""
        return _choose(self.known_before, self.before, self.after)


def read(records: pa.RecordBatch, columns: int) -> Messages:
    """Read the tuples of changes; a truncate has none."""
    payload = records.column("payload")
    ops = records.column("op").to_numpy(zero_copy_only=False)
    view = _View.of(payload)
    expected, has_tuple = _expected(ops)
    at = view.starts + _HEAD
    marker = view.byte(at)
    has_before = has_tuple & ((marker == ord("K")) | (marker == ord("O")))
    full_before = has_before & (marker == ord("O"))
    old = _walk(view, at, has_before, columns)
    at = np.where(has_before, old.at, at)
    has_after = has_tuple & (ops != ord(Op.DELETE))
    sound = old.sound & (~has_after | (view.byte(at) == ord("N")))
    sound &= np.where(has_before, ops != ord(Op.CREATE), ops != ord(Op.DELETE))
    new = _walk(view, at, has_after, columns)
    at = np.where(has_after, new.at, at)
    sound &= new.sound & (view.byte(view.starts) == expected) & (at == view.ends)
    return _messages(view, old, new, has_before, full_before, has_tuple & ~sound | ~_is_known(ops))


def _expected(ops: Bytes) -> tuple[Bytes, Mask]:
    """Each row's message type by its operation, and whether it has a tuple at all."""
    table = np.zeros(256, np.uint8)
    for op, letter in _TYPES.items():
        table[ord(op)] = ord(letter)
    expected = table[ops]
    return expected, expected != 0


def _is_known(ops: Bytes) -> Mask:
    known: Mask = np.isin(ops, [ord(op) for op in (*_TYPES, Op.TRUNCATE)])
    return known


@dataclass(frozen=True)
class _View:
    """The payload column's bytes; reads beyond the end give what stands last, and the final check refuses them."""

    buffer: pa.Buffer
    bytes: Bytes
    starts: Ints
    ends: Ints

    @staticmethod
    def of(payload: pa.BinaryArray) -> _View:
        n = len(payload)
        _, offsets, data = payload.buffers()
        numbers = np.frombuffer(offsets, np.int32) if n else np.zeros(payload.offset + 1, np.int32)
        places = numbers[payload.offset : payload.offset + n + 1].astype(np.int64)
        if data is None or data.size < _HEAD:
            data = pa.py_buffer((data.to_pybytes() if data is not None else b"") + bytes(_HEAD))
        return _View(data, np.frombuffer(data, np.uint8), places[:-1], places[1:])

    def byte(self, at: Ints) -> Bytes:
        return self.bytes[np.minimum(at, len(self.bytes) - 1)]

    def be16(self, at: Ints) -> Ints:
        return self._number(at, ">u2", 2)

    def be32(self, at: Ints) -> Ints:
        return self._number(at, ">u4", 4)

    def _number(self, at: Ints, kind: str, width: int) -> Ints:
        last = len(self.bytes) - width
        overlapping = np.ndarray((last + 1,), kind, self.buffer, strides=(1,))
        return overlapping[np.minimum(at, last)].astype(np.int64)


@dataclass(frozen=True)
class _Walk:
    rows: Mask
    kinds: Bytes
    starts: Places
    ends: Places
    at: Ints
    """Where the cursor stands afterwards, for all rows."""
    sound: Mask


def _walk(view: _View, marker: Ints, rows: Mask, columns: int) -> _Walk:
    """Walk over the tuple after each marker byte, for `rows` only; the result has all rows."""
    n = len(rows)
    if not rows.any():
        blank = _blank(view, columns)
        return _Walk(rows, blank.kinds, blank.starts, blank.ends, marker, ~rows)
    everything = bool(rows.all())
    at = marker + 1 if everything else marker[rows] + 1
    kinds = np.full((columns, len(at)), NULL, np.uint8)
    starts, ends = np.empty(kinds.shape, np.int32), np.empty(kinds.shape, np.int32)
    sound = view.be16(at) == columns
    at = at + 2
    for i in range(columns):
        kinds[i] = view.byte(at)
        is_text = kinds[i] == TEXT
        sound &= _KNOWN[kinds[i]]
        # Places beyond 2 GB wrap here; only a damaged message has them, and the cursor itself does not wrap.
        starts[i] = begin = at + 1 + 4 * is_text
        ends[i] = at = begin + view.be32(at + 1) * is_text
    if everything:
        return _Walk(rows, kinds, starts, ends, at, sound)
    kinds, starts, ends, at = (_scatter(a, rows, n) for a in (kinds, starts, ends, at))
    return _Walk(rows, kinds, starts, ends, at, _scatter(sound, rows, n, True))


def _scatter(values: np.ndarray[Any, Any], rows: Mask, n: int, default: int = 0) -> np.ndarray[Any, Any]:
    whole = np.full((*values.shape[:-1], n), default, values.dtype)
    whole[..., rows] = values
    return whole


def _messages(view: _View, old: _Walk, new: _Walk, has_before: Mask, full_before: Mask, damaged: Mask) -> Messages:
    before = _image(view, old, damaged)
    after = _image(view, new, damaged)
    return Messages(before, _resolve(before, after, new.rows), has_before, full_before, damaged)


def _image(view: _View, walk: _Walk, damaged: Mask) -> Image:
    """Rows without a tuple, and damaged ones, have nulls that point at their own message: offsets stay in order."""
    empty = ~walk.rows | damaged
    if empty.all():
        return _blank(view, len(walk.kinds))
    if empty.any():
        walk.kinds[:, empty] = NULL
        walk.starts[:, empty] = walk.ends[:, empty] = view.starts[empty]
    return Image(view.buffer, walk.kinds, walk.starts, walk.ends)


def _blank(view: _View, columns: int) -> Image:
    """Nothing but nulls, in no memory."""
    shape = (columns, len(view.starts))
    places = np.broadcast_to(view.starts.astype(np.int32), shape)
    return Image(view.buffer, np.broadcast_to(np.uint8(NULL), shape), places, places)


def _resolve(before: Image, after: Image, has_after: Mask) -> Image:
    """Rows without a new tuple show the old one; an unchanged value that the old tuple holds is known."""
    take_old = (after.kinds == UNCHANGED) & (before.kinds == TEXT)
    take_old |= ~has_after
    return _choose(take_old, before, after) if take_old.any() else after


def _choose(condition: Mask, one: Image, other: Image) -> Image:
    kinds = np.where(condition, one.kinds, other.kinds)
    starts = np.where(condition, one.starts, other.starts)
    return Image(one.data, kinds, starts, np.where(condition, one.ends, other.ends))
