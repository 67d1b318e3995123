"""`tidelog`: finds the command and turns errors into one sentence and its cure.

Exit codes: 0 all is well, 1 `verify` found differences or an awaited snapshot was not done, 2 something has to be
changed first or `verify` could not compare a table, 130 or 143 ended by SIGINT or SIGTERM. No stack trace is shown
unless `--debug` asks for it.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from tidelog.cli import capture, check, connectors, offsets, pause, resume, run, server, snapshot, status, stop, verify
from tidelog.cli.shutdown import INTERRUPTED
from tidelog.engine.disk import is_full
from tidelog.errors import TidelogError
from tidelog.model.version import __version__

COMMANDS = {
    "run": run,
    "check": check,
    "status": status,
    "verify": verify,
    "snapshot": snapshot,
    "pause": pause,
    "resume": resume,
    "stop": stop,
    "offsets": offsets,
    "capture": capture,
    "server": server,
    "connectors": connectors,
}

_EPILOG = """\
examples:
  tidelog check shop.yaml     is the database ready? says what to change
  tidelog run shop.yaml       stream until Ctrl-C
  tidelog verify shop.yaml    compare source and target row by row
  tidelog snapshot shop public.orders    read the rows of a table once more
  tidelog server              run connectors behind a REST API and a web page

State lives under $TIDELOG_HOME/<name>, default .tidelog/<name>.
"""


def main(argv: Sequence[str] | None = None) -> int:
    logging.raiseExceptions = False  # a log file on a full disk is no reason to print stack traces
    arguments = parser().parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a replaced stream may not know it
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    if getattr(arguments, "debug", False):
        return int(arguments.command(arguments))
    return _guarded(arguments)


def _guarded(arguments: argparse.Namespace) -> int:
    try:
        return int(arguments.command(arguments))
    except TidelogError as exc:
        return _tell(exc.message, exc.hint)
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as exc:
        if not is_full(exc):
            return _unexpected(exc)
        where = f": {exc.filename} cannot be written" if exc.filename else ""
        return _tell(f"The disk is full{where}.", "Free some space there, then start again.")
    except Exception as exc:  # noqa: BLE001  the last resort: a sentence instead of a stack trace
        return _unexpected(exc)


def _unexpected(exc: Exception) -> int:
    told = str(exc).strip().splitlines() or ["no message"]
    return _tell(f"Unexpected {type(exc).__name__}: {told[0]}", "Run again with --debug to see where.")


def _tell(message: str, hint: str) -> int:
    print(f"tidelog: {message}", file=sys.stderr)
    if hint:
        print(f"  {hint}", file=sys.stderr)
    return 2


def parser() -> argparse.ArgumentParser:
    debug = argparse.ArgumentParser(add_help=False)
    debug.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show stack traces")
    top = argparse.ArgumentParser(
        prog="tidelog",
        description="Change data capture for Apache Spark.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[debug],
    )
    top.add_argument("--version", action="version", version=f"tidelog {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        summary, more = _documented(command)
        one = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[:1].upper()}{summary[1:]}.\n\n{more}".strip(),
            epilog=command.EXAMPLE,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[debug],
        )
        if getattr(command, "ALONE", False):
            pass  # it is about no pipeline, or about more than one
        elif getattr(command, "BY_NAME", False):
            one.add_argument("file", metavar="PIPELINE", help="its definition, YAML, or its name once it has run here")
        else:
            one.add_argument("file", metavar="FILE", help="the pipeline's definition, YAML")
        command.configure(one)
        one.set_defaults(command=command.run)
    return top


def _documented(command: ModuleType) -> tuple[str, str]:
    """The summary of a command, and what else its module says."""
    text = (command.__doc__ or "").strip()
    return text.partition("\n")[0].partition(": ")[2].rstrip("."), text.partition("\n\n")[2]
