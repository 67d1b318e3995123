"""The answers of the source on local disk, for a target that is rewritten portion by portion.

They may be larger than memory, and come in the order of the source. So they are written to a Parquet file first, a row
group for each portion, and a portion of the target reads only the groups whose range of keys it touches.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.core.fold import assign, match
from tidelog.core.moments import distant
from tidelog.spark.sinks.stretches import is_ordered
from tidelog.spark.sinks.target import Answers


@dataclass(frozen=True)
class KeyRange:
    """The least and the greatest first key of some rows."""

    low: pa.Scalar
    high: pa.Scalar

    @staticmethod
    def of(keys: pa.ChunkedArray) -> KeyRange | None:
        """None where keys have no order, or one of them is null."""
        if not is_ordered(keys.type) or keys.null_count or not len(keys):
            return None
        found = pc.min_max(keys)
        return KeyRange(found["min"], found["max"])

    def overlaps(self, other: KeyRange) -> bool:
        apart = pc.or_(pc.less(self.high, other.low), pc.less(other.high, self.low))
        return not apart.as_py()


@dataclass
class StagedAnswers:
    key: tuple[str, ...]
    columns: tuple[str, ...]
    file: Path
    ranges: list[KeyRange | None] = field(default_factory=list)
    """Of each row group; None: it may hold any key."""
    distant_names: set[str] = field(default_factory=set)
    """Columns of days, some of which no calendar has."""

    def write(self, portions: Iterator[pa.Table]) -> None:
        first = next(portions)
        with pq.ParquetWriter(self.file, first.schema, use_dictionary=False) as writer:
            self._add(writer, first)
            for portion in portions:
                self._add(writer, portion)

    def _add(self, writer: pq.ParquetWriter, portion: pa.Table) -> None:
        if not portion.num_rows:
            return
        writer.write_table(portion, row_group_size=portion.num_rows)
        self.ranges.append(KeyRange.of(portion[self.key[0]]))
        days = (name for name in self.columns if pa.types.is_date(portion[name].type))
        self.distant_names |= {name for name in days if distant(portion[name])}

    def fill(self, rows: pa.Table) -> pa.Table:
        """The rows with the answers in them; a row without an answer keeps its values."""
        wanted = KeyRange.of(rows[self.key[0]])
        with pq.ParquetFile(self.file) as file:
            for group, known in enumerate(self.ranges):
                if wanted is None or known is None or wanted.overlaps(known):
                    rows = self._fill(rows, file, group)
        return rows

    def _fill(self, rows: pa.Table, file: pq.ParquetFile, group: int) -> pa.Table:
        at = match(rows, file.read_row_group(group, columns=list(self.key)), self.key)
        answered = np.flatnonzero(at >= 0)
        if len(answered):
            values = file.read_row_group(group, columns=list(self.columns))
            for name in self.columns:
                rows = assign(rows, name, answered, values[name], at[answered])
        return rows


@contextmanager
def staged(answers: Answers) -> Iterator[StagedAnswers]:
    """The answers in a file that lives as long as this context."""
    with tempfile.TemporaryDirectory(prefix="tidelog-answers-") as folder:
        found = StagedAnswers(answers.key, answers.columns, Path(folder) / "answers.parquet")
        found.write(iter(answers.portions))
        yield found
