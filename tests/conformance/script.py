"""What is asked of both: every call of Kafka Connect's REST that connectors, tasks, offsets and plugins have.

The connector `STILL` is never started, `BUSY` runs, `LOST` fails, and there is none called `NONE`. A step's body may
depend on the peer; between steps there are waits, because both follow some calls only after they have answered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.conformance.peers import Peer
from tests.conformance.shapes import Answer

STILL, BUSY, LOST, NONE = (f"/connectors/{name}" for name in ("still", "busy", "lost", "none"))
JSON = "application/json"
NO_JSON = b"{nope"
STATES = ("$.connector.state", "$.tasks[].state", "$.tasks[].id")


@dataclass(frozen=True)
class Step:
    """One call. The body is bytes, or a value for JSON, or made of the peer's words."""

    name: str
    method: str
    path: str
    body: Any = None
    values: tuple[str, ...] = ()
    """Paths of the answer whose values must agree."""
    content_type: str = JSON
    is_map: bool = False
    """Whether the answer's members belong to the connector."""

    def ask(self, peer: Peer) -> Answer:
        body = self.body(peer) if callable(self.body) else self.body
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        path = self.path.format(plugin=peer.plugin, alias=peer.alias)
        return peer.ask(self.method, path, content, self.content_type if content else "")


@dataclass(frozen=True)
class Wait:
    until: Callable[[Peer], object]


def state(name: str, wanted: str) -> Wait:
    return Wait(lambda peer: peer.until(name, wanted))


def new(name: str, **more: Any) -> Callable[[Peer], dict[str, Any]]:
    return lambda peer: {"name": name, "config": dict(peer.config), **more}


def config(**more: Any) -> Callable[[Peer], dict[str, Any]]:
    return lambda peer: {**peer.config, **more}


def play(peer: Peer) -> dict[str, Answer]:
    """The answers by the names of their steps."""
    found: dict[str, Answer] = {}
    for part in SCRIPT:
        if isinstance(part, Wait):
            part.until(peer)
        else:
            found[part.name] = part.ask(peer)
    return found


def _at_first() -> Iterator[Step | Wait]:
    yield Step("root", "GET", "/")
    yield Step("health", "GET", "/health")
    yield Step("no connectors", "GET", "/connectors")
    yield Step("no connectors, expanded", "GET", "/connectors?expand=status&expand=info")
    yield Step("unknown path", "GET", "/nowhere")
    yield Step("wrong method on the root", "PATCH", "/")
    yield Step("wrong method on the list", "DELETE", "/connectors")
    yield Step("loggers", "GET", "/admin/loggers")


def _plugins() -> Iterator[Step | Wait]:
    settings, validate = "/connector-plugins/{plugin}/config", "/connector-plugins/{plugin}/config/validate"
    yield Step("plugins", "GET", "/connector-plugins")
    yield Step("settings of a plugin", "GET", settings)
    yield Step("plugins of all kinds", "GET", "/connector-plugins?connectorsOnly=false")
    yield Step("settings by the short name", "GET", "/connector-plugins/{alias}/config")
    yield Step("settings of an unknown plugin", "GET", "/connector-plugins/no.Such/config")
    yield Step("validate", "PUT", validate, config(name="busy"), ("$.error_count",))
    yield Step("validate an incomplete config", "PUT", validate, lambda peer: peer.incomplete)
    yield Step("validate a config of another plugin", "PUT", validate, {"connector.class": "no.Such"})
    yield Step("validate without a plugin", "PUT", validate, {})
    unknown = "/connector-plugins/no.Such/config/validate"
    yield Step("validate with an unknown plugin", "PUT", unknown, {"connector.class": "no.Such"})
    yield Step("validate bad JSON", "PUT", validate, NO_JSON)
    yield Step("validate a text", "PUT", validate, b"{}", content_type="text/plain")
    yield Step("wrong method on validate", "POST", validate, {})


def _nobody() -> Iterator[Step | Wait]:
    for part in ("", "/config", "/status", "/tasks", "/tasks/0/status", "/offsets", "/topics"):
        yield Step(f"GET {part or 'it'} of nobody", "GET", NONE + part)
    for part in ("", "/offsets"):
        yield Step(f"DELETE {part or 'it'} of nobody", "DELETE", NONE + part)
    for part in ("/pause", "/resume", "/stop", "/topics/reset"):
        yield Step(f"PUT {part} of nobody", "PUT", NONE + part)
    for part in ("/restart", "/restart?includeTasks=true", "/tasks/0/restart"):
        yield Step(f"POST {part} of nobody", "POST", NONE + part)
    yield Step("PATCH /config of nobody", "PATCH", f"{NONE}/config", {"tasks.max": "1"})
    some = {"offsets": [{"partition": {"server": "x"}, "offset": {"lsn": 1}}]}
    yield Step("PATCH /offsets of nobody", "PATCH", f"{NONE}/offsets", some)


def _creation() -> Iterator[Step | Wait]:
    def create(name: str, body: Any, content_type: str = JSON) -> Step:
        return Step(f"create {name}", "POST", "/connectors", body, content_type=content_type)

    yield create("with bad JSON", NO_JSON)
    yield create("with a list", [])
    yield create("with nothing", None)
    yield create("as a text", b"{}", "text/plain")
    yield create("of no content type", b"{}", "")
    yield create("without a name", lambda peer: {"config": dict(peer.config)})
    yield create("with an empty name", new(""))
    yield create("without a config", {"name": "still"})
    yield create("with an empty config", {"name": "still", "config": {}})
    yield create("with an incomplete config", lambda peer: {"name": "still", "config": peer.incomplete})
    yield create("under two names", lambda peer: {"name": "still", "config": {**peer.config, "name": "other"}})
    yield create("of an unknown plugin", lambda peer: {"name": "x", "config": {**peer.config, "connector.class": "x"}})
    yield create("in an unknown state", new("still", initial_state="SLEEPING"))
    yield create("with an unknown member", new("still", colour="red"))
    yield create("with a setting that is an object", lambda peer: {"name": "x", "config": {**peer.config, "a": {}}})
    yield Step("create stopped", "POST", "/connectors", new("still", initial_state="STOPPED"), ("$.name", "$.type"))
    yield state("still", "STOPPED")
    yield create("once more", new("still", initial_state="STOPPED"))
    small = {"initial_state": "stopped"}
    yield create("in small letters, with a charset", new("small", **small), f"{JSON}; charset=utf-8")
    yield Step("delete what has small letters", "DELETE", "/connectors/small")
    yield Wait(lambda peer: peer.until_known("small", False))
    yield create("under a name of two words", new("two words", initial_state="STOPPED"))
    yield Step("delete what has two words", "DELETE", "/connectors/two%20words")
    yield Wait(lambda peer: peer.until_known("two words", False))


def _never_started() -> Iterator[Step | Wait]:
    yield Step("a stopped connector", "GET", STILL, values=("$.name", "$.type"))
    yield Step("a stopped connector's config", "GET", f"{STILL}/config", is_map=True)
    yield Step("a stopped connector's status", "GET", f"{STILL}/status", values=("$.name", "$.type", *STATES))
    yield Step("a stopped connector's tasks", "GET", f"{STILL}/tasks")
    yield Step("a stopped connector's task", "GET", f"{STILL}/tasks/0/status")
    yield Step("a stopped connector's offsets", "GET", f"{STILL}/offsets")
    yield Step("a stopped connector's topics", "GET", f"{STILL}/topics")
    yield Step("restart a stopped connector", "POST", f"{STILL}/restart")
    yield state("still", "STOPPED")
    yield Step("restart a stopped task", "POST", f"{STILL}/tasks/0/restart")
    yield Step("stop a stopped connector", "PUT", f"{STILL}/stop")
    yield state("still", "STOPPED")
    yield Step("delete no offsets", "DELETE", f"{STILL}/offsets", values=("$.message",))
    yield Step("unknown path of a connector", "GET", f"{STILL}/nowhere")
    for method, part in (("POST", "config"), ("GET", "pause"), ("POST", "offsets"), ("GET", "restart")):
        yield Step(f"wrong method: {method} {part}", method, f"{STILL}/{part}", {} if method == "POST" else None)


def _configs() -> Iterator[Step | Wait]:
    def put(name: str, body: Any, content_type: str = JSON) -> Step:
        return Step(f"configure {name}", "PUT", f"{STILL}/config", body, ("$.name", "$.type"), content_type)

    yield put("anew", lambda peer: {**peer.config, **peer.change})
    yield put("with numbers", lambda peer: {**peer.config, "tasks.max": 1})
    yield put("incompletely", lambda peer: peer.incomplete)
    yield put("under another name", config(name="other"))
    yield put("with bad JSON", NO_JSON)
    yield put("with a list", [])
    yield put("as a text", b"{}", "text/plain")
    changed = ("$.name", "$.type")
    yield Step("change a setting", "PATCH", f"{STILL}/config", lambda peer: dict(peer.change), changed)
    yield Step("remove a setting", "PATCH", f"{STILL}/config", {"tasks.max": None}, changed)
    yield Step("change the name", "PATCH", f"{STILL}/config", {"name": "other"})
    yield Step("remove the plugin", "PATCH", f"{STILL}/config", {"connector.class": None})
    yield Step("delete it", "DELETE", STILL)
    yield Wait(lambda peer: peer.until_known("still", False))
    yield Step("delete it once more", "DELETE", STILL)


def _running() -> Iterator[Step | Wait]:
    yield Step("create by its config", "PUT", f"{BUSY}/config", config(), ("$.name", "$.type"))
    yield state("busy", "RUNNING")
    yield Wait(lambda peer: peer.until_delivered("busy"))
    yield Step("the list", "GET", "/connectors", values=("$[]",))
    yield Step("the list with a slash", "GET", "/connectors/", values=("$[]",))
    expanded = ("$.busy.status.connector.state", "$.busy.status.tasks[].state")
    yield Step("the list with status", "GET", "/connectors?expand=status", values=expanded)
    yield Step("the list with info", "GET", "/connectors?expand=info", values=("$.busy.info.name",))
    yield Step("the list with both", "GET", "/connectors?expand=status&expand=info", values=expanded)
    yield Step("the list with nonsense", "GET", "/connectors?expand=nonsense")
    running = ("$.name", "$.type", "$.tasks[].connector", "$.tasks[].task")
    yield Step("a running connector", "GET", BUSY, values=running)
    yield Step("its status", "GET", f"{BUSY}/status", values=("$.name", "$.type", *STATES))
    yield Step("its tasks", "GET", f"{BUSY}/tasks", values=("$[].id.connector", "$[].id.task"))
    yield Step("its task's status", "GET", f"{BUSY}/tasks/0/status", values=("$.id", "$.state"))
    yield Step("another task's status", "GET", f"{BUSY}/tasks/7/status")
    yield Step("a task that is no number", "GET", f"{BUSY}/tasks/x/status")
    yield Step("restart another task", "POST", f"{BUSY}/tasks/7/restart")
    yield Step("its topics", "GET", f"{BUSY}/topics")
    yield Step("its offsets", "GET", f"{BUSY}/offsets")
    yield Step("change its offsets while it runs", "PATCH", f"{BUSY}/offsets", _same_offsets)
    yield Step("delete its offsets while it runs", "DELETE", f"{BUSY}/offsets")
    yield Step("reset its topics", "PUT", f"{BUSY}/topics/reset")


def _same_offsets(peer: Peer) -> dict[str, Any]:
    return {"offsets": peer.offsets}


def _states() -> Iterator[Step | Wait]:
    changed = ("$.name", "$.tasks[].task")
    yield Step("configure while it runs", "PUT", f"{BUSY}/config", config(), changed)
    yield state("busy", "RUNNING")
    yield Step("change a setting while it runs", "PATCH", f"{BUSY}/config", lambda peer: dict(peer.change), changed)
    yield state("busy", "RUNNING")
    yield Step("restart", "POST", f"{BUSY}/restart")
    yield state("busy", "RUNNING")
    yield Step("restart with tasks", "POST", f"{BUSY}/restart?includeTasks=true", values=("$.name", "$.tasks[].id"))
    yield state("busy", "RUNNING")
    yield Step("restart the task", "POST", f"{BUSY}/tasks/0/restart")
    yield state("busy", "RUNNING")
    yield Step("resume while it runs", "PUT", f"{BUSY}/resume")
    yield Step("pause", "PUT", f"{BUSY}/pause")
    yield state("busy", "PAUSED")
    yield Step("its status while paused", "GET", f"{BUSY}/status", values=("$.name", "$.type", *STATES))
    yield Step("its tasks while paused", "GET", f"{BUSY}/tasks", values=("$[].id.task",))
    yield Step("change its offsets while paused", "PATCH", f"{BUSY}/offsets", _same_offsets)
    yield Step("delete its offsets while paused", "DELETE", f"{BUSY}/offsets")
    yield Step("resume", "PUT", f"{BUSY}/resume")
    yield state("busy", "RUNNING")
    # Only here: after a restart, Kafka Connect may tell for a while that it runs, and then that it restarts.
    yield Step("restart what failed", "POST", f"{BUSY}/restart?includeTasks=true&onlyFailed=true", values=STATES)
    yield Step("stop", "PUT", f"{BUSY}/stop")
    yield state("busy", "STOPPED")
    yield Step("its status while stopped", "GET", f"{BUSY}/status", values=("$.name", "$.type", *STATES))
    yield Step("its tasks while stopped", "GET", f"{BUSY}/tasks")
    yield Step("its offsets while stopped", "GET", f"{BUSY}/offsets")


def _offsets() -> Iterator[Step | Wait]:
    def patch(name: str, body: Any, content_type: str = JSON) -> Step:
        return Step(
            f"offsets {name}", "PATCH", f"{BUSY}/offsets", body, ("$.message",) if name == "set" else (), content_type
        )

    def of_first(**members: Any) -> Callable[[Peer], dict[str, Any]]:
        return lambda peer: {"offsets": [{"partition": peer.offsets[0]["partition"], **members}]}

    yield Wait(lambda peer: peer.read_offsets("busy"))
    yield patch("with bad JSON", NO_JSON)
    yield patch("with nothing", None)
    yield patch("with a list", [])
    yield patch("with an empty object", {})
    yield patch("without entries", {"offsets": []})
    yield patch("that are an object", {"offsets": {}})
    yield patch("that are a text", {"offsets": "x"})
    yield patch("with a text for an entry", {"offsets": ["x"]})
    yield patch("with an unknown member", {"offset": []})
    yield patch("without a partition", lambda peer: {"offsets": [{"offset": peer.offsets[0]["offset"]}]})
    yield patch("with a text for a partition", lambda peer: {"offsets": [{**peer.offsets[0], "partition": "x"}]})
    yield patch("of another partition", lambda peer: {"offsets": [{**peer.offsets[0], "partition": {"nonsense": "x"}}]})
    yield patch("with a text for an offset", of_first(offset="x"))
    yield patch("of a wrong type", lambda peer: of_first(offset=dict(peer.wrong_offset))(peer))
    yield patch("as a text", b'{"offsets": []}', "text/plain")
    yield Step("offsets after these mistakes", "GET", f"{BUSY}/offsets")
    yield patch("set", _same_offsets)
    yield Step("offsets that were set", "GET", f"{BUSY}/offsets")
    yield patch("taken away", of_first(offset=None))
    yield Wait(lambda peer: peer.until_offsets("busy", []))
    yield Step("offsets that were taken away", "GET", f"{BUSY}/offsets")
    yield patch("left out", of_first())
    yield patch("set again", _same_offsets)
    yield Wait(lambda peer: peer.until_offsets("busy", peer.offsets))
    yield Step("delete its offsets", "DELETE", f"{BUSY}/offsets", values=("$.message",))
    yield Wait(lambda peer: peer.until_offsets("busy", []))
    yield Step("offsets that were deleted", "GET", f"{BUSY}/offsets")
    yield Step("delete it at last", "DELETE", BUSY)
    yield Wait(lambda peer: peer.until_known("busy", False))


def _failing() -> Iterator[Step | Wait]:
    def failing(peer: Peer) -> dict[str, str]:
        return {**peer.config, **peer.failure}

    yield Step("create what fails", "PUT", f"{LOST}/config", failing, ("$.name", "$.type"))
    yield Wait(lambda peer: peer.until_failed("lost"))
    yield Step("the status of what failed", "GET", f"{LOST}/status", values=STATES)
    yield Step("the task of what failed", "GET", f"{LOST}/tasks/0/status", values=("$.id", "$.state"))
    yield Step("change the offsets of what failed", "PATCH", f"{LOST}/offsets", _same_offsets)
    yield Step("delete the offsets of what failed", "DELETE", f"{LOST}/offsets")
    yield Step("stop what failed", "PUT", f"{LOST}/stop")
    yield state("lost", "STOPPED")
    yield Step("the status of what failed and is stopped", "GET", f"{LOST}/status", values=STATES)
    yield Step("delete what failed", "DELETE", LOST)
    yield Wait(lambda peer: peer.until_known("lost", False))
    yield Step("the end", "GET", "/connectors")


_SCENES = (_at_first, _plugins, _nobody, _creation, _never_started, _configs, _running, _states, _offsets, _failing)
SCRIPT: tuple[Step | Wait, ...] = tuple(part for scene in _SCENES for part in scene())
STEPS = {part.name: part for part in SCRIPT if isinstance(part, Step)}
assert len(STEPS) == sum(isinstance(part, Step) for part in SCRIPT), "two steps share a name"
