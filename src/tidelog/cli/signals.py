"""How a running command is told to end: Ctrl-C, or SIGTERM from a service manager; both end it cleanly."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_Handler = Callable[[int, FrameType | None], None]


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM is a Ctrl-C."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled((signal.SIGTERM,), interrupt):
        yield


@contextmanager
def setting(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM set the event."""
    with _handled((signal.SIGINT, signal.SIGTERM), lambda *_: stop.set()):
        yield


@contextmanager
def _handled(numbers: tuple[signal.Signals, ...], handler: _Handler) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
