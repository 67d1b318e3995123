"""What the journal's entries mean to us, by code and type."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    CREATE = "create"
    BEFORE = "cache-before"
    """The old row of the update that follows."""
    UPDATE = "update"
    DELETE = "delete"
    UNDO = "undo"
    """A change of this row is taken back."""
    CLEAR = "clear"
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SCHEMA = "refresh-schema"
    OTHER = "ignore"


KINDS = {
    ("R", "PT"): Kind.CREATE,
    ("R", "PX"): Kind.CREATE,
    ("R", "UB"): Kind.BEFORE,
    ("R", "UP"): Kind.UPDATE,
    ("R", "DL"): Kind.DELETE,
    ("R", "DR"): Kind.DELETE,
    ("R", "UR"): Kind.UNDO,
    ("F", "CR"): Kind.CLEAR,
    ("C", "SC"): Kind.BEGIN,
    ("C", "BC"): Kind.OTHER,
    ("C", "CM"): Kind.COMMIT,
    ("C", "RB"): Kind.ROLLBACK,
    ("C", "CN"): Kind.ROLLBACK,
    ("D", "CT"): Kind.SCHEMA,
    ("D", "CG"): Kind.SCHEMA,
}
"""The old image of a roll-back (R.BR) says nothing that its new one (R.UR) does not. C.BC, which opens commitment
control for a whole job, begins no transaction. C.CN is a roll-back that somebody ended early: nothing of it was
committed, and the system locks the files that it left half rolled back until they are restored."""

CODES = tuple(sorted({code for code, _ in KINDS}))
TYPES = tuple(sorted({kind for (_, kind), meaning in KINDS.items() if meaning is not Kind.OTHER}))


def kind(code: str, type: str) -> Kind:
    return KINDS.get((code, type), Kind.OTHER)


@dataclass(frozen=True, slots=True)
class Entry:
    """One journal entry, as far as it matters to us."""

    position: int
    sequence: int
    receiver: str
    receiver_library: str
    code: str
    type: str
    library: str
    file: str
    member: str
    rrn: int
    cycle: int
    """The transaction: the number of the entry that began it; 0 outside commitment control."""
    time_us: int
    nulls: bytes
    """A character for each column: 1 for NULL, 9 for a value that was not recorded; empty when none is NULL."""
    image: bytes
    """The row as the file lays it out."""

    @property
    def kind(self) -> Kind:
        """Inside a transaction, a row that a roll-back deletes was inserted by the transaction itself."""
        found = KINDS.get((self.code, self.type), Kind.OTHER)
        return Kind.UNDO if self.type == "DR" and self.cycle and found is Kind.DELETE else found
