"""`tidelog stop`: end running snapshots, all of them or those of some tables.

The stream of changes goes on, and rows that were delivered stay. To end the pipeline
itself, press Ctrl-C where it runs, or send it SIGTERM.
"""

from __future__ import annotations

import argparse

from tidelog.cli.asking import home_of, tables, tell
from tidelog.core.signals import matching
from tidelog.engine import requests
from tidelog.engine.watching import walks

EXAMPLE = """\
examples:
  tidelog stop shop
  tidelog stop shop.yaml public.orders
"""
BY_NAME = True


def configure(parser: argparse.ArgumentParser) -> None:
    tables(parser, "*", "schema.table or a regular expression over it; all when left out")


def run(arguments: argparse.Namespace) -> int:
    home = home_of(arguments.file)
    running = [walk.table for walk in walks(home).tables]
    id = requests.stop(home, arguments.tables)
    ended = matching(arguments.tables, running) if arguments.tables else running
    done = f"stopped the snapshots of {', '.join(ended)}" if ended else "no such snapshot runs, nothing to stop"
    return tell(home, id, done)
