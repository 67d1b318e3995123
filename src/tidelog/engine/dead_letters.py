"""How many records could not be decoded, by table: counted once for each batch, for people to see.

The records themselves lie where the sink puts them; here is how many there are, and why the last of each table failed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from tidelog.engine.home import Home
from tidelog.engine.state_file import read_json, write_json

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
        self._counts: dict[str, Any] | None = None
        """What the file says: only the pipeline's driver writes it, through this object."""

    def all(self) -> list[TableLetters]:
        return [TableLetters(**raw) for _, raw in sorted(self._read().get("tables", {}).items())]

    def count(self, query: str, batch: int, letters: pa.Table, *, kept: bool) -> None:
        """Count the letters of a batch; those of a batch that comes again are counted already."""
        known = self._read()
        if not letters.num_rows or [query, batch] == known.get("batch"):
            return
        tables: dict[str, dict[str, Any]] = dict(known.get("tables", {}))
        names = names_of(letters)
        reasons = dict(zip(names, letters["reason"].to_pylist(), strict=True))  # the last of each table stays
        for name, number in Counter(names).items():
            before = TableLetters(**tables.get(name, {"table": name}))
            set_aside, left_out = (number, 0) if kept else (0, number)
            after = TableLetters(name, before.set_aside + set_aside, before.left_out + left_out, reasons[name])
            tables[name] = asdict(after)
        counts = {"batch": [query, batch], "tables": tables}
        write_json(self._path, counts)
        self._counts = counts

    def _read(self) -> dict[str, Any]:
        if self._counts is None:
            self._counts = (
                read_json(self._path, "Delete it: counting begins anew, and the records stay where they are.") or {}
            )
        return self._counts
