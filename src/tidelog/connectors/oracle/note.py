"""What the connector must know to read on after a commit: the note beside each transaction, and the offset's keys.

`scn` is where the log has to be read from, so that every transaction that was open at the commit is read from its
beginning. `commit_scn` says what was delivered of each redo thread. `inside` is a place in the middle of a transaction,
which only offsets of another connector have: tidelog's batches end between transactions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.connectors.oracle import pending, position, scn
from tidelog.connectors.oracle.offset import DOCUMENT
from tidelog.connectors.oracle.scn import CommitScn


@dataclass(frozen=True)
class Inside:
    """The last event that was delivered of a transaction."""

    xid: int
    sequence: int


@dataclass(frozen=True)
class Note:
    scn: int | None = None
    commit_scn: CommitScn = field(default_factory=CommitScn)
    snapshot_scn: int | None = None
    pending: Mapping[int, int] = field(default_factory=dict)
    """The transactions that were open when the capture first started, each with the SCN of its start."""
    inside: Inside | None = None

    @property
    def mine_from(self) -> int | None:
        """Where the log has to be read from; None when nobody knows."""
        starts = [start - 1 for start in self.pending.values()]
        known = starts + ([self.scn] if self.scn is not None else [])
        return min(known, default=None)

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "scn": None if self.scn is None else str(self.scn),
            "commit_scn": str(self.commit_scn) or None,
            "snapshot_scn": None if self.snapshot_scn is None else str(self.snapshot_scn),
            "snapshot_pending_tx": pending.written(self.pending) or None,
        }
        if self.inside is not None:
            found |= {"txId": position.xid_text(self.inside.xid), "txSeq": self.inside.sequence}
        return {key: value for key, value in found.items() if value is not None or key in ("scn", "commit_scn")}


class Notes:
    """Notes of one commit after the other. What does not change from one to the next is written once."""

    def __init__(self, note: Note) -> None:
        self._note = replace(note, commit_scn=CommitScn())
        self._rest = ""

    def text(self, low: int, commit_scn: str, inside: Inside | None) -> str:
        """With the log read from `low`: transactions of the first start that lie before it are over."""
        left = {xid: start for xid, start in self._note.pending.items() if start > low}
        if not self._rest or left != self._note.pending or inside is not self._note.inside:
            self._note = replace(self._note, scn=None, pending=left, inside=inside)
            rest = {k: v for k, v in self._note.document().items() if v is not None}
            self._rest = json.dumps(rest, separators=(",", ":"))[1:]
        delivered = f'"{commit_scn}"' if commit_scn else "null"
        return f'{{"scn":"{low}","commit_scn":{delivered}{"," if len(self._rest) > 1 else ""}{self._rest}'


def read(document: Mapping[str, Any]) -> Note:
    """From an offset, ours or another connector's."""
    told = DOCUMENT.read({k: v for k, v in document.items() if not k.startswith("tidelog_")})
    inside = None
    if told.get("txId"):
        inside = Inside(position.xid_of(told["txId"]), int(told.get("txSeq") or 0))
    return Note(
        scn=scn.parse_scn(told.get("scn")),
        commit_scn=scn.parse(told.get("commit_scn")),
        snapshot_scn=scn.parse_scn(told.get("snapshot_scn")),
        pending=pending.parse(told.get("snapshot_pending_tx")),
        inside=inside,
    )


def parse(text: str | None) -> Note:
    return read(json.loads(text)) if text else Note()


def position_of(note: Note) -> int:
    """Where delivery goes on after an offset: at the redo thread that is furthest behind. After a first start of
    another connector, at its snapshot: what was committed before is in the rows that were read."""
    lowest = note.commit_scn.lowest
    scns = [s for s in (lowest, note.snapshot_scn if lowest is None else None) if s is not None]
    return position.of_scn(max(scns, default=note.scn or 0))
