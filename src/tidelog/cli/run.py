"""`tidelog run`: stream changes from the source to the sink.

Streams until Ctrl-C or SIGTERM and shows how it goes. A first run also reads the rows that are
there already (see snapshot.mode). The next run of the same name goes on where this one
ended; a second one is refused while the first lives.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tidelog.cli.display import Board, Line
from tidelog.cli.loading import loaded
from tidelog.cli.logs import libraries_logged_into, native_messages_logged_into, warnings_shown
from tidelog.cli.shutdown import StopRequest
from tidelog.cli.spark_options import add_spark_options, spark_options, with_spark
from tidelog.core.settings import counted
from tidelog.engine.home import Home
from tidelog.engine.notices import log_into
from tidelog.engine.startup import is_waiting

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
    stop = StopRequest(lambda: line.last(farewell()))

    def farewell() -> str:
        return f"stopped after {counted(total, 'event')}; the next run goes on from here"

    def watch(progress: Progress) -> None:
        nonlocal total
        total = progress.events_total
        stop.orderly = not is_waiting(progress.state)
        board.show(progress)
        stop.require_none()

    native = native_messages_logged_into(home.native_log)
    with stop, native, libraries_logged_into(home.messages), warnings_shown():
        try:
            line.show("starting Spark", urgent=True)
            from tidelog.spark.pipeline import Pipeline

            Pipeline.of(definition).run(once=arguments.once, fresh=arguments.fresh, watch=watch)
            line.end(f"done: {counted(total, 'event')}")
        except KeyboardInterrupt:
            line.end(farewell())
            return stop.exit_code
        finally:
            line.end()
    return 0
