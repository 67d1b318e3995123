"""Transactions that were given up: nothing of them is wanted any more, until their end, whoever starts again.

A state of the buffer says which they were when it was written. What came after that is in a file of its own, which says
which state it follows: with another one it does not count.
"""

from __future__ import annotations

import json

from tidelog.journal.files import Files

_NAME = "given-up.json"


class GivenUp:
    def __init__(self, files: Files, folder: str, start: int) -> None:
        """Transactions that commit before `start` are delivered already: they will not be read again."""
        self._files = files
        self._folder = folder
        found = json.loads(files.read(f"{folder}/{_NAME}") or b"{}")
        self._follows: str = found.get("follows", "")
        """The last state."""
        self._open = {int(xid) for xid, at in found.get("ids", {}).items() if not at or at >= start}
        self._ended: dict[int, int] = {}
        """Those whose end was read, with the position of their commit: whoever starts again with the last state reads
        it once more."""
        self._written = self._told()

    def __contains__(self, xid: int) -> bool:
        return xid in self._open

    def xids(self) -> frozenset[int]:
        return frozenset(self._open)

    def add(self, xid: int) -> None:
        self._open.add(xid)

    def end(self, xid: int, position: int) -> None:
        """Its end has come: with the position of its commit, or 1."""
        self._open.discard(xid)
        self._ended[xid] = position

    def begin(self, xid: int) -> None:
        """The id comes again."""
        if xid in self._open:
            self.end(xid, 0)

    def write(self) -> None:
        """What was told is on the disk when this returns."""
        told = self._told()
        if told != self._written:
            with self._files.create(f"{self._folder}/{_NAME}", durable=True) as out:
                out.write(json.dumps({"follows": self._follows, "ids": told}).encode())
            self._files.sync(self._folder)
            self._written = told

    def saved(self, state: str) -> None:
        """This state says which there are. Who starts with it reads on behind the ends that were read."""
        self._follows, self._ended = state, {}
        self._written = self._told()

    def restored(self, state: str, xids: set[int]) -> None:
        """Start with this state, and what is known since."""
        if self._follows != state:
            self._open = xids
        self.saved(state)

    def _told(self) -> dict[int, int]:
        return {**self._ended, **dict.fromkeys(sorted(self._open), 0)}
