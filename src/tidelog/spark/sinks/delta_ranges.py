"""What a Delta table's log tells of its files: between which keys each lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.core.fold import Mask
from tidelog.spark.sinks.target import Merge

_COARSE = pa.scalar(1000, pa.duration("us"))
"""Statistics tell moments in milliseconds, cut off."""


@dataclass(frozen=True)
class Ranges:
    """The `least` and the `most` that the first key may be in each file, and how many rows it has."""

    files: pa.Table

    @staticmethod
    def of(table: Any, merge: Merge) -> Ranges | None:
        """In the type of the merge's key; None when it is not known of all files."""
        files = pa.table(table.get_add_actions(flatten=True))
        if not files.num_rows:
            return Ranges(files)
        ends = [f"min.{merge.key[0]}", f"max.{merge.key[0]}"]
        if merge.edges is None or not set(ends) <= set(files.column_names):
            return None
        least, most = (files[end].cast(merge.edges[0].type) for end in ends)
        if least.null_count or most.null_count:  # a file without statistics may hold anything
            return None
        if pa.types.is_timestamp(least.type):
            least, most = pc.subtract(least, _COARSE), pc.add(most, _COARSE)
        return Ranges(pa.table({"least": least, "most": most, "rows": files["num_records"]}))

    def touched(self, low: pa.Scalar, high: pa.Scalar) -> Mask:
        found = pc.and_(pc.less_equal(self.files["least"], high), pc.greater_equal(self.files["most"], low))
        mask: Mask = found.to_numpy()
        return mask

    def widened(self, low: int, high: int) -> tuple[int, int]:
        """The range that cuts through no file; of whole numbers."""
        while True:
            touched = self.files.filter(pa.array(self.touched(pa.scalar(low), pa.scalar(high))))
            wider = min(low, pc.min(touched["least"]).as_py()), max(high, pc.max(touched["most"]).as_py())
            if wider == (low, high):
                return wider
            low, high = wider

    def rows(self, low: int, high: int) -> int | None:
        """How many the files of a range have; None where one does not tell."""
        counts = self.files.filter(pa.array(self.touched(pa.scalar(low), pa.scalar(high))))["rows"]
        return None if counts.null_count else int(pc.sum(counts).as_py() or 0)
