"""A log that streams, taken in turns: what comes whole is framed as ever, only what comes in pieces is mixed.

Most transactions are small and come whole also from a server that streams. They need no buffer: between two pieces of
open transactions the log is in commit order. So a reading is cut before its first and behind its last word of a stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidelog.connectors.postgres.frame import Framer
from tidelog.connectors.postgres.streams import Streams
from tidelog.connectors.postgres.versions import Describe, Locked
from tidelog.connectors.postgres.wire import Log
from tidelog.contracts import Mixed, Portion
from tidelog.model.schema import Table

_OF_STREAMS = np.zeros(256, np.bool_)
_OF_STREAMS[[ord(kind) for kind in "SEcA"]] = True


class Turns:
    """As `Framer`; but a log may become several readings."""

    def __init__(
        self,
        describe: Describe,
        locked: Locked,
        *,
        next_xid: int,
        tables: Sequence[Table] = (),
        with_collections: bool = False,
    ) -> None:
        self._whole = Framer(describe, next_xid=next_xid, tables=tables, with_collections=with_collections)
        self._streams = Streams(self._whole.versions, self._whole.xids, locked)
        self.own = self._whole.own
        self.merging = self._streams.merging

    @property
    def tables(self) -> dict[int, Table]:
        return self._whole.tables

    @property
    def end(self) -> int:
        return max(self._whole.end, self._streams.end)

    @end.setter
    def end(self, end: int) -> None:
        self._whole.end = end

    @property
    def open(self) -> object | None:
        """The transaction that is half read, of those that come whole. A piece of a stream that is half read holds
        nothing back: the server tells no place of the log before all that was committed there."""
        return self._whole.open

    def frame(self, messages: Sequence[memoryview | bytes]) -> list[Portion | Mixed]:
        log = Log(messages)
        words = np.flatnonzero(_OF_STREAMS[log.kinds])
        if not self._streams.inside and not len(words):
            return [self._whole.read(log)]
        first = 0 if self._streams.inside else int(words[0])
        last = len(messages) if self._goes_on(log) else int(words[-1]) + 1
        before: list[Portion | Mixed] = [self._whole.frame(messages[:first])] if first else []
        found = [*before, self._streams.frame(messages[first:last])]
        return [*found, self._whole.frame(messages[last:])] if last < len(messages) else found

    def _goes_on(self, log: Log) -> bool:
        """Whether the log ends in the middle of a piece."""
        turns = log.kinds[(log.kinds == ord("S")) | (log.kinds == ord("E"))]
        return bool(turns[-1] == ord("S")) if len(turns) else self._streams.inside


def worth(found: Portion | Mixed) -> bool:
    """Whether it tells anything."""
    return bool(found.blocks or (found.end if isinstance(found, Portion) else found.marks.num_rows))
