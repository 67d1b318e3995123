"""One connector's offset document: its fields, the forms that it takes, and the partition that it belongs to.

`problems` says everything that is wrong with a document, each with its place and its cure; `read` gives a right one in
the form that we write. Reading what was written gives the same again. Nothing is ever raised but a ConfigError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.core.offsets.fields import Alias, Field, came, clipped, storable
from tidelog.core.offsets.partition import Partition
from tidelog.core.offsets.problem import Problem, refused, stranger
from tidelog.errors import TidelogError

Offset = Mapping[str, Any]


@dataclass(frozen=True)
class Form:
    """One of the shapes that a document takes: while streaming, during a snapshot, with one adapter or another."""

    name: str
    meaning: str
    fields: tuple[str, ...]
    """The connector's own; attributes of transactions and incremental snapshots may stand beside them."""
    required: tuple[str, ...] = ()
    mark: str = ""
    """The field by which the form is known. Forms without one cannot be told from each other."""


@dataclass(frozen=True)
class Document:
    title: str
    fields: tuple[Field, ...]
    partition: Partition
    forms: tuple[Form, ...]
    """The last one is what remains when no other one is recognised."""
    aliases: tuple[Alias, ...] = ()
    rules: tuple[Callable[[Offset], Iterator[Problem]], ...] = ()
    """What the fields say together; asked only when each of them is right."""
    empty: str = ""
    """Why a document without any field is right; nothing where it is not."""

    def problems(self, raw: Any) -> tuple[Problem, ...]:
        if not isinstance(raw, Mapping):
            return (Problem("", f"An offset is an object of fields, but {came(raw)} came.", "Write { … }."),)
        if not raw:
            return () if self.empty else (Problem("", "The offset is empty.", self._least()),)
        found = [*self._of_keys(raw), *self._of_values(raw)]
        return tuple(found or self._of_the_whole(self.normal(raw)))

    def read(self, raw: Any) -> dict[str, Any]:
        """The document as we write it; raises what `problems` found."""
        refused(self.problems(raw))
        return self.normal(raw)

    def write(self, values: Offset) -> dict[str, Any]:
        return self.read(values)

    def normal(self, raw: Offset) -> dict[str, Any]:
        """Field by field, in the order of the fields. What is missing is not asked for."""
        values = {**self._renamed(raw), **{k: v for k, v in raw.items() if self._alias(k) is None}}
        found: dict[str, Any] = {}
        for field in self.fields:
            for key in [k for k in values if isinstance(k, str) and field.accepts(k) and self.field(k) is field]:
                value = field.read(values[key])
                if field.writes(value):
                    found[key] = value
        return found

    def field(self, key: str) -> Field | None:
        """The field of a key; a name of its own comes before a family that has it too."""
        exact = next((f for f in self.fields if not f.keys and f.name == key), None)
        return exact or next((f for f in self.fields if f.accepts(key)), None)

    def form(self, offset: Offset) -> Form:
        """The form that an offset has."""
        marked = (f for f in self.forms if f.mark and offset.get(f.mark) not in (None, False, "false"))
        return next(marked, self.forms[-1])

    def _alias(self, key: Any) -> Alias | None:
        return next((a for a in self.aliases if a.name == key), None)

    def _renamed(self, raw: Offset) -> dict[str, Any]:
        given = [a for a in self.aliases if raw.get(a.name) is not None]
        return {a.of: a.kind.read(raw[a.name]) for a in given}

    def _of_keys(self, raw: Offset) -> Iterator[Problem]:
        known = [f.name for f in self.fields if not f.keys] + [a.name for a in self.aliases]
        templates = [f.name for f in self.fields if f.keys]
        for key in raw:
            if not isinstance(key, str) or not storable(key) or (not self._alias(key) and not self.field(key)):
                yield stranger(key, known, f"The offset of {self.title}", templates=templates)
        for alias in self.aliases:
            if raw.get(alias.name) is not None and raw.get(alias.of) is not None:
                yield Problem(alias.name, f"It says the same as {alias.of}, which is given too.", "Leave one out.")

    def _of_values(self, raw: Offset) -> Iterator[Problem]:
        for key, value in raw.items():
            reader = (self._alias(key) or self.field(key)) if isinstance(key, str) else None
            try:
                if isinstance(reader, Field):
                    reader.read(value)
                elif reader is not None and value is not None:
                    reader.kind.read(value)
            except TidelogError as wrong:
                yield Problem(clipped(key), wrong.message, wrong.hint)

    def _of_the_whole(self, offset: Offset) -> Iterator[Problem]:
        if not offset and self.empty:
            return
        form = self.form(offset)
        always = [f.name for f in self.fields if f.required]
        for name in dict.fromkeys((*always, *form.required)):
            if offset.get(name) is None:
                field = self.field(name)
                hint = f"Give it: {field.meaning}" if field else ""
                yield Problem(name, f"It is missing, and {form.meaning} needs it.", hint)
        for rule in self.rules:
            yield from rule(offset)

    def _least(self) -> str:
        form = self.forms[-1]
        always = [f.name for f in self.fields if f.required]
        least: Sequence[str] = list(dict.fromkeys((*always, *form.required)))
        return f"Give at least {', '.join(least)}." if least else "Give its position."
