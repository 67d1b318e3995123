"""A table as the log described it at one moment.

A `Table` is one *version*: any change of name, columns, types or key makes another. Versions are addressed by
their `fingerprint`, so the same description read twice, from the log or from the catalog, is the same version.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

UNSURE = -1


@dataclass(frozen=True)
class Column:
    """`type` is the connector's own name of a resolved type: domains are already their base, arrays end in `[]`."""

    name: str
    type: str
    modifier: int = -1
    """Length, or precision and scale, as the database packs them; -1 for none."""
    nullable: bool = True
    number: int = 0
    """What stays the same when the column is renamed; 0 where there is no such thing, `UNSURE` where there is one
    that could not be learnt."""
    fill: str | None = None
    """The text of the value that rows older than the column hold, if the database keeps one."""
    rewritten: bool = False
    """Old rows hold values that only the source knows (a volatile default): they have to be read from there."""
    storage: str = ""
    """Names the files in which the database held the table's rows when the column was defined; empty where the
    connector does not know. Rows that are rewritten go into other files."""
    definition: str = ""
    """Names the change of the catalog that defined the column last; empty where the connector does not know."""


@dataclass(frozen=True)
class Table:
    id: int
    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    """The columns that identify a row, in key order; empty when there are none."""
    old_image: str = "key"
    """What the log tells of the row before a change: `key`, `full` or `none`."""

    @property
    def qualified(self) -> str:
        return f"{self.schema}.{self.name}"

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @cached_property
    def shape(self) -> str:
        """What readers of the log see of a table; keys and nullability are not theirs to see."""
        seen = [self.qualified, self.old_image, [(c.name, c.type, c.modifier) for c in self.columns]]
        return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]

    def column(self, name: str) -> Column:
        return next(c for c in self.columns if c.name == name)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Table:
        raw: dict[str, Any] = json.loads(text)
        columns = tuple(Column(**c) for c in raw.pop("columns"))
        return Table(columns=columns, key=tuple(raw.pop("key")), **raw)
