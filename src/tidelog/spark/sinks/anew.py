"""Rows that the target lacks and the log tells no more: all there are now are read from the source.

Law: the target says `tidelog.missing` until they are there. The source answers for the columns that it has today; while
the log is behind a change of these, rows or values would be left out. So nothing is read then, and the next batch of
the table tries again: at the latest the one with the change.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tidelog.core.metadata import shown
from tidelog.core.snapshot.window import stamp
from tidelog.spark.sinks.asking import Asking
from tidelog.spark.sinks.delta_options import Options
from tidelog.spark.sinks.places import MISSING
from tidelog.spark.sinks.target import Merge

LOG = logging.getLogger("tidelog.sinks.delta")


def read_anew(asking: Asking, columns: Sequence[str], options: Options, position: int) -> None:
    """What the log still has to tell of these rows leads to the same. They are of the end of the batch, at `position`,
    or later."""
    if not asking.is_current(columns):
        LOG.warning(
            "%s: the source has changed its columns since; its rows are read once the log has told so",
            asking.table.qualified,
        )
        return
    for found in asking.all(columns):
        rows = _stamped(found, options, position)
        reads = np.ones(rows.num_rows, np.bool_)
        asking.target.merge(Merge(rows, asking.key, tuple(rows.column_names), reads=reads), None)
    if asking.is_current(columns):
        asking.target.describe({MISSING: ""})


def _stamped(found: pa.Table, options: Options, position: int) -> pa.Table:
    stamped = stamp(found, position=position, ts_us=time.time_ns() // 1000)
    rows = shown(stamped.select([*found.column_names, *options.stamps]), options.names)
    return rows.append_column(options.deleted, pa.repeat(False, rows.num_rows)) if options.soft else rows
