"""The transactions that are open when a capture first starts.

They may commit later, and then count as a whole, although part of them was logged before: the log is read from where
the oldest began. V$TRANSACTION tells what is open at some moment between two questions for the SCN. Whatever is open
at the second SCN was open then, or began after the first: no commit in between is missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.connectors.oracle import position, queries

if TYPE_CHECKING:  # what an offset says is read without the driver
    from tidelog.connectors.oracle.client import Session


@dataclass(frozen=True)
class Start:
    """Where a first start begins."""

    scn: int
    pending: Mapping[int, int]
    low: int
    """What is open at `scn` is pending, or began after this."""

    @property
    def mine_from(self) -> int:
        return min([self.low, *(begun - 1 for begun in self.pending.values())])


def is_cluster(session: Session) -> bool:
    """Whether other instances have transactions, too."""
    return str(session.one(queries.RAC) or "").upper() == "TRUE"


def look(session: Session) -> Start:
    rac = is_cluster(session)
    low = int(session.one(queries.CURRENT_SCN)) - 1
    rows = session.query(queries.open_transactions(rac=rac))
    found = {int.from_bytes(xid, "big", signed=True): int(begun) for xid, begun in rows}
    return Start(int(session.one(queries.CURRENT_SCN)), found, low)


def written(pending: Mapping[int, int]) -> str:
    """`xid:scn,…` as offsets have it, the oldest first."""
    ordered = sorted(pending.items(), key=lambda item: (item[1], item[0]))
    return ",".join(f"{position.xid_text(xid)}:{begun}" for xid, begun in ordered)


def parse(text: str | None) -> dict[int, int]:
    entries = [entry.rpartition(":") for entry in text.split(",")] if text else []
    return {position.xid_of(xid): int(begun) for xid, _, begun in entries}
