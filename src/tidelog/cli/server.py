"""`tidelog server`: run connectors behind a REST API and a web page.

Speaks Kafka Connect's REST. The connectors that ran when it ended run again when it
starts. Needs a token from every caller once it listens beyond this machine: lines of
ROLE TOKEN [NAME] in a file, or in TIDELOG_TOKENS, where ROLE is read, operate or admin.
Runs until Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import socket
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tidelog.cli.logs import libraries_logged_into
from tidelog.cli.shutdown import StopRequest
from tidelog.cli.spark_options import add_spark_options, spark_options
from tidelog.engine.definition import spark_conf_of
from tidelog.engine.home import Home
from tidelog.engine.notices import log_into
from tidelog.errors import ConfigError, NotInstalled
from tidelog.stores import open_store

if TYPE_CHECKING:
    from tidelog.server.auth import Access
    from tidelog.server.serving import Served

EXAMPLE = """\
examples:
  tidelog server
  tidelog server --port 8084 --offset-storage postgresql://ops@db/tidelog
  tidelog server --host 0.0.0.0 --tokens tokens.txt
"""
ALONE = True
PORT = 8083
_FAREWELL = "stopped; what ran runs again with the next start"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=PORT, help=f"port to listen on (default {PORT}; 0: any free one)")
    add_spark_options(parser)
    parser.add_argument("--offset-storage", metavar="URL", help="file or postgresql://… that keeps states and offsets")
    parser.add_argument("--tokens", metavar="FILE", help="file of tokens, one a line: ROLE TOKEN [NAME]")


def run(arguments: argparse.Namespace) -> int:
    _require_installed()
    from tidelog.server import auth, serving

    access = auth.load(arguments.tokens)
    os.environ.pop(auth.VARIABLE, None)  # nobody that we start, and no reference in a config, needs to know them
    auth.require_closed(arguments.host, access)
    if arguments.offset_storage:  # for the processes that Spark starts, too
        os.environ["TIDELOG_OFFSET_STORAGE"] = arguments.offset_storage
    home = Home.open("")
    with home.lock("server"), serving.listening(arguments.host, arguments.port) as listener:
        return _serve(home, listener, access, spark_conf_of(spark_options(arguments)))


def _serve(home: Home, listener: socket.socket, access: Access, spark_conf: dict[str, str]) -> int:
    from tidelog.server.service import Service
    from tidelog.server.serving import Served, address

    log_into(home.messages)
    where = address(listener)
    storage = os.environ.get("TIDELOG_OFFSET_STORAGE", "")
    service = Service(open_store(storage or None), storage=storage, worker=where, spark_conf=spark_conf)
    service.names()  # a store that cannot be used is told now
    server = Served(service, listener, access)
    print(f"tidelog listens on http://{where} (state in {home.path}; Ctrl-C ends it)", flush=True)
    with StopRequest(lambda: f"{_FAREWELL}\n") as stop, libraries_logged_into(home.messages):
        stop.orderly = True
        _serve_until(stop, server)
    if not stop.event.is_set():
        what = "ended by itself" if server.started else "did not start"
        raise ConfigError(f"The service {what}.", hint=f"{home.messages} says why.")
    print(_FAREWELL, flush=True)
    return stop.exit_code


def _serve_until(stop: StopRequest, server: Served) -> None:
    while server.alive and not stop.event.wait(0.2):
        pass
    server.end()


def _require_installed() -> None:
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise NotInstalled("The service needs FastAPI and uvicorn.", hint="Run: pip install 'tidelog[server]'")
