"""`tidelog capture`: read the log into the journal, apart from Spark.

For several queries that share one slot, or when capture must outlive Spark. Runs
until Ctrl-C. Queries with `capture: apart` in their section `stream` read its journal.
"""

from __future__ import annotations

import argparse
import threading
from typing import TYPE_CHECKING

from tidelog.cli.display import Line, status_text
from tidelog.cli.loading import loaded
from tidelog.cli.signals import setting

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
    stop = threading.Event()

    def watch(status: Status) -> None:
        line.warn((status.warning,) if status.warning else ())
        line.show(status_text(status))

    from tidelog.engine.apart import run_apart

    try:
        with setting(stop):
            run_apart(definition, stop, watch)
        line.end("stopped; the next capture goes on from here")
    finally:
        line.end()
    return 0
