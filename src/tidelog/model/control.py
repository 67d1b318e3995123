"""What is kept about connectors beside their data: what they are, how far they have come, and who changed what.

A *connector* is a pipeline under its name. What it wants to be (`target`) is kept; what it is right now only whoever
runs it knows. A *change* is one edit of its offsets; changes are only ever added, so every one can be undone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RUNNING, PAUSED, STOPPED = "RUNNING", "PAUSED", "STOPPED"
TARGETS = (RUNNING, PAUSED, STOPPED)

Partition = Mapping[str, Any]
"""Names the part of a source that an offset belongs to, such as `{"server": "shop"}`."""


@dataclass(frozen=True)
class Connector:
    name: str
    config: Mapping[str, str]
    """As it was written: references such as `${PGPASSWORD}` are not resolved."""
    target: str = RUNNING
    version: int = 0
    """Counts the writings; whoever writes names the one that he has read, and is refused if it is not the last."""
    updated_us: int = 0


@dataclass(frozen=True)
class Committed:
    """What a query has delivered for good: the checkpoint's last committed batch, repeated."""

    query: str
    batch: int
    offset: Mapping[str, Any]
    at_us: int


@dataclass(frozen=True)
class Kept:
    """The offset of one partition as it stands: what was committed last, or the edit that waits for the next start."""

    partition: Partition
    offset: Mapping[str, Any] | None
    """With the keys of tidelog's own; None when it was removed and nothing was committed since."""
    change: int = 0
    """The last change that is contained in it, or waits to be; 0 for none."""
    pending: bool = False
    """Whether that change still waits for the next start."""
    query: str = ""
    batch: int = -1
    at_us: int = 0


@dataclass(frozen=True)
class Change:
    """One edit of one partition's offset."""

    id: int
    connector: str
    partition: Partition
    action: str
    """`set`, `delete`, `undo` or `import`."""
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    """None: the next start behaves as the first."""
    who: str
    why: str
    at_us: int
    applied_us: int | None = None
    """When a batch that contains it was committed; None while it waits for that."""
    undoes: int | None = None
    """The change that this one takes back."""


@dataclass(frozen=True)
class Told:
    """A signal that was sent, or a notification that came, in the words of its connector."""

    connector: str
    id: str
    type: str
    data: Mapping[str, Any]
    at_us: int
    number: int = 0
    """Counts everything that was told: ask for what came after the last one you have seen."""
