"""Starting queries, one at a time in a process.

For each streaming query Spark starts a Python process, and gives up if it has not connected within 10 seconds. No
setting changes this limit, and many connectors that start at the same moment would slow each other down past it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidelog.spark.failures import WorkerTimeout, translated
from tidelog.spark.session import warm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_LOG = logging.getLogger("tidelog.spark")
_CHECK_S = 0.1
_turn = threading.Lock()
_warmed: set[tuple[str, str]] = set()
"""Applications of Spark, and the connectors they were warmed for."""


@contextmanager
def take_turn(check: Callable[[], None]) -> Iterator[None]:
    """Waits until no other query of this process is starting. `check` is called while waiting; it may raise."""
    while not _turn.acquire(timeout=_CHECK_S):
        check()
    try:
        yield
    finally:
        _turn.release()


def triggered(writer: DataStreamWriter, trigger_s: float, *, once: bool) -> DataStreamWriter:
    if once:
        return writer.trigger(availableNow=True)
    if trigger_s:
        return writer.trigger(processingTime=f"{int(trigger_s * 1000)} milliseconds")
    return writer


def wait_for_reader(query: StreamingQuery) -> None:
    """Waits until Spark has started the query's Python process, or the query has failed."""
    while query.isActive and query.status["message"].startswith("Initializing"):
        time.sleep(_CHECK_S)


def warm_once(spark: SparkSession, connector: str) -> None:
    """Warms the session, if no query of this connector did so before. A machine that is too busy for it
    is no reason to fail: the query itself is retried."""
    purpose = (str(spark.sparkContext.applicationId), connector)
    if purpose in _warmed:
        return
    try:
        with translated():
            warm(spark, connector)
    except WorkerTimeout as exc:
        _LOG.info("The session was not warmed: %s", exc)
        return
    _warmed.add(purpose)
