"""What lies before the place where we began to read, but belongs to what comes after it.

A transaction that was open there is known by its id, which is the number of its first entry: when one turns up whose
first entry we have not read, all of its entries up to our beginning are fetched, in one pass for all that turn up
together. And the old image of an update may stand before our beginning with its new image behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tidelog.connectors.iseries import receivers
from tidelog.connectors.iseries.entries import Entry, Kind
from tidelog.connectors.iseries.frame import row_of
from tidelog.connectors.iseries.receivers import START_OVER, Receiver
from tidelog.errors import PositionLost

_CHANGES = frozenset((Kind.CREATE, Kind.UPDATE, Kind.DELETE, Kind.UNDO, Kind.CLEAR, Kind.BEFORE, Kind.COMMIT))
_UNCONTROLLED = 0

Entries = Callable[[Receiver, int, int, Sequence[int]], Iterable[Entry]]
"""The entries of these transactions in a stretch of a receiver."""


class Beginnings:
    def __init__(self, receiver: Receiver, sequence: int, reach: int, known: Iterable[int] = ()) -> None:
        """Reading began at this entry; of the transactions `known`, all that came before it is there. An old image is
        looked for `reach` entries back."""
        self._receiver, self._sequence, self._reach = receiver, sequence, reach
        self._known = set(known)
        self._looked_back = False

    def of(self, entries: Sequence[Entry], chain: Sequence[Receiver], fetch: Entries) -> list[Entry]:
        """What has to stand before these entries, in log order."""
        found = self._cycles(self._unknown(entries), chain, fetch)
        if not self._looked_back and self._lacks_image(entries):
            self._looked_back = True
            found += self._old_images(chain, fetch)
        return sorted(found, key=lambda entry: entry.position)

    def _unknown(self, entries: Sequence[Entry]) -> list[int]:
        """Transactions whose first entry we have not read. One that is rolled back need not be known."""
        unknown: dict[int, None] = {}
        for entry in entries:
            cycle, kind = entry.cycle, entry.kind
            if kind is Kind.BEGIN:
                self._known.add(cycle or entry.sequence)
            elif cycle and kind in _CHANGES and cycle not in self._known:
                unknown[cycle] = None
                self._known.add(cycle)
            if kind is Kind.COMMIT or kind is Kind.ROLLBACK:
                self._known.discard(cycle)
        return list(unknown)

    def _cycles(self, cycles: Sequence[int], chain: Sequence[Receiver], fetch: Entries) -> list[Entry]:
        if not cycles:
            return []
        ours = self._index(chain)
        first, sequence = min((self._holder(chain, ours, cycle), cycle) for cycle in cycles)
        return list(self._stretch(chain, first, sequence, ours, fetch, cycles))

    def _holder(self, chain: Sequence[Receiver], ours: int, cycle: int) -> int:
        """Which receiver has the first entry of a transaction that began before us."""
        if chain[ours].first <= cycle < self._sequence:
            return ours
        if ours == 0:
            raise PositionLost(
                f"A transaction that began with journal entry {cycle} goes on, but the receiver with its beginning is "
                f"gone: the chain begins with {chain[0].shown}, entry {chain[0].first}.",
                hint=START_OVER,
            )
        return receivers.holder(chain, ours - 1, cycle)

    def _stretch(
        self,
        chain: Sequence[Receiver],
        first: int,
        sequence: int,
        ours: int,
        fetch: Entries,
        cycles: Sequence[int],
    ) -> Iterable[Entry]:
        """From entry `sequence` of receiver number `first` up to our beginning."""
        for i in range(first, ours + 1):
            low = sequence if i == first else chain[i].first
            high = self._sequence - 1 if i == ours else chain[i].last
            if low <= high:
                yield from fetch(chain[i], low, high, cycles)

    def _lacks_image(self, entries: Sequence[Entry]) -> bool:
        """Whether a change outside commitment control has no old image behind our beginning."""
        before = set()
        for entry in entries:
            if entry.kind is Kind.BEFORE:
                before.add(row_of(entry))
            elif entry.kind is Kind.UPDATE and not entry.cycle and row_of(entry) not in before:
                return True
        return False

    def _old_images(self, chain: Sequence[Receiver], fetch: Entries) -> list[Entry]:
        ours = self._index(chain)
        first, low = self._back(chain, ours)
        waiting: dict[tuple[object, ...], Entry] = {}
        for entry in self._stretch(chain, first, low, ours, fetch, [_UNCONTROLLED]):
            if entry.kind is Kind.BEFORE:
                waiting[row_of(entry)] = entry
            elif entry.kind is Kind.UPDATE:
                waiting.pop(row_of(entry), None)
        return list(waiting.values())

    def _back(self, chain: Sequence[Receiver], ours: int) -> tuple[int, int]:
        """The receiver and the entry that lie `reach` entries before our beginning, or where the chain begins."""
        left, end, i = self._reach, self._sequence, ours
        while end - left < chain[i].first and i > 0:
            left -= end - chain[i].first
            i -= 1
            end = chain[i].last + 1
        return i, max(chain[i].first, end - left)

    def _index(self, chain: Sequence[Receiver]) -> int:
        return chain.index(receivers.named(chain, self._receiver.name, self._receiver.library))
