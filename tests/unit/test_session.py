"""The session that tidelog starts: which JVM it asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.engine.home import Home
from tidelog.spark.session import JAVA, _settings


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"])
def test_a_collector_or_compiler_of_the_environment_wins(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The JVM would refuse two collectors."""
    for chosen in ("-XX:+UseG1GC", "-Xmx4g -XX:TieredStopAtLevel=4"):
        monkeypatch.setenv(name, chosen)
        assert JAVA not in _settings("x", Home(tmp_path))["spark.driver.extraJavaOptions"]
    monkeypatch.setenv(name, "-Dfile.encoding=UTF-8")
    assert _settings("x", Home(tmp_path))["spark.driver.extraJavaOptions"].endswith(JAVA)
