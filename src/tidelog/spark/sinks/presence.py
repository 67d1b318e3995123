"""Is the target of a table still the one that the pipeline filled?

A target that is gone would be created again with the new rows only, and another table in its place would get rows that
do not belong to it. So both are found before a batch is written. A lost target is filled again by a snapshot; a table
that the pipeline did not make is left alone until a person has moved it. A table whose deleted rows are marked under
another name is refused too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import pyarrow as pa

from tidelog.contracts import FilledTarget
from tidelog.errors import TableRefused, TargetLost
from tidelog.spark.sinks.side_by_side import run_all
from tidelog.spark.sinks.target import Target

_LOOKS_AT_ONCE = 16
"""Each look is a request to the storage."""


def missing(filled: Sequence[FilledTarget], exists: Callable[[FilledTarget], bool]) -> list[FilledTarget]:
    """Those of the tables that are not there any more."""
    found = run_all(exists, filled, _LOOKS_AT_ONCE)
    return [each for each, is_there in zip(filled, found, strict=True) if not is_there]


def marks_of(schema: pa.Schema, columns: Collection[str]) -> str:
    """The column that marks deleted rows in a target; empty if there is none. `columns` are those of the source; the
    ones that it has dropped are known by their metadata."""
    for field in schema:
        is_own = field.name not in columns and not field.metadata
        is_mark = is_own and pa.types.is_boolean(field.type) and field.name.endswith("deleted")
        if is_mark and f"{field.name}_at" in schema.names:
            return str(field.name)
    return ""


def other_marks(name: str, marked: str, wanted: str) -> tuple[str, str]:
    """What is wrong with a target whose deleted rows are marked in another column than the sink would mark, and what
    cures it. Rows that are deleted there would be alive for readers of the new column."""
    instead = f"would mark them in {wanted}" if wanted else "deletes rows"
    return (
        f"The target table of {name} marks deleted rows in {marked}, and the sink {instead}.",
        "Set delete.mode and metadata.prefix as they were, or delete the target table and start again: it is then "
        "read from the source.",
    )


def foreign(name: str, uri: str) -> tuple[str, str]:
    """What is wrong with a table that another pipeline writes, and what cures it."""
    return (
        f"Another pipeline writes the target table of {name}, {uri}.",
        "Give each pipeline a path of its own (sink: path). Only if that pipeline is no longer used, move or delete "
        "the table and start again: its rows are then read from the source.",
    )


def lost(filled: FilledTarget) -> TargetLost:
    message = f"The target table of {filled.name} is gone."
    return TargetLost.of(filled.table, message, hint="Its rows are read from the source again.")


def require_same(filled: FilledTarget, target: Target) -> None:
    """Refuse a target that is gone, or that is another table than the one that was filled."""
    if target.schema() is None:
        raise lost(filled)
    if filled.identity and target.identity() != filled.identity:
        raise TableRefused.of(
            filled.table,
            f"The target table of {filled.name} was replaced by another table.",
            hint="Move or delete that table and start again: the rows are then read from the source.",
        )
