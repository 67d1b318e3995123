"""Values that only the source knows: readers find the old columns, or the new ones with all their values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from tests.contract.sink_rig import Answers, Rig, Row, c, crash_after, crash_before, r, table, u
from tidelog.model.schema import Column, Table
from tidelog.spark.sinks import asking, delta_rust
from tidelog.spark.sinks.delta import DeltaSink
from tidelog.spark.sinks.delta_rust import RustTarget
from tidelog.spark.sinks.staged_answers import KeyRange, StagedAnswers
from tidelog.spark.sinks.target import Target

ID = Column("id", "int4", nullable=False)
IDS = range(1, 12)
BEFORE = table(ID, Column("v", "text"), Column("w", "text"))
RETYPED = table(ID, Column("v", "bytea"), Column("w", "text"))
WIDER = table(*BEFORE.columns, Column("n", "text", rewritten=True))
VERSIONS = {"v": RETYPED, "n": WIDER}
ANSWERS = {"v": lambda i: f"b{i}".encode(), "n": lambda i: f"n{i}"}


class Broken(Exception):
    """The connection to the source is gone."""


class Breaking(Answers):
    """Tells two rows at a time, and breaks in the middle as long as it is asked to."""

    breaks = False

    def read(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in super().read(table, columns):
            for start in range(0, batch.num_rows, 2):
                if self.breaks and start > 4:
                    raise Broken
                yield batch.slice(start, 2)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Eleven rows in several files; answers and fills come in portions of a few."""
    monkeypatch.setattr(asking, "ROWS", 3)
    monkeypatch.setattr(delta_rust, "FILL_ROWS", 4)
    rig = Rig({"type": "delta", "path": str(tmp_path), "engine": "rust"}, source=Breaking())
    for some in (IDS[:4], IDS[4:8], IDS[8:]):
        rig.feed((BEFORE, [c(id=i, v=f"{i}", w="w") for i in some]))
    rig.source.rows = [
        {"id": i, "w": "w", **{name: tell(i) for name, tell in ANSWERS.items()}} for i in reversed([*IDS, 99])
    ]
    return rig


def versions(target: Target) -> list[pa.Table]:
    """The table as readers found it, version by version."""
    last = deltalake.DeltaTable(target.uri).version()
    found = (deltalake.DeltaTable(target.uri, version=version) for version in range(last + 1))
    return [pa.table(one.scan().read_all()) for one in found]


def assert_never_half_filled(target: Target, name: str) -> None:
    """In no version does a row lack a value that it had before, or that the source had when the column came."""
    for there in versions(target):
        if name in there.column_names:
            assert there[name].null_count == 0, there


def assert_filled(rig: Rig, name: str, more: Row) -> None:
    version = VERSIONS[name]
    expected = {i: ANSWERS[name](i) for i in IDS} | {more["id"]: more[name]}
    assert {row["id"]: row[name] for row in rig.read(version)} == expected
    assert_never_half_filled(rig.sink._target(version), name)
    assert not rig.sink._target(version).properties().get("tidelog.pending")


def new_row(name: str) -> Row:
    return {"id": 12, "v": b"12" if name == "v" else "12", "w": "w", name: ANSWERS[name](12)}


@pytest.mark.parametrize("name", VERSIONS)
def test_a_column_changes_in_one_commit(rig: Rig, name: str) -> None:
    row = new_row(name)
    rig.feed((VERSIONS[name], [c(**row)]))
    assert_filled(rig, name, row)


CRASHES = [
    (crash_after, StagedAnswers, "_add"),
    (crash_after, StagedAnswers, "write"),
    (crash_after, StagedAnswers, "fill"),
    (crash_before, RustTarget, "rewrite"),
    (crash_after, RustTarget, "rewrite"),
    (crash_after, RustTarget, "describe"),
    (crash_before, DeltaSink, "_commit"),
    (crash_before, RustTarget, "_overwrite"),
]


@pytest.mark.parametrize("name", VERSIONS)
@pytest.mark.parametrize(("crash", "kind", "step"), CRASHES, ids=[f"{c.__name__}-{s}" for c, _, s in CRASHES])
def test_a_crash_at_each_step(
    rig: Rig, name: str, crash: Any, kind: type, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = new_row(name)
    batch = rig.batch((VERSIONS[name], [c(**row)]))
    with monkeypatch.context() as patch:
        crash(patch, kind, step)
        with pytest.raises((KeyboardInterrupt, Exception)):
            rig.sink.apply(batch)
    assert_never_half_filled(rig.sink._target(BEFORE), name)
    rig.restart()
    rig.sink.apply(batch)
    assert_filled(rig, name, row)


@pytest.mark.parametrize("name", VERSIONS)
def test_the_source_breaks_while_it_is_read(rig: Rig, name: str) -> None:
    row = new_row(name)
    batch = rig.batch((VERSIONS[name], [c(**row)]))
    rig.source.breaks = True
    for _ in range(2):
        with pytest.raises(Broken):
            rig.sink.apply(batch)
        rig.restart()
        assert rig.read(BEFORE) == [{"id": i, "v": str(i), "w": "w"} for i in IDS]
    rig.source.breaks = False
    rig.sink.apply(batch)
    assert_filled(rig, name, row)


def test_rows_that_the_source_has_no_more(rig: Rig) -> None:
    """Their deletes are still to come; until then they keep what fits."""
    later = table(ID, Column("v", "varchar", 24), Column("w", "json"))
    rig.source.rows = [{"id": 2, "v": "2", "w": "{}"}]
    rig.feed((later, [c(id=12, v="12", w="[]")]))
    found = {row["id"]: row["w"] for row in rig.read(later)}
    assert found == {**dict.fromkeys(IDS, "w"), 2: "{}", 12: "[]"}


def test_the_source_has_retyped_the_column_again(rig: Rig) -> None:
    """What it would answer now is null. The old texts stay until the log has told of the other type."""
    later = table(ID, Column("v", "varchar", 24), Column("w", "text"))
    between = table(ID, Column("v", "json"), Column("w", "text"))
    rig.source.now = later
    rig.source.rows = [{"id": i, "v": f"final {i}"} for i in [*IDS, 12]]
    rig.feed((between, [c(id=12, v="{}", w="w")]))
    target = rig.sink._target(BEFORE)
    assert {row["id"]: row["v"] for row in rig.read(between)} == {**{i: str(i) for i in IDS}, 12: "{}"}
    assert target.properties()["tidelog.pending"] == '["v"]'
    rig.feed((later, [u(id=2, v="two", w="w")]))
    assert {row["id"]: row["v"] for row in rig.read(later)} == {**{i: f"final {i}" for i in [*IDS, 12]}, 2: "two"}
    assert not target.properties()["tidelog.pending"]


def test_the_source_retypes_the_column_while_it_is_read(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    later = replace(RETYPED, columns=(ID, Column("v", "json", number=2), RETYPED.columns[2]))
    real = Breaking.read

    def read(source: Breaking, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in real(source, table, columns):
            yield batch
            source.now = later

    monkeypatch.setattr(Breaking, "read", read)
    rig.feed((RETYPED, [c(id=12, v=b"12", w="w")]))
    assert rig.sink._target(BEFORE).properties()["tidelog.pending"] == '["v"]'
    rig.source.rows = [{"id": i, "v": f"[{i}]"} for i in [*IDS, 12]]
    rig.feed((later, [u(id=2, v="[0]", w="w")]))
    assert {row["id"]: row["v"] for row in rig.read(later)} == {**{i: f"[{i}]" for i in [*IDS, 12]}, 2: "[0]"}


def test_a_column_that_is_pending_and_dropped(rig: Rig) -> None:
    rig.source.now = table(ID, Column("w", "text", number=3))
    rig.feed((WIDER, [c(id=12, v="12", w="w", n="told")]))
    assert rig.sink._target(BEFORE).properties()["tidelog.pending"] == '["n"]'
    rig.feed((rig.source.now, [c(id=13, w="w")]))
    assert not rig.sink._target(BEFORE).properties()["tidelog.pending"]
    assert {row["id"]: row["n"] for row in rig.read(WIDER)} == {**dict.fromkeys([*IDS, 13]), 12: "told"}


def test_a_change_of_the_old_version_beside_the_new_one(rig: Rig) -> None:
    """The value of its row is the source's to tell. As long as the source can't, the target keeps its own."""
    between = table(ID, Column("v", "json"), Column("w", "text"))
    rig.source.now = table(ID, Column("v", "varchar", 24), Column("w", "text"))
    rig.feed((BEFORE, [u(id=3, v="three", w="W")]), (between, [u(id=4, v="[4]", w="w")]))
    found = {row["id"]: (row["v"], row["w"]) for row in rig.read(between)}
    assert found[3][1] == "W"
    assert found[3][0] is not None
    assert rig.sink._target(BEFORE).properties()["tidelog.pending"] == '["v"]'
    rig.source.rows = [{"id": i, "v": f"final {i}"} for i in IDS]
    rig.feed((rig.source.now, [u(id=5, v="five", w="w")]))
    assert {row["id"]: row["v"] for row in rig.read(BEFORE)} == {**{i: f"final {i}" for i in IDS}, 5: "five"}


def test_days_without_a_calendar(rig: Rig) -> None:
    """delta-rs can't write statistics of them."""
    later = table(ID, Column("v", "date"), Column("w", "text"))
    rig.source.rows = [{"id": i, "v": 2**31 - 1 if i == 2 else i} for i in IDS]
    rig.feed((later, [r(id=12, v=12, w="w")]))
    days = rig.content(later)["v"].cast(pa.int32()).to_pylist()
    assert sorted(days) == [*(i for i in IDS if i != 2), 12, 2**31 - 1]


def test_ranges_of_keys() -> None:
    def of(*keys: object, kind: pa.DataType = pa.int32()) -> KeyRange | None:  # noqa: B008
        return KeyRange.of(pa.chunked_array([pa.array(keys, kind)]))

    one, same, above = of(1, 5), of(5, 9), of(6, 9)
    assert one is not None and same is not None and above is not None  # noqa: PT018
    assert one.overlaps(same)
    assert same.overlaps(one)
    assert not one.overlaps(above)
    assert not above.overlaps(one)
    assert of(1, None) is None  # null is in no range
    assert of(1.5, kind=pa.float64()) is None  # neither is NaN
    assert of() is None
