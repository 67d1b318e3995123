"""The rules that hold in every store, and the texts in which values rest there. Pure: no store is asked.

Of each partition a store keeps the *mirror*, what the checkpoint committed last, and its *changes*. The newest change
stands before the mirror until a mirror contains it. Numbers of changes only grow, in the commits of a query as in the
store: a mirror that contains less than the one before comes from a run that was overtaken. A query with a checkpoint of
its own knows nothing of the changes before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.errors import ConfigError, Conflict
from tidelog.model.control import Change, Committed, Kept, Partition

CHANGE_KEY = "tidelog_change"
"""Where an offset says which change it contains."""
NAME_BYTES_MAX = 1000
"""What an index entry of PostgreSQL holds with room to spare."""
_INTEGER_MAX = 2**63 - 1


@dataclass(frozen=True)
class Mirror:
    """What was committed last of a partition, and the number of the newest change within."""

    committed: Committed
    contained: int


# -- rules


def standing(partition: Partition, mirror: Mirror | None, newest: Change | None) -> Kept:
    """What counts: the newest change while it waits, else what was committed."""
    query, batch = (mirror.committed.query, mirror.committed.batch) if mirror else ("", -1)
    contained = mirror.contained if mirror else 0
    if newest and newest.applied_us is None:
        return Kept(partition, newest.after, newest.id, True, query, batch, newest.at_us)
    change = max(contained, newest.id if newest else 0)
    if mirror is None:
        return Kept(partition, None, change)
    return Kept(partition, mirror.committed.offset, change, False, query, batch, mirror.committed.at_us)


def accept(name: str, committed: Committed, seen: int | None, mirror: Mirror | None) -> None:
    """Refuse what is older than what is known; `seen` is the last batch of the same query. The same batch again is no
    news and no harm: a restart repeats it."""
    if seen is not None and committed.batch < seen:
        raise Conflict(
            f"Batch {committed.batch} of {name} comes after batch {seen} of the same query.",
            hint="An older run of this pipeline is still writing: stop it.",
        )
    known = mirror.contained if mirror and mirror.committed.query == committed.query else 0
    if contained(committed.offset) < known:
        raise Conflict(
            f"Batch {committed.batch} of {name} was planned before change {known} of its offsets, which is applied.",
            hint="A run from before that change is still writing: stop it.",
        )


def expect(name: str, expected: int, kept: Kept) -> None:
    if expected != kept.change:
        raise Conflict(
            f"The offsets of {name} were changed meanwhile: the last change is {kept.change}, not {expected}.",
            hint="Read them again, then repeat the edit.",
        )


def contained(offset: Mapping[str, Any]) -> int:
    return int(offset.get(CHANGE_KEY) or 0)


# -- texts


def written(document: Mapping[str, Any], *, sort: bool = False) -> str:
    """JSON in ASCII: every character that a document can hold survives any database's encoding."""
    try:
        return json.dumps(document, default=_plain, allow_nan=False, separators=(",", ":"), sort_keys=sort)
    except (ValueError, TypeError, RecursionError) as exc:
        raise ConfigError(f"This cannot be kept as JSON: {exc}.", hint="Use only what JSON knows.") from exc


def canonical(document: Mapping[str, Any]) -> str:
    """The same text for equal documents, in whatever order their keys came."""
    return written(document, sort=True)


def digest(*texts: str) -> str:
    """Stands for texts of any length in a key."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def storable(values: Iterable[Any]) -> tuple[Any, ...]:
    """Refuse what one database takes and another does not, before either is asked."""
    checked = tuple(values)
    for value in checked:
        if isinstance(value, str) and not _is_text(value):
            raise ConfigError(
                f"The text {value[:80]!r} cannot be kept.", hint="Leave out NUL and unpaired surrogate characters."
            )
        if isinstance(value, int) and abs(value) > _INTEGER_MAX:
            raise ConfigError(f"The number {str(value)[:40]} is too large.", hint="Use at most 63 bits.")
    return checked


def named(name: str) -> str:
    if len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise ConfigError(
            f"A name of {len(name)} characters is too long.", hint=f"Use at most {NAME_BYTES_MAX} bytes of UTF-8."
        )
    return name


def _is_text(value: str) -> bool:
    return "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value)


def _plain(value: Any) -> Any:
    """Other mappings than dict are written as one."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a value of JSON")
