"""Whether Spark is still there: its JVM may be killed, and its cluster may stop the application."""

from __future__ import annotations

import logging
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from tidelog.errors import SparkLost

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("tidelog")


def is_alive(spark: SparkSession) -> bool:
    """Whether its JVM answers, and its context was not stopped."""
    context = spark.sparkContext._jsc
    try:
        return context is not None and not context.sc().isStopped()
    except (Py4JError, OSError):
        return False


def require_alive(spark: SparkSession) -> None:
    """Raises `SparkLost` if Spark is gone: a retry could not succeed."""
    if is_alive(spark):
        return
    raise SparkLost(
        "Spark ended while the pipeline was running: its JVM is gone, or its cluster has stopped the application.",
        hint="Was it killed, or out of memory (spark.driver.memory)? spark.log and spark.out in the state folder may "
        "say why. The next start goes on after the last committed batch.",
    )


def silence_accumulator_server(spark: SparkSession) -> None:
    """When the JVM goes away, pyspark's server for accumulators prints a stack trace: it is logged instead."""
    server: Any = spark.sparkContext._accumulatorServer

    def log(_request: object, _client: object) -> None:
        _LOG.debug("The connection of Spark's accumulators ended.", exc_info=True)

    server.handle_error = log


def discard(spark: SparkSession) -> None:
    """Forget a session that is not alive, so that this process can start another."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.context import SQLContext

    gateway = SparkContext._gateway
    with warnings.catch_warnings(), suppress(Py4JError, OSError):  # it is dead: nothing answers
        warnings.simplefilter("ignore", RuntimeWarning)
        spark.stop()
    with suppress(Py4JError, OSError):  # `stop` breaks off where the JVM is gone
        spark.sparkContext.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    if gateway is not None and not _answers(gateway):
        SparkContext._gateway = SparkContext._jvm = None
        with suppress(Py4JError, OSError):
            gateway.shutdown()


def _answers(gateway: JavaGateway) -> bool:
    try:
        gateway.jvm.System.nanoTime()
    except (Py4JError, OSError):
        return False
    return True
