"""What is asked of a sink before a session starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tidelog.engine import definition as definitions
from tidelog.engine.definition import Definition
from tidelog.errors import ConfigError, NotInstalled
from tidelog.spark.failures import find_cause
from tidelog.spark.sink_check import require_usable
from tidelog.spark.sinks.delta_jars import EXTENSION
from tidelog.spark.sinks.delta_rs import known_schemes
from tidelog.spark.sinks.delta_rust import RustTarget


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)


def pipeline(sink: dict[str, str], **spark: str) -> Definition:
    source = {"connector": "postgres", "database.dbname": "shop"}
    return definitions.from_mapping({"name": "shop", "source": source, "sink": sink, "spark": spark})


@pytest.mark.parametrize(
    "sink", [{"type": "delta"}, {"type": "history"}, {"type": "history", "format": "delta"}], ids=str
)
def test_a_storage_of_an_unknown_kind_is_refused(sink: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"unknown scheme foo://.*sink: path"):
        require_usable(pipeline(sink | {"path": "foo://bucket/lake"}))
    require_usable(pipeline(sink | {"path": "s3://bucket/lake"}))


def test_a_storage_of_an_unknown_kind_is_no_transient_error() -> None:
    """Where nobody asked before: it is the same mistake after any time."""
    target = RustTarget("foo://bucket/lake/t")
    assert target.schema() is None
    with pytest.raises(ConfigError, match=r"unknown scheme foo://"):
        target.create(pa.schema([("id", pa.int64())]), {})
    hadoop = 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "foo"'
    assert isinstance(find_cause(hadoop), ConfigError)


def test_delta_rs_names_what_it_can_write() -> None:
    assert known_schemes() >= {"s3", "s3a", "gs", "abfss", "hdfs", "file"}


def test_delta_rs_is_not_needed_where_spark_writes_delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    sink = {"type": "delta", "path": str(tmp_path / "lake")}
    with pytest.raises(NotInstalled, match="deltalake"):
        require_usable(pipeline(sink))
    require_usable(pipeline(sink | {"engine": "spark"}))
    require_usable(pipeline(sink, **{"conf.spark.sql.extensions": EXTENSION}))
    with pytest.raises(NotInstalled, match="deltalake"):
        require_usable(pipeline(sink | {"engine": "rust"}, **{"conf.spark.sql.extensions": EXTENSION}))
    (tmp_path / "spark-defaults.conf").write_text(f"spark.sql.extensions {EXTENSION}\n")
    require_usable(pipeline(sink))
    (tmp_path / "spark-defaults.conf").unlink()
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf spark.sql.extensions={EXTENSION} pyspark-shell")
    require_usable(pipeline(sink))
