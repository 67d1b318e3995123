"""Whether a target has rows already; one that cannot be opened here keeps nobody from starting."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tidelog.model.schema import Table
from tidelog.spark.sinks.written import find_written


def test_a_target_that_only_spark_can_open(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tidelog"):
        assert find_written({"type": "delta", "path": "dbfs:/lake"}, []) == ""
    assert "could not be looked up" in caplog.text


def test_a_target_that_is_not_there_yet(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = Table(1, "public", "t", (), ())
    for kind in ("delta", "history", "console"):
        assert find_written({"type": kind, "path": str(tmp_path / "lake")}, [table]) == ""
    assert not (tmp_path / "lake").exists()
    assert not caplog.text
