"""What a sink asks of the source: never more at a time than it may hold, and no more than it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.contract.sink_rig import Answers, Rig, c, table, u
from tidelog.model.schema import Column, Table
from tidelog.spark.sinks import asking
from tidelog.spark.sinks.staged_answers import StagedAnswers

PLAIN = table(Column("id", "int4", nullable=False), Column("name", "text"))
ASKING = table(*PLAIN.columns, Column("extra", "text", number=3, rewritten=True))
IDS = range(1, 8)


class Slow(Answers):
    """Tells one row after the other."""

    def read(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in super().read(table, columns):
            for i in range(batch.num_rows):
                yield batch.slice(i, 1)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(asking, "ROWS", 3)
    rig = Rig({"type": "delta", "path": str(tmp_path), "engine": "rust"}, source=Slow())
    rig.feed((PLAIN, [c(id=i, name=str(i)) for i in IDS]))
    rig.source.rows = [{"id": i, "name": str(i), "extra": f"e{i}"} for i in [*IDS, 99]]
    return rig


def test_a_column_of_a_whole_table_comes_in_portions(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = StagedAnswers._add

    def add(answers: StagedAnswers, writer: pq.ParquetWriter, portion: pa.Table) -> None:
        sizes.append(portion.num_rows)
        real(answers, writer, portion)

    monkeypatch.setattr(StagedAnswers, "_add", add)
    rig.feed((ASKING, [c(id=8, name="8", extra="told")]))
    assert sizes == [3, 3, 2]
    assert {row["id"]: row["extra"] for row in rig.read(ASKING)} == {**{i: f"e{i}" for i in IDS}, 8: "told"}


def test_only_rows_of_the_batch_are_asked_for(rig: Rig) -> None:
    """An event of the old shape does not tell the new column of its row; of others nobody asks."""
    rig.feed((PLAIN, [u(id=2, name="two")]), (ASKING, [c(id=8, name="8", extra="told")]))
    assert [row["id"] for keys in rig.source.looked_up for row in keys] == [2]
    assert {row["id"]: row["extra"] for row in rig.read(ASKING)} == {**{i: f"e{i}" for i in IDS}, 8: "told"}
