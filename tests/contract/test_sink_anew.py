"""Rows of a renamed table that nobody keeps any more are read from the source, whatever has become of it since."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.sink_rig import ORDERS, Rig, Row, c
from tests.contract.test_sinks import forget
from tidelog.model.schema import Column, Table

NEW, ATTIC = replace(ORDERS, id=2), replace(ORDERS, name="attic")
SOURCE: list[Row] = [{"id": 1, "name": "a", "big": "A"}, {"id": 2, "name": "b", "big": "B"}]


def orphaned(rig: Rig) -> Rig:
    """`orders` was renamed, another took the name, and the old rows are no longer kept."""
    rig.feed((ORDERS, [c(**row) for row in SOURCE]))
    rig.feed((NEW, [c(id=7)]))
    forget(Path(rig.sink._target(ORDERS).uri), "files")
    rig.restart()
    rig.source.rows = [dict(row) for row in SOURCE]
    return rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return orphaned(Rig({"type": "delta", "path": str(tmp_path), "engine": "rust"}))


def told(rig: Rig, version: Table, *events: Row) -> list[Row]:
    """The rows once the table has been told of."""
    rig.source.rows += [event["row"] for event in events]
    rig.feed((version, events))
    return rig.read(version)


def changed(version: Table, name: str, **how: object) -> Table:
    return replace(version, columns=tuple(replace(c, **how) if c.name == name else c for c in version.columns))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "later",
    [changed(ATTIC, "id", type="int8"), changed(ATTIC, "name", type="varchar", modifier=24)],
    ids=["key", "value"],
)
def test_the_source_has_changed_a_column_since(rig: Rig, later: Table) -> None:
    """Until the log has told so, the source leaves out rows or values."""
    rig.source.now = later
    assert [row["id"] for row in told(rig, ATTIC, c(id=3, name="c", big="C"))] == [3]
    assert rig.sink._target(ATTIC).properties()["tidelog.missing"]
    found = told(rig, later, c(id=4, name="d", big="D"))
    assert found == [*SOURCE, {"id": 3, "name": "c", "big": "C"}, {"id": 4, "name": "d", "big": "D"}]
    assert not rig.sink._target(ATTIC).properties()["tidelog.missing"]


def test_the_source_changes_a_column_while_it_is_read(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    later = changed(ATTIC, "name", type="varchar", modifier=24)
    seen = iter([ATTIC])
    monkeypatch.setattr(rig.source, "present", lambda _: [next(seen, later)])
    told(rig, ATTIC, c(id=3, name="c", big="C"))
    assert rig.sink._target(ATTIC).properties()["tidelog.missing"]


def test_a_column_that_the_source_has_added_since(rig: Rig) -> None:
    rig.source.rows = [{**row, "extra": 1} for row in rig.source.rows]
    rig.source.now = replace(ATTIC, columns=(*ATTIC.columns, Column("extra", "int4", number=4)))
    assert [row["id"] for row in told(rig, ATTIC, c(id=3, name="c"))] == [1, 2, 3]


def test_the_rows_are_stamped(tmp_path: Path) -> None:
    """As rows that a snapshot read."""
    stamps = ("_op", "_position", "_commit_ts", "_xid")
    rig = orphaned(
        Rig({"type": "delta", "path": str(tmp_path), "engine": "rust", "metadata.columns": ",".join(stamps)})
    )
    at = rig.next
    told(rig, ATTIC, c(id=3, name="c"))
    found = rig.read(ATTIC, *stamps)
    assert [(row["_op"], row["_position"], row["_xid"]) for row in found[:2]] == [("r", at, None)] * 2
    assert all(row["_commit_ts"] for row in found)


@pytest.mark.parametrize("way", ["it moves on", "another takes its place"])
def test_a_table_whose_rows_are_still_missing_is_renamed_again(rig: Rig, way: str) -> None:
    rig.source.now = changed(ATTIC, "id", type="int8")
    told(rig, ATTIC, c(id=3, name="c"))
    if way == "another takes its place":
        rig.feed((replace(ATTIC, id=3), [c(id=8)]))
    rig.restart()
    rig.source.now = None
    assert [row["id"] for row in told(rig, replace(ATTIC, name="cellar"), c(id=4))] == [1, 2, 3, 4]
    if way == "another takes its place":
        assert [row["id"] for row in rig.read(ATTIC)] == [8]
        assert not rig.sink._target(ATTIC).properties()["tidelog.missing"]


def test_a_place_whose_holder_had_another_key(rig: Rig) -> None:
    """Nothing of it is left, so there is nothing that could not be followed."""
    holder = replace(changed(ATTIC, "id", type="text"), id=5)
    rig.feed((holder, [c(id="x", name="y")]))
    assert [row["id"] for row in told(rig, ATTIC, c(id=3))] == [1, 2, 3]
