"""The transactions that are open when a capture first starts.

They may commit later, and then count as a whole, although part of them was logged before. So they are asked for
together with the SCN at which the capture starts, in one statement, and the log is read from where the oldest began.
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

    @property
    def mine_from(self) -> int:
        return min([self.scn, *(begun - 1 for begun in self.pending.values())])


def look(session: Session) -> Start:
    rac = str(session.one(queries.RAC) or "").upper() == "TRUE"
    rows = session.query(queries.pending(rac=rac))
    found = {int.from_bytes(xid, "big", signed=True): int(begun) for _, xid, begun in rows if xid is not None}
    return Start(int(rows[0][0]), found)


def written(pending: Mapping[int, int]) -> str:
    """`xid:scn,…` as offsets have it, the oldest first."""
    ordered = sorted(pending.items(), key=lambda item: (item[1], item[0]))
    return ",".join(f"{position.xid_text(xid)}:{begun}" for xid, begun in ordered)


def parse(text: str | None) -> dict[int, int]:
    entries = [entry.rpartition(":") for entry in text.split(",")] if text else []
    return {position.xid_of(xid): int(begun) for xid, _, begun in entries}
