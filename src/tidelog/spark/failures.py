"""What an error of Spark means, and whether the query is retried after it.

Spark wraps errors of its Python processes into text: here they become ours again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidelog import errors
from tidelog.engine.backoff import Backoff
from tidelog.errors import ConfigError, CorruptState, TidelogError, TransientError
from tidelog.spark.sinks.storage_errors import FREE_SPACE, find_unknown_scheme, is_full

RETRYABLE = (TransientError, CorruptState, PySparkException, Py4JError, OSError)
"""Time, another reading of the log or another attempt of Spark may cure them."""
_RETRIES, _RETRIES_TRANSIENT = 3, 6
_CHECK_S = 0.1
_SUMMARY_CHARS = 300

_OWN_ERROR = re.compile(r"tidelog\.errors\.(\w+): (.*)")
_WORKER_TIMEOUT = re.compile(r"Timed out while waiting for the Python worker|Python worker failed to connect back")
_CAUSED_BY = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_NO_TIDELOG = "No module named 'tidelog'"


class WorkerTimeout(TransientError):
    """Spark did not wait long enough for a Python process that it started."""

    awaited = "Spark"


def find_cause(text: str) -> TidelogError | None:
    """The error behind Spark's text, however many processes it came through; None if it is Spark's own."""
    if raised := _OWN_ERROR.search(text):
        kind = getattr(errors, raised[1], TidelogError)
        error: TidelogError = kind(raised[2].strip())
        return error
    if _NO_TIDELOG in text:
        return ConfigError(
            "Spark's Python workers run an interpreter in which tidelog is not installed.",
            hint="Set PYSPARK_PYTHON to the Python that has it, on every machine, before Spark starts.",
        )
    if _WORKER_TIMEOUT.search(text):
        return WorkerTimeout(
            "A Python process that Spark started was not ready within Spark's limit of 10 seconds.",
            hint="The machine is busy: run less at the same time. If it never starts, look into spark.out.",
        )
    if is_full(text):
        return TransientError("A disk that Spark writes to is full.", hint=FREE_SPACE)
    return find_unknown_scheme(text)


@contextmanager
def translated() -> Iterator[None]:
    """Raises the error behind one of Spark's, where there is one."""
    try:
        yield
    except (PySparkException, Py4JError) as exc:
        cause = find_cause(str(exc))
        if cause is None:
            raise
        raise cause from exc


class Retries:
    """The retries of one pipeline's query."""

    def __init__(self, name: str) -> None:
        self._operation = f"The query of {name}"
        self._backoff = Backoff(self._operation)

    def pause(self, error: Exception, *, progressed: bool, meanwhile: Callable[[], None]) -> None:
        """Waits before the query is started again, calling `meanwhile`, which may raise to give up. Raises `error`
        after too many failures in a row; a batch completed since the last one (`progressed`) resets the count."""
        if progressed:
            self._backoff = Backoff(self._operation)
        limit = _RETRIES_TRANSIENT if isinstance(error, TransientError) else _RETRIES
        if self._backoff.failures >= limit:
            raise error
        deadline = time.monotonic() + self._backoff.failed(summary(error))
        while time.monotonic() < deadline:
            meanwhile()
            time.sleep(_CHECK_S)


def summary(error: Exception) -> str:
    """One line: what Spark says may be a stack trace, in which the innermost cause comes last."""
    text = str(error)
    if causes := _CAUSED_BY.findall(text):
        return str(causes[-1]).strip()[:_SUMMARY_CHARS]
    lines = text.splitlines() or [type(error).__name__]
    return lines[0][:_SUMMARY_CHARS]
