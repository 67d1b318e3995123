"""What a sink requires of a table, and why it cannot take one.

`check`, the planner and the pipeline ask the same questions, so they agree. A table that a sink cannot take does not
stop the others: see `engine.set_aside`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tidelog.core.metadata import clash
from tidelog.model.schema import Table
from tidelog.model.selection import Selection


@dataclass(frozen=True)
class Obstacle:
    """Why a sink cannot take a table, and what a user does about it."""

    reason: str
    cure: str

    def __str__(self) -> str:
        return f"{self.reason} {self.cure}"


@dataclass(frozen=True)
class Requirements:
    key: bool = False
    """Rows are merged, so a table needs a key."""
    folds_case: bool = False
    """The target does not tell names apart that differ in upper and lower case only."""
    reserved: tuple[str, ...] = ()
    """Columns that the sink adds to each table."""
    every_version: bool = False
    """Rows are written in the shape in which the log tells them, not in that of the table's last version."""

    def obstacle(self, table: Table, selection: Selection) -> Obstacle | None:
        columns = [column.name for column in selection.columns_of(table)]
        return (
            excluded_key(table, selection)
            or self._key(table, selection)
            or self._case(table, columns)
            or self._reserved(table, columns)
        )

    def _key(self, table: Table, selection: Selection) -> Obstacle | None:
        if not self.key:
            return None
        key = selection.key_of(table)
        if not key:
            return Obstacle(
                f"{table.qualified} has no key, so its rows cannot be merged.",
                "Give it a primary key, or REPLICA IDENTITY FULL and message.key.columns, or use the sink `history`, "
                "or leave the table out of table.include.list.",
            )
        known = {column.name for column in table.columns}
        if unknown := next((name for name in key if name not in known), ""):
            return Obstacle(
                f"message.key.columns names a column {unknown} that {table.qualified} does not have.",
                "Correct message.key.columns.",
            )
        # Of a table without any key, the server accepts no update and no delete.
        untold = [name for name in key if name not in table.key] if table.key and table.old_image != "full" else []
        if untold:
            return Obstacle(
                f"The log does not tell {', '.join(untold)} of a deleted row of {table.qualified}, and "
                "message.key.columns makes that part of its key.",
                "Let the log tell the whole row (PostgreSQL: REPLICA IDENTITY FULL), or correct message.key.columns.",
            )
        return None

    def _case(self, table: Table, columns: Sequence[str]) -> Obstacle | None:
        if not self.folds_case:
            return None
        folded = [name.lower() for name in columns]
        alike = next(([n for n in columns if n.lower() == name] for name in folded if folded.count(name) > 1), [])
        if not alike:
            return None
        return Obstacle(
            f"{table.qualified} has the columns {' and '.join(alike)}, which differ in upper and lower case only: "
            "Delta does not tell them apart.",
            "Leave one out with column.exclude.list, or drop or rename it.",
        )

    def _reserved(self, table: Table, columns: Sequence[str]) -> Obstacle | None:
        taken = clash(columns, self.reserved)
        if not taken:
            return None
        return Obstacle(
            f"{table.qualified} has a column {taken}, and the sink adds one of the same name.",
            "Set the sink's metadata.prefix, to cdc_ for example, or leave the column out with column.exclude.list.",
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Requirements:
        raw = json.loads(text) if text else {}
        return Requirements(**{**raw, "reserved": tuple(raw.get("reserved", ()))})


def excluded_key(table: Table, selection: Selection) -> Obstacle | None:
    """A start refuses this; while a pipeline runs, a table may get a key that holds a column which is to be hidden."""
    names = selection.excluded_keys(table)
    if not names:
        return None
    return Obstacle(
        f"column.exclude.list names {', '.join(names)}, which belongs to the key of {table.qualified}.",
        "Name another key (message.key.columns), hash the column (column.mask.hash.SHA-256.with.salt.…), or leave the "
        "table out.",
    )
