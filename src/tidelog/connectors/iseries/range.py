"""What to ask the journal for next: entries of one receiver, from where we are to its end, but not too many.

A range never crosses a receiver, because sequence numbers may begin anew with the next one. It begins at the last
entry that was read; whether that one was `processed` says if it is still wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.connectors.iseries.receivers import Receiver


@dataclass(frozen=True)
class Spot:
    """An entry, and whether it is done with."""

    sequence: int
    receiver: str
    library: str
    processed: bool = False

    def skips(self, entry: Spot) -> bool:
        """Whether an entry that comes first was seen already. One that does not name its receiver is of ours."""
        here = (entry.sequence, entry.receiver or self.receiver, entry.library or self.library)
        return self.processed and here == (self.sequence, self.receiver, self.library)

    @property
    def following(self) -> int:
        """The first number that is still wanted."""
        return self.sequence + self.skips(self)


@dataclass(frozen=True)
class Range:
    start: Spot
    end: int
    """The last entry's number, in the receiver of `start`."""

    @property
    def call_needed(self) -> bool:
        """The journal refuses to be asked for nothing."""
        return not (self.start.processed and self.start.sequence >= self.end)

    @property
    def first(self) -> int:
        """The first entry that is wanted."""
        return self.start.following


def find(receivers: Sequence[Receiver], spot: Spot | None, entries_max: int) -> Range | None:
    """From the beginning of the chain where no spot is known. None when the chain does not have the spot's receiver."""
    if not receivers:
        return None
    spot = spot or start(receivers[0])
    at = _index(receivers, spot.receiver, spot.library)
    if at is None:
        return None
    here = receivers[at]
    if spot.processed and spot.sequence >= here.last:
        following = _index(receivers, here.next, here.next_library or here.library) if here.next else None
        if following is not None:
            here = receivers[following]
            spot = start(here)
    return Range(spot, min(here.last, spot.sequence + entries_max))


def start(receiver: Receiver) -> Spot:
    """Its first entry."""
    return Spot(receiver.first, receiver.name, receiver.library)


def _index(receivers: Sequence[Receiver], name: str | None, library: str) -> int | None:
    return next((i for i, r in enumerate(receivers) if (r.name, r.library) == (name, library)), None)
