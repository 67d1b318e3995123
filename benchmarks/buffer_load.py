"""What the buffers are given: readings of a log that mixes transactions, as a connector's tail hands them over.

Contents repeat after a while, so that making them costs neither time on the clock nor memory that would be taken for
the buffer's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.contracts import MARKS, RECORDS, Block, Mixed
from tidelog.model.record import Mark, Op
from tidelog.model.schema import Column, Table

RECORD_BYTES = 208
READING = 50_000
"""Records in one reading of a busy reader: a fifth of the memory that capture has by default."""
_APART = 1 << 20
"""A reading has fewer records and commits: so far are the positions of two of them apart."""
LIFE = 4
"""Of transactions that come and go: so many readings."""
TABLE = Table(1, "SHOP", "ORDERS", (Column("ID", "NUMBER"), Column("NOTE", "VARCHAR2")), key=("ID",))

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Log:
    """A made-up log: `open` transactions at any time, each record of a random one."""

    open: int
    size: int
    payloads: Sequence[pa.BinaryArray]

    @staticmethod
    def of(open: int, size: int = READING, distinct: int = 200_000) -> Log:
        """Readings of `size` records; so many records have contents of their own."""
        random = np.random.default_rng(1)
        return Log(open, size, [texts(random, size) for _ in range(max(1, distinct // size))])

    def steps(self, events: int) -> Iterator[int]:
        for done in range(0, events, self.size):
            yield min(self.size, events - done)

    def endless(self, events: int) -> Iterator[Mixed]:
        """The same transactions all the time; none of them ends."""
        random = np.random.default_rng(7)
        owners = [random.integers(1, self.open + 1, self.size) for _ in self.payloads]
        for turn, rows in enumerate(self.steps(events)):
            which = turn % len(self.payloads)
            yield reading(turn, owners[which][:rows], self.payloads[which])

    def passing(self, events: int, first_xid: int) -> Iterator[Mixed]:
        """Transactions that come and go: each lives for `LIFE` readings, then it commits and another one begins."""
        random = np.random.default_rng(7)
        places = np.arange(self.open)
        for turn, rows in enumerate(self.steps(events)):
            current = first_xid + places + self.open * ((turn + places) // LIFE)
            over = current[(turn + places) % LIFE == LIFE - 1]
            owners = current[random.integers(0, self.open, rows)]
            yield reading(turn, owners, self.payloads[turn % len(self.payloads)], over)


def texts(random: np.random.Generator, count: int) -> pa.BinaryArray:
    data = random.integers(ord(" "), ord("z"), count * RECORD_BYTES, np.uint8)
    offsets = np.arange(0, (count + 1) * RECORD_BYTES, RECORD_BYTES, np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def reading(turn: int, owners: Ints, payloads: pa.BinaryArray, over: Ints | None = None) -> Mixed:
    """One reading: records of these transactions, then the commits of those that are over."""
    rows, at = len(owners), turn * _APART + 1
    zeros = np.zeros(rows, np.int64)
    places = np.arange(rows, dtype=np.int64)
    columns = [
        at + places,  # each can be undone by a key of its own
        places,
        zeros,
        owners,
        zeros,
        at + places,
        np.full(rows, ord(Op.CREATE), np.uint8),
        pa.nulls(rows, pa.string()),
        payloads.slice(0, rows),
    ]
    records = pa.record_batch([pa.array(column) for column in columns], schema=RECORDS)
    marks = commits(over if over is not None else zeros[:0], rows, at + rows)
    return Mixed([Block(TABLE, records)], marks, resume=at + _APART)


def ending(xids: Sequence[int], position: int) -> Mixed:
    """A reading that tells of nothing but commits."""
    return Mixed([], commits(np.array(xids, np.int64), 0, position), resume=position + len(xids))


def commits(xids: Ints, ordinal: int, position: int) -> pa.RecordBatch:
    n = len(xids)
    places = np.arange(n, dtype=np.int64)
    columns = [
        ordinal + places,
        xids,
        np.full(n, ord(Mark.COMMIT), np.uint8),
        np.zeros(n, np.int64),
        position + places,
        position + places + 1,
        np.full(n, 1_700_000_000_000_000, np.int64),
        pa.nulls(n, pa.string()),
    ]
    return pa.record_batch([pa.array(column) for column in columns], schema=MARKS)
