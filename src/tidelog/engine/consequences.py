"""What an edit of an offset will do, in plain words, before it is done.

The source is asked where it can be reached: how far back its log still goes, and where it ends. The journal is looked
at too: it may hold what the source has already forgotten, and it can count.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tidelog import connectors
from tidelog.contracts import Connector
from tidelog.core.offsets.compare import CONSEQUENCES, Order
from tidelog.core.settings import counted, size_text
from tidelog.engine.capture import skip_idle
from tidelog.engine.definition import Definition, connector_of
from tidelog.engine.home import Home
from tidelog.engine.jumps import place
from tidelog.engine.storage import files_of, journal_of
from tidelog.errors import PositionLost, TidelogError
from tidelog.journal.files import Files
from tidelog.journal.journal import SegmentJournal

REWIND, SKIP, SAME, ANEW, UNKNOWN = "rewind", "skip", "same", "anew", "unknown"
_DIRECTIONS = {Order.BEFORE: REWIND, Order.AFTER: SKIP, Order.SAME: SAME, Order.UNRELATED: UNKNOWN}
_AGAIN = "Targets that merge by key end as they are; those that only append get them twice."
_NEVER = "What they changed stays as it is in the target until a new snapshot of their tables."


@dataclass(frozen=True)
class Consequence:
    direction: str
    text: str
    refused: str = ""
    """Why it cannot be done; empty when it can."""
    hint: str = ""


def removal(definition: Definition | None) -> Consequence:
    """Of taking an offset away."""
    mode = definition.source.get("snapshot.mode", "initial") if definition is not None else "initial"
    if mode == "no_data":
        read = "reading goes on where the source stands, and no rows are read, because snapshot.mode is no_data"
    else:
        read = "every captured table is read anew, and rows that the source does not have any more leave the target"
    return Consequence(ANEW, f"The next start behaves as the first: {read}.")


def of_plugin(name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Consequence:
    """As far as the two offsets alone can tell."""
    if before is None:
        return Consequence(UNKNOWN, "There is no offset yet: the first start begins at this one.")
    order = connectors.offsets(name).compare(after, before)
    return Consequence(_DIRECTIONS[order], CONSEQUENCES[order])


def of_source(
    definition: Definition, before: Mapping[str, Any] | None, after: Mapping[str, Any], told: Consequence
) -> Consequence:
    """As the source and the journal see it; `told` is what was known without them."""
    try:
        with closing(connector_of(definition)) as connector:
            return _Look(definition, connector).at(before, after)
    except PositionLost as exc:
        return Consequence(told.direction, told.text, exc.message, exc.hint)
    except TidelogError as exc:
        text = (
            f"{told.text} The source could not be asked ({exc.message}): whether it still has this place is not known."
        )
        return Consequence(told.direction, text)


def passed(definition: Definition, offset: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The same place, past a stretch of the log that is known to be empty."""
    if offset is None or not connectors.captures(definition.connector):
        return offset
    with closing(connector_of(definition)) as connector:
        position = place(offset, connector)
        seen = skip_idle(_notes(definition), position)
        return offset if seen == position else {**offset, **connector.document(seen, 0, 0)}


def _notes(definition: Definition) -> list[Files]:
    """Where notes about empty stretches are."""
    home = Home.at(definition.name)
    return [files_of(definition, home), Files(str(home.path))]


class _Look:
    """One look at a source and its journal."""

    def __init__(self, definition: Definition, connector: Connector) -> None:
        self._definition = definition
        self._connector = connector
        self._journal = _journal(definition)

    def at(self, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Consequence:
        new, ends = place(after, self._connector), self._connector.log_end()
        if new > self._connector.through(ends):
            return self._beyond(
                new, f"it is in the future: the log ends at {self._told(ends)}", "Choose an earlier one."
            )
        oldest = self._oldest()
        if new < oldest and skip_idle(self._places, new) < oldest:
            return self._beyond(
                new,
                f"neither the journal nor the source has it any more: the oldest place that can be reached is "
                f"{self._told(oldest)}",
                "Choose a later one, or delete the offset to begin with a new snapshot. (journal.retention.bytes keeps "
                "delivered changes for a rewind.)",
            )
        return self._between(None if before is None else place(before, self._connector), new)

    def _beyond(self, new: int, why: str, hint: str) -> Consequence:
        return Consequence(UNKNOWN, "", f"{self._told(new)} cannot be reached, because {why}.", hint)

    def _between(self, old: int | None, new: int) -> Consequence:
        if old is None:
            return Consequence(UNKNOWN, f"There is no offset yet: the first start begins at {self._told(new)}.")
        if new == old:
            return Consequence(SAME, CONSEQUENCES[Order.SAME])
        if new < old:
            return Consequence(REWIND, f"Goes back {self._amount(new, old)}, which comes again. {_AGAIN}")
        return Consequence(SKIP, f"Skips {self._amount(old, new)}, which never arrives. {_NEVER}")

    def _amount(self, low: int, high: int) -> str:
        size = f"{size_text(high - low)} of the log"
        if self._journal is None or not self._journal.oldest() <= low or self._ended() < high:
            return size
        commits = self._journal.commits(low, high)
        events = counted(sum(commits["ordinal"].to_pylist()), "event")
        return f"{size}, {events} of {counted(commits.num_rows, 'transaction')}"

    def _oldest(self) -> int:
        kept = self._connector.reach()
        if self._definition.limits.apart and self._journal is not None:  # the capture never reads back
            return self._journal.oldest()
        if self._journal is None or self._ended() < kept or not self._journal.holds(self._journal.end()):
            return kept
        return min(kept, self._journal.oldest())

    def _ended(self) -> int:
        """Up to where the journal knows the log; nothing captured happened on its last stretch."""
        return skip_idle(self._places, self._journal.end()) if self._journal is not None else 0

    @cached_property
    def _places(self) -> list[Files]:
        return _notes(self._definition)

    def _told(self, position: int) -> str:
        return connectors.offsets(self._definition.connector).describe(self._connector.document(position, 0, 0))


def _journal(definition: Definition) -> SegmentJournal | None:
    """What was captured and is still there; nothing when a start would throw it away."""
    home = Home.at(definition.name)
    if not definition.storage.persistent or not (definition.storage.path or home.journal.is_dir()):
        return None
    journal = journal_of(definition, ":memory:", files_of(definition, home))
    journal.refresh()
    return journal
