"""`tidelog snapshot`: read the present rows of tables once more, while the stream goes on.

The pipeline that runs follows at once, or its next run does. The rows arrive as reads
(op `r`), chunk by chunk, and never overwrite a newer change.
Exit code: 0 asked (with --wait: done), 1 not done, 2 it cannot be asked.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from tidelog.cli.asking import followed, home_of, listener, tables
from tidelog.cli.display import Line, ended_text, walk_lines
from tidelog.engine import requests
from tidelog.engine.home import Home
from tidelog.engine.shell import command
from tidelog.engine.snapshots import NO_TABLE
from tidelog.engine.watching import Ended, Told, Walk, Walks, walks
from tidelog.errors import ConfigError

EXAMPLE = """\
examples:
  tidelog snapshot shop public.orders
  tidelog snapshot shop.yaml 'public\\..*' --wait
  tidelog snapshot shop.yaml public.orders --where "total > 100"
"""
BY_NAME = True
_LOOK_S = 0.2


def configure(parser: argparse.ArgumentParser) -> None:
    tables(parser, "+", "schema.table, or a regular expression over it")
    parser.add_argument("--where", default="", metavar="SQL", help="only rows for which this is true")
    parser.add_argument("--surrogate-key", default="", metavar="COLUMN", help="walk along this column, not the key")
    parser.add_argument("--blocking", action="store_true", help="let the stream wait until the rows are read")
    parser.add_argument("--id", default="", help="name it; its notifications carry this id")
    parser.add_argument("--wait", action="store_true", help="follow it until it is done")


def run(arguments: argparse.Namespace) -> int:
    home = home_of(arguments.file)
    told = Told(home)
    id = requests.snapshot(
        home,
        arguments.tables,
        where=arguments.where,
        surrogate_key=arguments.surrogate_key,
        blocking=arguments.blocking,
        id=arguments.id,
    )
    print(f"{home.path.name}: asked for a snapshot of {', '.join(arguments.tables)} (id {id})", flush=True)
    if not arguments.wait:
        return _begun(home, told, id, arguments.tables)
    return _follow(home, told, id, arguments.tables)


def _begun(home: Home, told: Told, id: str, asked: Sequence[str]) -> int:
    """Somebody who asked for a table that is not there should hear it."""
    if not followed(home, id):
        print(f"{home.path.name}: {listener(home)}")
        return 0
    ended = _of(told, id)
    if ended is not None:
        return _over(home, ended, asked)
    now = walks(home)
    for table, why in told.missed(id).items():
        print(f"{home.path.name}: {table} is not read: {why}")
    print(f"{home.path.name}: {_state(home, [walk for walk in now.tables if walk.id == id], paused=now.paused)}")
    return 0


def _state(home: Home, mine: Sequence[Walk], *, paused: bool) -> str:
    reads = [walk.table for walk in mine if walk.begun and not paused]
    waits = [walk.table for walk in mine if walk.table not in reads]
    told = [f"the run reads {', '.join(reads)}"] if reads else []
    told += [f"{', '.join(waits)} {'waits' if len(waits) == 1 else 'wait'} to be read"] if waits else []
    told += [f"the snapshots are paused; {_continued_by(home)}"] if paused else []
    return "; ".join(told) or "it is followed"


def _follow(home: Home, told: Told, id: str, asked: Sequence[str]) -> int:
    line = Line(home.path.name)
    try:
        while (ended := _of(told, id)) is None:
            now = walks(home)
            mine = Walks(tuple(walk for walk in now.tables if walk.id == id), now.paused)
            line.show(_waiting(home, mine), walk_lines(mine))
            time.sleep(_LOOK_S)
    finally:
        line.end()
    return _over(home, ended, asked)


def _waiting(home: Home, mine: Walks) -> str:
    if requests.runner(home) is None:
        return "waiting for a run of this pipeline"
    if mine.paused:
        return f"paused; {_continued_by(home)}"
    return "reading" if mine.tables else "waiting for the run to follow"


def _continued_by(home: Home) -> str:
    return f"`{command('resume', home.path.name)}` continues them"


def _of(told: Told, id: str) -> Ended | None:
    return next((ended for ended in told.new() if ended.id == id), None)


def _over(home: Home, ended: Ended, asked: Sequence[str]) -> int:
    if ended.how == "SKIPPED" and set(ended.failures.values()) <= {NO_TABLE}:
        raise ConfigError(
            f"No captured table matches {', '.join(asked)}.", hint="Write schema.table, and see table.include.list."
        )
    if ended.how == "SKIPPED":
        raise ConfigError(f"The {ended_text(ended)}.", hint="Nothing was read.")
    print(f"{home.path.name}: {ended_text(ended)}")
    return 0 if ended.good else 1
