"""The source as a sink asks it: only once everything that the batch tells is visible there.

A commit stands in the log, and may be delivered, before others see it (it may wait for a standby). Who asked earlier
would get the row as it was before, or none at all, and nothing would ever correct it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.contracts import Connector, TableChanges, Watermark
from tidelog.core.metadata import POSITION, XID
from tidelog.errors import TransientError
from tidelog.model.schema import Table

_PATIENCE_S = 60.0
_PAUSE_S = 0.05


class Present:
    """A `Source`, for one batch after the other; threads of one batch may ask together."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._tables: Sequence[TableChanges] = ()

    def after(self, tables: Sequence[TableChanges]) -> None:
        """What is told from now on follows these changes."""
        self._tables = tables

    def read(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        self._await()
        return self._connector.read(table, columns)

    def read_keys(self, table: Table, columns: Sequence[str], keys: pa.Table) -> Iterator[pa.RecordBatch]:
        self._await()
        return self._connector.read_keys(table, columns, keys)

    def present(self, ids: Sequence[int]) -> list[Table]:
        return self._connector.present(ids)

    def captured(self) -> set[int]:
        """The captured tables, by their ids."""
        return {table.id for table in self._connector.tables()}

    def horizon(self) -> Watermark:
        return self._connector.horizon()

    def _await(self) -> None:
        told = [_transactions(rows) for changes in self._tables for _, rows in changes.rows]
        if not told:
            return
        positions, xids = (np.concatenate([part[i] for part in told]) for i in range(2))
        deadline = time.monotonic() + _PATIENCE_S
        while not self._connector.horizon().covers(positions, xids).all():
            if time.monotonic() > deadline:
                raise TransientError(
                    "A change that was delivered is not visible in the source yet.",
                    hint="Does its commit wait for a standby (synchronous_standby_names)?",
                )
            time.sleep(_PAUSE_S)


def _transactions(rows: pa.Table) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], ...]:
    """Positions and ids of the log's transactions; rows that were read have none."""
    logged = rows.select([POSITION, XID]).filter(pc.is_valid(rows[XID]))
    return tuple(logged[name].to_numpy() for name in (POSITION, XID))
