"""`tidelog pause`: let the running snapshots rest.

The stream of changes goes on. What was delivered stays delivered, and `tidelog resume`
goes on from there, also after a restart.
"""

from __future__ import annotations

import argparse

from tidelog.cli.asking import home_of, tell
from tidelog.cli.display import tables_text
from tidelog.engine import requests
from tidelog.engine.watching import walks

EXAMPLE = """\
examples:
  tidelog pause shop
  tidelog pause shop.yaml
"""
BY_NAME = True


def configure(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(arguments: argparse.Namespace) -> int:
    home = home_of(arguments.file)
    left = len(walks(home).tables)
    done = f"paused with {tables_text(left)} left; the stream goes on" if left else "no snapshot runs, nothing to pause"
    return tell(home, requests.pause(home), done)
