"""What planning asks of the database and the stage, and what it is told of the moment and of its bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tidelog.contracts import Key, Scan
from tidelog.core.snapshot.cost import Cost
from tidelog.core.snapshot.state import Entry
from tidelog.model.schema import Table


@dataclass(frozen=True)
class Manifest:
    """What an attempt to read a chunk left behind."""

    attempt: str
    rows: int = 0
    bytes: int = 0
    ms: int = 0
    passed: int = 0
    shape: str = ""
    refused: str = ""
    """Why it cannot be read at all, however often one tries."""
    failed: str = ""
    """What went wrong this time."""


class World(Protocol):
    """The database and the stage, as they are now."""

    def present(self, entry: Entry, *, again: bool = False) -> Table | None:
        """The entry's table: by its number once the entry is open, by its name before; None when there is none.
        `again`: whatever was found a moment ago."""

    def walked(self, table: Table, surrogate: str) -> tuple[str, ...]: ...

    def maximum(self, scan: Scan) -> Key | None: ...

    def boundaries(self, scan: Scan, low: Key | None, maximum: Key, rows: int, count: int) -> list[Key]: ...

    def estimate(self, scan: Scan) -> int: ...

    def row_bytes(self, table: Table) -> int: ...

    def settled(self, xid: int) -> bool: ...

    def log_end(self) -> int: ...

    def export(self, scan: Scan) -> str: ...

    def exported(self, name: str) -> bool: ...

    def logged(self, oid: int) -> str:
        """The shape of a table as the log has last told it; empty when it has not."""

    def manifest(self, name: str) -> Manifest | None:
        """One attempt that read this chunk, if there is one."""

    def rests(self) -> bool:
        """Whether a reading has failed just now: the next one waits a moment."""


@dataclass(frozen=True)
class Bounds:
    parallelism: int = 1
    rows: int = 0
    """Rows per chunk; 0: what can be read in `target_ms`."""
    target_ms: int = 250
    """How long a reading should take; 0: as long as one chunk of a fixed size takes."""


@dataclass(frozen=True)
class Now:
    reached: int
    """The log is known up to here, and the batch delivers all of it."""
    floor: int
    """Every transaction before it is visible to whoever begins to read from now on."""
    rows: int | None = None
    """How many rows the batch may still take."""
    full: bool = False
    """The journal has no room left: nothing may hold it back."""
    cost: Cost = field(default_factory=Cost)
    """What batches cost lately, with all that the sink did."""
    readings: Mapping[int, Cost] = field(default_factory=dict)
    """What readings cost lately, by table."""
    windowed: bool = False
    """The log itself tells when a chunk is passed: windows are written to the source."""
