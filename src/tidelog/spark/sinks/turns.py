"""Tables of one batch that come to the same place, one after the other: a table was dropped and made anew, or another
took its name.

Law: a table is applied whole before the one that follows it under its name takes the place; so what it was is there
to be found again should it come back under another name. Two tables never have one name at once, so the one that the
log speaks of last, be it without a row, is the one that has it in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from tidelog.contracts import TableChanges


def rounds(
    tables: Sequence[TableChanges], place: Callable[[TableChanges], str], is_done: Callable[[TableChanges], bool]
) -> list[list[TableChanges]]:
    """What is left to do: tables that may be applied together, and then those that follow them in their places."""
    queues: dict[str, list[TableChanges]] = {}
    for changes in sorted(tables, key=lambda c: c.told):
        queues.setdefault(place(changes), []).append(changes)
    left = [_after_done(queue, is_done) for queue in queues.values()]
    return [[changes for changes in turn if changes is not None] for turn in zip_longest(*left)]


def _after_done(queue: list[TableChanges], is_done: Callable[[TableChanges], bool]) -> list[TableChanges]:
    """Who is done has taken the place after all before it were, also those that had nothing to mark."""
    last = max((i for i, changes in enumerate(queue) if is_done(changes)), default=-1)
    return queue[last + 1 :]
