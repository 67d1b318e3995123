"""Positions in PostgreSQL's log.

An LSN is a byte address that is always a multiple of eight. The journal's positions use the three free bits: a
transaction stands at the *last* of the eight (`commit LSN | 7`), and what tidelog itself adds at that place (a schema
change that wrote no row, a heartbeat) stands before it. So an end of a batch may fall between two log records that
touch, and reading on from `resume(end)` still gets everything that was not delivered.
"""

from __future__ import annotations

SLOTS = 8


def of_record(lsn: int) -> int:
    """Where the transaction that commits at `lsn` stands."""
    return lsn | (SLOTS - 1)


def of_message(end: int) -> int:
    """Where a message outside any transaction stands; the log tells its `end`, where the next record may begin."""
    return end - 1


def resume(position: int) -> int:
    """The LSN from which the log has to be read to get everything at or after `position`."""
    return position & ~(SLOTS - 1)


def of_own(end: int) -> int | None:
    """A place for a record of our own after everything before `end`; None when this LSN has no free one left."""
    return end if end % SLOTS < SLOTS - 1 else None


def parse(text: str) -> int:
    """`16/B374D848` as a number."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)
