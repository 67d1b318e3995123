"""The open journal: asks for what came, receiver by receiver, and hands it over in log order.

Three things make the hand-over whole.
- An update is two entries, the old image and the new one. What stands behind an old image without its new one waits.
- What began before the place where we began to read is fetched (`Beginnings`), so nothing has to be remembered but the
  last commit.
- Tables are decoded as the journal last saw them, until an entry says that their description changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from tidelog.connectors.iseries import images, position, queries, range, receivers
from tidelog.connectors.iseries.beginnings import Beginnings
from tidelog.connectors.iseries.catalog import Catalog
from tidelog.connectors.iseries.client import Session
from tidelog.connectors.iseries.config import Config
from tidelog.connectors.iseries.entries import Entry, Kind
from tidelog.connectors.iseries.frame import Framer, row_of
from tidelog.connectors.iseries.range import Range, Spot
from tidelog.connectors.iseries.receivers import Receiver
from tidelog.contracts import Block, Kept, Merging, Mixed
from tidelog.errors import TidelogError
from tidelog.model.schema import Table

HELD_MAX = 10_000
"""Entries that wait for the new image of an update, before it counts as one whose old image is not told."""
_MEMORY_SHARE = 4
"""Images exist as text, as bytes, as payloads and in the blocks."""


class IseriesTail:
    def __init__(
        self,
        config: Config,
        journal: tuple[str, str],
        start: int,
        known: Sequence[Table],
        *,
        memory_bytes: int,
        anchor: dict[str, int] | None = None,
        kept: Kept | None = None,
    ) -> None:
        self._config = config
        self._journal = journal
        self._memory = max(1 << 16, memory_bytes // _MEMORY_SHARE)
        self.anchor = dict(anchor or {})
        """The minutes of the receivers we have seen: positions of theirs were given out."""
        self.acknowledged = start
        self._looked = float("-inf")
        self._held: list[Entry] = []
        self._session = Session(config)
        try:
            self._begin(start, known, kept)
        except TidelogError:
            self._session.close()
            raise

    def _begin(self, start: int, known: Sequence[Table], kept: Kept | None) -> None:
        self._ahead = queries.ahead(self._session.query(queries.TIMEZONE)[0][0])
        settings = self._config
        self._catalog = Catalog(self._session, settings.selection, settings.snapshot.heard_table, settings.ccsids)
        files = self._catalog.files()
        self._libraries = {file.library for file in files}
        self._width = max((_width(t) for t in [*known, *(f.table for f in files)]), default=1)
        opened = {*kept.open, *kept.given_up} if kept is not None else ()
        self._framer = Framer(self._catalog.describe, known, opened, start)
        self._chain = self._receivers()
        place = position.place(kept.resume if kept is not None else start)
        receiver = self._chain[receivers.index_of(self._chain, place)]
        self._spot = _spot(receiver, place.sequence)
        self._beginnings = Beginnings(receiver, place.sequence, HELD_MAX, opened)

    # -- the contract ------------------------------------------------------------------------------------------

    def poll(self, wait_s: float, eager: bool) -> Mixed | None:  # noqa: ARG002  nothing is gathered
        wait = min(wait_s, self._looked + self._config.poll_s - time.monotonic())
        if wait > 0:
            time.sleep(wait)
            return None
        self._chain = self._receivers()
        wanted = range.find(self._chain, self._spot, self._config.entries_max)
        if wanted is None:
            receivers.named(self._chain, self._spot.receiver, self._spot.library)  # which says what is lost
            return None
        if not wanted.call_needed:
            self._looked = time.monotonic()
            time.sleep(min(wait_s, self._config.poll_s))
            return None
        return self._handed(self._read(wanted))

    def merging(self, xid: int) -> Merging:  # noqa: ARG002  every record tells a change of its own
        return _Apart()

    def acknowledge(self, position: int) -> None:
        """The system keeps its receivers as long as its own settings say: we only remember it, to tell the lag."""
        self.acknowledged = max(self.acknowledged, position)

    def seen(self) -> int:
        if self._held:
            return self._held[0].position
        here = receivers.named(self._chain, self._spot.receiver, self._spot.library)
        return position.of(here.minute, self._spot.following)

    def reached(self) -> int:
        return self.seen()

    def quiet(self) -> bool:
        return not self._held

    def keep_alive(self) -> None:
        """A job waits for its client as long as it has to."""

    def ping(self) -> None:
        self._looked = float("-inf")

    def close(self) -> None:
        self._session.close()

    # -- reading -----------------------------------------------------------------------------------------------

    def _receivers(self) -> tuple[Receiver, ...]:
        found = receivers.read(self._session.query(receivers.QUERY, self._journal), self.anchor)
        self.anchor |= {receiver.shown: receiver.minute for receiver in found}
        return found

    def _read(self, wanted: Range) -> list[Entry]:
        """The entries of a range, or as many as memory takes; afterwards we stand behind the last of them."""
        start, found, taken = wanted.start, [], 0
        receiver = receivers.named(self._chain, start.receiver, start.library)
        reached = wanted.end
        for entry in self._entries(receiver, wanted.first, wanted.end):
            found += [entry] if self._matters(entry) else []
            taken += len(entry.image)
            if taken > self._memory or (entry.kind is Kind.SCHEMA and self._widened(entry)):
                reached = entry.sequence
                break
        self._spot = Spot(reached, receiver.name, receiver.library, processed=True)
        return found

    def _entries(self, receiver: Receiver, first: int, last: int, cycles: Sequence[int] = ()) -> Iterator[Entry]:
        sql = queries.entries(
            self._journal, receiver, first, last, libraries=self._libraries, width=self._width, cycles=cycles
        )
        for batch in self._session.batches(sql):
            for row in batch:
                yield queries.read(row, receiver, self._ahead)

    def _matters(self, entry: Entry) -> bool:
        if entry.kind is Kind.SCHEMA:
            self._framer.look_again(entry)
        return entry.code in ("C", "D") or self._framer.captures(entry)

    def _widened(self, entry: Entry) -> bool:
        """Whether a table came that our question did not ask for: what follows has to be asked for again."""
        table = self._catalog.describe(entry.library, entry.file)
        if table is None or (entry.library in self._libraries and _width(table) <= self._width):
            return False
        self._libraries.add(entry.library)
        self._width = max(self._width, _width(table))
        return True

    # -- handing over ------------------------------------------------------------------------------------------

    def _handed(self, fresh: list[Entry]) -> Mixed:
        earlier = filter(self._matters, self._beginnings.of(fresh, self._chain, self._entries))
        entries = [*earlier, *self._held, *fresh]
        cut = whole(entries)
        self._held = entries[cut:]
        return self._framer.frame(entries[:cut], self.seen())


def whole(entries: list[Entry]) -> int:
    """How many of the entries can be handed over: no old image without its new one. An old image that waits too long is
    given up, and taken out."""
    while True:
        waiting, pairs = _images(entries)
        cut = min(waiting, default=len(entries))
        for old, new in sorted(pairs, reverse=True):
            cut = old if old < cut <= new else cut
        if len(entries) - cut <= HELD_MAX or not waiting:
            return cut
        del entries[min(waiting)]


def _images(entries: Sequence[Entry]) -> tuple[list[int], list[tuple[int, int]]]:
    """The old images that wait, and those that have found their new one."""
    waiting: dict[tuple[object, ...], int] = {}
    pairs: list[tuple[int, int]] = []
    for i, entry in enumerate(entries):
        match entry.kind:
            case Kind.BEFORE:
                waiting[row_of(entry)] = i
            case Kind.UPDATE:
                old = waiting.pop(row_of(entry), None)
                pairs += [(old, i)] if old is not None else []
            case Kind.COMMIT | Kind.ROLLBACK:
                waiting = {row: at for row, at in waiting.items() if row[-1] != entry.cycle}
    return list(waiting.values()), pairs


def _spot(receiver: Receiver, sequence: int) -> Spot:
    """Where entry `sequence` comes next; it may be the one after the last."""
    if sequence > receiver.first:
        return Spot(sequence - 1, receiver.name, receiver.library, processed=True)
    return range.start(receiver)


def _width(table: Table) -> int:
    return images.layout(table.columns)[1]


class _Apart:
    """A `Merging` that joins nothing."""

    def feed(self, block: Block) -> Sequence[Block]:
        return [block]

    def close(self) -> Sequence[Block]:
        return []
