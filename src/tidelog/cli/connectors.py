"""`tidelog connectors`: manage the connectors of a running service.

Asks the service that --server or TIDELOG_SERVER names (default http://127.0.0.1:8083),
with the token in TIDELOG_TOKEN if it wants one. `create` takes a pipeline's definition
(YAML) or Kafka Connect's JSON, and leaves ${…} references for the service to resolve.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tidelog.cli.remote import DEFAULT, Server
from tidelog.engine import flat
from tidelog.engine.definition import written
from tidelog.errors import ConfigError

EXAMPLE = """\
examples:
  tidelog connectors list
  tidelog connectors create shop.yaml
  tidelog connectors create mysql.json --state STOPPED
  tidelog connectors stop shop
  tidelog connectors status shop --server http://127.0.0.1:8084
"""
ALONE = True
_CALLS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "delete": ("DELETE", (), "deleted; its offsets stay"),
    "pause": ("PUT", ("pause",), "paused"),
    "resume": ("PUT", ("resume",), "resumed"),
    "stop": ("PUT", ("stop",), "stopped"),
    "restart": ("POST", ("restart",), "restarted"),
}
_SHOWN: dict[str, tuple[str, ...]] = {"get": (), "status": ("status",)}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=("list", "get", "create", *_CALLS, "status"), metavar="ACTION", help="list, get, create, …"
    )
    parser.add_argument("name", nargs="?", default="", help="name of the connector; for create: YAML or JSON file")
    parser.add_argument("--state", choices=("RUNNING", "PAUSED", "STOPPED"), help="for create: what it is to be")
    parser.add_argument("--server", metavar="URL", help=f"address of the service (default {DEFAULT})")


def run(arguments: argparse.Namespace) -> int:
    action, name, server = arguments.action, arguments.name, Server.named(arguments.server)
    if action == "list":
        return _list(server)
    if not name:
        raise ConfigError(f"{action} needs a name.", hint=f"Run: tidelog connectors {action} NAME")
    if action == "create":
        return _create(server, name, arguments.state)
    if action in _SHOWN:
        print(json.dumps(server.ask("GET", "connectors", name, *_SHOWN[action]), indent=2))
        return 0
    method, more, done = _CALLS[action]
    server.ask(method, "connectors", name, *more)
    print(f"{name}: {done}")
    return 0


def _list(server: Server) -> int:
    found = server.ask("GET", "connectors", query=[("expand", "status"), ("expand", "info")])
    for name, told in sorted(found.items()):
        connector = told["status"]["connector"]
        print(f"{name:<24} {connector['state']:<10} {told['info']['config'].get(flat.CLASS, '')}")
        if connector.get("trace"):
            print(f"    {connector['trace']}")
    if not found:
        print("no connectors; tidelog connectors create shop.yaml makes one")
    return 0


def _create(server: Server, file: str, state: str | None) -> int:
    body = _body(file)
    if state:
        body["initial_state"] = state
    server.ask("POST", "connectors", body=body)
    print(f"{body['name']}: created")
    return 0


def _body(file: str) -> dict[str, Any]:
    """What Kafka Connect wants to hear: `{"name", "config"}`."""
    if not file.endswith(".json"):
        config = flat.written(written(file))
        return {"name": config[flat.NAME], "config": config}
    try:
        raw = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not JSON"
        raise ConfigError(f"The file {file} cannot be read ({reason}).", hint="Check path and content.") from exc
    if not isinstance(raw, dict):
        raise ConfigError(f"{file} holds no connector.", hint='Write {"name": …, "config": {…}}.')
    return raw if "config" in raw else {"name": str(raw.get("name", "")), "config": raw}
