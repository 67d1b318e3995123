"""Offsets as people handle them: read, understood, changed, undone.

Reading is always allowed. A change needs the connector to be stopped, and nobody can start it meanwhile: the name is
held while the change is written. It becomes a jump at the next start (`jumps`), and stays in the history for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from tidelog import connectors
from tidelog.contracts import ControlStore
from tidelog.core.offsets import body as bodies
from tidelog.core.offsets.problem import Problem, refused
from tidelog.engine import checkpoint, consequences
from tidelog.engine.consequences import Consequence
from tidelog.engine.definition import Definition, connector_of
from tidelog.engine.home import Home
from tidelog.errors import ConfigError, NotFound, Refused
from tidelog.model.control import RUNNING, STOPPED, Change, Kept, Partition

_WHY_MAX = 1000


@dataclass(frozen=True)
class Part:
    """What an edit does to one partition."""

    partition: Partition
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    problems: tuple[Problem, ...] = ()
    direction: str = consequences.UNKNOWN
    consequence: str = ""
    refused: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Preview:
    parts: tuple[Part, ...]
    problems: tuple[Problem, ...] = ()
    """Of the edit as a whole, before its parts could be looked at."""

    @property
    def possible(self) -> bool:
        return not self.problems and not any(part.problems or part.refused for part in self.parts)


@dataclass(frozen=True)
class Subject:
    """The connector whose offsets are handled."""

    name: str
    plugin: str = ""
    """Which connector it is; empty when only its name is known."""
    definition: Definition | None = None
    """To ask its source; None when it is not known here."""
    state: str = STOPPED


def alone(name: str, definition: Definition | None = None) -> Subject:
    """A pipeline without a service: it runs while somebody holds its name."""
    running = Home.at(name).holder("run") is not None
    plugin = definition.connector if definition is not None else ""
    return Subject(name, plugin, definition, RUNNING if running else STOPPED)


class Control:
    def __init__(self, store: ControlStore, subject: Callable[[str], Subject] = alone) -> None:
        self._store = store
        self._subject = subject

    # -- reading ---------------------------------------------------------------------------------------------------

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """As Kafka Connect shows them."""
        found = [(kept.partition, shown(kept.offset)) for kept in self.kept(name)]
        return [{"partition": dict(part), "offset": offset} for part, offset in found if offset is not None]

    def kept(self, name: str) -> list[Kept]:
        self._catch_up(self._subject(name))
        return self._store.offsets(name)

    def _catch_up(self, subject: Subject) -> None:
        """A driver that died may have committed more than the store has heard of."""
        names, found = _names(subject), checkpoint.committed(Home.at(subject.name))
        if not names or found is None or subject.state == RUNNING:
            return
        partition = connectors.offsets(subject.plugin).DOCUMENT.partition.write(**names)
        told = next((k for k in self._store.offsets(subject.name) if dict(k.partition) == partition), None)
        if told is None or told.query != found.query or told.batch < found.batch:
            self._store.mirror(subject.name, partition, found)

    def history(self, name: str, *, limit: int = 100, before: int | None = None) -> list[Change]:
        return self._store.history(name, limit=limit, before=before)

    def export(self, name: str) -> dict[str, Any]:
        """The offsets for somebody who knows nothing else of this pipeline: the log may have gone on, empty, and the
        source may have forgotten that stretch."""
        definition = self._subject(name).definition
        found = self.offsets(name)
        if definition is None:
            return {"offsets": found}
        return {"offsets": [{**one, "offset": consequences.passed(definition, one["offset"])} for one in found]}

    def preview(self, name: str, body: object) -> Preview:
        """What an edit would do; nothing is changed."""
        subject = self._subject(name)
        if not subject.plugin:
            raise ConfigError(
                f"Which connector {name!r} is, is not known here.", hint="Give its definition, the YAML file."
            )
        return self._preview(subject, body)

    # -- changing --------------------------------------------------------------------------------------------------

    def alter(self, name: str, body: object, *, who: str, why: str = "", action: str = "set") -> list[Change]:
        """Put other offsets in place; all of them, or none if one is not possible."""
        with self._still(name):
            preview = self.preview(name, body)
            _require(preview)
            put = self._writer(name, action, who, why)
            return [put(part.partition, part.after) for part in preview.parts]

    def load(self, name: str, body: object, *, who: str, why: str = "") -> list[Change]:
        """Take over offsets that were exported, here or from Kafka Connect."""
        return self.alter(name, body, who=who, why=why, action="import")

    def delete(self, name: str, *, who: str, why: str = "") -> list[Change]:
        """Take all offsets away: the next start behaves as the first."""
        with self._still(name):
            there = [kept for kept in self.kept(name) if kept.offset is not None]
            put = self._writer(name, "delete", who, why)
            return [put(kept.partition, None) for kept in there]

    def undo(self, name: str, *, who: str, why: str = "") -> list[Change]:
        """Take the last edit back: what stood before it stands again, whatever was delivered meanwhile."""
        with self._still(name):
            last = self._last(name)
            for change in last:
                self._require_reachable(name, change)
            put = self._writer(name, "undo", who, why)
            return [put(change.partition, change.before, change.id) for change in last]

    def _last(self, name: str) -> list[Change]:
        """The last edit that was not taken back, of every partition that it touched. An undo cannot be undone."""
        history = self._store.history(name, limit=1000)
        gone = {change.undoes for change in history}
        left = [change for change in history if change.undoes is None and change.id not in gone]
        if not left:
            raise NotFound(f"The offsets of {name!r} have no change to take back.", hint="There is nothing to undo.")
        return [change for change in left if change.at_us == left[0].at_us]

    def _require_reachable(self, name: str, change: Change) -> None:
        subject = self._subject(name)
        if subject.definition is None or change.before is None or not connectors.captures(subject.plugin):
            return
        told = Consequence(consequences.UNKNOWN, "")
        found = consequences.of_source(subject.definition, change.after, change.before, told)
        if found.refused:
            raise Refused(found.refused, hint=found.hint)

    def _writer(self, name: str, action: str, who: str, why: str) -> Callable[..., Change]:
        """Writes the changes of one edit: they carry the same time."""
        now = time.time_ns() // 1000

        def put(partition: Partition, after: Mapping[str, Any] | None, undoes: int | None = None) -> Change:
            expected = next((k.change for k in self.kept(name) if dict(k.partition) == dict(partition)), 0)
            new = Change(0, name, partition, action, None, after, who, why[:_WHY_MAX], now, undoes=undoes)
            return self._store.change(new, expected=expected)

        return put

    @contextmanager
    def _still(self, name: str) -> Iterator[None]:
        """The connector is stopped, and stays so."""
        subject = self._subject(name)
        if subject.state != STOPPED:
            raise _running(name, subject.state)
        home = Home.open(name)
        try:
            home.require_free()
        except ConfigError as exc:
            raise _running(name, RUNNING) from exc
        with home.lock("run"):
            yield

    # -- looking ahead ---------------------------------------------------------------------------------------------

    def _preview(self, subject: Subject, body: object) -> Preview:
        document = connectors.offsets(subject.plugin).DOCUMENT
        problems = bodies.problems(document, body)
        if problems:
            return Preview((), problems)
        entries = bodies.read(document, body)
        strangers = _strangers(subject, [entry.partition for entry in entries])
        if strangers:
            return Preview((), strangers)
        return Preview(tuple(self._part(subject, _named(subject, e.partition), e.offset) for e in entries))

    def _part(self, subject: Subject, partition: Partition, after: Mapping[str, Any] | None) -> Part:
        kept = next((k for k in self.kept(subject.name) if dict(k.partition) == dict(partition)), None)
        stood = kept.offset if kept is not None else None
        if after is None:
            told = consequences.removal(subject.definition)
        else:
            delivered = self._delivered(subject.name, kept)
            told = consequences.of_plugin(subject.plugin, shown(delivered), after)
            if subject.definition is not None and connectors.captures(subject.plugin):
                told = consequences.of_source(subject.definition, delivered, after, told)
        return Part(partition, shown(stood), after, (), told.direction, told.text, told.refused, told.hint)

    def _delivered(self, name: str, kept: Kept | None) -> Mapping[str, Any] | None:
        """How far the target is: edits that wait have not moved it."""
        if kept is None or not kept.pending:
            return kept.offset if kept is not None else None
        edits = [c for c in self.history(name, limit=1000) if dict(c.partition) == dict(kept.partition)]
        waiting = list(takewhile(lambda change: change.applied_us is None, edits))
        return waiting[-1].before if waiting else kept.offset


def shown(offset: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Without the keys of tidelog's own."""
    return None if offset is None else {k: v for k, v in offset.items() if not k.startswith("tidelog_")}


def _names(subject: Subject) -> Mapping[str, str]:
    """What the only partition of a source is called; nothing where that is not known."""
    if subject.definition is None or not connectors.captures(subject.plugin):
        return {}
    return connector_of(subject.definition).names()


def _strangers(subject: Subject, partitions: Sequence[Partition]) -> tuple[Problem, ...]:
    names, known = _names(subject), connectors.offsets(subject.plugin).DOCUMENT.partition
    if not names:
        return ()
    return tuple(
        Problem(
            f"offsets[{number}].partition",
            f"{subject.name} has no such partition.",
            f"Its own is {known.write(**names)}.",
        )
        for number, partition in enumerate(partitions)
        if not known.matches(partition, **names)
    )


def _named(subject: Subject, partition: Partition) -> Partition:
    names = _names(subject)
    return connectors.offsets(subject.plugin).DOCUMENT.partition.write(**names) if names else partition


def _require(preview: Preview) -> None:
    refused([*preview.problems, *(p for part in preview.parts for p in part.problems)])
    for part in preview.parts:
        if part.refused:
            raise Refused(part.refused, hint=part.hint)


def _running(name: str, state: str) -> Refused:
    return Refused(
        f"The offsets of {name!r} can only be changed while it is STOPPED; it is {state}.",
        hint="Stop it first; reading them is always allowed.",
    )
