"""tidelog: change data capture for Apache Spark.

    import tidelog

    tidelog.register(spark)                          # spark.readStream.format("tidelog")
    tidelog.Pipeline(source={…}, sink={…}).run(spark)

Everything public is named in `__all__`. Spark is imported only when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.errors import (
    ConfigError,
    CorruptState,
    NotInstalled,
    PositionLost,
    TidelogError,
    TransientError,
    UnsupportedChange,
)
from tidelog.model.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipeline import Pipeline
    from tidelog.spark.session import CHECKPOINTS

__all__ = [
    "CHECKPOINTS",
    "ConfigError",
    "CorruptState",
    "NotInstalled",
    "Pipeline",
    "PositionLost",
    "TidelogError",
    "TransientError",
    "UnsupportedChange",
    "__version__",
    "register",
]


def register(spark: SparkSession) -> None:
    """Make `format("tidelog")` known to a session."""
    from tidelog.spark.session import register
    from tidelog.spark.source import TidelogSource

    register(spark, TidelogSource)


def __getattr__(name: str) -> Any:
    if name == "Pipeline":
        from tidelog.spark.pipeline import Pipeline

        return Pipeline
    if name == "CHECKPOINTS":
        from tidelog.spark.session import CHECKPOINTS

        return CHECKPOINTS
    raise AttributeError(f"module 'tidelog' has no attribute {name!r}")
