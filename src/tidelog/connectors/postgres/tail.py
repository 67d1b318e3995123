"""The open log: drains the stream, frames what came, keeps the server informed, and watches the catalog.

The catalog is asked now and then, because DDL alone writes nothing into the stream: a column added with a default
changes every row of the table without one row event. What the catalog shows is recorded once the log has passed the
moment of asking, so it never overtakes a change that was made before it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from tidelog.connectors.postgres import position
from tidelog.connectors.postgres.catalog import Catalog
from tidelog.connectors.postgres.client import LOG_END, Session, Stream
from tidelog.connectors.postgres.config import Config
from tidelog.connectors.postgres.frame import Framer
from tidelog.connectors.postgres.rest import Rest
from tidelog.connectors.postgres.turns import Turns, worth
from tidelog.connectors.postgres.versions import Surely
from tidelog.contracts import Merging, Mixed, Portion
from tidelog.errors import TidelogError
from tidelog.model.record import Op
from tidelog.model.schema import Table

_PORTION_BYTES_MAX = 512 << 20
"""A portion and the one message that may exceed it are addressed by 32 bits."""
_GATHER_S = 0.25
"""How long a tail that nobody waits for gathers before it hands over."""


class PostgresTail:
    def __init__(
        self,
        config: Config,
        start: int,
        known: Sequence[Table],
        *,
        acknowledged: int,
        memory_bytes: int,
    ) -> None:
        self._config = config
        self._memory = min(memory_bytes, _PORTION_BYTES_MAX)
        self._session = Session(config)
        try:
            self._begin(start, known)
        except TidelogError:
            self._session.close()
            raise
        self._ready: deque[Portion | Mixed] = deque()
        self._messages: list[memoryview] = []
        self._bytes = 0
        self._acknowledged = acknowledged  # not `start`: what lies between is captured, but nobody has delivered it
        self._told = time.monotonic()
        self._asked = float("-inf")  # ask at once: DDL may have come while nobody looked
        self._compared: dict[int, Table] | None = None
        """The versions of the tables that the catalog was last compared with."""
        self._beat = time.monotonic()
        self._pending: tuple[int, list[tuple[Table, Table]]] | None = None

    def _begin(self, start: int, known: Sequence[Table]) -> None:
        config = self._config
        self._catalog = Catalog(self._session, config.selection, slot=config.slot)
        self._framer = self._new_framer(known)
        self._framer.end = start
        self._stream = Stream(config, position.resume(start), _options(config, self._session.version))
        self._rest = Rest(self._session, self._stream.sender, self.ping)

    def _new_framer(self, known: Sequence[Table]) -> Framer | Turns:
        describe, next_xid = self._catalog.describe, self._next_xid()
        transactions = self._config.selection.transactions
        if not self._config.streaming:
            return Framer(describe, next_xid=next_xid, tables=known, with_collections=transactions)
        locked = self._catalog.locked
        return Turns(describe, locked, next_xid=next_xid, tables=known, with_collections=transactions)

    # -- the contract ------------------------------------------------------------------------------------------

    def poll(self, wait_s: float, eager: bool) -> Portion | Mixed | None:
        if self._ready:
            return self._ready.popleft()
        if (own := self._changed_schema()) is not None:  # first, because a busy log would leave it no turn
            return own
        self._gather(time.monotonic() + (wait_s if eager else max(wait_s, _GATHER_S)), eager)
        self._inform()
        if self._messages:
            self._frame()
            if self._ready:
                return self._ready.popleft()
        if self._between():
            self._rest.look(self.seen(), self._stream.answers)
        return self._heartbeat()

    @property
    def sender(self) -> int:
        """The server's process that sends us the log."""
        return self._stream.sender

    def merging(self, xid: int) -> Merging:
        """Only the rows of a streamed transaction may wait for their commit to say under which version they stand."""
        return self._framer.merging(xid) if isinstance(self._framer, Turns) else Surely({})

    def acknowledge(self, at: int) -> None:
        resumed = position.resume(at)
        if resumed > self._acknowledged:
            self._acknowledged = resumed
            self._tell()

    def seen(self) -> int:
        return max(self._stream.received, self._framer.end)

    def reached(self) -> int:
        return max(self.seen(), self._rest.reached)

    def keep_alive(self) -> None:
        """Tell the server that we live while nothing is read, because the journal is full."""
        self._inform()

    def ping(self) -> None:
        self._stream.feedback(self._acknowledged, reply=True)

    def quiet(self) -> bool:
        """Whether no transaction is half read, and the catalog says nothing that the log has not come to. One that is
        streamed while it is open does not count: the server tells no place of the log before all that was committed
        there."""
        return self._between() and self._pending is None and self._is_compared()

    def _between(self) -> bool:
        return self._framer.open is None and not self._messages and not self._ready

    def close(self) -> None:
        self._stream.close()
        self._session.close()

    # -- reading -----------------------------------------------------------------------------------------------

    def _gather(self, deadline: float, eager: bool) -> None:
        known = self._stream.received
        while True:
            self._bytes += self._stream.drain(self._messages, self._memory - self._bytes)
            left = deadline - time.monotonic()
            news = self._messages or self._stream.received > known
            if self._bytes >= self._memory or left <= 0 or (eager and news and self._at_end()):
                return
            if not self._stream.wait(left) and self._messages:
                return

    def _frame(self) -> None:
        found = self._framer.frame(self._messages)
        self._ready.extend(filter(worth, found if isinstance(found, list) else [found]))
        self._messages, self._bytes = [], 0

    def _at_end(self) -> bool:
        """Nothing more is on its way right now."""
        return not self._stream.wait(0)

    # -- keeping the server informed ---------------------------------------------------------------------------

    def _inform(self) -> None:
        due = time.monotonic() - self._told >= self._config.status_interval_s
        if due or self._stream.reply_wanted:
            self._tell()

    def _tell(self) -> None:
        self._stream.feedback(self._acknowledged)
        self._told = time.monotonic()

    # -- what the log does not say -----------------------------------------------------------------------------

    def _changed_schema(self) -> Portion | None:
        """A schema change that wrote no row, once the log has passed the moment the catalog was asked."""
        if not self._between():
            return None
        if self._pending is None:
            self._ask()
        if self._pending is None or self.reached() < self._pending[0]:
            return None
        # Not past what the server has reported: the next commit may begin there.
        at = position.of_own(max(self._framer.end, min(self._pending[0], self._stream.received)))
        # Where the log has told of the table since, it knows better than what the catalog said before.
        changed = [now for known, now in self._pending[1] if self._framer.tables.get(now.id) is known]
        self._pending = None
        if at is None or not changed:
            self._compared = None
            return None
        return self._framer.own(Op.SCHEMA, changed, at, _now_us())

    def _is_compared(self) -> bool:
        """Whether the catalog was compared with the versions that are known now. The log may have told of an older
        version since, or of a table for the first time; what the catalog says of those is not followed yet."""
        return self._compared == self._framer.tables

    def _ask(self) -> None:
        if self._is_compared() and time.monotonic() - self._asked < self._config.refresh_interval_s:
            return
        self._asked = time.monotonic()
        self._compared = dict(self._framer.tables)
        changed = self._catalog.changed(self._framer.tables)
        if changed:
            self._pending = (int(self._session.query(LOG_END)[0][0]), changed)

    def _heartbeat(self) -> Portion | None:
        interval = self._config.heartbeat_interval_s
        if not interval or time.monotonic() - self._beat < interval or not self.quiet():
            return None
        at = position.of_own(max(self._framer.end, self._stream.received))
        if at is None:
            return None
        self._beat = time.monotonic()
        return self._framer.own(Op.HEARTBEAT, [None], at, _now_us())

    def _next_xid(self) -> int:
        return int(self._session.query("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")[0][0])


def _options(config: Config, version: int) -> list[str]:
    options = [f"proto_version '{2 if config.streaming else 1}'", f"publication_names '\"{config.publication}\"'"]
    if config.streaming:
        options.append("streaming 'on'")
    if version >= 140000:
        options.append("messages 'true'")
    if version >= 160000 and config.origin != "any":
        options.append(f"origin '{config.origin}'")
    return options


def _now_us() -> int:
    return time.time_ns() // 1000
