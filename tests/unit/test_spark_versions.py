"""Which Spark, which Delta and which Python are accepted."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pyspark
import pytest

from tidelog.errors import ConfigError, TransientError
from tidelog.spark import interpreter
from tidelog.spark.failures import find_cause
from tidelog.spark.sinks.delta_jars import require_built_for
from tidelog.spark.versions import DELTA_PACKAGES, REQUIREMENT, SUPPORTED, installed_version, require_supported

REPO = Path(__file__).parents[2]


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1.dev0", "4.3.0", "4.3.0-amzn-1"])
def test_supported_versions_are_accepted(version: str) -> None:
    require_supported(version)


@pytest.mark.parametrize("version", ["3.5.4", "4.0.0", "4.1.2", "4.4.0", "5.0.0"])
def test_other_versions_are_refused_with_what_to_install(version: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"this is Spark {version}. Run: pip install '{REQUIREMENT}'")):
        require_supported(version)


def test_the_version_is_known_before_pyspark_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed_version() == pyspark.__version__
    monkeypatch.delitem(sys.modules, "pyspark")
    assert installed_version() == pyspark.__version__


def test_the_package_and_the_lock_file_ask_for_the_same_versions() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert REQUIREMENT in project["dependencies"]
    (locked,) = re.findall(r"^pyspark==(\d+\.\d+)", (REPO / "requirements.lock").read_text(), flags=re.MULTILINE)
    assert locked in DELTA_PACKAGES  # the tests write Delta by Spark too
    assert set(DELTA_PACKAGES) <= set(SUPPORTED)


@pytest.mark.parametrize(
    ("spark", "jar", "built_for"),
    [
        ("4.3.0", "io.delta_delta-spark_4.2_2.13-4.4.0.jar", "4.2"),
        ("4.2.0", "io.delta_delta-spark_4.1_2.13-4.4.0.jar", "4.1"),
        ("4.3.0", "delta-spark_2.13-4.4.0.jar", "4.2"),
        ("4.2.1", "delta-spark_2.13-4.0.1.jar", "4.0"),
    ],
)
def test_a_delta_of_another_spark_is_refused(spark: str, jar: str, built_for: str) -> None:
    with pytest.raises(ConfigError, match=f"built for Spark {built_for}, and this is Spark {spark}") as refused:
        require_built_for(spark, jar)
    assert "io.delta:delta-spark_4.2_2.13:4.4.0 (Spark 4.2); Delta has no release for Spark 4.3" in refused.value.hint


@pytest.mark.parametrize(
    ("spark", "jar"),
    [
        ("4.2.0", "io.delta_delta-spark_4.2_2.13-4.4.0.jar"),
        ("4.2.1", "delta-spark_2.13-4.4.0.jar"),
        ("4.3.0", "delta-spark_4.3_2.13-5.0.0.jar"),
        ("4.3.0", "vendor-lake-1.0.jar"),
    ],
)
def test_a_delta_that_fits_or_that_nothing_is_known_of_is_accepted(spark: str, jar: str) -> None:
    require_built_for(spark, jar)


def test_a_python_of_the_users_choice_must_have_tidelog(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = str(Path(sys.base_prefix) / "bin/python3")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", bare)
    with pytest.raises(ConfigError, match=f"{bare} .*where tidelog is not installed.*PYSPARK_PYTHON={sys.executable}"):
        interpreter._choose(bare)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert interpreter._choose(sys.executable) == sys.executable
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert interpreter._choose("python3") == sys.executable


def test_what_spark_says_of_its_python_processes_is_one_sentence() -> None:
    timeout = "[STREAM_FAILED] Query [id = 1] terminated: org.apache.spark.SparkException: Python worker failed to "
    timeout += "connect back.\nCaused by: java.net.SocketTimeoutException: Timed out while waiting for …"
    assert isinstance(find_cause(timeout), TransientError)
    missing = "Traceback …\n  File serializers.py\nModuleNotFoundError: No module named 'tidelog'\n"
    cause = find_cause(missing)
    assert isinstance(cause, ConfigError)
    assert "PYSPARK_PYTHON" in cause.hint
    ours = find_cause("at java…\ntidelog.errors.PositionLost: The slot is gone. Choose a snapshot.\n at …")
    assert (type(ours).__name__, str(ours)) == ("PositionLost", "The slot is gone. Choose a snapshot.")
    assert find_cause("java.lang.NullPointerException") is None
