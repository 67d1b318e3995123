"""Folded changes as a merge: the rows that a Delta target gets, with the flags that steer the merge."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.core.fold import Folded, gaps
from tidelog.core.metadata import COMMIT_TS, DELETED, OP, STAMPS, shown
from tidelog.spark.sinks.delta_options import Options
from tidelog.spark.sinks.target import DELETE, KEEP, Merge


def stamped_rows(folded: Folded, options: Options) -> pa.Table:
    rows = folded.upserts
    drop = [c for c in (*STAMPS, DELETED) if c not in options.stamps and c in rows.column_names]
    kept = shown(rows.drop_columns(drop), options.names)
    if not options.soft:
        return kept
    ended = pc.if_else(rows[DELETED], rows[COMMIT_TS], pa.scalar(None, rows[COMMIT_TS].type))
    marked = kept.append_column(options.deleted, rows[DELETED])
    return marked.append_column(options.deleted_at, ended)


def merge_of(folded: Folded, rows: pa.Table, key: tuple[str, ...], options: Options) -> Merge:
    columns = tuple(rows.column_names)
    reads = pc.equal(folded.upserts[OP], "r").to_numpy() & ~gaps(folded)
    flags = {name: f"{KEEP}{i}" for i, name in enumerate(folded.keeps)}
    for name, flag in flags.items():
        rows = rows.append_column(flag, pa.array(folded.keeps[name]))
    if gone := folded.deletes.num_rows:
        rows = rows.append_column(DELETE, pa.repeat(False, rows.num_rows))
        ends = folded.deletes.select(list(key)).append_column(DELETE, pa.repeat(True, gone))
        rows = pa.concat_tables([rows, ends], promote_options="default")
        reads = np.concatenate([reads, np.zeros(gone, np.bool_)])
    return Merge(rows, key, columns, flags, gone > 0, _marks_of_truncate(folded.truncated_at, options), reads=reads)


def ending(keys: pa.Table, key: tuple[str, ...], options: Options) -> Merge:
    """Rows that end, without a change of the log that says when."""
    if not options.soft:
        return Merge(keys.append_column(DELETE, pa.repeat(True, keys.num_rows)), key, key, deletes=True, inserts=False)
    now = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
    rows = keys.append_column(options.deleted, pa.repeat(True, keys.num_rows))
    rows = rows.append_column(options.deleted_at, pa.repeat(now, keys.num_rows))
    return Merge(rows, key, tuple(rows.column_names), inserts=False)


def _marks_of_truncate(truncated_at: pa.Scalar | None, options: Options) -> dict[str, str]:
    """A truncate of a soft target: every row that the batch does not bring back is deleted."""
    if truncated_at is None:
        return {}
    moment = truncated_at.as_py().isoformat()
    marked_at = options.deleted_at
    return {options.deleted: "true", marked_at: f"COALESCE(t.{marked_at}, CAST('{moment}' AS TIMESTAMP))"}
