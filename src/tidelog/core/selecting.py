"""The settings of what is delivered, and in which form: the same for every connector, and read into a `Selection`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tidelog.core.rules import algorithm
from tidelog.core.settings import Setting, boolean, patterns
from tidelog.errors import ConfigError
from tidelog.model.selection import ColumnRule, Selection


def keys(text: str) -> str:
    for entry in filter(None, text.split(";")):
        pattern, colon, names = entry.rpartition(":")
        if not (colon and pattern.strip() and all(name.strip() for name in names.split(","))):
            raise ValueError("write schema.table:column,column and separate tables by semicolons")
        patterns(pattern.strip())
    return text


SETTINGS = (
    Setting("topic.prefix", "Logical name of the source; topics start with it. Default: the database's name.", ""),
    Setting("schema.include.list", "Regular expressions: schemas to capture.", "", patterns),
    Setting(
        "schema.exclude.list",
        "The same: schemas to leave out; instead of schema.include.list.",
        "",
        patterns,
    ),
    Setting("table.include.list", "Regular expressions over schema.table: tables to capture.", "", patterns),
    Setting("table.exclude.list", "The same: tables to leave out; instead of table.include.list.", "", patterns),
    Setting(
        "column.include.list",
        "Regular expressions over schema.table.column: columns to deliver, beside the key.",
        "",
        patterns,
    ),
    Setting("column.exclude.list", "The same: columns to leave out; instead of column.include.list.", "", patterns),
    Setting("message.key.columns", "Keys instead of the primary key: schema.table:column,column;…", "", keys),
    Setting(
        "column.mask.with.N.chars",
        "Columns shown as N asterisks.",
        "",
        patterns,
        pattern=r"column\.mask\.with\.\d+\.chars",
    ),
    Setting(
        "column.truncate.to.N.chars",
        "Columns cut to N characters.",
        "",
        patterns,
        pattern=r"column\.truncate\.to\.\d+\.chars",
    ),
    Setting(
        "column.mask.hash.ALGORITHM.with.salt.SALT",
        "Columns shown as a salted hash.",
        "",
        patterns,
        pattern=r"column\.mask\.hash(\.v2)?\.[^.]+\.with\.salt\..+",
    ),
    Setting(
        "decimal.handling.mode",
        "Exact numbers as decimals (precise), as double, or as text.",
        "precise",
        choices=("precise", "double", "string"),
    ),
    Setting(
        "time.precision.mode",
        "Dates and times in the envelope: numbers (adaptive, connect) or ISO 8601 texts (isostring).",
        "adaptive",
        choices=("adaptive", "adaptive_time_microseconds", "connect", "isostring"),
    ),
    Setting(
        "binary.handling.mode",
        "Bytes in the envelope's JSON.",
        "base64",
        choices=("bytes", "base64", "base64-url-safe", "hex"),
    ),
    Setting(
        "unavailable.value.placeholder",
        "Stands for a large value that the log leaves out because it did not change.",
        "__debezium_unavailable_value",
    ),
    Setting("skipped.operations", "Operations to leave out: letters of c, u, d, t, separated by commas.", "none"),
    Setting(
        "event.processing.failure.handling.mode",
        "A record that cannot be decoded stops the pipeline (fail), is skipped with a warning, or is set aside.",
        "fail",
        choices=("fail", "warn", "dead-letter"),
    ),
    Setting(
        "provide.transaction.metadata",
        "Number the events of each transaction, and tell its begin and end.",
        "false",
        boolean,
    ),
)


def read(values: Mapping[str, Any], *, connector: str, database: str, prefix: str) -> Selection:
    """From the values of `SETTINGS`; `prefix` is the topic prefix where none is given."""
    for kind in ("schema", "table", "column"):
        if values[f"{kind}.include.list"] and values[f"{kind}.exclude.list"]:
            raise ConfigError(
                f"{kind}.include.list and {kind}.exclude.list are both set.",
                hint="Keep one: what the first does not name is left out anyway.",
            )
    return Selection(
        include_schemas=values["schema.include.list"],
        exclude_schemas=values["schema.exclude.list"],
        include_tables=values["table.include.list"],
        exclude_tables=values["table.exclude.list"],
        include_columns=values["column.include.list"],
        exclude_columns=values["column.exclude.list"],
        message_keys=values["message.key.columns"],
        rules=tuple(_rules(values)),
        decimals=values["decimal.handling.mode"],
        times=values["time.precision.mode"],
        binaries=values["binary.handling.mode"],
        placeholder=values["unavailable.value.placeholder"],
        skipped=_operations(values["skipped.operations"]),
        failures=values["event.processing.failure.handling.mode"],
        transactions=values["provide.transaction.metadata"],
        topic_prefix=values["topic.prefix"] or prefix,
        connector=connector,
        database=database,
    )


def _operations(text: str) -> tuple[str, ...]:
    letters = tuple(sorted({part.strip() for part in text.split(",") if part.strip()} - {"none"}))
    if set(letters) - set("cudt"):
        raise ConfigError(f"skipped.operations is {text!r}.", hint="Use c, u, d and t, separated by commas, or none.")
    return letters


def _rules(values: Mapping[str, Any]) -> Iterator[ColumnRule]:
    for kind, name in (("mask", "column.mask.with.N.chars"), ("truncate", "column.truncate.to.N.chars")):
        for written, columns in values[name].items():
            yield ColumnRule(kind, columns, length=int(written.split(".")[3]))
    for written, columns in values["column.mask.hash.ALGORITHM.with.salt.SALT"].items():
        found = re.fullmatch(r"column\.mask\.hash(?:\.v2)?\.([^.]+)\.with\.salt\.(.+)", written)
        if found:
            algorithm(found[1])  # a mistake is told now, not on an executor
            yield ColumnRule("hash", columns, algorithm=found[1], salt=found[2])
