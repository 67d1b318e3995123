"""The two that are compared, each with its own words for the same things."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.conformance.shapes import Answer
from tests.patience import Patience

_AGAIN = ("rebalance", "stale configuration", "busy with")
"""A 409 that means: not now. Both ask their callers to repeat."""


@dataclass
class Peer:
    """A server that speaks the API, and what the script has to call a plugin, its settings and its offsets there."""

    client: httpx.Client
    plugin: str
    alias: str
    """The plugin's short name."""
    config: Mapping[str, str]
    """Of a connector that runs and has something to deliver."""
    change: Mapping[str, str]
    """A setting that makes no difference to what is delivered."""
    failure: Mapping[str, str]
    """Settings with which it starts, and then fails."""
    wrong_offset: Mapping[str, Any]
    offsets: list[dict[str, Any]] = field(default_factory=list)
    """As they were last read."""

    @property
    def incomplete(self) -> dict[str, str]:
        """A config without the settings that every connector of the plugin needs."""
        return {"connector.class": self.plugin}

    def ask(self, method: str, path: str, content: bytes | None = None, content_type: str = "") -> Answer:
        headers = {"content-type": content_type} if content_type else {}
        patience = Patience()
        while True:
            answer = self.client.request(method, path, content=content, headers=headers)
            if not _not_now(answer) and not _may_repeat(method, answer):
                return _read(answer)
            assert not patience.is_over(), answer.text
            time.sleep(0.2)

    def until(self, name: str, state: str) -> None:
        """The connector and its task, if it has one in this state, are what they should be."""
        wanted = [state] if state == "STOPPED" else [state, state]
        self._await(lambda: self._states(name) == wanted, f"{name} is not {state}")

    def until_failed(self, name: str) -> None:
        """Its task has failed; of the connector itself they think differently."""
        self._await(lambda: self._states(name)[1:] == ["FAILED"], f"{name} has not failed")

    def until_delivered(self, name: str) -> None:
        """Something was delivered, and where it came from is known."""

        def delivered() -> bool:
            topics = self.ask("GET", f"/connectors/{name}/topics").body[name]["topics"]
            return bool(self.read_offsets(name) and topics)

        self._await(delivered, f"{name} has delivered nothing")

    def until_offsets(self, name: str, wanted: list[dict[str, Any]]) -> None:
        """It tells of these and no others: Kafka Connect reads its own word from a topic, a while after it gave it."""
        self._await(
            lambda: self.ask("GET", f"/connectors/{name}/offsets").body["offsets"] == wanted,
            f"the offsets of {name} are not {wanted}",
        )

    def read_offsets(self, name: str) -> list[dict[str, Any]]:
        self.offsets = self.ask("GET", f"/connectors/{name}/offsets").body["offsets"]
        return self.offsets

    def until_known(self, name: str, known: bool) -> None:
        self._await(lambda: (name in self.ask("GET", "/connectors").body) == known, f"{name} is known: {not known}")

    def _states(self, name: str) -> list[str]:
        answer = self.ask("GET", f"/connectors/{name}/status")
        if answer.status != 200:
            return []
        return [answer.body["connector"]["state"], *(task["state"] for task in answer.body["tasks"])]

    def _await(self, condition: Callable[[], bool], problem: str) -> None:
        patience = Patience()
        while not condition():
            assert not patience.is_over(), f"{self.client.base_url}: {problem}"
            time.sleep(0.2)


def _not_now(answer: httpx.Response) -> bool:
    return answer.status_code == 409 and any(words in answer.text for words in _AGAIN)


def _may_repeat(method: str, answer: httpx.Response) -> bool:
    """Kafka Connect gives up on a call that a busy machine keeps waiting."""
    return method in ("GET", "PUT") and answer.status_code == 500 and "timed out" in answer.text.lower()


def _read(answer: httpx.Response) -> Answer:
    return Answer(
        answer.status_code,
        json.loads(answer.text) if answer.text else None,
        answer.headers.get("content-type", "").partition(";")[0],
        urlsplit(answer.headers.get("location", "")).path,
    )
