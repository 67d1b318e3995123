"""The Spark session of all connectors: it starts with the first of them, and again when its JVM has died."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.engine.home import Home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("tidelog.server")


class SharedSession:
    def __init__(self, conf: Mapping[str, str]) -> None:
        """`conf` are settings of Spark, by their own names."""
        self._conf = conf
        self._spark: SparkSession | None = None
        self._lock = threading.Lock()

    def get(self) -> SparkSession:
        """The living session; the first caller waits for its start."""
        from tidelog.spark.liveness import discard, is_alive
        from tidelog.spark.session import session

        with self._lock:
            if self._spark is not None and not is_alive(self._spark):
                _LOG.warning("The Spark session has ended: its JVM is gone, or was stopped. Another one starts.")
                discard(self._spark)
                self._spark = None
            if self._spark is None:
                self._spark = session("server", Home.open(""), self._conf)
            return self._spark

    def close(self) -> None:
        from tidelog.spark.liveness import discard, is_alive

        with self._lock:
            if self._spark is not None and is_alive(self._spark):
                self._spark.stop()
            elif self._spark is not None:
                discard(self._spark)
            self._spark = None
