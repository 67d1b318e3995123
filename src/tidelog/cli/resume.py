"""`tidelog resume`: let paused snapshots go on where they were."""

from __future__ import annotations

import argparse

from tidelog.cli.asking import home_of, tell
from tidelog.engine import requests
from tidelog.engine.watching import walks

EXAMPLE = """\
examples:
  tidelog resume shop
  tidelog resume shop.yaml
"""
BY_NAME = True


def configure(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(arguments: argparse.Namespace) -> int:
    home = home_of(arguments.file)
    done = "the snapshots go on" if walks(home).paused else "no snapshot was paused"
    return tell(home, requests.resume(home), done)
