"""Batches for a sink, out of staged files: what belongs together, what is told, and what goes afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from tidelog.connectors.postgres.connector import create
from tidelog.contracts import RECORDS, Slice
from tidelog.errors import CorruptState
from tidelog.journal.files import Files
from tidelog.model.record import Op
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection
from tidelog.spark import arrow_files, work
from tidelog.spark.batches import Batches

ORDERS = Table(1, "public", "orders", (Column("id", "int4", number=1),), ("id",))
WIDER = Table(1, "public", "orders", (*ORDERS.columns, Column("note", "text", number=2)), ("id",))
ITEMS = Table(2, "public", "items", (Column("id", "int4", number=1),), ("id",))
OPTIONS = {"database.hostname": "localhost", "database.user": "u", "database.dbname": "d"}


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    return Batches(create(OPTIONS), Files(str(tmp_path / "stage")), Files(str(tmp_path / "chunks")))


def staged(batches: Batches, table: Table, ids: list[int], *, path: str, **more: Any) -> Row:
    row = {"chunk": False, "keep": False, "snapshotting": False, "failures": "", "position": 0, "ordinal": 0, **more}
    shape = batches.connector.decoder().schema(table, Selection())
    rows = pa.Table.from_pylist([{"id": i} for i in ids], shape)
    rows = rows.select(["id"]) if row["keep"] else rows
    if path:
        (batches.chunks if row["chunk"] else batches.stage).write(path, arrow_files.dump(rows))
    return Row(table=table.to_json(), selection=Selection().to_json(), path=path, rows=len(ids), **row)


def test_files_become_the_changes_of_their_tables(batches: Batches) -> None:
    rows = [
        staged(batches, ORDERS, [1, 2], path="a"),
        staged(batches, ITEMS, [9], path="b", snapshotting=True),
        staged(batches, ORDERS, [3], path="c", chunk=True),
        staged(batches, WIDER, [4], path="d"),
    ]
    orders, items = batches.of("q", 7, rows).tables
    assert [(v.columns, r["id"].to_pylist()) for v, r in orders.rows] == [
        (ORDERS.columns, [1, 2, 3]),
        (WIDER.columns, [4]),
    ]
    assert (orders.table, orders.snapshotting, orders.keep) == (WIDER, False, None)
    assert (items.table, items.snapshotting) == (ITEMS, True)


def test_the_keys_that_may_stay(batches: Batches) -> None:
    """Also none: then no row of the target is one of the source."""
    [some] = batches.of("q", 7, [staged(batches, ORDERS, [1, 2], path="k", keep=True)]).tables
    [none] = batches.of("q", 8, [staged(batches, ORDERS, [], path="", keep=True)]).tables
    assert some.keep is not None
    assert none.keep is not None
    assert [part.to_pylist() for part in some.keep.portions()] == [[{"id": 1}, {"id": 2}]]
    assert (list(none.keep.portions()), some.rows) == ([], [])


def test_where_the_log_speaks_last_of_a_table(batches: Batches) -> None:
    """Also without a row."""
    rows = [
        staged(batches, ORDERS, [1], path="a", position=5, ordinal=3),
        staged(batches, ITEMS, [2], path="b", position=5, ordinal=4),
        staged(batches, WIDER, [], path="", position=6, ordinal=0),
        staged(batches, ORDERS, [3], path="c", position=5, ordinal=-1, keep=True),
    ]
    assert [changes.told for changes in batches.of("q", 7, rows).tables] == [(6, 0), (5, 4)]


def test_a_file_that_is_gone(batches: Batches) -> None:
    row = staged(batches, ORDERS, [1], path="a")
    batches.clear([row])
    with pytest.raises(CorruptState, match="The staged file a is gone"):
        batches.of("q", 7, [row])


def test_chunks_outlive_their_batch(batches: Batches) -> None:
    """Their offset is not committed yet: the batch may come again."""
    rows = [staged(batches, ORDERS, [1], path="a"), staged(batches, ORDERS, [2], path="c", chunk=True)]
    batches.clear(rows)
    batches.clear_all()
    assert (batches.stage.names(""), batches.chunks.names("")) == ([], ["c"])


def test_what_died_while_it_staged_goes(batches: Batches) -> None:
    draft = Path(batches.stage.path("a.tmp"))
    staged(batches, ORDERS, [1], path="b")
    draft.write_bytes(b"half a file")
    batches.clear_all()
    assert list(draft.parent.iterdir()) == []


def test_a_piece_of_the_log_without_a_row_tells_where_it_stands(batches: Batches, tmp_path: Path) -> None:
    """The table has changed there, its name perhaps."""
    records = pa.RecordBatch.from_pylist(
        [{"position": 7, "ordinal": i, "op": ord(Op.SCHEMA), "payload": b""} for i in range(3)], RECORDS
    )
    task = work.Task(0, "", "postgres", Selection().to_json(), "staged", (), stage=str(tmp_path))
    piece = Slice("", 0, ORDERS, 0, 3, 0, 9, 0, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "_load", lambda *_: records)
        row = work._stage(task, batches.connector.decoder(), Selection(), [piece], "name")
    assert (row["path"], row["rows"], row["position"], row["ordinal"]) == (None, 0, 7, 2)
