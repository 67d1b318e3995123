"""Where log records of a command go: the console is for sentences, stack traces of libraries are for the log file."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog.engine.notices import LogFile

_OWN = "tidelog"
_STDERR = 2


@contextmanager
def libraries_logged_into(path: Path) -> Iterator[None]:
    """What other libraries log goes into a file: when Spark's JVM dies, py4j logs a stack trace for each call that was
    on its way. Without any handler Python would print them."""
    handler = LogFile(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(lambda record: record.name.partition(".")[0] != _OWN)
    with _added(logging.getLogger(), handler):
        yield


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Our own warnings, bare, on the console; without those that the progress of the run shows."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.addFilter(lambda record: not getattr(record, "is_in_progress", False))
    with _added(logging.getLogger(_OWN), handler):
        yield


@contextmanager
def native_messages_logged_into(path: Path) -> Iterator[None]:
    """What compiled libraries print goes into a file: delta-rs prints the panic of a thread, such as one whose disk is
    full, before the error reaches Python. They write to the process's standard error; Python's own gets a copy of the
    descriptor, which stays the console."""
    try:
        is_console = sys.stderr.fileno() == _STDERR
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if is_console else -1
    except OSError:  # no descriptor, or a full disk: then everything stays on the console
        log = -1
    if log < 0:
        yield
        return
    sys.stderr.flush()
    console = os.dup(_STDERR)
    os.dup2(log, _STDERR)
    os.close(log)
    before, sys.stderr = sys.stderr, os.fdopen(console, "w", buffering=1, encoding="utf-8", errors="replace")
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(console, _STDERR)
        sys.stderr.close()
        sys.stderr = before


@contextmanager
def _added(logger: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
