"""The session that tidelog starts: which JVM it asks for, and what its processes load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.engine.home import Home
from tidelog.spark.session import JAVA, _java_options


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"])
def test_a_collector_or_compiler_of_the_environment_wins(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The JVM would refuse two collectors."""
    for chosen in ("-XX:+UseG1GC", "-Xmx4g -XX:TieredStopAtLevel=4"):
        monkeypatch.setenv(name, chosen)
        assert JAVA not in _java_options(Home(tmp_path), {})
    monkeypatch.setenv(name, "-Dfile.encoding=UTF-8")
    assert _java_options(Home(tmp_path), {}).endswith(JAVA)


def test_what_spark_starts_processes_for_is_light() -> None:
    """Arrow loads pandas when it makes its first array: almost a second, in each process that only has to know us."""
    code = "import sys, tidelog.spark.source, tidelog.spark.warmup; print([m for m in HEAVY if m in sys.modules])"
    heavy = ["pandas", "psycopg", "oracledb", "deltalake", "adbc_driver_postgresql"]
    told = subprocess.run(
        [sys.executable, "-c", f"HEAVY = {heavy}; {code}"], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "[]"
