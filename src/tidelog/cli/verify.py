"""`tidelog verify`: compare source and target row by row.

Goes through every captured table by ranges of its key and names the rows that are
missing in the target, extra in it, or different. While the pipeline runs, a
difference counts only if it stays. A table that cannot be read is named, and the
others are compared. Rows that are set aside, because a value does not fit its type,
are listed and are no differences.
Exit code: 0 in sync, 1 differences found, 2 a table could not be compared.
"""

from __future__ import annotations

import argparse
import re
import time as clock
from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

from tidelog.cli.display import mark
from tidelog.cli.loading import loaded
from tidelog.core.settings import counted
from tidelog.engine.dead_letters import DeadLetters
from tidelog.engine.home import Home
from tidelog.engine.set_aside import SetAside
from tidelog.errors import ConfigError
from tidelog.model.pattern import compiled

if TYPE_CHECKING:
    from tidelog.core.compare import Difference
    from tidelog.engine.definition import Definition
    from tidelog.engine.verify import Again, ReadTarget, TableReport
    from tidelog.model.schema import Table

EXAMPLE = """\
examples:
  tidelog verify shop.yaml
  tidelog verify shop.yaml --table 'public\\.orders' --values
"""

_LOOKS_WHILE_RUNNING = 10
_WAIT_S = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table", metavar="REGEX", help="only tables whose schema.table matches")
    parser.add_argument("--values", action="store_true", help="show the values that differ; they may be private")
    parser.add_argument("--examples", type=int, default=10, metavar="N", help="differences shown per table (10)")


def run(arguments: argparse.Namespace) -> int:
    from tidelog.engine.verify import verify

    definition, connector = loaded(arguments.file)
    read_target = target_of(definition)
    home = Home.at(definition.name)
    letters = {one.table: str(one) for one in DeadLetters(home).all()}
    set_aside = {aside.name: f"It is set aside: {aside}" for aside in SetAside(home).all() if aside.waits}

    def watch(report: TableReport) -> None:
        for text in lines(report, values=arguments.values):
            print(text, flush=True)
        for known in (set_aside, letters):
            if not report.in_sync and report.table in known:
                print(f"    {known[report.table]}", flush=True)

    with closing(connector):
        report = verify(
            connector,
            _chosen(connector.tables(), arguments.table),
            read_target,
            examples_max=arguments.examples,
            again=_patience(home),
            watch=watch,
        )
    print(report)
    return 2 if report.failures else 0 if report.in_sync else 1


def _patience(home: Home) -> Again:
    """While a run is alive, look again for some seconds: changes may be on their way."""

    def again(looks: int) -> bool:
        if looks >= _LOOKS_WHILE_RUNNING or home.holder() is None:
            return False
        clock.sleep(_WAIT_S)
        return True

    return again


def target_of(definition: Definition) -> ReadTarget:
    from tidelog.spark.reading import read_target

    return read_target(definition.sink)


def _chosen(tables: list[Table], pattern: str | None) -> list[Table]:
    try:
        found = [t for t in tables if pattern is None or compiled(pattern).fullmatch(t.qualified)]
    except re.error as exc:
        raise ConfigError(f"--table {pattern!r} is not a regular expression ({exc}).", hint="Quote it.") from exc
    if not found:
        names = ", ".join(t.qualified for t in tables[:10]) or "none"
        raise ConfigError(f"No captured table matches {pattern or 'the lists'}.", hint=f"Captured are: {names}.")
    return found


def lines(report: TableReport, *, values: bool) -> Iterator[str]:
    """A table's report; values only when asked for, because they may be private."""
    result = report.result
    if report.in_sync:
        yield f"{mark('warning' if report.set_aside else 'ok')} {report.table}: {counted(result.rows, 'row')}"
        yield from _set_aside(report)
        return
    if report.failure is not None:
        yield f"{mark('error')} {report.table} could not be compared: {report.failure.message}"
        if report.failure.hint:
            yield f"    {report.failure.hint}"
        return
    parts = [f"{n:,} {kind}" for n, kind in _counts(report) if n]
    yield f"{mark('error')} {report.table}: {', '.join(parts)}; the source has {counted(result.rows, 'row')}"
    yield from _set_aside(report)
    if report.absent:
        yield "    the target has no such table"
        return
    for name in report.lacking:
        yield f"    the target has no column {name}"
    for difference in result.examples:
        yield f"    {_described(difference, values)}"
    if result.differences > len(result.examples):
        yield f"    … and {result.differences - len(result.examples):,} more"


def _set_aside(report: TableReport) -> Iterator[str]:
    """Rows that the target cannot have, and that are no differences therefore."""
    if not report.set_aside:
        return
    rows = "1 row is" if report.set_aside == 1 else f"{report.set_aside:,} rows are"
    yield f"    {rows} set aside: a value does not fit its type in the target"
    for key in report.set_aside_keys:
        yield f"    set aside: {', '.join(f'{name}={_shown(value)}' for name, value in key)}"


def _counts(report: TableReport) -> list[tuple[int, str]]:
    result = report.result
    return [
        (result.missing, "missing"),
        (result.extra, "extra"),
        (result.different, "different"),
        (len(report.lacking), "columns lacking"),
    ]


def _described(difference: Difference, values: bool) -> str:
    key = ", ".join(f"{name}={_shown(value)}" for name, value in difference.key)
    if not difference.columns:
        return f"{difference.kind}: {key}"
    if not values:
        return f"{difference.kind}: {key}: {', '.join(difference.columns)}"
    pairs = zip(difference.columns, difference.source, difference.target, strict=True)
    return f"{difference.kind}: {key}: " + ", ".join(f"{c} is {_shown(s)}, target has {_shown(t)}" for c, s, t in pairs)


def _shown(value: object) -> str:
    """As a person would write it; only texts have quotes."""
    match value:
        case None:
            return "NULL"
        case datetime():
            return value.isoformat(" ")
        case date() | time() | timedelta() | Decimal() | UUID():
            return str(value)
        case bytes():
            return f"\\x{value.hex()}"
    return repr(value)
