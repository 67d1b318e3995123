"""`tidelog check`: are source and sink ready? Says what to change.

Looks at the server, the role, the tables, the publication and the slot, at the sink and
whether it can take each table, and prints the SQL or the setting that cures each problem.
Changes nothing.
Exit code: 0 ready (perhaps with warnings), 2 something has to be changed first.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing

from tidelog.cli.display import mark
from tidelog.cli.loading import loaded
from tidelog.contracts import Finding
from tidelog.engine.home import Home
from tidelog.errors import ConfigError

EXAMPLE = """\
example:
  tidelog check shop.yaml
"""


def configure(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(arguments: argparse.Namespace) -> int:
    from tidelog.spark.sink_check import findings  # it refuses a Spark that tidelog does not run on

    definition, connector = loaded(arguments.file)
    with closing(connector):
        found = [*connector.check(), *findings(definition, connector), _home(definition.name)]
    for finding in found:
        show(finding)
    print(summary(found))
    return 2 if any(f.level == "error" for f in found) else 0


def show(finding: Finding) -> None:
    print(f"{mark(finding.level)} {finding.subject}: {finding.meaning}")
    if finding.cure:
        print(f"    {finding.cure}")


def summary(found: Sequence[Finding]) -> str:
    errors = sum(f.level == "error" for f in found)
    warnings = sum(f.level == "warning" for f in found)
    verdict = "not ready" if errors else "ready"
    return f"{verdict}: {_counted(errors, 'error')}, {_counted(warnings, 'warning')}"


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _home(name: str) -> Finding:
    try:
        home = Home.open(name)
    except ConfigError as exc:
        return Finding("error", "state folder", exc.message, exc.hint)
    pid = home.holder()
    return Finding("ok", "state folder", f"{home.path} can be written{f'; process {pid} runs' if pid else ''}.")
