"""How SIGINT (Ctrl-C) and SIGTERM end a command: within seconds, with one line, and with exit code 128 + signal.

A command that has nothing to bring to an end is ended at once, wherever it is: every command survives `kill -9`, so
nothing has to be undone. One that streams is asked to end (`StopRequest`), and is ended at once if that takes too long.
Either way the processes that the command started end before it.

This module is imported before anything else, so it imports little itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

from tidelog.cli import processes

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ORDERLY_END_S = 10.0
_PROCESSES_END_S = 5.0
_WRITING_S = 1.0
"""A pipe whose reader does not read, such as `less`, would hold the last words up for ever."""
_STDOUT, _STDERR = 1, 2
INTERRUPTED = "tidelog: interrupted"


def end_on_signals() -> None:
    """From now on, a signal ends this process and what it starts, at once."""
    processes.mark_descendants()
    main_pid = os.getpid()

    def end(number: int, _: FrameType | None) -> None:
        if os.getpid() != main_pid:  # a child between fork and exec
            os._exit(128 + number)
        clear = "\r\x1b[2K" if os.isatty(_STDERR) else ""
        end_at_once(128 + number, f"{clear}{INTERRUPTED}\n", _STDERR)

    for number in _SIGNALS:
        signal.signal(number, end)


def end_at_once(code: int, last_words: str, file: int = _STDOUT) -> None:
    """Ends this process and its descendants, without unwinding. The text is not printed by Python's streams: the main
    thread may be in the middle of a `print`."""
    _try_briefly(lambda: os.write(file, last_words.encode(errors="replace")))
    end_descendants()
    os._exit(code)


def end_descendants() -> None:
    """Ends the processes that this command started, such as Spark's JVM. What their end makes other threads print is
    not shown."""
    if not processes.descendants():
        return
    for stream in (sys.stdout, sys.stderr):
        _try_briefly(stream.flush)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for file in (_STDOUT, _STDERR):
        os.dup2(nowhere, file)
    processes.end_descendants(_PROCESSES_END_S)


def _try_briefly(write: Callable[[], object]) -> None:
    """Writes, unless that fails or takes too long."""

    def attempt() -> None:
        with contextlib.suppress(Exception):  # a reader that has gone, or a `print` that was interrupted
            write()

    writer = threading.Thread(target=attempt, daemon=True)
    writer.start()
    writer.join(_WRITING_S)


class StopRequest:
    """The request of a signal to end in order.

    It counts while `orderly` is set, which the command does once it streams. Before that, or at a second signal, or
    when the orderly end takes too long, the process ends at once.
    """

    def __init__(self, last_words: Callable[[], str]) -> None:
        self.event = threading.Event()
        self.orderly = False
        self._last_words = last_words
        self._number = signal.SIGINT
        self._before: dict[signal.Signals, object] = {}
        self._deadline: threading.Timer | None = None

    @property
    def exit_code(self) -> int:
        return 128 + self._number

    def require_none(self) -> None:
        """Raises KeyboardInterrupt once a signal has come. A signal handler that raises itself would break a call to
        Spark's JVM in the middle."""
        if self.event.is_set():
            raise KeyboardInterrupt

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # only the main thread may set handlers
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, _: FrameType | None) -> None:
        self._number = signal.Signals(number)
        if not self.orderly or self.event.is_set():
            self._end()
        self.event.set()
        self._deadline = threading.Timer(_ORDERLY_END_S, self._end)
        self._deadline.daemon = True
        self._deadline.start()

    def _end(self) -> None:
        end_at_once(self.exit_code, self._last_words())
