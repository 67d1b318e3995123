"""The committed offset, repeated in the store.

The checkpoint is the truth: a store that is away, or that knows of a later batch, is a warning.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from pyspark.sql.streaming.query import StreamingQuery

from tidelog.contracts import ControlStore
from tidelog.engine import checkpoint
from tidelog.engine.home import Home
from tidelog.errors import TidelogError

_RETRY_S = 5.0


class OffsetMirror:
    def __init__(self, store: ControlStore, name: str, partition: Mapping[str, str], home: Home) -> None:
        self._store = store
        self._name = name
        self._partition = dict(partition)
        self._home = home
        self._seen_progress = ""
        self._next_attempt_s = 0.0
        self.warning = ""
        """Why the store does not have the offset; empty when it has."""

    def follow(self, query: StreamingQuery | None) -> None:
        """Bring the store up to date where the query has made progress. (A query that has nothing to do reports
        progress too, of a batch that is still to come: so the checkpoint is asked, and not the progress.)"""
        progress = query.lastProgress if query is not None else None
        if progress is None or progress.timestamp == self._seen_progress or time.monotonic() < self._next_attempt_s:
            return
        self.update()
        if self.warning:
            self._next_attempt_s = time.monotonic() + _RETRY_S
        else:
            self._seen_progress = progress.timestamp

    def update(self) -> None:
        committed = checkpoint.committed(self._home)
        try:
            if committed is not None:
                self._store.mirror(self._name, self._partition, committed)
            self.warning = ""
        except TidelogError as exc:
            self.warning = f"The store does not take the offset: {exc.message}"
