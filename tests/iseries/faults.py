"""Mistakes that somebody could make, by name: each is made on purpose, and must be caught by the campaign."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tidelog.connectors.iseries import beginnings, entries, frame, queries, range, receivers, tail
from tidelog.connectors.iseries.entries import KINDS, Entry, Kind
from tidelog.model.record import Mark

Patch = pytest.MonkeyPatch


def _leaking_updates(patch: Patch) -> None:
    """Roll-backs of updates are not looked at."""
    patch.delitem(KINDS, ("R", "UR"))


def _leaking_inserts(patch: Patch) -> None:
    """A delete by a roll-back is a delete, as outside a transaction."""
    patch.setattr(Entry, "kind", property(lambda e: KINDS.get((e.code, e.type), Kind.OTHER)))


def _no_undo(patch: Patch) -> None:
    real = frame.Framer._mark

    def mark(self: Any, entry: Entry, kind: Mark, **more: Any) -> None:
        if kind is not Mark.UNDO:
            real(self, entry, kind, **more)

    patch.setattr(frame.Framer, "_mark", mark)


def _rollback_commits(patch: Patch) -> None:
    patch.setitem(KINDS, ("C", "RB"), Kind.COMMIT)


def _rollback_unseen(patch: Patch) -> None:
    """What was rolled back stays open, and comes with the next transaction of the number."""
    patch.delitem(KINDS, ("C", "RB"))
    patch.setattr(frame.Framer, "_end", _ends_as_one(frame.Framer._end))


def _early_end_unseen(patch: Patch) -> None:
    """A transaction whose roll-back was ended early stays open for ever."""
    patch.delitem(KINDS, ("C", "CN"))


def _ends_as_one(real: Callable[..., None]) -> Callable[..., None]:
    def end(self: Any, entry: Entry, mark: Mark) -> None:
        for cycle in sorted(self._open):
            real(self, replace(entry, cycle=cycle), mark)

    return end


def _no_beginnings(patch: Patch) -> None:
    """Transactions begin where the reading begins."""
    patch.setattr(beginnings.Beginnings, "of", lambda *_: [])


def _kept_is_all(patch: Patch) -> None:
    """What was open and not met yet, when the buffer was kept, is forgotten."""

    class Trusting(beginnings.Beginnings):
        def __init__(self, receiver: Any, sequence: int, reach: int, known: Any = ()) -> None:
            super().__init__(receiver, sequence, reach, known)
            self.trusts = isinstance(known, set)  # of what was kept

        def _cycles(self, *arguments: Any) -> list[Entry]:
            return [] if self.trusts else super()._cycles(*arguments)

    patch.setattr(tail, "Beginnings", Trusting)


def _images_apart(patch: Patch) -> None:
    """The old image of an update is handed over as soon as it comes."""
    patch.setattr(tail, "whole", len)


def _pairs_split(patch: Patch) -> None:
    """What waits for its new image cuts through updates that have theirs."""
    real = tail._images

    def alone(some: Sequence[Entry]) -> tuple[list[int], list[tuple[int, int]]]:
        return real(some)[0], []

    patch.setattr(tail, "_images", alone)


def _old_image_unsought(patch: Patch) -> None:
    patch.setattr(beginnings.Beginnings, "_old_images", lambda *_: [])


def _clock_trusted(patch: Patch) -> None:
    """A receiver stands where the clock says."""
    patch.setattr(receivers, "_dated", lambda links, _: tuple(links))


def _numbers_alone(patch: Patch) -> None:
    """Sequence numbers never begin anew."""
    patch.setattr(receivers, "_dated", lambda links, _: tuple(replace(link, minute=1) for link in links))


def _last_entry_again(patch: Patch) -> None:
    """A range begins with the last entry that was read, done or not."""
    patch.setattr(range.Range, "first", property(lambda r: r.start.sequence))


def _place_of_begin(patch: Patch) -> None:
    """A transaction stands where it began."""
    real = frame.Framer._mark

    def mark(self: Any, entry: Entry, kind: Mark, **more: Any) -> None:
        at = self._begun.get(entry.cycle) if hasattr(self, "_begun") else None
        if kind is Mark.BEGIN:
            self._begun = {**getattr(self, "_begun", {}), entry.cycle: entry.position}
        if kind is Mark.COMMIT and at is not None:
            more["at"] = at
        real(self, entry, kind, **more)

    patch.setattr(frame.Framer, "_mark", mark)


def _layout_stays(patch: Patch) -> None:
    """What the journal says of a table's description is not looked at."""
    patch.setattr(frame.Framer, "_schema", lambda *_: None)


def _layout_of_today(patch: Patch) -> None:
    """A table is what the catalog says now."""

    def table(self: Any, entry: Entry) -> Any:
        return self._describe(entry.library, entry.file)

    patch.setattr(frame.Framer, "_table", table)


def _clear_unseen(patch: Patch) -> None:
    patch.delitem(KINDS, ("F", "CR"))


def _direct_inserts_unseen(patch: Patch) -> None:
    patch.delitem(KINDS, ("R", "PX"))


def _padded(patch: Patch) -> None:
    """A part of an image is asked for by a fixed length, which the system pads to."""

    def piece(index: int) -> str:
        part = f"SUBSTR(ENTRY_DATA, {index * queries.PIECE + 1}, {queries.PIECE})"
        return f"HEX(CAST({part} AS VARCHAR({queries.PIECE}) FOR BIT DATA)) AS IMAGE{index}"

    patch.setattr(queries, "_piece", piece)


FAULTS: dict[str, Callable[[Patch], None]] = {
    name.removeprefix("_").replace("_", "-"): make
    for name, make in list(globals().items())
    if callable(make) and getattr(make, "__module__", "") == __name__ and name not in ("_ends_as_one", "Patch")
}
assert entries.KINDS is KINDS
