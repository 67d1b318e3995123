"""Where a drain (`--once`, `Trigger.AvailableNow`) ends.

A drain delivers what the log held when it began, and the snapshots that were queued then or are asked for meanwhile.
A chunk is delivered only when the log is known past the place that its reading has seen, so every chunk moves the end
of the drain to that place. A schema change that wrote no row is recorded past the end that the log had when the catalog
was asked, so it moves the end of the drain as well. Where windows are rows of the signal table, the row that closes a
window stands at a place that nobody knows before it is read: while such a window is open, the drain takes all of the
log.
"""

from __future__ import annotations

from tidelog.contracts import Connector


class Drain:
    """Used by one thread."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self.target = connector.log_end()
        """Where the log ended when the drain began."""
        self._end = self.target
        self._open_windows = False

    def extend(self, log_end: int) -> None:
        """Deliver the log up to `log_end`, too."""
        self._end = max(self._end, log_end)

    def follow_windows(self, *, are_open: bool) -> None:
        """Deliver the log up to where the open windows close."""
        self._open_windows = are_open

    @property
    def limit(self) -> int | None:
        """The position that no batch goes past; None while there is no such limit."""
        return None if self._open_windows else self._connector.through(self._end)

    def known(self, received: int) -> int:
        """Up to where the log is known when everything below the limit is delivered. `received` is where the captured
        log ends: later transactions that are captured already are for another run."""
        return received if self._open_windows else min(received, self._end)
