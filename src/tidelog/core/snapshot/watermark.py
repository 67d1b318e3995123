"""Watermarks: whether a chunk has seen a change already.

On a primary, a change is seen iff its top-level transaction is visible in the snapshot that read the chunk; never by a
place in the log, because a commit stands in the log before it is visible. On a standby, where a snapshot lists no
running transactions, replay order is visibility: what was replayed before the chunk began is seen, and where replay
went on meanwhile the log wins.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tidelog.contracts import Watermark

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_SNAPSHOT = re.compile(r"([0-9]+):([0-9]+):((?:[0-9]+(?:,[0-9]+)*,*)?)")
_XID_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class Visible:
    """A snapshot of transactions, ids widened by their epoch: all below `xmin` are over, none from `xmax` on has
    begun, and of those between them `running` are not over."""

    xmin: int
    xmax: int
    running: tuple[int, ...] = ()
    exact: ClassVar[bool] = True

    @staticmethod
    def parse(text: str) -> Visible:
        """`xmin:xmax:xip,xip` as `pg_current_snapshot()` writes it; others end it with commas."""
        found = _SNAPSHOT.fullmatch(text)
        running = dict.fromkeys(int(xid) for xid in found[3].split(",") if xid) if found else {}
        if not found or max(int(found[1]), int(found[2]), *running) > _XID_MAX:
            raise ValueError(f"{text!r} is not a snapshot such as 795:799:795,797")
        return Visible(int(found[1]), int(found[2]), tuple(running))

    def covers(self, positions: Ints, xids: Ints) -> Mask:  # noqa: ARG002
        seen: Mask = xids < self.xmax
        if self.running:
            seen &= ~np.isin(xids, np.array(self.running, np.int64))
        return seen

    def to_json(self) -> str:
        return json.dumps({"xmin": self.xmin, "xmax": self.xmax, "running": self.running})


@dataclass(frozen=True)
class Replayed:
    """A standby had replayed the log up to here before the chunk was read, or, if it is `exact`, the chunk is of this
    very place."""

    position: int
    exact: bool = False

    def covers(self, positions: Ints, xids: Ints) -> Mask:  # noqa: ARG002
        return positions < self.position

    def to_json(self) -> str:
        return json.dumps({"position": self.position, "exact": self.exact})


def floor(positions: Ints, xids: Ints, watermark: Watermark, end: int) -> int:
    """Of delivered transactions, in log order, all before the result are seen under the watermark: a commit may
    be delivered before it is visible, and a chunk that is read meanwhile needs it in its window."""
    unseen = ~watermark.covers(positions, xids)
    return int(positions[unseen].min(initial=end))


def from_json(text: str) -> Watermark:
    raw = json.loads(text)
    if "position" in raw:
        return Replayed(raw["position"], raw.get("exact", False))
    return Visible(raw["xmin"], raw["xmax"], tuple(raw["running"]))
