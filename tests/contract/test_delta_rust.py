"""A Delta table by delta-rs, as the sink drives it: what a snapshot that is taken again leaves of its files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests import patience
from tests.contract.sink_rig import crash_before
from tests.reaper import REPO
from tidelog.core.evolve import Step
from tidelog.errors import ConfigError, TransientError
from tidelog.spark.sinks import delta_counting, delta_rust
from tidelog.spark.sinks.delta_rust import RustTarget
from tidelog.spark.sinks.target import Mark, Merge

ROWS = 80_000
SHAPE = pa.schema([("id", pa.int64()), ("part", pa.string()), ("text", pa.string())])


@pytest.fixture(autouse=True)
def few_reads() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta_rust, "MANY_READS", 1)
        yield


@pytest.fixture
def target(tmp_path: Path) -> RustTarget:
    """Many small files, one after the other."""
    found = RustTarget(str(tmp_path / "table"))
    found.create(SHAPE, {delta_rust.SIZE: "50000"})
    for low in range(0, ROWS, 10_000):
        found.append(rows(range(low, low + 10_000), "old"), None)
    return found


def rows(ids: range, text: str, part: str = "a") -> pa.Table:
    return pa.table([pa.array(ids, pa.int64()), [part] * len(ids), [text] * len(ids)], schema=SHAPE)


def read_again(target: RustTarget, read: pa.Table, *, key: tuple[str, ...] = ("id",), mark: Mark | None = None) -> None:
    target.merge(Merge(read, key, tuple(read.column_names), reads=np.ones(read.num_rows, np.bool_)), mark)


def content(target: RustTarget) -> list[tuple[object, ...]]:
    found = target.read(target._shape().names)
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=str)


def ranges(target: RustTarget) -> list[tuple[int, int]]:
    files = pa.table(DeltaTable(target.uri).get_add_actions(flatten=True))
    return sorted(zip(files["min.id"].to_pylist(), files["max.id"].to_pylist(), strict=True))


def is_neat(found: list[tuple[int, int]]) -> bool:
    return all(before[1] < after[0] for before, after in pairwise(found))


def read_all_again(target: RustTarget) -> None:
    for low in range(0, ROWS, 7000):
        read_again(target, rows(range(low, min(low + 7000, ROWS)), "new"))


def test_a_snapshot_taken_again_leaves_files_that_follow_one_another(target: RustTarget) -> None:
    read_all_again(target)
    assert content(target) == sorted(((i, "a", "new") for i in range(ROWS)), key=str)
    assert is_neat(ranges(target))
    assert len(ranges(target)) > 4


def test_merges_alone_would_mix_them(target: RustTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can fail."""
    monkeypatch.setattr(delta_rust, "STRETCH_BYTES", 0)
    read_all_again(target)
    assert content(target) == sorted(((i, "a", "new") for i in range(ROWS)), key=str)
    assert not is_neat(ranges(target))


def test_rows_that_were_not_read_stay(target: RustTarget) -> None:
    """Between the keys that were read, and beside them in files that are written anew."""
    read_again(target, rows(range(1500, 2500, 2), "new"))
    read = set(range(1500, 2500, 2))
    assert content(target) == sorted(((i, "a", "new" if i in read else "old") for i in range(ROWS)), key=str)


def test_rows_without_a_first_key_stay(target: RustTarget) -> None:
    lost = pa.table([pa.array([None, 1600], pa.int64()), ["x", "b"], ["old", "old"]], schema=SHAPE)
    target.append(lost, None)
    read_again(target, rows(range(1500, 1700), "new"), key=("id", "part"))
    expected = [(i, "a", "new" if 1500 <= i < 1700 else "old") for i in range(ROWS)]
    assert content(target) == sorted([*expected, (None, "x", "old"), (1600, "b", "old")], key=str)


def test_columns_that_the_source_has_no_more_keep_their_values(target: RustTarget) -> None:
    read_again(target, rows(range(1500, 1700), "new").drop_columns(["part"]))
    assert content(target) == sorted(((i, "a", "new" if 1500 <= i < 1700 else "old") for i in range(ROWS)), key=str)


def test_a_few_rows_over_a_wide_range_are_merged(target: RustTarget) -> None:
    before = set(DeltaTable(target.uri).file_uris())
    read_again(target, rows(range(5000, 75_000, 60_000), "new"))
    assert {i for i, _, text in content(target) if text == "new"} == {5000, 65_000}
    assert len(before - set(DeltaTable(target.uri).file_uris())) == 2  # those between are not touched


def test_the_mark_comes_with_the_last_commit(target: RustTarget) -> None:
    read_again(target, rows(range(1500, 1700), "new"), mark=Mark("app", 7))
    assert target.applied("app") == 7
    both = pa.concat_tables([rows(range(1500, 1700), "newer"), rows(range(3, 4), "changed")])
    reads = np.arange(both.num_rows) < 200
    target.merge(Merge(both, ("id",), tuple(both.column_names), reads=reads), Mark("app", 8))
    assert target.applied("app") == 8
    assert (3, "a", "changed") in content(target)
    assert (1600, "a", "newer") in content(target)


def test_what_is_small_on_the_disk_may_be_large_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is merged: nothing of that size is held."""
    monkeypatch.setattr(delta_rust, "STRETCH_BYTES", 1 << 20)
    target = RustTarget(str(tmp_path / "table"))
    target.create(SHAPE, {})
    target.append(rows(range(2000), "x" * 5000), None)
    assert pa.table(DeltaTable(target.uri).get_add_actions())["size_bytes"][0].as_py() < delta_rust.STRETCH_BYTES
    held = largest_overwrite(monkeypatch)
    read_again(target, rows(range(500, 600), "new"))  # these are small, so it shows only when the others are read
    read_again(target, rows(range(700, 800), "y" * 5000))
    assert held == []
    assert {i for i, _, text in content(target) if text[0] != "x"} == {*range(500, 600), *range(700, 800)}


def largest_overwrite(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    held: list[int] = []
    real = RustTarget._overwrite

    def overwrite(target: RustTarget, rows: pa.Table, *rest: object, **more: object) -> None:
        held.append(rows.nbytes)
        real(target, rows, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(RustTarget, "_overwrite", overwrite)
    return held


def test_rows_that_nobody_changed_are_no_changes(target: RustTarget) -> None:
    """A reader of the table's change data feed hears of the rows that were read, and of no others."""
    target.describe({"delta.enableChangeDataFeed": "true"})
    start = target.version() + 1
    read_again(target, rows(range(1500, 1600), "new"))
    told = pa.table(DeltaTable(target.uri).load_cdf(starting_version=start).read_all())
    assert set(told["id"].to_pylist()) == set(range(1500, 1600))


def test_a_table_that_only_grows_is_told_as_what_it_is(target: RustTarget) -> None:
    target.describe({"delta.appendOnly": "true"})
    with pytest.raises(ConfigError, match=r"delta\.appendOnly is set"):
        read_again(target, rows(range(1500, 1600), "new"))


def test_files_that_somebody_removed_are_a_matter_of_trying_again(target: RustTarget) -> None:
    """Another program joined the files and removed the old ones: the table as it is now has them all."""
    other = DeltaTable(target.uri)
    other.optimize.compact(target_size=1 << 20)
    other.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(TransientError, match="can't be read or written"):
        read_again(target, rows(range(1500, 1600), "new"))
    read_again(target, rows(range(1500, 1600), "new"))
    assert len([text for _, _, text in content(target) if text == "new"]) == 100


NEVER = 2**31 - 1
"""PostgreSQL's `infinity`, which delta-rs cannot count."""
DATED = pa.schema([("id", pa.int64()), ("d1", pa.date32()), ("d2", pa.date32())])


def dated(tmp_path: Path, d1: int, d2: int) -> RustTarget:
    target = RustTarget(str(tmp_path / "dated"))
    target.create(DATED, {})
    days = [pa.array([day], pa.int32()).cast(pa.date32()) for day in (d1, d2)]
    target.append(pa.table([pa.array([1], pa.int64()), *days], schema=DATED), None)
    return target


def days(target: RustTarget) -> dict[str, int]:
    found = target.read(target._shape().names)
    return {name: found[name].cast(pa.int32())[0].as_py() for name in found.column_names if name != "id"}


@pytest.mark.parametrize("endless", ["d1", "d2"])
def test_a_column_with_infinite_days_takes_the_name_of_another(tmp_path: Path, endless: str) -> None:
    """What is not counted is known by name, and that moves with the column; also when it comes again half-way."""
    target = dated(tmp_path, **{"d1": 5, "d2": 5, endless: NEVER})  # type: ignore[arg-type]
    id_, d1, d2 = DATED
    swap = [Step(id_, "id"), Step(d2, "d1"), Step(d1, "d2")]
    with pytest.MonkeyPatch.context() as patch:
        crash_before(patch, RustTarget, "_overwrite")
        with pytest.raises(KeyboardInterrupt):
            target.rewrite(swap)
    target.rewrite(swap)
    assert days(target) == {"d1": 5, "d2": 5, {"d1": "d2", "d2": "d1"}[endless]: NEVER}
    target.rewrite([Step(id_, "id"), Step(pa.field("d3", pa.date32()), "d1"), Step(d1, "d2")])
    assert sorted(days(target).values()) == [5, NEVER]


def test_a_column_beyond_the_counted_ones_moves_among_them(tmp_path: Path) -> None:
    target = RustTarget(str(tmp_path / "wide"))
    shape = pa.schema([*((f"c{i}", pa.int32()) for i in range(32)), ("day", pa.date32())])
    target.create(shape, {})
    day = pa.array([NEVER], pa.int32()).cast(pa.date32())
    target.append(pa.table([*(pa.array([i], pa.int32()) for i in range(32)), day], schema=shape), None)
    target.rewrite([Step(f, f.name) for f in [*shape][1:]])
    assert target.read(["day"])["day"].cast(pa.int32()).to_pylist() == [NEVER]


WIDE = pa.schema([("id", pa.int64()), *((f"c{i}", pa.int32()) for i in range(31)), ("day", pa.date32())])


def wide(tmp_path: Path, day: int) -> RustTarget:
    target = RustTarget(str(tmp_path / "wide"))
    target.create(WIDE, {})
    days = pa.array([day], pa.int32()).cast(pa.date32())
    target.append(pa.table({"id": pa.array([1], pa.int64()), "day": days}), None)
    return target


def counted_keys(target: RustTarget, key: str) -> list[int]:
    return pa.table(DeltaTable(target.uri).get_add_actions(flatten=True))[f"min.{key}"].to_pylist()


def renaming(**names: str) -> list[Step]:
    return [Step(f.with_name(names.get(f.name, f.name)), f.name) for f in WIDE]


@pytest.mark.parametrize("day", [5, NEVER])
def test_a_key_of_a_wide_table_stays_counted_whatever_it_is_called(tmp_path: Path, day: int) -> None:
    """A day that stands too far behind to be counted is no reason to name those that are."""
    target = wide(tmp_path, day)
    assert (delta_counting.COUNTED in target.properties()) == (day == NEVER)
    with pytest.MonkeyPatch.context() as patch:
        crash_before(patch, RustTarget, "_overwrite")
        with pytest.raises(KeyboardInterrupt):
            target.rewrite(renaming(id="number"))
    target.rewrite(renaming(id="number"))
    assert counted_keys(target, "number") == [1]
    assert (delta_counting.COUNTED in target.properties()) == (day == NEVER)
    assert target.read(["day"])["day"].cast(pa.int32()).to_pylist() == [day]


def test_a_new_column_begins_with_infinite_days(tmp_path: Path) -> None:
    target = dated(tmp_path, 5, 5)
    new = Step(pa.field("d3", pa.date32()), None, pa.scalar(NEVER, pa.int32()).cast(pa.date32()))
    target.rewrite([*(Step(f, f.name) for f in DATED), new])
    assert days(target) == {"d1": 5, "d2": 5, "d3": NEVER}


def test_counted_columns_as_people_write_them(tmp_path: Path) -> None:
    assert delta_counting.split("id,day") == ["id", "day"]
    assert delta_counting.split(" id , `a``b`,`c,d` ,e f") == ["id", "a`b", "c,d", "e f"]
    assert delta_counting.split("") == []
    target = dated(tmp_path, 5, 5)
    target.describe({delta_counting.COUNTED: "id,d1"})
    endless = pa.array([NEVER], pa.int32()).cast(pa.date32())
    target.append(pa.table([pa.array([2], pa.int64()), endless, endless], schema=DATED), None)
    assert target.properties()[delta_counting.COUNTED] == "`id`"


def test_tables_that_change_their_shape_at_once_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """delta-rs has a thread per core, and each rewrite blocks one: its environment is that of a fresh process."""
    environment = {name: text for name, text in os.environ.items() if name != "TOKIO_WORKER_THREADS"}
    command = [sys.executable, "-m", "tests.contract.schema_changes", str(tmp_path)]
    done = patience.run(command, cwd=REPO, env=environment, seconds=120)
    assert done.returncode == 0, done.stdout + done.stderr
