"""Where log records of a command go: the console is for sentences, stack traces of libraries are for the log file."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OWN = "tidelog"


@contextmanager
def libraries_logged_into(path: Path) -> Iterator[None]:
    """What other libraries log goes into a file: when Spark's JVM dies, py4j logs a stack trace for each call that was
    on its way. Without any handler Python would print them."""
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(lambda record: record.name.partition(".")[0] != _OWN)
    with _added(logging.getLogger(), handler):
        yield


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Our own warnings, bare, on the console."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    with _added(logging.getLogger(_OWN), handler):
        yield


@contextmanager
def _added(logger: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
