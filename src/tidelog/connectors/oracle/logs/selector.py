"""Which of the log files a mining session takes: all, or of each redo thread as many as hold a given amount.

Few files make a short session and a near end: what lies beyond it is mined next. While the same few files are asked for
again, nothing that was begun in them has ended, and one more is taken each time. A choice gives the next state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tidelog.connectors.oracle.logs.files import LogFile
from tidelog.connectors.oracle.logs.threads import Thread, public
from tidelog.errors import TransientError


@dataclass(frozen=True)
class Chosen:
    files: tuple[LogFile, ...]
    limit: int | None
    """What is logged at this SCN and later may not be in these files; None when only the present ends them."""
    capped: bool
    """Whether files were left out."""

    @property
    def logs(self) -> frozenset[tuple[int, int]]:
        return frozenset(file.log for file in self.files)

    def upper(self, upper: int) -> int:
        return upper if self.limit is None else min(upper, self.limit)


@dataclass(frozen=True)
class Selector:
    least: int
    """Files of a thread, counted in sizes of an online log; 0 for all there are."""
    log_bytes: int
    count: int = 0
    """As many are taken now."""
    last: frozenset[tuple[int, int]] = frozenset()

    def choose(self, files: Sequence[LogFile], threads: Iterable[Thread]) -> tuple[Chosen, Selector]:
        """The files of the next session, and the selector for the one after it."""
        threads = public(threads)
        _require(files, threads)
        count = max(self.count, self.least)
        chosen = self._within(count, files, threads)
        if chosen.logs != self.last and count > self.least:
            count = self.least
            chosen = self._within(count, files, threads)
        while chosen.capped and chosen.logs == self.last:
            count += 1
            chosen = self._within(count, files, threads)
        return chosen, replace(self, count=count, last=chosen.logs)

    def _within(self, count: int, files: Sequence[LogFile], threads: Sequence[Thread]) -> Chosen:
        taken: list[LogFile] = []
        limits: list[int] = []
        capped = False
        for thread in sorted(threads, key=lambda t: t.number):
            own = sorted((f for f in files if f.thread == thread.number), key=lambda f: f.sequence)
            some = own[: self._enough(count, own)]
            taken += some
            capped |= len(some) < len(own)
            # A thread that is closed has no more to tell once all its logs are there.
            if some and some[-1].archived and (thread.open or len(some) < len(own)):
                limits.append(some[-1].next)
        return Chosen(tuple(taken), min(limits, default=None), capped)

    def _enough(self, count: int, own: Sequence[LogFile]) -> int:
        """How many of a thread's files hold `count` times what an online log holds."""
        if not self.least:
            return len(own)
        held = 0
        for number, file in enumerate(own, 1):
            held += file.bytes
            if held >= count * self.log_bytes:
                return number
        return len(own)


def _require(files: Sequence[LogFile], threads: Iterable[Thread]) -> None:
    for thread in threads:
        if thread.open and not any(file.thread == thread.number for file in files):
            raise TransientError(f"Redo thread {thread.number} is open, but none of the log files found is its own.")
