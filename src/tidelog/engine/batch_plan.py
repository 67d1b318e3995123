"""What the planner hands to the executors for one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.contracts import Slice
from tidelog.core.snapshot.state import Snapshot
from tidelog.model.schema import Table
from tidelog.model.selection import Selection


@dataclass(frozen=True)
class Plan:
    """What one batch reads, and under which selection."""

    journal: str
    """URI of the journal: executors open it themselves."""
    connector: str
    selection: Selection
    slices: tuple[Slice, ...]
    commits: tuple[Slice, ...]
    """Only when transaction metadata is asked for."""
    reader: str = ""
    snapshot: Snapshot = field(default_factory=Snapshot)
    """Its planned chunks are read, its emissions delivered."""
    tables: Mapping[int, Table] = field(default_factory=dict)
    """The tables of these chunks as they are now, by number."""
    windows: tuple[tuple[Slice, ...], ...] = ()
    """For each emission the log that it is reconciled with."""
    snapshotting: frozenset[int] = frozenset()
    """The tables whose snapshot was not complete when the batch began."""
    is_staged: bool = True
    """Whether the staged chunks that it delivers were read under its selection; otherwise they are read again."""


def tables_left_out(slices: Sequence[Slice], selection: Selection) -> set[int]:
    """The tables of which the log holds changes under a name that is not captured."""
    tables = [s.table for s in slices if s.table is not None]
    return {t.id for t in tables if not selection.has_table(t.schema, t.name)}
