"""`tidelog offsets`: read, change and undo how far a pipeline has come.

Reading is always allowed; a change needs the pipeline to be stopped. Before anything is
changed, you see what stood there, what will stand there, and what that does.
"""

from __future__ import annotations

import argparse
import getpass
import json
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from tidelog import connectors
from tidelog.cli.loading import loaded
from tidelog.cli.remote import Server
from tidelog.core.offsets import body as bodies
from tidelog.core.offsets.problem import refused
from tidelog.engine.control import Control, alone, shown
from tidelog.engine.definition import Definition
from tidelog.engine.shell import command
from tidelog.errors import ConfigError, Refused
from tidelog.stores import open_store

EXAMPLE = """\
examples:
  tidelog offsets get shop.yaml
  tidelog offsets set shop.yaml lsn=23876608 --why "past the broken transaction"
  tidelog offsets set shop.yaml offsets.json     the JSON that `export` writes
  tidelog offsets undo shop.yaml
  tidelog offsets history shop
  tidelog offsets export shop > offsets.json
  tidelog offsets delete shop --server http://cdc.example:8083
"""
ALONE = True
_CHANGES = ("set", "delete", "undo", "import")


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
    for name, text, act in _ACTIONS:
        one = actions.add_parser(name, help=text, description=text)
        one.add_argument("pipeline", metavar="PIPELINE", help="its definition, YAML, or its name")
        one.add_argument("--server", metavar="URL", help="ask this server; default: the store on this machine")
        if name in ("set", "import"):
            what = "KEY=VALUE …, JSON, or a file" if name == "set" else "a file that `export` or Kafka Connect wrote"
            one.add_argument("offset", nargs="+" if name == "set" else 1, metavar="OFFSET", help=what)
        if name in _CHANGES:
            one.add_argument("--why", default="", help="a reason, for the history")
            one.add_argument("--yes", action="store_true", help="do not ask")
        if name in ("get", "history"):
            one.add_argument("--json", action="store_true", help="print JSON")
        one.set_defaults(act=act)


def run(arguments: argparse.Namespace) -> int:
    if arguments.server:
        act: Callable[[argparse.Namespace, _Offsets], int] = arguments.act
        return act(arguments, _Remote(Server.named(arguments.server), arguments.pipeline))
    definition = _definition(arguments.pipeline)
    name = definition.name if definition is not None else arguments.pipeline
    with closing(open_store(definition.store or None if definition is not None else None)) as store:
        return int(arguments.act(arguments, _Local(Control(store, lambda n: alone(n, definition)), name, definition)))


def _definition(text: str) -> Definition | None:
    named = not (text.endswith((".yaml", ".yml")) or "/" in text or Path(text).is_file())
    return None if named else loaded(text)[0]


# -- whom we ask -----------------------------------------------------------------------------------------------------


class _Offsets(Protocol):
    name: str

    def get(self) -> dict[str, Any]: ...

    def export(self) -> dict[str, Any]:
        """For another pipeline, which knows nothing of this one."""

    def plugin(self) -> str:
        """Which connector it is; empty when that is not known."""

    def describe(self, offset: Mapping[str, Any]) -> str: ...

    def preview(self, body: object) -> list[dict[str, Any]]: ...

    def alter(self, body: object, why: str, *, load: bool) -> None: ...

    def delete(self, why: str) -> None: ...

    def undo(self, why: str) -> None: ...

    def history(self) -> list[dict[str, Any]]: ...


class _Local:
    """The store on this machine."""

    def __init__(self, control: Control, name: str, definition: Definition | None) -> None:
        self._control = control
        self._definition = definition
        self.name = name

    def get(self) -> dict[str, Any]:
        return {"offsets": self._control.offsets(self.name)}

    def export(self) -> dict[str, Any]:
        return self._control.export(self.name)

    def plugin(self) -> str:
        return self._definition.connector if self._definition is not None else ""

    def describe(self, offset: Mapping[str, Any]) -> str:
        return connectors.offsets(self.plugin()).describe(offset) if self.plugin() else ""

    def preview(self, body: object) -> list[dict[str, Any]]:
        preview = self._control.preview(self.name, body)
        refused(preview.problems)
        return [asdict(part) for part in preview.parts]

    def alter(self, body: object, why: str, *, load: bool) -> None:
        change = self._control.load if load else self._control.alter
        change(self.name, body, who=_who(), why=why)

    def delete(self, why: str) -> None:
        self._control.delete(self.name, who=_who(), why=why)

    def undo(self, why: str) -> None:
        self._control.undo(self.name, who=_who(), why=why)

    def history(self) -> list[dict[str, Any]]:
        changes = [asdict(change) for change in self._control.history(self.name)]
        return [
            {**c, "before": shown(c["before"]), "after": shown(c["after"]), "at": _time(c["at_us"])} for c in changes
        ]


class _Remote:
    """A server."""

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        self.name = name

    def _ask(self, method: str, *path: str, body: object = None, query: Sequence[tuple[str, str]] = ()) -> Any:
        return self._server.ask(method, "connectors", self.name, "offsets", *path, body=body, query=query)

    def get(self) -> dict[str, Any]:
        return dict(self._ask("GET"))

    def export(self) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("GET", "export")
        return found

    def plugin(self) -> str:
        config = self._server.ask("GET", "connectors", self.name)["config"]
        return str(config["connector.class"])

    def describe(self, offset: Mapping[str, Any]) -> str:
        return connectors.offsets(self.plugin()).describe(offset)

    def preview(self, body: object) -> list[dict[str, Any]]:
        told = self._ask("POST", "preview", body=body)
        wrong = [f"{p['path']}: {p['message']} {p['hint']}" for p in told.get("problems", [])]
        if wrong:
            raise ConfigError(" ".join(wrong))
        return list(told["parts"])

    def alter(self, body: object, why: str, *, load: bool) -> None:
        told = {**body, "why": why} if isinstance(body, dict) else body
        if load:
            self._ask("POST", "import", body=told)
        else:
            self._ask("PATCH", body=told)

    def delete(self, why: str) -> None:
        self._ask("DELETE", query=[("why", why)])

    def undo(self, why: str) -> None:
        self._ask("POST", "undo", body={"why": why})

    def history(self) -> list[dict[str, Any]]:
        return list(self._ask("GET", "history")["changes"])


def _who() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


# -- what is done ----------------------------------------------------------------------------------------------------


def _get(arguments: argparse.Namespace, asked: _Offsets) -> int:
    found = asked.get()
    if arguments.json:
        print(json.dumps(found, indent=2))
    elif not found["offsets"]:
        print(f"{asked.name}: no offset yet; the next start is a first one")
    for entry in [] if arguments.json else found["offsets"]:
        print(f"{asked.name} {json.dumps(entry['partition'])}: {asked.describe(entry['offset'])}".rstrip(": "))
        for key, value in entry["offset"].items():
            print(f"  {key:<24} {value}")
    return 0


def _export(_: argparse.Namespace, asked: _Offsets) -> int:
    print(json.dumps(asked.export(), indent=2))
    return 0


def _set(arguments: argparse.Namespace, asked: _Offsets) -> int:
    return _alter(arguments, asked, _body(arguments.offset, asked))


def _import(arguments: argparse.Namespace, asked: _Offsets) -> int:
    return _alter(arguments, asked, bodies.parse(_text(arguments.offset[0])), load=True)


def _alter(arguments: argparse.Namespace, asked: _Offsets, body: object, *, load: bool = False) -> int:
    for part in asked.preview(body):
        if part["refused"]:
            raise Refused(part["refused"], hint=part.get("hint", ""))
        _compare(part)
    if not _agreed(arguments):
        return 1
    asked.alter(body, arguments.why, load=load)
    print(f"{asked.name}: changed; the next start goes on there. `{_undo_command(arguments)}` takes it back.")
    return 0


def _delete(arguments: argparse.Namespace, asked: _Offsets) -> int:
    if not asked.get()["offsets"]:
        print(f"{asked.name}: there is no offset to delete")
        return 0
    print("The next start behaves as the first.")
    if not _agreed(arguments):
        return 1
    asked.delete(arguments.why)
    print(f"{asked.name}: deleted. `{_undo_command(arguments)}` brings it back.")
    return 0


def _undo_command(arguments: argparse.Namespace) -> str:
    """The command that undoes what this one did."""
    server = ("--server", arguments.server) if arguments.server else ()
    return command("offsets", "undo", arguments.pipeline, *server)


def _undo(arguments: argparse.Namespace, asked: _Offsets) -> int:
    if not _agreed(arguments):
        return 1
    asked.undo(arguments.why)
    print(f"{asked.name}: undone")
    return _get(argparse.Namespace(json=False), asked)


def _history(arguments: argparse.Namespace, asked: _Offsets) -> int:
    changes = asked.history()
    if arguments.json:
        print(json.dumps(changes, indent=2, default=str))
    elif not changes:
        print(f"{asked.name}: its offsets were never changed")
    for change in [] if arguments.json else changes:
        print(f"{change['id']:>5}  {change['at']}  {change['action']:<7} {change['who']}  {change['why']}".rstrip())
        print(f"       {json.dumps(change['before'])} -> {json.dumps(change['after'])}")
    return 0


_ACTIONS = (
    ("get", "Show the offsets.", _get),
    ("set", "Put another offset in place; the next start goes on there.", _set),
    ("delete", "Take the offsets away; the next start behaves as the first.", _delete),
    ("undo", "Take the last change back.", _undo),
    ("history", "Show who changed what, when and why.", _history),
    ("export", "Print the offsets as Kafka Connect writes them.", _export),
    ("import", "Take over offsets that were exported, here or from Kafka Connect.", _import),
)


def _body(words: list[str], asked: _Offsets) -> object:
    """KEY=VALUE pairs change the present offset; JSON and files say the whole."""
    if len(words) > 1 or ("=" in words[0] and not words[0].lstrip().startswith("{")):
        return _edited(words, asked.get()["offsets"], asked.plugin())
    return bodies.parse(_text(words[0]))


def _edited(words: list[str], entries: list[dict[str, Any]], plugin: str) -> object:
    if len(entries) != 1:
        raise ConfigError(
            f"KEY=VALUE changes one offset, but there are {len(entries)}.",
            hint="Give them as JSON; `export` shows the form.",
        )
    (entry,), pairs = entries, dict(_pair(word) for word in words)
    offset = connectors.edited(plugin, entry["offset"], pairs) if plugin else {**entry["offset"], **pairs}
    return {"offsets": [{"partition": entry["partition"], "offset": offset}]}


def _pair(word: str) -> tuple[str, Any]:
    key, equals, text = word.partition("=")
    if not equals:
        raise ConfigError(f"{word!r} is not KEY=VALUE.", hint="Write it like lsn=23876608.")
    try:
        return key, json.loads(text)
    except ValueError:
        return key, text


def _text(word: str) -> str:
    if word.lstrip().startswith("{"):
        return word
    try:
        return sys.stdin.read() if word == "-" else Path(word).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(
            f"The file {word} cannot be read ({exc}).", hint="Give a file, JSON, or - for stdin."
        ) from exc


def _compare(part: Mapping[str, Any]) -> None:
    before, after = part["before"] or {}, part["after"] or {}
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            print(f"  {key:<24} {before.get(key, '-')} -> {after.get(key, '-')}")
    print(part["consequence"])


def _agreed(arguments: argparse.Namespace) -> bool:
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        raise ConfigError("Nothing was changed: nobody can be asked here.", hint="Add --yes to do it.")
    return input("Do it? [y/N] ").strip().lower() in ("y", "yes")


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
