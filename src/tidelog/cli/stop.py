"""`tidelog stop`: end running snapshots, all of them or those of some tables.

The stream of changes goes on, and rows that were delivered stay. The initial snapshot
ends too, for good: `tidelog snapshot` reads what it has left. To end the pipeline itself,
press Ctrl-C where it runs, or send it SIGTERM.
"""

from __future__ import annotations

import argparse

from tidelog.cli.asking import home_of, tables, tell
from tidelog.cli.display import mark
from tidelog.core.signals import matching
from tidelog.core.snapshot.state import INITIAL
from tidelog.engine import requests
from tidelog.engine.shell import snapshot_command
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
    running = walks(home).tables
    names = [walk.table for walk in running]
    id = requests.stop(home, arguments.tables)
    ended = matching(arguments.tables, names) if arguments.tables else names
    done = f"stopped the snapshots of {', '.join(ended)}" if ended else "no such snapshot runs, nothing to stop"
    code = tell(home, id, done)
    lost = [walk.table for walk in running if walk.kind == INITIAL and walk.table in ended]
    if lost:
        again = snapshot_command(home.path.name, lost)
        print(f"{mark('warning')} {home.path.name}: rows of the initial snapshot are not read; `{again}` reads them")
    return code
