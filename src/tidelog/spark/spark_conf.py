"""Which Spark the user has chosen, before a session starts.

The order is: the command line and the definition's section `spark`; then what Spark reads by itself (spark-submit,
PYSPARK_SUBMIT_ARGS, spark-defaults.conf, MASTER); and last the defaults of a session on this machine.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.engine.definition import redact
from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
MASTER = "spark.master"
APP_NAME = "spark.app.name"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SETTLED_AT_LAUNCH = (
    MASTER,
    JAVA_OPTIONS,
    "spark.jars.packages",
    "spark.driver.memory",
    "spark.driver.extraClassPath",
    "spark.submit.deployMode",
)
"""Settings that have no effect once the JVM runs."""
_PROPERTY = re.compile(r"\s*([^\s=:#!][^\s=:]*)(?:\s*[=:]\s*|\s+)(.*?)\s*")


def is_submitted() -> bool:
    """Whether spark-submit started this process, and the JVM before it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def spark_defaults() -> dict[str, str]:
    """The settings in spark-defaults.conf, where Spark looks for it."""
    from pyspark.find_spark_home import _find_spark_home

    home = _find_spark_home()
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf")
    return _read_properties(folder / "spark-defaults.conf")


def _read_properties(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    lines = file.read_text(encoding="utf-8").splitlines()
    return {found[1]: found[2] for found in map(_PROPERTY.fullmatch, lines) if found}


def expected_master(wanted: Mapping[str, str]) -> str:
    """The master of a session that tidelog is about to start."""
    in_arguments = _master_in(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    in_file = spark_defaults().get(MASTER)
    return wanted.get(MASTER) or in_arguments or in_file or os.environ.get("MASTER") or LOCAL


def expected_setting(name: str, wanted: Mapping[str, str]) -> str:
    """A setting of a session that tidelog is about to start; empty for Spark's default."""
    in_arguments = _settings_in(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))).get(name)
    return wanted.get(name) or in_arguments or spark_defaults().get(name) or ""


def _master_in(arguments: list[str]) -> str:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--master", default="")
    return str(parser.parse_known_args(arguments)[0].master)


def _settings_in(arguments: list[str]) -> dict[str, str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--conf", "-c", action="append", default=[])
    pairs = (text.partition("=") for text in parser.parse_known_args(arguments)[0].conf)
    return {name: value for name, _, value in pairs}


def launch_settings(defaults: Mapping[str, str], java: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """What the JVM is started with: of our defaults only those that spark-defaults.conf does not set. Secrets are left
    to `complete`, because every user of the machine can read the arguments of a process."""
    in_file = spark_defaults()
    ours = {name: value for name, value in defaults.items() if name not in in_file}
    theirs = wanted.get(JAVA_OPTIONS) or in_file.get(JAVA_OPTIONS, "")
    public = {name: value for name, value in wanted.items() if redact({name: value})[name] == value}
    return {**ours, **public, JAVA_OPTIONS: f"{java} {theirs}".strip()}


def complete(conf: SparkConf, defaults: Mapping[str, str], wanted: Mapping[str, str], *, launched: bool) -> None:
    """Add to what Spark has read by itself what the definition wants, and our defaults for the rest. `launched` says
    that the JVM was started for this session, with `launch_settings`."""
    if not launched:
        _require_agreement(conf, wanted)
    if not is_submitted():
        conf.set(APP_NAME, defaults[APP_NAME])
    for name, value in wanted.items():
        if name not in _SETTLED_AT_LAUNCH or name == MASTER:
            conf.set(name, value)
    for name, value in {**defaults, MASTER: LOCAL}.items():
        conf.setIfMissing(name, value)
    if python := conf.get("spark.pyspark.python"):
        os.environ["PYSPARK_PYTHON"] = python  # all that a context looks at when it exists already


def _require_agreement(conf: SparkConf, wanted: Mapping[str, str]) -> None:
    """Raises if a running JVM was started with other settings than the definition asks for. The master counts only
    under spark-submit, which has already fixed it."""
    settled = _SETTLED_AT_LAUNCH if is_submitted() else _SETTLED_AT_LAUNCH[1:]
    for name in settled:
        has = conf.get(name) or ""
        if name in wanted and not _agrees(name, has, wanted[name]):
            by = "spark-submit" if is_submitted() else "another program"
            raise ConfigError(
                f"Spark was started by {by} with {name} = {_shown(name, has) or 'its default'}, but the pipeline sets "
                f"{_shown(name, wanted[name])}.",
                hint="Set it there and leave it out here, or start the pipeline by `tidelog run`.",
            )


def require_as_wanted(spark: SparkSession, wanted: Mapping[str, str]) -> None:
    """Raises if a running session, which cannot be changed, lacks a setting that the pipeline asks for."""
    for name, value in wanted.items():
        has = spark.sparkContext.getConf().get(name) or spark.conf.get(name, None) or ""
        if not _agrees(name, has, value):
            raise ConfigError(
                f"The pipeline sets {name} to {_shown(name, value)}, but the Spark session in use has "
                f"{_shown(name, has) or 'no such setting'}.",
                hint="Start the session with it, or leave it out of the pipeline's section spark.",
            )


def _agrees(name: str, has: str, wanted: str) -> bool:
    """tidelog's own Java options stand before those of the user."""
    return has.endswith(wanted) if name == JAVA_OPTIONS else has == wanted


def _shown(name: str, value: str) -> str:
    return redact({name: value})[name]
