"""The partition of an offset: which part of a source it speaks of.

The first shape is what we write. The others are read: older connectors, and documents that name the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.core.offsets.fields import Field, came, text
from tidelog.core.offsets.problem import Problem, refused, stranger
from tidelog.errors import TidelogError

SERVER = Field("server", "The pipeline's topic prefix: the logical name of the server.", text(), "server1")
DATABASE = Field("database", "The name of the database.", text(), "inventory")


@dataclass(frozen=True)
class Partition:
    meaning: str
    fields: tuple[Field, ...] = (SERVER, DATABASE)
    shapes: tuple[tuple[str, ...], ...] = (("server",), ("database",), ("server", "database"))
    """Sets of keys; the first one is what we write."""
    older: tuple[str, ...] = ("database",)
    """Keys that are left out where another one names the part."""
    several: str = ""
    """Why there may be more than one; nothing where there is only one."""

    def problems(self, raw: Any) -> tuple[Problem, ...]:
        if not isinstance(raw, Mapping):
            return (Problem("", f"A partition is an object, but {came(raw)} came.", f"Write {self._form()}."),)
        found = [*self._of_keys(raw), *self._of_values(raw)]
        if not found and set(raw) not in [set(shape) for shape in self.shapes]:
            given = f"{{{', '.join(raw)}}}" if raw else "empty"
            found = [Problem("", f"The partition is {given}, which names no part of the source.", self._hint())]
        return tuple(found)

    def read(self, raw: Any) -> dict[str, Any]:
        """As we write it, as far as it is given."""
        refused(self.problems(raw))
        kept = {f.name: raw[f.name] for f in self.fields if f.name in raw and f.name not in self.older}
        return kept if kept or not self.shapes[0] else dict(raw)

    def write(self, **names: str) -> dict[str, str]:
        return {name: names[name] for name in self.shapes[0]}

    def matches(self, raw: Mapping[str, Any], **names: str) -> bool:
        """Whether it speaks of the part with these names. Where there is one partition only, the server may be
        called by the name of the database."""
        if self.several:
            return all(value == names.get(key) for key, value in raw.items())
        return all(value in names.values() for value in raw.values())

    def _of_keys(self, raw: Mapping[str, Any]) -> Iterator[Problem]:
        known = [f.name for f in self.fields]
        for key in raw:
            if key not in known:
                problem = stranger(key, known, "The partition")
                yield Problem(problem.path, problem.message, problem.hint if known else f"Write {self._form()}.")

    def _of_values(self, raw: Mapping[str, Any]) -> Iterator[Problem]:
        for field in self.fields:
            if field.name not in raw:
                continue
            try:
                if raw[field.name] is None or field.read(raw[field.name]) is None:
                    yield Problem(field.name, "It is null.", f"Give it: {field.meaning}")
            except TidelogError as wrong:
                yield Problem(field.name, wrong.message, wrong.hint)

    def _form(self) -> str:
        return "{" + ", ".join(f'"{name}": …' for name in self.shapes[0]) + "}"

    def _hint(self) -> str:
        return f"Write {self._form()}: {self.meaning}"
