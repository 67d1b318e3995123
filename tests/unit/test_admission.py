"""Tables that are set aside and come back: nothing is lost, wherever a process dies in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.contract.sink_rig import ORDERS, c, r, rows
from tidelog.contracts import Batch, Connector, TableChanges
from tidelog.core.metadata import POSITION
from tidelog.core.requirements import Requirements
from tidelog.core.snapshot.state import Snapshot
from tidelog.engine import admission as admission_module
from tidelog.engine.admission import Admission
from tidelog.engine.home import Home
from tidelog.engine.set_aside import SetAside
from tidelog.errors import ConfigError, TableRefused
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

KEYED = Requirements(key=True)
KEYLESS = replace(ORDERS, key=())
FINE = replace(ORDERS, id=2, name="fine")


class Source:
    """What the planner asks of a connector."""

    def __init__(self) -> None:
        self.end = 100
        self.published = True
        self.captured: Sequence[Table] = ()

    def tables(self) -> list[Table]:
        return list(self.captured)

    def selection(self) -> Selection:
        return Selection()

    def log_end(self) -> int:
        return self.end

    def through(self, log_end: int) -> int:
        return log_end

    def next_xid(self) -> int:
        return 7

    def untold(self, tables: list[Table]) -> list[Table]:
        return [] if self.published else tables


@pytest.fixture(autouse=True)
def always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_module, "_LOOK_AGAIN_S", 0.0)


@pytest.fixture
def aside(tmp_path: Path) -> SetAside:
    return SetAside(Home(tmp_path))


def readmit(admission: Admission, source: Source, snapshot: Snapshot, *tables: Table) -> Snapshot:
    source.captured = tables
    return admission.readmit(snapshot, cast("Connector", source))


def batch(*changes: TableChanges) -> Batch:
    return Batch("q", 1, Selection(), changes)


def changes(table: Table, events: list[dict[str, Any]], *positions: int) -> TableChanges:
    found = rows(table, events)
    found = found.set_column(found.column_names.index(POSITION), POSITION, pa.array(positions, pa.int64()))
    return TableChanges((table,), [(table, found)], told=(max(positions), 0))


def test_a_table_is_left_out_until_its_snapshot_is_asked_for(aside: SetAside) -> None:
    admission, source = Admission(KEYED, aside), Source()
    assert admission.admit([KEYLESS, FINE], Selection()) == [FINE]
    both = batch(changes(KEYLESS, [c(id=1)], 50), changes(FINE, [c(id=1)], 60))
    assert [found.table.id for found in admission.filter(both).tables] == [2]

    asked = readmit(admission, source, Snapshot(), ORDERS, FINE)
    (entry,) = asked.entries
    assert (entry.table, entry.sweep, entry.after) == ("public.orders", True, 7)
    (left,) = admission.filter(batch(changes(ORDERS, [c(id=1), c(id=2), r(id=3)], 100, 101, 90))).tables
    assert left.rows[0][1]["id"].to_pylist() == [2, 3]
    assert admission.filter(batch(changes(ORDERS, [c(id=1)], 100))).tables == []

    admission.committed(99, asked.handled)
    assert readmit(admission, source, Snapshot(), ORDERS).entries == ()  # it is certain, however long ago
    admission.committed(100, ())
    assert aside.all() == []


def test_a_request_that_never_reached_an_offset_is_made_again(aside: SetAside) -> None:
    source = Source()
    Admission(KEYED, aside).admit([KEYLESS, FINE], Selection())
    lost = readmit(Admission(KEYED, aside), source, Snapshot(), ORDERS)
    assert lost.entries
    source.end = 200
    again = Admission(KEYED, aside)
    again.committed(150, ())  # of the offset before
    assert readmit(again, source, Snapshot(), ORDERS).entries
    assert [one.until for one in aside.all()] == [200]


def test_a_table_that_is_refused_again_waits_again(aside: SetAside) -> None:
    admission, source = Admission(KEYED, aside), Source()
    admission.admit([KEYLESS, FINE], Selection())
    first = readmit(admission, source, Snapshot(), ORDERS)
    assert admission.filter(batch(changes(KEYLESS, [c(id=1)], 150))).tables == []
    admission.committed(160, first.handled)
    assert [one.until for one in aside.all()] == [None]
    assert readmit(admission, source, first, ORDERS).entries != first.entries


def test_what_the_sink_refuses_as_it_writes_is_tried_again_at_a_start_only(aside: SetAside) -> None:
    admission, source = Admission(KEYED, aside), Source()
    assert readmit(admission, source, Snapshot(), ORDERS) == Snapshot()
    found = batch(changes(ORDERS, [c(id=1)], 50), changes(FINE, [c(id=1)], 60))
    left = admission.refuse(found, TableRefused.of(ORDERS.id, "It cannot be.", hint="Do this."))
    assert [one.table.id for one in left.tables] == [2]
    assert [str(one) for one in aside.all()] == ["It cannot be. Do this."]
    assert not readmit(admission, source, Snapshot(), ORDERS).entries
    assert readmit(Admission(KEYED, aside), source, Snapshot(), ORDERS).entries


def test_a_table_that_is_not_published_yet_stays_set_aside(aside: SetAside) -> None:
    admission, source = Admission(KEYED, aside), Source()
    admission.admit([KEYLESS, FINE], Selection())
    source.published = False
    assert not readmit(admission, source, Snapshot(), ORDERS).entries
    assert [one.until for one in aside.all()] == [None]


def test_a_table_out_of_the_list_is_hidden_and_comes_back_whole(aside: SetAside) -> None:
    admission, source = Admission(KEYED, aside), Source()
    admission.admit([KEYLESS, FINE], Selection())
    admission.admit([FINE], Selection())
    assert admission.waiting() == []
    assert admission.admit([ORDERS, FINE], Selection()) == [FINE]  # not as a new table: its target may have old rows
    (entry,) = readmit(admission, source, Snapshot(), ORDERS, FINE).entries
    assert entry.sweep


def test_positions_of_another_log_do_not_count(aside: SetAside) -> None:
    admission, source = Admission(KEYED, aside), Source()
    admission.admit([KEYLESS, FINE], Selection())
    readmit(admission, source, Snapshot(), ORDERS)
    assert admission.admit([ORDERS, FINE], Selection(), anew=True) == [ORDERS, FINE]
    (left,) = admission.filter(batch(changes(ORDERS, [c(id=1)], 5))).tables
    assert left.rows[0][1].num_rows == 1


def test_a_history_asks_every_version(aside: SetAside) -> None:
    admission = Admission(Requirements(reserved=("_op",), every_version=True), aside)
    clashing = replace(ORDERS, columns=(*ORDERS.columns, replace(ORDERS.columns[1], name="_OP", number=9)))
    old, new = changes(clashing, [c(id=1)], 1), changes(ORDERS, [c(id=1)], 2)
    both = TableChanges((clashing, ORDERS), [*old.rows, *new.rows])
    assert admission.filter(batch(both)).tables == []
    assert next(one.reason for one in aside.all()).startswith("public.orders has a column _OP")


def test_no_table_at_all_is_an_error(aside: SetAside) -> None:
    with pytest.raises(ConfigError, match=r"has no key.*And 1 more.*primary key"):
        Admission(KEYED, aside).admit([KEYLESS, replace(FINE, key=())], Selection())


def test_a_key_that_is_no_column() -> None:
    found = KEYED.obstacle(ORDERS, Selection(message_keys="public.orders:idd"))
    assert found is not None
    assert "message.key.columns names a column idd" in found.reason


def test_a_key_that_is_to_be_left_out() -> None:
    """A table may get such a key while the pipeline runs: whatever the sink, its rows are not delivered."""
    table = Table(1, "public", "t", (Column("id", "int4"), Column("ssn", "text")), key=("ssn",))
    obstacle = Requirements().obstacle(table, Selection(exclude_columns=r".*\.ssn"))
    assert obstacle is not None
    assert "column.exclude.list names ssn" in obstacle.reason
    assert Requirements().obstacle(replace(table, key=("id",)), Selection(exclude_columns=r".*\.ssn")) is None
