"""An offset: how far a reader has come, as the JSON that sits in Spark's checkpoint.

The keys of the connector (`lsn`, `txId`, …) are those its users know. What belongs to tidelog alone starts with
`tidelog_` and is dropped by an export.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.errors import CorruptState

FORMAT = 1


@dataclass(frozen=True)
class Offset:
    position: int
    """Everything before it is delivered: the log is read on from here."""
    selection: str = ""
    """Which filters and renderings the batch that ends here was planned with."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """The connector's own keys."""
    floor: int = 0
    """Every transaction before it was visible to all readers of the tables when the batch was planned."""
    snapshot: Mapping[str, Any] = field(default_factory=dict)
    """How far the snapshots are."""
    life: int = 0
    """How often the place in the log was lost and another one taken: positions of different lives do not compare."""
    change: int = 0
    """The last edit of the offsets that was followed."""
    note: str = ""
    """What the connector has to know to read the log again from `floor`, where its own keys do not say it."""

    def to_json(self) -> dict[str, Any]:
        return {
            **self.document,
            "tidelog_version": FORMAT,
            "tidelog_position": self.position,
            "tidelog_selection": self.selection,
            **({"tidelog_floor": self.floor} if self.floor else {}),
            **({"tidelog_snapshot": dict(self.snapshot)} if self.snapshot else {}),
            **({"tidelog_life": self.life} if self.life else {}),
            **({"tidelog_change": self.change} if self.change else {}),
            **({"tidelog_note": self.note} if self.note else {}),
        }

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Offset:
        version = raw.get("tidelog_version")
        if version != FORMAT:
            raise CorruptState(
                f"The checkpoint holds an offset of format {version!r}; this tidelog reads format {FORMAT}.",
                hint="Run the tidelog version that wrote it, or start with a new checkpoint.",
            )
        document = {k: v for k, v in raw.items() if not k.startswith("tidelog_")}
        return Offset(
            position=int(raw["tidelog_position"]),
            selection=str(raw["tidelog_selection"]),
            document=document,
            floor=int(raw.get("tidelog_floor", 0)),
            snapshot=raw.get("tidelog_snapshot") or {},
            life=int(raw.get("tidelog_life", 0)),
            change=int(raw.get("tidelog_change", 0)),
            note=str(raw.get("tidelog_note", "")),
        )
