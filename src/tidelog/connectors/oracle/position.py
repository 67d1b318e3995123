"""Positions in Oracle's log, and what commits stand there.

A commit stands at its SCN; commits that share one are told apart by their order in the log. So a position is
`commit SCN * 4096 + n`, and the log goes on at the next number. `Commits` gives them out, and knows which commits were
delivered already: by the position where the reader was told to start, and by the transactions that an offset lists.
"""

from __future__ import annotations

import re

from tidelog.connectors.oracle.scn import CommitScn, Committed
from tidelog.errors import ConfigError

SLOTS = 4096
_XID_BYTES = 8
_XID = re.compile(r"[0-9a-fA-F]{16}")


def of_scn(scn: int) -> int:
    """The first position at an SCN."""
    return scn * SLOTS


def last_at(position: int) -> int:
    """The last position at the same SCN."""
    return position | (SLOTS - 1)


def scn_of(position: int) -> int:
    return position // SLOTS


def xid_of(text: str) -> int:
    """`0a00140012345678` as a number."""
    if not _XID.fullmatch(text):
        raise ConfigError(f"{text[:40]!r} is no transaction id.", hint="Write its 16 digits, such as 0a00140012345678.")
    return int.from_bytes(bytes.fromhex(text), "big", signed=True)


def xid_text(xid: int) -> str:
    return xid.to_bytes(_XID_BYTES, "big", signed=True).hex()


def is_partial(xid: int) -> bool:
    """Whether only the undo segment and slot are known, the first eight digits."""
    return xid & 0xFFFFFFFF == 0xFFFFFFFF


def same_slot(xid: int, other: int) -> bool:
    return xid >> 32 == other >> 32


class Commits:
    """Positions of commits, as they come. `start` is where delivery goes on; `delivered` is what an offset says of that
    place, or of an earlier one. That may have the same SCN and list fewer commits than stand before `start`: then the
    first of those that it does not list were delivered, too."""

    def __init__(self, start: int, delivered: CommitScn) -> None:
        here = scn_of(start)
        self._start = start
        self._listed = {xid for c in delivered.threads.values() if c.scn == here for xid in c.transactions}
        self._unlisted = start - of_scn(here) - len(self._listed)
        self._threads = {t: (c.scn, list(c.transactions)) for t, c in delivered.threads.items()}
        self._last = start - 1
        self._scn = -1
        self._n = self._others = 0

    def again(self) -> None:
        """The log is read once more from some place: who shares an SCN is counted anew."""
        self._scn = -1

    def handled(self, thread: int, scn: int, xid: int) -> bool:
        """Whether a commit was delivered already."""
        if scn < scn_of(self._start):
            return True
        known = self._threads.get(thread)
        return known is not None and (known[0] > scn or (known[0] == scn and xid_text(xid) in known[1]))

    def place(self, thread: int, scn: int, xid: int) -> int | None:
        """Where this commit stands; None if it was delivered already. Each commit of the log is asked for, whether or
        not anything of it is captured: they all count."""
        if scn != self._scn:
            self._scn, self._n, self._others = scn, 0, 0
        natural = of_scn(scn) + self._n
        self._n += 1
        before = self._stands_before(scn, xid)
        if self.handled(thread, scn, xid):
            return None
        self._record(thread, scn, xid)
        if before:
            return None
        self._last = max(natural, self._last + 1)
        return self._last

    def _stands_before(self, scn: int, xid: int) -> bool:
        """Whether this commit has the SCN of `start` and stands before it, though it is not listed."""
        if scn != scn_of(self._start) or xid_text(xid) in self._listed:
            return False
        self._others += 1
        return self._others <= self._unlisted

    def _record(self, thread: int, scn: int, xid: int) -> None:
        known = self._threads.get(thread)
        if known is not None and known[0] == scn:
            known[1].append(xid_text(xid))
        else:
            self._threads[thread] = (scn, [xid_text(xid)])

    def commit_scn(self) -> str:
        """What was delivered of each redo thread so far, as offsets have it."""
        shown = (Committed(scn, tuple(sorted(xids))).shown(t) for t, (scn, xids) in sorted(self._threads.items()))
        return ",".join(shown)

    @property
    def last_scn(self) -> int:
        """Of the last commit that was placed; before the first one, where delivery goes on."""
        return scn_of(max(self._last, self._start))

    def own(self, scn: int) -> int | None:
        """A place for a record of our own, after everything up to `scn`; None when this SCN has no free one left."""
        place = max(of_scn(scn), self._last + 1)
        if scn_of(place) > scn:
            return None
        self._last = place
        return place
