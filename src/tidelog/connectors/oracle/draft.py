"""A reading of the log on its way to the buffer: blocks of records, and marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.connectors.oracle.row import Ints
from tidelog.contracts import MARKS, RECORDS, Block, Mixed
from tidelog.model.record import Mark
from tidelog.model.schema import Table

STEP = 8
"""A row of the log may make several marks beside its record: each row has so many places."""


@dataclass
class Draft:
    blocks: list[Block] = field(default_factory=list)
    marks: list[tuple[int, int, int, int, int, int, int, str | None]] = field(default_factory=list)
    merged: set[str] = field(default_factory=set)

    def mark(
        self,
        ordinal: int,
        xid: int,
        kind: Mark,
        *,
        key: int = 0,
        position: int = 0,
        end: int = 0,
        committed: int = 0,
        note: str | None = None,
    ) -> None:
        self.marks.append((ordinal, xid, ord(kind), key, position, end, committed, note))

    def undo(self, ordinals: Iterable[int], xids: Iterable[int], keys: Iterable[int]) -> None:
        for ordinal, xid, key in zip(ordinals, xids, keys, strict=True):
            self.mark(ordinal, xid, Mark.UNDO, key=key)

    @property
    def empty(self) -> bool:
        return not self.blocks and not self.marks

    def mixed(self, resume: int) -> Mixed:
        columns = zip(*self.marks, strict=True) if self.marks else ([] for _ in MARKS)
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, MARKS, strict=True)]
        return Mixed(self.blocks, pa.record_batch(arrays, schema=MARKS), resume, frozenset(self.merged))


def block(
    table: Table | None,
    *,
    key: Ints,
    ordinal: Ints,
    xid: Ints,
    scn: Ints,
    op: Sequence[int] | NDArray[np.uint8],
    payload: pa.BinaryArray,
) -> Block:
    """Records whose commit is still to come: `Mixed` says what their columns mean."""
    count = len(ordinal)
    nothing = pa.array(np.zeros(count, np.int64))
    columns = [
        pa.array(key, pa.int64()),
        pa.array(ordinal, pa.int64()),
        nothing,
        pa.array(xid, pa.int64()),
        nothing,
        pa.array(scn, pa.int64()),
        pa.array(op, pa.uint8()),
        pa.nulls(count, pa.string()),
        payload,
    ]
    return Block(table, pa.record_batch(columns, schema=RECORDS))
