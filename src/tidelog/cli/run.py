"""`tidelog run`: stream changes from the source to the sink.

Streams until Ctrl-C and shows how it goes. A first run also reads the rows that are
there already (see snapshot.mode). The next run of the same name goes on where this one
ended; a second one is refused while the first lives.
"""

from __future__ import annotations

import argparse
import threading
from typing import TYPE_CHECKING

from tidelog.cli.display import Board, Line
from tidelog.cli.loading import loaded
from tidelog.cli.logs import libraries_logged_into, warnings_shown
from tidelog.cli.signals import setting
from tidelog.cli.spark_options import add_spark_options, spark_options, with_spark
from tidelog.engine.home import Home
from tidelog.engine.notices import log_into

if TYPE_CHECKING:
    from tidelog.spark.progress import Progress

EXAMPLE = """\
examples:
  tidelog run shop.yaml           stream until Ctrl-C
  tidelog run shop.yaml --once    deliver what is there, then end
  tidelog run shop.yaml --master spark://host:7077
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_spark_options(parser)
    parser.add_argument("--once", action="store_true", help="deliver what is there by now, then end")
    parser.add_argument(
        "--fresh", action="store_true", help="read every table again where the state folder of an earlier start is gone"
    )


def run(arguments: argparse.Namespace) -> int:
    from tidelog.spark.sink_check import require_usable  # it refuses a Spark that tidelog does not run on

    definition = with_spark(loaded(arguments.file)[0], spark_options(arguments))
    require_usable(definition)
    home = Home.open(definition.name)
    home.require_free()  # before Spark takes its time to start
    log_into(home.messages)
    line = Line(definition.name)
    board = Board(line)
    total = 0
    stop = threading.Event()

    def watch(progress: Progress) -> None:
        nonlocal total
        total = progress.events_total
        board.show(progress)
        if stop.is_set():  # not raised by the signal itself: Spark's bridge takes an interrupt for an error of its own
            raise KeyboardInterrupt

    with setting(stop), libraries_logged_into(home.messages), warnings_shown():
        try:
            line.show("starting Spark", urgent=True)
            from tidelog.spark.pipeline import Pipeline

            Pipeline.of(definition).run(once=arguments.once, fresh=arguments.fresh, watch=watch)
            line.end(f"done: {total:,} events")
        except KeyboardInterrupt:
            line.end(f"stopped after {total:,} events; the next run goes on from here")
        finally:
            line.end()
    return 0
