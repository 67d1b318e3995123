"""Spark sessions for tests: small, quiet, in UTC, with Python workers that see this checkout.

`local_session` runs everything in one JVM. `cluster_session` starts executors as processes of their own
(`local-cluster`), where nothing that lives in the driver's memory can be seen by accident.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.spark.session import CHECKPOINTS, JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPO = Path(__file__).resolve().parent.parent
LOCAL = "local[2]"
CLUSTER = "local-cluster[2,1,1024]"

QUIET_LOG = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
"""


def prepare_environment() -> None:
    """Set what the JVM and the Python workers inherit; harmless when repeated."""
    import pyspark

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    paths = [str(REPO / "src"), str(REPO), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


def settings(folder: Path) -> dict[str, str]:
    log = folder / "log4j2.properties"
    log.write_text(QUIET_LOG)
    java = f"{JAVA} -Dlog4j2.configurationFile={log.as_uri()}"
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{java} -Dderby.system.home={folder}",
        "spark.executor.extraJavaOptions": java,
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        **CHECKPOINTS,
        "spark.local.dir": str(folder / "local"),
    }


def start_session(master: str, folder: Path | None = None, more: Mapping[str, str] | None = None) -> SparkSession:
    """A new session; stop it before asking for another, one JVM holds one."""
    prepare_environment()
    from pyspark.sql import SparkSession

    home = folder or Path(tempfile.mkdtemp(prefix="tidelog-spark-"))
    builder = SparkSession.builder.master(master).appName("tidelog-tests")
    for name, value in {**settings(home), **(more or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def local_session(folder: Path | None = None, more: Mapping[str, str] | None = None) -> SparkSession:
    return start_session(LOCAL, folder, more)


def cluster_session(folder: Path | None = None, more: Mapping[str, str] | None = None) -> SparkSession:
    """Two executors of one core and 1 GiB. Run it in a process of its own when a local session is alive."""
    paths = os.pathsep.join([str(REPO / "src"), str(REPO)])
    small = {"spark.executor.memory": "1g", "spark.executorEnv.PYTHONPATH": paths}
    return start_session(CLUSTER, folder, {**small, **(more or {})})
