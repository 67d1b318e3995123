"""The low watermark of the unbuffered tail: where the oldest transaction begins that has not ended.

Committed data does not tell of transactions that are still open. So now and then a second session looks at all
beginnings and ends: a START without a COMMIT, ROLLBACK or REPLICATION_MARKER is open. Only what ended at or before the
place up to which everything was read counts as ended: what committed later is still to be read, from its beginning.

The log may lack a START. So the watermark also stays below every transaction that the database itself knew to be open
some time ago, and does not pass the time just before that question: what began since then began after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidelog.connectors.oracle import pending, position, queries
from tidelog.connectors.oracle.client import Row
from tidelog.connectors.oracle.config import Config
from tidelog.connectors.oracle.pending import Start
from tidelog.connectors.oracle.session import Miner


class Watermark:
    """A second connection, used by the tail's thread."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._miner = Miner(config)
        self._known: Start | None = None

    def look(self, low: int, read: int) -> int:
        """The new watermark, from the old one and the SCN up to which all is read; the old one if nothing can be said
        now."""
        if self._known is None:
            self._known = pending.look(self._miner.session)
            return low
        if read < self._known.scn:
            return low
        found = self._paired(low, self._known.low)
        if found is not None:
            self._known = pending.look(self._miner.session)
        return low if found is None else max(low, found)

    def _paired(self, low: int, upto: int) -> int | None:
        window = self._miner.window(low + 1, low)
        if window is None or window.end < upto:
            return None
        rows = [row for some in self._miner.rows(queries.transactions(self._config, low, upto)) for row in some]
        if not self._miner.whole or self._known is None:
            return None
        ended = {_xid(raw) for _, raw, code, _ in rows if code != queries.START}
        silent = [begun - 1 for xid, begun in self._known.pending.items() if begun > low and xid not in ended]
        return min([oldest_open(rows, upto, window.private), *silent])

    def close(self) -> None:
        self._miner.close()


def oldest_open(rows: Iterable[Row], upto: int, private: Collection[int] = ()) -> int:
    """One below the first START without an end, among rows of SCN, XID, OPERATION_CODE and THREAD#; else `upto`."""
    open_: dict[int, int] = {}
    for scn, raw, code, thread in rows:
        xid = _xid(raw)
        if thread in private:
            continue
        if code == queries.START:
            open_[xid] = int(scn)
        elif position.is_partial(xid):
            _end_partly_named(open_, xid)
        else:
            open_.pop(xid, None)
    return min([upto, *(scn - 1 for scn in open_.values())])


def _xid(raw: bytes | None) -> int:
    return int.from_bytes(raw or bytes(8), "big", signed=True)


def _end_partly_named(open_: dict[int, int], xid: int) -> None:
    """A rollback that names the slot alone ends the one transaction that has it."""
    candidates = [other for other in open_ if position.same_slot(other, xid)]
    if len(candidates) == 1:
        del open_[candidates[0]]
