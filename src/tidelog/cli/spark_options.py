"""The options of commands that start Spark: they say the same as a definition's section `spark`, and win over it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace

from tidelog.engine.definition import Definition
from tidelog.errors import ConfigError


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Spark")
    group.add_argument("--master", metavar="URL", help="where Spark runs: local[4], spark://host:7077, yarn, …")
    group.add_argument("--packages", metavar="NAMES", help="Maven coordinates, separated by commas")
    group.add_argument(
        "--conf", metavar="NAME=VALUE", action="append", default=[], help="a setting of Spark; repeatable"
    )


def spark_options(arguments: argparse.Namespace) -> dict[str, str]:
    """What was given, by the names of the section `spark`."""
    named = {"master": arguments.master, "packages": arguments.packages}
    return {name: text for name, text in named.items() if text} | dict(map(_setting, arguments.conf))


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise ConfigError(
            f"--conf {name} is not a setting of Spark.",
            hint="Write --conf NAME=VALUE, where NAME starts with spark., such as --conf spark.executor.memory=2g.",
        )
    return f"conf.{name}", value


def with_spark(definition: Definition, options: Mapping[str, str]) -> Definition:
    return replace(definition, spark={**definition.spark, **options}) if options else definition
