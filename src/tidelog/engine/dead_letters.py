"""How many records could not be decoded, by table: counted once for each batch, for people to see.

The records themselves lie where the sink puts them; here is how many there are, and why the last of each table failed.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from tidelog.engine.home import Home

MESSAGES = "messages"
"""Instead of a table's name, where a record belongs to none."""


def names_of(letters: pa.Table) -> list[str]:
    """The table name of each record."""
    return [name or MESSAGES for name in letters["table"].to_pylist()]


@dataclass(frozen=True)
class TableLetters:
    """The records of one table that could not be decoded."""

    table: str
    set_aside: int = 0
    """They are kept as dead letters."""
    left_out: int = 0
    """They are dropped: the failure handling is `warn`."""
    reason: str = ""
    """Of the last one."""

    @property
    def records(self) -> int:
        return self.set_aside + self.left_out

    def counted(self) -> str:
        """How many there are, in words."""
        parts = ((self.set_aside, "kept as dead letters"), (self.left_out, "dropped"))
        return ", ".join(f"{count:,} {what}" for count, what in parts if count)

    def __str__(self) -> str:
        return f"Records of {self.table} could not be decoded: {self.counted()}. Last reason: {self.reason}."


class DeadLetters:
    def __init__(self, home: Home) -> None:
        self._path = home.dead_letters

    def all(self) -> list[TableLetters]:
        return [TableLetters(**raw) for _, raw in sorted(self._read().get("tables", {}).items())]

    def count(self, query: str, batch: int, letters: pa.Table, *, kept: bool) -> None:
        """Count the letters of a batch; those of a batch that comes again are counted already."""
        known = self._read()
        if not letters.num_rows or [query, batch] == known.get("batch"):
            return
        tables: dict[str, dict[str, Any]] = known.get("tables", {})
        names = names_of(letters)
        reasons = dict(zip(names, letters["reason"].to_pylist(), strict=True))  # the last of each table stays
        for name, number in Counter(names).items():
            before = TableLetters(**tables.get(name, {"table": name}))
            set_aside, left_out = (number, 0) if kept else (0, number)
            after = TableLetters(name, before.set_aside + set_aside, before.left_out + left_out, reasons[name])
            tables[name] = asdict(after)
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps({"batch": [query, batch], "tables": tables}), encoding="utf-8")
        draft.replace(self._path)

    def _read(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:  # torn by a loss of power
            return {}
        return found
