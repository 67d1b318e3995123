"""Keys without number, in stretches that fit into memory.

A stretch is a range of one column of the key, in Arrow's own order: so a row of the target falls into the same one as
its key, whatever order the source has for texts. Where the ranges end is taken from a sample, along the column that
tells most keys apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

ROWS, BYTES = 2_000_000, 128 << 20
"""How much a stretch holds, about."""
_SAMPLE = 1000
"""How many keys of a stretch are looked at to find its ends."""


@dataclass(frozen=True)
class Stretch:
    column: str = ""
    low: pa.Scalar | None = None
    high: pa.Scalar | None = None
    """Not part of it."""

    def of(self, rows: pa.Table) -> pa.Table:
        for edge, is_within in ((self.low, pc.greater_equal), (self.high, pc.less)):
            if edge is not None:
                rows = rows.filter(is_within(rows[self.column], edge))
        return rows

    def sql(self, quote: Callable[[str], str]) -> str | None:
        """The range as a condition, where engines agree on how to write it: it lets them skip files."""
        edges = [(">=", self.low), ("<", self.high)]
        terms = [f"{quote(self.column)} {sign} {e.as_py()}" for sign, e in edges if e is not None and _is_whole(e.type)]
        return " AND ".join(terms) or None


def stretches(keys: Iterable[pa.Table]) -> list[Stretch]:
    """Together they hold every row that has a key: a truncation, among the changes, has none."""
    rows = size = 0
    every, samples = max(1, ROWS // _SAMPLE), []
    for portion in keys:
        samples.append(portion.take(pa.array(range(-rows % every, portion.num_rows, every), pa.int64())))
        rows, size = rows + portion.num_rows, size + portion.nbytes
    parts = max(-(-rows // ROWS), -(-size // BYTES))
    if parts < 2:
        return [Stretch()]
    sample = pa.concat_tables(samples)
    ordered = [name for name in sample.column_names if _is_ordered(sample.schema.field(name).type)]
    if not ordered:
        return [Stretch()]
    column = max(ordered, key=lambda name: pc.count_distinct(sample[name]).as_py())
    values = sample[column].drop_null()
    if not len(values):
        return [Stretch()]
    ranks = pa.array([len(values) * i // parts for i in range(1, parts)])
    ends = pc.unique(values.take(pc.sort_indices(values).take(ranks)))
    return [Stretch(column, low, high) for low, high in pairwise([None, *ends, None])]


def _is_ordered(kind: pa.DataType) -> bool:
    """Floats are not: NaN lies in no range."""
    t = pa.types
    kinds = (_is_whole, t.is_string, t.is_large_string, t.is_binary, t.is_date, t.is_time, t.is_timestamp, t.is_decimal)
    return any(is_kind(kind) for is_kind in kinds)


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind))
