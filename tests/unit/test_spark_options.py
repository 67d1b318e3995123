"""Which Spark a pipeline gets: what is said about it, and who may read it."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest
from pyspark import SparkConf

from tidelog.cli.spark_options import add_spark_options, spark_options
from tidelog.errors import ConfigError
from tidelog.spark import spark_conf

SECRET = "spark.hadoop.fs.s3a.secret.key"


def test_secrets_are_no_arguments_of_the_jvm() -> None:
    """Every user of the machine can read the arguments of a process."""
    launch = spark_conf.launch_settings({}, "", {SECRET: "s3cr3t", "spark.executor.memory": "2g"})
    assert launch["spark.executor.memory"] == "2g"
    assert "s3cr3t" not in str(launch)


def test_secrets_reach_the_session() -> None:
    conf = SparkConf(loadDefaults=False)
    spark_conf.complete(conf, {spark_conf.APP_NAME: "shop"}, {SECRET: "s3cr3t"}, launched=True)
    assert conf.get(SECRET) == "s3cr3t"


def test_a_disagreement_about_a_secret_does_not_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_conf, "_SETTLED_AT_LAUNCH", (spark_conf.MASTER, SECRET))
    conf = SparkConf(loadDefaults=False).set(SECRET, "0ld")
    with pytest.raises(ConfigError) as caught:
        spark_conf.complete(conf, {spark_conf.APP_NAME: "shop"}, {SECRET: "n3w"}, launched=False)
    assert SECRET in str(caught.value)
    assert "0ld" not in str(caught.value)
    assert "n3w" not in str(caught.value)


def test_the_value_of_a_setting_that_is_none_is_not_repeated() -> None:
    parser = argparse.ArgumentParser()
    add_spark_options(parser)
    with pytest.raises(ConfigError, match=r"--conf fs\.s3a\.secret\.key is not a setting of Spark") as caught:
        spark_options(parser.parse_args(["--conf", "fs.s3a.secret.key=s3cr3t"]))
    assert "s3cr3t" not in str(caught.value)


def test_commands_load_no_spark_before_they_need_it() -> None:
    """A Spark that tidelog does not run on is refused where it is imported: `tidelog --help` should still help."""
    program = "import sys, tidelog.cli.main; print([m for m in sys.modules if m.startswith('tidelog.spark')])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
