"""A log that another process reads: what `Capture` is to a query that reads it itself.

`tidelog capture` writes the journal and a word about itself beside it; queries follow both, and tell how far they are.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace

from tidelog.contracts import Status
from tidelog.engine.readers import Readers
from tidelog.errors import Refused
from tidelog.journal.files import Files
from tidelog.journal.journal import SegmentJournal

STATUS = "status.json"
_SILENCE_S = 120.0
"""A living capture says something every second, and while it waits for a database that is away, every minute."""


class Following:
    """One query's. It keeps an index of its own: only the capture writes the ledger."""

    schema_end = 0
    """Not known: the capture follows changes without a row at its own pace."""

    def __init__(self, journal: SegmentJournal, files: Files, readers: Readers, reader: str) -> None:
        self.journal = journal
        self._files = files
        self._readers = readers
        self._reader = reader
        self._said: bytes | None = None
        self._heard_s = time.monotonic()

    def start(self, position: int) -> None:
        self.acknowledge(position)
        self.journal.follow(position)

    def wait(self, beyond: int, seconds: float) -> int:
        self.journal.refresh()
        if self.journal.end() <= beyond and seconds:
            time.sleep(seconds)
        return self.journal.end()

    def caught_up(self, log_end: int, _seconds: float) -> bool:
        """Never waits: nothing here makes the capture go on. Of one that has said nothing yet, and of one on a machine
        of its own, what the journal has is all there is."""
        status = self.status()
        return status.state == "starting" or status.seen >= log_end

    def seen(self) -> int:
        return self.status().seen

    def passed(self, _end: int) -> bool:
        """Not known: what the capture last said may be older than a loss of the journal."""
        return False

    def acknowledge(self, position: int) -> None:
        self._readers.acknowledge(self._reader, position)

    def status(self) -> Status:
        """What the capture last said of itself, and how long ago, if that was long."""
        said = self._files.read(STATUS)
        if said != self._said:
            self._said, self._heard_s = said, time.monotonic()
        status = Status(**json.loads(said)) if said else Status("starting")
        silence = self._silence()
        return replace(status, warning=f"{silence} {status.warning}".rstrip()) if silence else status

    def raise_failure(self) -> None:
        """For who waits for an end: a capture that has fallen silent brings none."""
        status = self.status()
        if self._silence():
            raise Refused(
                f"{status.warning} It was {status.state} then.",
                hint="Start it again: tidelog capture FILE, then repeat.",
            )

    def _silence(self) -> str:
        silent_s = int(time.monotonic() - self._heard_s)
        return f"The capture has said nothing for {silent_s} s." if silent_s >= _SILENCE_S else ""

    def settle(self, seconds: float) -> None:
        """What was acknowledged is told already."""

    def stop(self) -> None:
        """The capture outlives its queries."""
