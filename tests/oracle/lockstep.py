"""The capture's thread, in step with the test: it moves only while somebody waits for it.

The capture itself is the real one, with its sessions, retries and buffer. Its thread and the test's hand a baton to and
fro, so a run depends on its seed alone and not on the scheduler. What the capture does by the clock (flushing the
buffer, noting idle stretches) happens by chance, from the same seed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any

from tidelog.contracts import Tail
from tidelog.engine import capture as real

_TURNS_MAX = 4000
_WAITS_MAX = 300
CHANCES = {"status": 0.0, "lag": 0.0, "idle": 0.15, "ping": 0.5, "flush": 0.15}


class Stuck(Exception):
    """What is waited for does not come."""


class Baton:
    """Who holds it runs; the other one waits."""

    def __init__(self) -> None:
        self._turn = threading.Semaphore(0)
        self._back = threading.Semaphore(0)

    def lend(self) -> None:
        """Let the other one run until he gives it back."""
        self._turn.release()
        self._back.acquire()

    def take(self) -> None:
        self._turn.acquire()

    def give(self) -> None:
        self._back.release()


class Lockstep(real.Capture):
    """Made by `made`, in place of the capture that a reading makes."""

    rng: Random
    tick: Callable[[], None]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "publish": lambda _: None})  # nobody looks at the status file
        self._baton = Baton()
        self._over = False
        self._vain = 0

    @classmethod
    def made(cls, rng: Random, tick: Callable[[], None], held: int) -> Callable[..., Lockstep]:
        """`held`: how much of open transactions stays in memory; the setting itself does not go so low."""

        def make(*args: Any, **options: Any) -> Lockstep:
            capture = cls(*args, **options)
            capture.rng, capture.tick, capture._open_bytes = rng, tick, held
            return capture

        return make

    # -- the test's side -----------------------------------------------------------------------------------------

    def wait(self, beyond: int, seconds: float) -> int:
        self._wanted.set()
        for _ in range(2 if seconds < 0.1 else 12):
            if self.journal.end() > beyond:
                break
            self.turn()
        self._vain = 0 if self.journal.end() > beyond else self._vain + 1
        if self._vain > _WAITS_MAX:
            raise Stuck(f"more than {beyond} is waited for, but the journal ends there: {self.status().warning}")
        return self.journal.end()

    def caught_up(self, log_end: int, seconds: float) -> bool:  # noqa: ARG002  turns are counted, not seconds
        self._goal = log_end
        for _ in range(_TURNS_MAX):
            if self._seen >= log_end:
                return True
            self._wanted.set()
            self.turn()
        raise Stuck(f"the log ends at {log_end}, but was read up to {self._seen} only: {self.status().warning}")

    def turn(self) -> None:
        """One step of the capture, and time passes."""
        self.raise_failure()
        if not self._over:
            self._baton.lend()
        self.raise_failure()
        self.tick()

    def settle(self, seconds: float) -> None:  # noqa: ARG002
        self.turn()

    def stop(self) -> None:
        self._stopping.set()
        while self._thread.ident is not None and not self._over:
            self._baton.lend()

    # -- the capture's side --------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._baton.take()
        try:
            super()._run()
        finally:
            self._over = True
            self._baton.give()

    def _step(self, tail: Tail) -> None:
        super()._step(tail)
        self._pause()

    def _pause(self) -> None:
        self._baton.give()
        self._baton.take()

    def _set(self, **changes: str) -> None:
        super()._set(**changes)
        if changes.get("state") == "reconnecting":
            self._pause()

    def _is_due(self, what: str, every_s: float) -> bool:  # noqa: ARG002
        return self.rng.random() < CHANCES[what]
