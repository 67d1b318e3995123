"""Which build of Delta a Spark session loaded. One that is built for another Spark fails in the middle of a batch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tidelog.errors import ConfigError
from tidelog.spark.spark_conf import expected_setting, is_submitted
from tidelog.spark.versions import DELTA_PACKAGES, SUPPORTED, minor

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_NAMED_FOR_SPARK = re.compile(r"delta-spark_(\d+\.\d+)_2\.13-")
_NAMED_FOR_DELTA = re.compile(r"delta-spark_2\.13-(\d+\.\d+)")
_SPARK_OF_DELTA = {"4.0": "4.0", "4.1": "4.1", "4.2": "4.1", "4.3": "4.1", "4.4": "4.2"}
"""By the Maven pom of each release, for the jars whose name says only Delta's own version."""


def is_available(spark: Any) -> bool:
    """Whether Spark was started with Delta: its jars are on the class path and its SQL is switched on."""
    return EXTENSION in (spark.conf.get("spark.sql.extensions", "") or "") and _load(spark) is not None


def starts_with_delta(wanted: Mapping[str, str]) -> bool:
    """Whether the session that tidelog is about to start has Delta, as far as the settings tell. Those of a session
    that spark-submit has started are not known here."""
    return is_submitted() or EXTENSION in expected_setting("spark.sql.extensions", wanted)


def require_available(spark: Any) -> None:
    """Refuses a session without Delta, or with a build of Delta for another Spark."""
    if spark is None or not is_available(spark):
        raise ConfigError(
            "The engine `spark` needs a Spark session that was started with Delta.",
            hint=f"Set spark.jars.packages to {_advice()}, and spark.sql.extensions to {EXTENSION}; "
            "or use the engine `rust`.",
        )
    jar = str(_load(spark).getProtectionDomain().getCodeSource().getLocation().getPath()).rpartition("/")[2]
    require_built_for(spark.version, jar)


def require_built_for(spark_version: str, jar: str) -> None:
    """A jar of another name, such as a vendor's build, is trusted."""
    built_for = _spark_of(jar)
    if built_for not in (None, minor(spark_version)):
        raise ConfigError(
            f"{jar} is built for Spark {built_for}, and this is Spark {spark_version}.",
            hint=f"Set spark.jars.packages to {_advice()}; or start Spark without Delta and use the engine `rust`.",
        )


def _spark_of(jar: str) -> str | None:
    if named := _NAMED_FOR_SPARK.search(jar):
        return named[1]
    named = _NAMED_FOR_DELTA.search(jar)
    return _SPARK_OF_DELTA.get(named[1]) if named else None


def _advice() -> str:
    packages = [f"{package} (Spark {spark})" for spark, package in DELTA_PACKAGES.items()]
    lacking = [spark for spark in SUPPORTED if spark not in DELTA_PACKAGES]
    return " or ".join(packages) + "".join(f"; Delta has no release for Spark {spark}" for spark in lacking)


def _load(spark: Any) -> Any:
    """The extension's class, or None."""
    try:
        loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return loader.loadClass(EXTENSION)
    except Exception:  # noqa: BLE001  py4j wraps a missing class in one of several errors; Spark Connect has no JVM
        return None
