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
    """None: nulls are part of it."""
    high: pa.Scalar | None = None
    """Not part of it."""

    def of(self, rows: pa.Table) -> pa.Table:
        if self.low is not None:
            rows = rows.filter(pc.greater_equal(rows[self.column], self.low))
        if self.high is not None:
            rows = rows.filter(pc.fill_null(pc.less(rows[self.column], self.high), self.low is None))
        return rows

    def sql(self, quote: Callable[[str], str]) -> str | None:
        """The range as a condition, where engines agree on how to write it: it lets them skip files."""
        name, edge = quote(self.column), self.low if self.low is not None else self.high
        if edge is None or not _is_whole(edge.type):
            return None
        if self.low is None:
            return f"({name} < {edge.as_py()} OR {name} IS NULL)"
        above = f"{name} >= {edge.as_py()}"
        return above if self.high is None else f"{above} AND {name} < {self.high.as_py()}"


def stretches(keys: Iterable[pa.Table]) -> list[Stretch]:
    """Together they hold every row."""
    rows = size = 0
    every, samples = max(1, ROWS // _SAMPLE), []
    for portion in keys:
        samples.append(portion.take(pa.array(range(-rows % every, portion.num_rows, every), pa.int64())))
        rows, size = rows + portion.num_rows, size + portion.nbytes
    parts = max(-(-rows // ROWS), -(-size // BYTES))
    if parts < 2:
        return [Stretch()]
    sample = pa.concat_tables(samples)
    ordered = [name for name in sample.column_names if is_ordered(sample.schema.field(name).type)]
    if not ordered:
        return [Stretch()]
    column = max(ordered, key=lambda name: pc.count_distinct(sample[name]).as_py())
    values = sample[column].drop_null()
    if not len(values):
        return [Stretch()]
    ranks = pa.array([len(values) * i // parts for i in range(1, parts)])
    ends = pc.unique(values.take(pc.sort_indices(values).take(ranks)))
    return [Stretch(column, low, high) for low, high in pairwise([None, *ends, None])]


def is_ordered(kind: pa.DataType) -> bool:
    """Floats are not: NaN lies in no range."""
    t = pa.types
    kinds = (_is_whole, t.is_string, t.is_large_string, t.is_binary, t.is_date, t.is_time, t.is_timestamp, t.is_decimal)
    return any(is_kind(kind) for is_kind in kinds)


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind))
