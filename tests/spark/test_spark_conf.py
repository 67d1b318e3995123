"""Which Spark the user has chosen: real sessions, started with what people set where Spark looks."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from pyspark import SparkConf

from tests import patience
from tests.spark_session import prepare_environment
from tidelog.errors import ConfigError
from tidelog.spark import spark_conf
from tidelog.spark.session import JAVA

SESSION = """
import json, sys
from tidelog.engine.home import Home
from tidelog.errors import ConfigError
from tidelog.spark.session import session

spark = session("shop", Home.open("shop"), json.loads(sys.argv[1]))
names = ("spark.sql.shuffle.partitions", "spark.sql.session.timeZone", "spark.app.name", "spark.executor.memory")
conf = {name: spark.conf.get(name, None) for name in names}
runtime = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
print(json.dumps({**conf, "master": spark.sparkContext.master, "java": list(runtime.getInputArguments())}))
try:
    session("shop", Home.open("shop"), {"spark.master": "local[7]"})
except ConfigError as exc:
    print(json.dumps(exc.message))
"""
DEFAULTS = """\
# what an administrator has written
spark.master  local[1]
spark.sql.shuffle.partitions=7
spark.driver.extraJavaOptions -XX:+UseSerialGC
"""


def start(folder: Path, wanted: dict[str, str], **environment: str) -> tuple[dict[str, str], str]:
    prepare_environment()
    mine = {**os.environ, "TIDELOG_HOME": str(folder / "home"), **environment}
    done = patience.run([sys.executable, "-c", SESSION, json.dumps(wanted)], env=mine)
    assert done.returncode == 0, done.stderr
    found, refused = map(json.loads, done.stdout.splitlines())
    return found, refused


def test_spark_defaults_are_respected_and_the_rest_is_ours(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS)
    found, refused = start(tmp_path, {"spark.executor.memory": "512m"}, SPARK_CONF_DIR=str(tmp_path), MASTER="local[5]")
    assert found["master"] == "local[1]", "the file comes before MASTER, as in Spark itself"
    assert found["spark.sql.shuffle.partitions"] == "7"
    assert found["spark.executor.memory"] == "512m"
    assert (found["spark.sql.session.timeZone"], found["spark.app.name"]) == ("UTC", "tidelog shop")
    assert "-XX:+UseSerialGC" in found["java"]
    assert not set(JAVA.split()) & set(found["java"])
    assert any(option.startswith("-Dtidelog.log=") for option in found["java"])
    assert refused == "The pipeline sets spark.master to local[7], but the Spark session in use has local[1]."


def test_master_of_the_environment_and_the_pipelines_own(tmp_path: Path) -> None:
    by_environment, _ = start(tmp_path, {}, MASTER="local[3]")
    assert by_environment["master"] == "local[3]"
    arguments = "--master local[2] --conf spark.sql.shuffle.partitions=9 pyspark-shell"
    own, _ = start(tmp_path, {"spark.master": "local[4]"}, MASTER="local[3]", PYSPARK_SUBMIT_ARGS=arguments)
    assert (own["master"], own["spark.sql.shuffle.partitions"]) == ("local[4]", "9")


@pytest.mark.parametrize(
    ("wanted", "arguments", "in_file", "in_environment", "expected"),
    [
        ({"spark.master": "yarn"}, "--master a pyspark-shell", "spark.master b", "c", "yarn"),
        ({}, "--master=a pyspark-shell", "spark.master b", "c", "a"),
        ({}, "--conf x=y pyspark-shell", "spark.master = b", "c", "b"),
        ({}, "", "#spark.master b", "c", "c"),
        ({}, "", "", "", "local[*]"),
    ],
)
def test_the_order_of_masters(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    wanted: dict[str, str],
    arguments: str,
    in_file: str,
    in_environment: str,
    expected: str,
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(in_file)
    for name, value in (
        ("PYSPARK_SUBMIT_ARGS", arguments),
        ("SPARK_CONF_DIR", str(tmp_path)),
        ("MASTER", in_environment),
    ):
        monkeypatch.setenv(name, value)
    assert spark_conf.expected_master(wanted) == expected


@pytest.mark.parametrize("name", ["spark.master", "spark.jars.packages", "spark.driver.memory"])
def test_what_spark_submit_has_settled_is_not_overruled(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    defaults = {"spark.app.name": "tidelog shop", "spark.ui.enabled": "false"}
    conf = SparkConf(loadDefaults=False).setMaster("yarn").setAppName("mine")
    with pytest.raises(ConfigError, match="started by spark-submit"):
        spark_conf.complete(conf, defaults, {name: "other"}, launched=False)
    spark_conf.complete(conf, defaults, {"spark.master": "yarn"}, launched=False)
    assert dict(conf.getAll()) == {"spark.master": "yarn", "spark.app.name": "mine", "spark.ui.enabled": "false"}
