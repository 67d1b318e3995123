"""`tidelog capture`: read the log into the journal, apart from Spark.

For several queries that share one slot, or when capture must outlive Spark. Runs
until Ctrl-C. Queries with `capture: apart` in their section `stream` read its journal.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tidelog.cli.display import Line, status_text
from tidelog.cli.loading import loaded
from tidelog.cli.shutdown import StopRequest
from tidelog.engine.startup import is_waiting

if TYPE_CHECKING:
    from tidelog.contracts import Status

EXAMPLE = """\
example:
  tidelog capture shop.yaml
"""


def configure(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(arguments: argparse.Namespace) -> int:
    definition, _ = loaded(arguments.file)
    line = Line(definition.name)
    farewell = "stopped; the next capture goes on from here"
    stop = StopRequest(lambda: line.last(farewell))

    def watch(status: Status) -> None:
        stop.orderly = not is_waiting(status.state)
        line.warn((status.warning,) if status.warning else ())
        line.show(status_text(status))

    from tidelog.engine.apart import run_apart

    try:
        with stop:
            run_apart(definition, stop.event, watch)
        line.end(farewell)
    finally:
        line.end()
    return stop.exit_code
