"""What must come out: committed changes, told from what transactions did to rows and not from the redo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.oracle.database import Change, Row, Transaction


class Wrong(AssertionError):
    """What came out is not what the model says."""


UNAVAILABLE = "(unavailable)"
"""Stands for a large value of which nothing is told."""


@dataclass(frozen=True)
class Event:
    """A change that was committed."""

    commit_scn: int
    xid: str
    table: str
    op: str
    before: Row | None
    after: Row | None

    @property
    def apart(self) -> tuple[Any, ...]:
        """Without the SCN, which depends on how often somebody asked for one."""
        return self.xid, self.table, self.op, self.before, self.after

    def __str__(self) -> str:
        return f"{self.commit_scn} {self.xid} {self.op} {self.table} {brief(self.before)} -> {brief(self.after)}"


def brief(row: Row | None) -> str:
    """A row to look at: of long values their beginning."""
    if row is None:
        return "-"
    return ", ".join(f"{name}={repr(value)[:60]}" for name, value in row.items())


def event_of(transaction: Transaction, change: Change) -> Event:
    scn = transaction.work.commit_scn
    assert scn is not None
    table = f"{change.relation.owner}.{change.relation.name}"
    return Event(scn, transaction.work.hex, table, change.op, *_images(change))


def _images(change: Change) -> tuple[Row | None, Row | None]:
    """Of large values only those are known that were written."""
    before, after = (_users(change, row) for row in (change.before, change.after))
    large = [c.name for c in change.columns if c.large]
    if before is not None and large:
        if after is not None:
            after = {k: UNAVAILABLE if k in large and v == before[k] else v for k, v in after.items()}
        before = {k: UNAVAILABLE if k in large else v for k, v in before.items()}
    return filled(before), filled(after)


def _users(change: Change, row: Row | None) -> Row | None:
    """Without what Oracle has added for itself."""
    own = [c.name for c in change.columns if c.system]
    return None if row is None else {k: v for k, v in row.items() if k not in own}


def filled(row: Row | None) -> Row | None:
    """Without NULLs: a column that did not exist yet is one, too."""
    return None if row is None else {name: value for name, value in row.items() if value is not None}


def shown(events: list[Event]) -> str:
    return "\n".join(f"    {e}" for e in events) or "    nothing"


def difference(expected: list[Event], found: list[Event]) -> str:
    first = next((n for n, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), None)
    at = min(len(expected), len(found)) if first is None else first
    return (
        f"{len(expected)} events were expected, {len(found)} came; from event {at} on they differ:\n"
        f"  expected\n{shown(expected[at : at + 3])}\n  came\n{shown(found[at : at + 3])}"
    )
