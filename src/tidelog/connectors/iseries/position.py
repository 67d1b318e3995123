"""Positions in a journal: the minute its receiver was attached, then the entry's sequence number, in one int64.

Sequence numbers grow without gaps that matter from receiver to receiver, until somebody resets them. The time at which
a receiver was attached stays with it for life, so a place keeps its number when older receivers are deleted, and a
reset, which always comes with a new receiver, still moves forward. Where the clock does not (it was set back, or two
receivers were attached within a minute and the numbers reset), the later receiver counts as one minute younger than
the one before it: `receivers.chain` sees to that.

A transaction stands where its commit entry stands; what comes next begins one later. A place may lie behind a
receiver's last entry: then it means the first one of the next receiver.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from tidelog.errors import UnsupportedChange

SEQUENCE_BITS = 38
SEQUENCE_MAX = (1 << SEQUENCE_BITS) - 1
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class Place(NamedTuple):
    """The next entry to be read: of which receiver, by its minute, and which number."""

    minute: int
    sequence: int


def of(minute: int, sequence: int) -> int:
    if sequence > SEQUENCE_MAX:
        raise UnsupportedChange(
            f"The journal's sequence number {sequence} is larger than {SEQUENCE_MAX}.",
            hint="Reset the numbers with CHGJRN JRN(…) JRNRCV(*GEN) SEQOPT(*RESET), once everything is delivered.",
        )
    return minute << SEQUENCE_BITS | sequence


def place(position: int) -> Place:
    return Place(position >> SEQUENCE_BITS, position & SEQUENCE_MAX)


def minute(attached: datetime) -> int:
    """Whole minutes since 2000, of a time as the system's clock shows it."""
    return max(0, int((attached.replace(tzinfo=UTC) - _EPOCH).total_seconds() // 60))
