"""The sinks' suite on Delta by Spark, in a process of its own: a JVM gets its jars when it starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import patience
from tidelog.spark.versions import DELTA_PACKAGES, installed_version, minor

SUITE = "tests/contract/test_sinks.py"
SPARK = minor(str(installed_version()))


@pytest.mark.skipif(SPARK not in DELTA_PACKAGES, reason=f"Delta has no release for Spark {SPARK}")
@pytest.mark.parametrize("which", ["not long", pytest.param("long", marks=pytest.mark.long)])
@pytest.mark.timeout(1800)
def test_the_suite_on_spark(which: str) -> None:
    done = patience.run(
        [sys.executable, "-m", "pytest", "-q", "-m", which, SUITE],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "TIDELOG_TEST_DELTA_SPARK": "1"},
        seconds=1700,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert "passed" in done.stdout
