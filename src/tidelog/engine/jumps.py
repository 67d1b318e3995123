"""Jumps: an edit of the offsets, followed by the next start.

The checkpoint is never edited. The first batch after an edit ends at the new place and has no events; the offset at its
end carries the edit's number, so that the edit is followed once, whatever dies on the way. A batch that was planned
before the edit and never committed is planned again without events: the edit may be there to get past it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelog.contracts import Connector, ControlStore
from tidelog.core.snapshot.plan import grounded
from tidelog.core.snapshot.state import HANDLED_MAX, Snapshot
from tidelog.engine.snapshots import Snapshots, restored
from tidelog.errors import ConfigError
from tidelog.model.offset import FORMAT, Offset


@dataclass(frozen=True)
class Jump:
    id: int
    offset: Mapping[str, Any] | None
    """The whole offset, or only the connector's own keys as a person writes them; None: read everything again."""

    def follows(self, offset: Offset) -> bool:
        """Whether an offset does not know of it yet."""
        return self.id > offset.change

    def to_json(self) -> str:
        return json.dumps({"id": self.id, "offset": self.offset})

    @staticmethod
    def from_json(text: str) -> Jump | None:
        raw = json.loads(text) if text else None
        return Jump(int(raw["id"]), raw["offset"]) if raw else None


OVER = Jump(0, None)
"""Read everything again at a start without a checkpoint. It is no edit: an offset never counts as older than it."""


@dataclass(frozen=True)
class Landing:
    """Where a jump leads."""

    position: int
    floor: int
    snapshot: Snapshot


def waiting_jump(store: ControlStore, name: str, partition: Mapping[str, str]) -> Jump | None:
    """The edit of the offsets that the next start follows."""
    pending = store.pending(name)
    own = [change for change in pending if dict(change.partition) == partition]
    if pending and not own:
        raise ConfigError(
            f"An edit of the offsets waits for {dict(pending[0].partition)}, and this source is {partition}.",
            hint="Was topic.prefix or the connector changed? Change it back, or undo the edit.",
        )
    return Jump(own[0].id, own[0].after) if own else None


def landing(jump: Jump, start: Offset | None, first: int, connector: Connector, snapshots: Snapshots) -> Landing:
    """From `start`, or from nowhere; `first` is where a first start would begin."""
    if jump.offset is None:
        return Landing(first, first, _anew(start, snapshots))
    position, told = place(jump.offset, connector), _told(jump.offset, start)
    if start is None:
        return Landing(position, position, snapshots.first() if _unfinished(jump.offset) else snapshots.resume(told))
    floor = min(start.floor, position) if start.floor else position
    left = Snapshot.from_json(start.snapshot)
    return Landing(position, floor, _joined(left, told, start.position, position, _ids(connector)))


def place(offset: Mapping[str, Any], connector: Connector) -> int:
    """The position that an offset means."""
    if "tidelog_position" in offset:
        return Offset.from_json(offset).position
    return connector.position_of(offset)


def _anew(start: Offset | None, snapshots: Snapshots) -> Snapshot:
    left = Snapshot.from_json(start.snapshot) if start is not None else Snapshot()
    if snapshots.settings.mode == "no_data":
        return replace(snapshots.first(), heard=left.heard, handled=left.handled)
    # Without a checkpoint, too: somebody asks to start over, so the target may hold rows that the source has lost.
    return snapshots.again(left, "started-over" if start is None else "offsets-deleted")


def _told(offset: Mapping[str, Any], start: Offset | None) -> Snapshot | None:
    """The snapshots that an edit speaks of; None when it does not, or repeats what stands: the whole is known better
    than these few attributes can tell."""
    if offset.get("tidelog_version") == FORMAT:
        return Snapshot.from_json(offset.get("tidelog_snapshot"))
    if start is not None and _attributes(offset) == _attributes(start.document):
        return None
    found = restored(Offset(0, document=offset))
    return found if found.entries else None


def _attributes(offset: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in offset.items() if k.startswith("incremental_snapshot_")}


def _unfinished(offset: Mapping[str, Any]) -> bool:
    """Whether another connector was in the middle of its first snapshot: it cannot be continued."""
    done = str(offset.get("snapshot_completed", "")).lower() == "true"
    return str(offset.get("snapshot") or "").lower() in ("true", "initial") and not done


def _joined(left: Snapshot, told: Snapshot | None, old: int, new: int, ids: Sequence[int]) -> Snapshot:
    """The snapshots go on, as the edit says or as they were; what was in flight is read again. After a step back the
    target is ahead of the log: a row that it lacks may still exist, until the log has come to the old place."""
    chosen = grounded(left if told is None else told).settled()
    handled = tuple(dict.fromkeys((*chosen.handled, *left.handled)))
    settling = dict.fromkeys(ids, old) if new < old else {}
    return replace(
        chosen,
        heard=left.heard,
        handled=handled[-HANDLED_MAX:],
        known=left.known or chosen.known,
        coverage=left.coverage or chosen.coverage,
        settling=tuple({**dict(chosen.settling), **settling}.items()),
    )


def _ids(connector: Connector) -> list[int]:
    return [table.id for table in connector.tables()]
