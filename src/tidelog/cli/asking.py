"""What the commands that ask something of a pipeline share: whom they ask, and whether somebody listens.

A pipeline is named by its file, or by its name alone once it has run here.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tidelog.cli.loading import loaded
from tidelog.core.settings import nearest
from tidelog.engine import requests
from tidelog.engine.home import Home
from tidelog.errors import ConfigError

PATIENCE_S = 10.0
_LOOK_S = 0.1


def home_of(text: str) -> Home:
    """The state folder of `shop.yaml`, or of `shop`."""
    if text.endswith((".yaml", ".yml")) or "/" in text or Path(text).is_file():
        definition, connector = loaded(text)
        requests.require_heard(connector.snapshot_settings())
        return Home.open(definition.name)
    home = Home.at(text)
    if not text or not home.path.is_dir():
        raise _unknown(text, home)
    return home


def _unknown(name: str, home: Home) -> ConfigError:
    folder = home.path.parent
    known = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    near = nearest(name, known)
    names = f"Known here are: {', '.join(known[:10])}." if known else "Give its file, or set TIDELOG_HOME."
    return ConfigError(
        f"There is no pipeline {name!r}: {folder} has no state of it.",
        hint=f"Did you mean {near!r}?" if near else names,
    )


def tell(home: Home, id: str, done: str) -> int:
    """Say that it was followed, or by whom it will be."""
    if followed(home, id):
        print(f"{home.path.name}: {done}")
    else:
        print(f"{home.path.name}: asked; {listener(home)}")
    return 0


def followed(home: Home, id: str) -> bool:
    """Whether the run that is alive follows a signal soon."""
    deadline = time.monotonic() + PATIENCE_S
    while requests.runner(home) is not None and time.monotonic() < deadline:
        if id not in requests.pending(home):
            return True
        time.sleep(_LOOK_S)
    return id not in requests.pending(home)


def listener(home: Home) -> str:
    pid = requests.runner(home)
    if pid is None:
        return "no run is alive, so the next one follows"
    return f"process {pid} follows after its current batch" if pid else "the run that is alive follows"


def tables(parser: argparse.ArgumentParser, number: str, help: str) -> None:
    parser.add_argument("tables", nargs=number, metavar="TABLE", help=help)
