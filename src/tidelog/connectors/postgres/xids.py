"""Transaction ids: the log tells 32 bits of them, and they begin again after four thousand million."""

from __future__ import annotations

import numpy as np

from tidelog.connectors.postgres.wire import Ints


class Xids:
    def __init__(self, next_xid: int) -> None:
        self._next = next_xid

    def widen(self, xids: Ints) -> Ints:
        """Give 32-bit ids their epoch: the nearest to the newest id that the server has handed out."""
        wide = (self._next & ~0xFFFFFFFF) | xids
        wide = np.where(wide - self._next > 1 << 31, wide - (1 << 32), wide)
        wide = np.where(self._next - wide > 1 << 31, wide + (1 << 32), wide)
        if len(wide):
            self._next = max(self._next, int(wide.max()))
        return wide
