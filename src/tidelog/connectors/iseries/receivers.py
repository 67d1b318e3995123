"""The receivers of a journal, as a chain: which of them belong together, and which of them has an entry.

A chain ends with the attached receiver. It begins after the last break: a receiver that nothing leads to, or one that
is partial because it was restored without all of its entries. What lies before a break cannot be read in order, so it
does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tidelog.connectors.iseries import position
from tidelog.connectors.iseries.position import Place
from tidelog.errors import PositionLost

QUERY = """
SELECT JOURNAL_RECEIVER_NAME, JOURNAL_RECEIVER_LIBRARY, NEXT_JOURNAL_RECEIVER, NEXT_JOURNAL_RECEIVER_LIBRARY,
       STATUS, CAST(FIRST_SEQUENCE_NUMBER AS BIGINT) AS FIRST_SEQUENCE_NUMBER,
       CAST(LAST_SEQUENCE_NUMBER AS BIGINT) AS LAST_SEQUENCE_NUMBER,
       CAST(ATTACH_TIMESTAMP AS VARCHAR(32)) AS ATTACH_TIMESTAMP, CAST(SIZE AS BIGINT) AS SIZE
  FROM QSYS2.JOURNAL_RECEIVER_INFO
 WHERE JOURNAL_LIBRARY = ? AND JOURNAL_NAME = ?
"""
"""All receivers that say they belong to a journal, in no order."""

PARTIAL = "PARTIAL"
ATTACHED = "ATTACHED"

START_OVER = (
    "To go on, restore the receiver if you have saved it, or start the pipeline under a new name (or delete its state "
    "folder) and take a new snapshot of the tables. Keep receivers until they are delivered: DLTRCV(*NO)."
)


@dataclass(frozen=True)
class Receiver:
    name: str
    library: str = ""
    first: int = 0
    last: int = 0
    """Sequence numbers of its first and its last entry; that of the attached one grows."""
    next: str | None = None
    next_library: str | None = None
    status: str = "ONLINE"
    minute: int = 0
    """Since 2000, when it was attached."""
    size_kb: int = 0

    @property
    def shown(self) -> str:
        return f"{self.library}/{self.name}"


def chain(found: Iterable[Receiver], attached: str, anchor: Mapping[str, int] | None = None) -> tuple[Receiver, ...]:
    """Oldest first. `anchor` has the minutes of receivers whose positions were given out: they stay, also when what
    made them later than the clock said is deleted by now."""
    found = list(found)
    by_next = {(r.next, r.next_library or r.library): r for r in found if r.next and r.status.upper() != PARTIAL}
    last = next((r for r in found if r.name == attached), None)
    links: list[Receiver] = []
    while last is not None and last not in links:
        links.append(last)
        last = by_next.get((last.name, last.library))
    return _dated(reversed(links), anchor or {})


def _dated(links: Iterable[Receiver], anchor: Mapping[str, int]) -> tuple[Receiver, ...]:
    """Minutes that never go back, and go on where the numbers do not."""
    dated: list[Receiver] = []
    for receiver in links:
        least = dated[-1].minute + (receiver.first <= dated[-1].last) if dated else 0
        dated.append(replace(receiver, minute=max(least, anchor.get(receiver.shown, receiver.minute))))
    return tuple(dated)


def read(rows: Iterable[Sequence[object]], anchor: Mapping[str, int] | None = None) -> tuple[Receiver, ...]:
    """The chain from the answer to `QUERY`."""
    found = [_receiver(*row) for row in rows]
    attached = next((r.name for r in found if r.status.upper() == ATTACHED), "")
    return chain(found, attached, anchor)


def _receiver(
    name: object,
    library: object,
    following: object,
    following_library: object,
    status: object,
    first: object,
    last: object,
    attached: object,
    size: object,
) -> Receiver:
    return Receiver(
        name=_text(name),
        library=_text(library),
        next=_text(following) or None,
        next_library=_text(following_library) or None,
        status=_text(status),
        first=int(str(first or 0)),
        last=int(str(last or 0)),
        minute=position.minute(moment(str(attached))) if attached else 0,
        size_kb=int(str(size or 0)),
    )


def _text(value: object) -> str:
    return str(value or "").strip()


def moment(text: str) -> datetime:
    """`2026-01-31-10.20.30.123456`, as Db2 writes it, or the ISO form."""
    plain = text.strip()
    if len(plain) > 10 and plain[10] in "-T":
        plain = plain[:10] + " " + plain[11:19].replace(".", ":") + plain[19:]
    return datetime.fromisoformat(plain[:26])


# -- places --------------------------------------------------------------------------------------------------------


def index_of(receivers: Sequence[Receiver], place: Place) -> int:
    """Which receiver of the chain a place means; the position is lost if it is not there any more."""
    for i, receiver in enumerate(receivers):
        if receiver.minute == place.minute and receiver.first <= place.sequence <= receiver.last + 1:
            return i
    raise PositionLost(
        f"The journal receiver that has entry {place.sequence} is gone: {_kept(receivers)}.", hint=START_OVER
    )


def named(receivers: Sequence[Receiver], name: str, library: str) -> Receiver:
    for receiver in receivers:
        if receiver.name == name and (not library or receiver.library == library):
            return receiver
    raise PositionLost(
        f"The journal receiver {library}/{name} is not in the journal's chain any more: {_kept(receivers)}.",
        hint=START_OVER,
    )


def holder(receivers: Sequence[Receiver], last: int, sequence: int) -> int:
    """The youngest receiver, none after number `last` of the chain, that has an entry `sequence`."""
    for i in range(last, -1, -1):
        if receivers[i].first <= sequence <= receivers[i].last:
            return i
    raise PositionLost(
        f"A transaction began with journal entry {sequence}, whose receiver is gone: {_kept(receivers)}.",
        hint=START_OVER,
    )


def _kept(receivers: Sequence[Receiver]) -> str:
    if not receivers:
        return "the journal has no chain of receivers"
    return f"the chain begins with {receivers[0].shown}, entry {receivers[0].first}"
