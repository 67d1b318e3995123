"""The queries that share one capture: each tells in a file of its own how far it is; the least is acknowledged.

Files in the journal's folder, so that queries and capture need no common machine. A query that has been silent for too
long is forgotten with a warning, since it would hold back the database's log for ever. A name belongs to one query: two
that tell under one name would each be taken to be as far as the other.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.engine.home import Home
from tidelog.engine.state_file import parse_json
from tidelog.errors import ConfigError
from tidelog.journal.files import Files

_FOLDER = "readers"
_START = "capture.json"
_BEAT_S = 5.0
_VISIT = "visit"
_REMEDY_START = "Delete it while no query has its state: the capture then begins where the slot stands."
_REMEDY_READER = "Delete it, and start that query again: it says anew how far it is."


@dataclass(frozen=True)
class Known:
    name: str
    position: int
    seen_s: float


class Readers:
    def __init__(self, files: Files, *, now: Callable[[], float] = time.time) -> None:
        self._files = files
        self._now = now
        self._told: tuple[int, float] = (-1, 0.0)

    # -- for a query -------------------------------------------------------------------------------------------

    @contextmanager
    def hold(self, name: str, home: Home, *, patience_s: float) -> Iterator[str]:
        """Keep the name while the query runs: beside the journal, or at home where the journal is no folder."""
        place = Home(Path(self._files.path(""))) if self._files.local else home
        place.path.mkdir(parents=True, exist_ok=True)
        refusal = ConfigError(
            f"Another query of this capture runs under the name {name!r}.",
            hint="Give each its own: a plain query has the option reader, a pipeline has its name.",
        )
        with place.lock(f"reader-{name}", patience_s=patience_s, refusal=refusal):
            yield name

    def visit(self, name: str) -> str:
        """A name for who looks at a stretch of the log once, maybe beside the query of that name. Nobody knows when
        the last task has read its part: it is forgotten as others are that have fallen silent."""
        return f"{name}-{_VISIT}-{uuid.uuid4().hex[:8]}"

    def start(self) -> int:
        """Where a new query begins."""
        text = self._files.read(_START)
        if text is None:
            raise ConfigError(
                "No capture has written to this journal yet.", hint="Start it first: tidelog capture FILE"
            )
        return int(parse_json(text, self._files.path(_START), _REMEDY_START)["position"])

    def acknowledge(self, name: str, position: int) -> None:
        if position == self._told[0] and self._now() - self._told[1] < _BEAT_S:
            return
        self._told = (position, self._now())
        self._files.write(f"{_FOLDER}/{name}.json", json.dumps({"position": position, "seen_s": self._now()}).encode())

    def is_known(self, name: str) -> bool:
        """Whether a query of this name has followed the journal, and was not forgotten since."""
        return self._files.read(f"{_FOLDER}/{name}.json") is not None

    def reached(self, name: str) -> int:
        """What a query last acknowledged; 0 for a new one."""
        text = self._files.read(f"{_FOLDER}/{name}.json")
        return int(self._parse(text, name)["position"]) if text is not None else 0

    def _parse(self, text: bytes, name: str) -> dict[str, Any]:
        return parse_json(text, self._files.path(f"{_FOLDER}/{name}.json"), _REMEDY_READER)

    # -- for the capture ---------------------------------------------------------------------------------------

    def announce(self, position: int, note: str | None = None) -> None:
        """`note` is what the connector has to know to read on from there."""
        self._files.write(_START, json.dumps({"position": position, "note": note}).encode(), durable=True)

    def note(self) -> str | None:
        """Of the place that was announced last, or of an older one."""
        text = self._files.read(_START)
        return None if text is None else parse_json(text, self._files.path(_START), _REMEDY_START).get("note")

    def resume(self, least: int | None, prepared: int) -> int:
        """Where a capture goes on: at the least of the queries, else where it last told new ones to begin. A slot
        that stands elsewhere does not decide: it may have been created anew."""
        if least is not None:
            return least
        return prepared if self._files.read(_START) is None else self.start()

    def known(self) -> list[Known]:
        found = []
        for base in self._files.names(_FOLDER):
            text = self._files.read(f"{_FOLDER}/{base}")
            if text is not None:
                raw = self._parse(text, base.removesuffix(".json"))
                found.append(Known(base.removesuffix(".json"), int(raw["position"]), float(raw["seen_s"])))
        return found

    def least(self, expiry_s: float, forget: Callable[[Known], None]) -> int | None:
        """How far every living query is; None while there is none."""
        living = []
        for reader in self.known():
            if self._now() - reader.seen_s > expiry_s:
                self._files.delete(f"{_FOLDER}/{reader.name}.json")
                if f"-{_VISIT}-" not in reader.name:
                    forget(reader)
            else:
                living.append(reader.position)
        return min(living, default=None)
