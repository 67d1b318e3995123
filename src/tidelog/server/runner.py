"""One connector that should run: a thread that keeps its query alive until it is told to end.

What time cures is tried again, for as long as it takes; any other error ends the thread, and its sentence is what
people read (`trace`). The thread alone touches its run: others only ask it to end.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from traceback import format_exception
from typing import TYPE_CHECKING

from tidelog.contracts import ControlStore
from tidelog.engine import flat
from tidelog.engine.backoff import Backoff
from tidelog.engine.definition import Definition
from tidelog.engine.watching import Ended
from tidelog.errors import SparkLost, TidelogError, TransientError
from tidelog.spark.pipeline import Run
from tidelog.spark.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNASSIGNED, RUNNING, FAILED, ENDED, ASKED = "UNASSIGNED", "RUNNING", "FAILED", "ENDED", "ASKED"
"""ENDED by itself, or because it was ASKED to."""
_ENDED_MAX = 50
_LOG = logging.getLogger("tidelog.server")


class _Asked(Exception):
    """Somebody asked the run to end."""


@dataclass
class Tally:
    """What was delivered of a connector since the service began with it, over all its runs."""

    events: int = 0
    tables: Counter[str] = field(default_factory=Counter)
    ended: tuple[Ended, ...] = ()

    def add(self, progress: Progress) -> None:
        self.events += progress.events_total
        self.tables.update(progress.tables)
        self.ended = (*self.ended, *progress.ended)[-_ENDED_MAX:]


class Runner:
    def __init__(
        self,
        name: str,
        definition: Callable[[], Definition],
        spark: Callable[[], SparkSession],
        store: ControlStore,
        tally: Tally,
        hidden: Callable[[], list[str]],
        changed: Callable[[], None],
    ) -> None:
        """`hidden` are the texts that may not be told; `changed` is called when there is another state."""
        self.name = name
        self.state = UNASSIGNED
        self.trace = ""
        self.progress: Progress | None = None
        self._tally = tally
        self._definition, self._spark, self._store = definition, spark, store
        self._hidden, self._secrets = hidden, hidden()
        self._changed = changed
        self._ending = threading.Event()
        self._backoff = Backoff(f"The connector {name}")
        self._thread = threading.Thread(target=self._live, name=f"tidelog-{name}", daemon=True)

    def start(self) -> Runner:
        self._thread.start()
        return self

    def ask_to_end(self) -> None:
        self._ending.set()

    def end(self, seconds: float) -> bool:
        """Whether everything was let go in this time; it will be in any case."""
        self._ending.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        while not self._ending.is_set():
            try:
                self._run()
                return self._become(ENDED)
            except _Asked:
                break
            except (TransientError, SparkLost) as exc:
                reason = self._scrubbed(str(exc))
                self._become(UNASSIGNED, reason)
                self._ending.wait(self._backoff.failed(reason))
            except Exception as exc:  # noqa: BLE001  whatever it is, people read it in the state
                _LOG.error("%s failed\n%s", self.name, self._scrubbed("".join(format_exception(exc))))
                return self._become(FAILED, self._scrubbed(_sentence(exc)))
        self.state, self.trace = ASKED, ""
        return None

    def _run(self) -> None:
        self._secrets = self._hidden()  # what references stand for may have changed
        try:
            spark = self._spark()
            self._require_wanted()  # the first start of Spark takes long
            with Run(
                self._definition(),
                spark,
                once=False,
                store=self._store,
                check=self._require_wanted,
                watch_wait=self._watch_wait,
            ) as run:
                run.wait(partial(self._watch, run))
        finally:
            self._add_up()

    def _watch(self, run: Run, progress: Progress) -> None:
        if self.state != RUNNING and run.query is not None:
            self._become(RUNNING)
        if progress.batch_id >= 0 or progress.state == "running":
            self._backoff.succeeded()  # not before: a query that starts and fails would be started without delay
        self.progress = replace(progress, warnings=tuple(map(self._scrubbed, progress.warnings)))
        self._require_wanted()

    def _watch_wait(self, reason: str) -> None:
        """The start waits for other sessions of the database."""
        told = self._scrubbed(reason)
        if told != self.trace:
            self._become(UNASSIGNED, told)
        self._require_wanted()

    def _require_wanted(self) -> None:
        """Raises when the run was asked to end."""
        if self._ending.is_set():
            raise _Asked

    def _add_up(self) -> None:
        if self.progress is not None:
            now, self.progress = self.progress, None
            self._tally.add(now)

    def _scrubbed(self, text: str) -> str:
        return flat.scrubbed(text, self._secrets)

    def _become(self, state: str, trace: str = "") -> None:
        self.state, self.trace = state, trace
        self._changed()


def _sentence(exc: BaseException) -> str:
    if isinstance(exc, TidelogError):
        return str(exc)
    first = (str(exc).strip().splitlines() or ["no message"])[0]
    return f"Unexpected {type(exc).__name__}: {first[:500]}"
