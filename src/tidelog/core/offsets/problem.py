"""What is wrong with a document: where, what, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelog.core.offsets.fields import clipped
from tidelog.core.settings import nearest
from tidelog.errors import ConfigError

_OWN = "tidelog_"


@dataclass(frozen=True)
class Problem:
    path: str
    """`offsets[0].offset.lsn`; empty for the whole."""
    message: str
    hint: str

    def under(self, place: str) -> Problem:
        return replace(self, path=f"{place}.{self.path}" if self.path else place)

    def __str__(self) -> str:
        said = f"{self.message} {self.hint}".strip()
        return f"{self.path}: {said}" if self.path else said


def refused(problems: Sequence[Problem]) -> None:
    """Raise them all as one error, if there are any."""
    if not problems:
        return
    first, *others = problems
    message = f"{first.path}: {first.message}" if first.path else first.message
    raise ConfigError(" ".join([message, *map(str, others)]) if others else message, hint=first.hint)


def stranger(key: Any, known: Sequence[str], subject: str, *, templates: Sequence[str] = ()) -> Problem:
    """A key that does not belong there, with the one that was probably meant."""
    near = _meant(key, [*known, *templates]) if isinstance(key, str) else None
    if isinstance(key, str) and key.startswith(_OWN):
        hint = "Leave it out: it is tidelog's own book-keeping."
    elif near:
        hint = f"Did you mean {near!r}?"
    else:
        hint = f"Known are: {', '.join([*known, *templates])}."
    return Problem(clipped(key), f"{subject} has no field {clipped(key)!r}.", hint)


def _meant(key: str, known: Sequence[str]) -> str | None:
    """Upper case, dots and dashes are the commonest mistakes, and difflib sees only letters."""
    same = {_folded(name): name for name in known}
    return same.get(_folded(key)) or nearest(key[:100], known)


def _folded(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(".", "")
