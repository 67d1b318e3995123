"""One behaviour, every engine: after each batch the target equals the source's table.

All of it runs for real, on temporary directories. Delta on Spark takes seconds where delta-rs takes milliseconds, so
it runs the cases in which the engines differ, and the rarer ones of these only in the long suite.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.contract.sink_rig import (
    ENDLESS,
    NOW,
    ORDERS,
    KeysOf,
    Rig,
    Row,
    T,
    arrow,
    c,
    crash_after,
    d,
    numeric,
    r,
    rows,
    table,
    u,
)
from tests.spark_session import local_session
from tidelog.contracts import Batch, TableChanges
from tidelog.core.snapshot.watermark import Replayed
from tidelog.engine.filled_targets import FilledTargets
from tidelog.errors import ConfigError, TableRefused, TargetLost
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection
from tidelog.spark.sinks import stretches
from tidelog.spark.versions import DELTA_PACKAGES, installed_version, minor

SPARK = "TIDELOG_TEST_DELTA_SPARK" in os.environ
"""Set by `tests/spark/test_sink_delta_spark.py`: a JVM gets its jars when it starts, so Delta needs a process."""


@pytest.fixture(scope="session")
def delta_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    delta = {
        "spark.jars.packages": DELTA_PACKAGES[minor(str(installed_version()))],
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",  # a few rows are not worth compiling for
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # nor are expressions
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "America/New_York",
    }
    session = local_session(tmp_path_factory.mktemp("spark"), delta)
    yield session
    session.stop()


Make = Callable[..., Rig]


@pytest.fixture(params=["spark" if SPARK else "rust"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    return _make(request, tmp_path)


@pytest.fixture(params=[pytest.param("spark", marks=pytest.mark.long) if SPARK else "rust"])
def rare(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    return _make(request, tmp_path)


def _make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes a Delta target on the engine; options are written with `_` for `.`."""
    engine = request.param
    spark = request.getfixturevalue("delta_spark") if engine == "spark" else None
    base = {"type": "delta", "path": str(tmp_path / "lake"), "engine": engine, "stage": str(tmp_path / "stage")}
    return lambda **options: Rig({**base, **{k.replace("_", "."): v for k, v in options.items()}}, spark)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_table_that_is_gone_is_not_created_again_with_new_rows_only(rig: Make, restarted: bool) -> None:
    target = rig()
    target.feed((ORDERS, [c(id=1), c(id=2)]))
    place = Path(target.sink._target(ORDERS).uri)
    target.feed((ORDERS, [c(id=3)]))
    assert target.sink.find_lost("query-1") == []
    shutil.rmtree(place)
    if restarted:
        target.restart()
    with pytest.raises(TargetLost, match=r"target table of public\.orders is gone"):
        target.feed((ORDERS, [c(id=4)]))
    assert not place.exists()
    (lost,) = target.sink.find_lost("query-1")
    target.filled.forget(lost.table)  # its snapshot is asked for
    target.feed((ORDERS, [r(id=i) for i in range(1, 5)]))
    assert [row["id"] for row in target.read(ORDERS)] == [1, 2, 3, 4]


@pytest.mark.parametrize("restarted", [False, True])
def test_another_table_in_the_place_of_a_filled_one_is_refused(rig: Make, restarted: bool) -> None:
    target = rig()
    target.feed((ORDERS, [c(id=1)]))
    target.feed((ORDERS, [c(id=2)]))
    place = Path(target.sink._target(ORDERS).uri)
    shutil.rmtree(place)
    for _ in range(12):  # more commits than the other had
        write_deltalake(str(place), pa.table({"id": pa.array([77], pa.int32())}), mode="overwrite")
    if restarted:
        target.restart()
    with pytest.raises(TableRefused, match=r"replaced by another table.*Move or delete"):
        target.feed((ORDERS, [c(id=3)]))
    assert DeltaTable(str(place)).to_pyarrow_table().to_pylist() == [{"id": 77}]


@pytest.mark.parametrize("later", [{"metadata.prefix": "cdc_"}, {"delete.mode": "hard"}], ids=str)
@pytest.mark.parametrize("known", ["by this process", "by its columns"])
def test_rows_that_are_marked_as_deleted_do_not_come_back_under_another_mark(
    rare: Make, later: dict[str, str], known: str
) -> None:
    target = rare(delete_mode="soft")
    target.feed((ORDERS, [c(id=1), c(id=2)]))
    target.feed((ORDERS, [d(id=2)]))
    target.options |= later
    if known == "by its columns":
        target.filled = FilledTargets()
    target.restart()
    if known == "by this process":
        with pytest.raises(ConfigError, match=r"public\.orders marks deleted rows in _deleted.*metadata\.prefix"):
            target.sink.find_lost("query-1")
    with pytest.raises(TableRefused, match=r"public\.orders marks deleted rows in _deleted.*metadata\.prefix"):
        target.feed((ORDERS, [c(id=3)]))
    assert [(row["id"], row["_deleted"]) for row in target.read(ORDERS, "_deleted")] == [(1, False), (2, True)]
    shutil.rmtree(target.sink._target(ORDERS).uri)
    target.restart()
    assert len(target.sink.find_lost("query-1")) == (known == "by this process")  # and so it is read again


def test_a_day_in_the_life_of_a_table(rig: Make) -> None:
    target = rig()
    target.feed((ORDERS, [c(id=1, name="a", big="A"), c(id=2, name="b", big="B"), c(id=3, name="c", big="C")]))
    second = target.feed(
        (
            ORDERS,
            [
                u(id=1, name="a2", unchanged=["big"]),  # TOAST stays
                d(id=2),
                c(id=4, name="d", big=None),
                u(id=9, name="moved", before={"id": 3}, unchanged=["big"]),  # carried from the old key
                c(id=5, name="x", big="X"),
                d(id=5),
                c(id=5, name="again", big="Y"),
            ],
        )
    )
    expected = [
        {"id": 1, "name": "a2", "big": "A"},
        {"id": 4, "name": "d", "big": None},
        {"id": 5, "name": "again", "big": "Y"},
        {"id": 9, "name": "moved", "big": "C"},
    ]
    assert target.read(ORDERS) == expected
    target.sink.apply(second)  # a replay in the same process
    target.restart()
    target.sink.apply(second)  # and after a restart
    assert target.read(ORDERS) == expected
    target.feed((ORDERS, [c(id=7), T, c(id=8, name="new", big="N")]))
    assert target.read(ORDERS) == [{"id": 8, "name": "new", "big": "N"}]
    target.feed((ORDERS, [T]))
    assert target.read(ORDERS) == []


def test_a_relative_path_is_a_folder_below_ours(rig: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a JVM that runs already stays where it is
    target = rig(path="./lake", stage="stage")
    target.feed((ORDERS, [c(id=1, name="a")]))
    target.feed((ORDERS, [u(id=1, name="b")]))
    assert [row["name"] for row in target.read(ORDERS)] == ["b"]
    assert (tmp_path / "lake/public/orders/_delta_log").is_dir()


ODD = table(
    Column("Id", "int8"),
    Column("select", "text"),
    Column("a.b", "text"),
    Column("with space", "text"),
    Column("quo\"te's", "text"),
    Column("bäck`tick", "text"),
    numeric("amount", 10, 2),
    Column("at", "timestamp"),
    Column("atz", "timestamptz"),
    Column("day", "date"),
    Column("raw", "bytea"),
    Column("tags", "text[]"),
    Column("ok", "bool"),
    Column("ratio", "float8"),
    Column("a,b;c{d}(e)=", "int2"),
    key=("Id", "a.b"),
    name="Odd Täble",
)


def odd(id: int, **values: Any) -> Row:
    return {**{column.name: None for column in ODD.columns}, "Id": id, "a.b": "k'ey", **values}


def test_every_type_and_odd_names(rig: Make) -> None:
    target = rig()
    full = odd(
        1,
        **{
            "select": "s",
            "with space": "ß",
            "quo\"te's": 'q"',
            "bäck`tick": "`",
            "amount": Decimal("12345678.90"),
            "at": datetime(1969, 12, 31, 23, 59, 59, 999999),
            "atz": datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC),
            "day": date(1, 1, 1),
            "raw": b"\x00\xff",
            "tags": ["a", None, ""],
            "ok": False,
            "ratio": -0.5,
            "a,b;c{d}(e)=": -7,
        },
    )
    target.feed((ODD, [c(**full), c(**odd(2)), c(**odd(3, **{"with space": "x"}))]))
    assert target.read(ODD) == [full, odd(2), odd(3, **{"with space": "x"})]
    change = u(**odd(2, tags=[], ok=True), unchanged=["with space", "quo\"te's"])
    move = u(**odd(4, ratio=1.5), before={"Id": 3, "a.b": "k'ey"}, unchanged=["with space"])
    target.feed((ODD, [change, move]))
    assert target.read(ODD) == [full, odd(2, tags=[], ok=True), odd(4, ratio=1.5, **{"with space": "x"})]


def test_soft_deletes(rare: Make) -> None:
    target = rare(delete_mode="soft", metadata_columns="_op,_position")
    target.feed((ORDERS, [c(id=1, name="a", big="A"), c(id=2, name="b", big="B")]))
    target.feed((ORDERS, [d(id=1), c(id=3, name="short", big="S"), d(id=3), c(id=4, name="d")]))
    state = {r["id"]: (r["name"], r["big"], r["_deleted"], r["_deleted_at"]) for r in target.read(ORDERS, *SOFT)}
    assert state == {
        1: ("a", "A", True, NOW),
        2: ("b", "B", False, None),
        3: ("short", "S", True, NOW),
        4: ("d", None, False, None),
    }
    target.feed((ORDERS, [T, c(id=2, name="back", big=None)]))
    state = {r["id"]: (r["name"], r["_deleted"], r["_deleted_at"]) for r in target.read(ORDERS, *SOFT)}
    assert state == {1: ("a", True, NOW), 2: ("back", False, None), 3: ("short", True, NOW), 4: ("d", True, NOW)}


SOFT = ("_deleted", "_deleted_at")


def test_schema_changes(rig: Make) -> None:
    target = rig()
    v1 = table(Column("id", "int2"), Column("n", "int4"), numeric("price", 5, 2), Column("old", "text"))
    target.feed((v1, [c(id=1, n=1, price=Decimal("1.50"), old="o1"), c(id=2, n=2, price=None, old="o2")]))
    v2 = table(
        Column("id", "int4", number=1),
        Column("count", "int8", number=2),
        numeric("price", 8, 3, number=3),
        Column("tag", "text", number=5, fill="none"),
        Column("stamp", "text", number=6, rewritten=True),
    )
    target.source.rows = [{"id": i, "stamp": f"s{i}"} for i in (1, 2, 3, 4)]
    target.feed(
        (v1, [c(id=3, n=3, price=Decimal("3.25"), old="o3"), u(id=2, n=20, price=None, unchanged=["old"])]),
        (
            v2,
            [c(id=5, count=2**40, price=Decimal("0.125"), tag="t", stamp="own"), u(id=1, count=11, unchanged=["tag"])],
        ),
    )
    assert target.read(v2, "old") == [
        {"id": 1, "count": 11, "price": None, "tag": "none", "stamp": None, "old": "o1"},
        {"id": 2, "count": 20, "price": None, "tag": "none", "stamp": "s2", "old": "o2"},
        {"id": 3, "count": 3, "price": Decimal("3.250"), "tag": "none", "stamp": "s3", "old": None},
        {"id": 5, "count": 2**40, "price": Decimal("0.125"), "tag": "t", "stamp": "own", "old": None},
    ]
    v3 = table(Column("id", "int4", number=1), Column("count", "text", number=2), Column("tag", "int4", number=5))
    target.source.rows = [{"id": 1, "tag": 100}, {"id": 7, "tag": 700}]
    target.feed(versions=[v3])  # DDL alone
    assert [(r["count"], r["tag"]) for r in target.read(v3)] == [
        ("11", 100),
        ("20", None),
        ("3", None),
        (str(2**40), None),
    ]


def test_a_snapshot_under_way(rig: Make) -> None:
    target = rig()
    target.source.rows = [{"id": i, "name": "now", "big": f"B{i}"} for i in (1, 2, 3, 4, 12)]
    target.feed((ORDERS, [r(id=1, name="read", big="B1")]), snapshotting=True)
    target.feed(
        (
            ORDERS,
            [
                u(id=1, name="one", unchanged=["big"]),  # the target has it
                u(id=2, name="two", unchanged=["big"]),  # the source has it
                u(id=12, name="moved", before={"id": 9}, unchanged=["big"]),  # and under the new key
                u(id=5, name="gone", unchanged=["big"]),  # nobody has it: a delete is on its way
                u(id=3, name="three", unchanged=["big"]),  # read in this batch
                u(id=14, name="four", before={"id": 4}, unchanged=["big"]),  # read under the key it has now
                r(id=3, name="three", big="R3"),
                r(id=14, name="four", big="R14"),
                r(id=6, name="six", big=None),
            ],
        ),
        snapshotting=True,
    )
    assert target.read(ORDERS) == [
        {"id": 1, "name": "one", "big": "B1"},
        {"id": 2, "name": "two", "big": "B2"},
        {"id": 3, "name": "three", "big": "R3"},
        {"id": 6, "name": "six", "big": None},
        {"id": 12, "name": "moved", "big": "B12"},
        {"id": 14, "name": "four", "big": "R14"},
    ]
    assert [sorted(k["id"] for k in keys) for keys in target.source.looked_up] == [[2, 5, 12]]


def test_a_key_that_another_row_takes_during_a_snapshot(rare: Make) -> None:
    target = rare()
    target.feed((ORDERS, [r(id=2, name="b", big="OLD"), r(id=3, name="c", big="OLD")]), snapshotting=True)
    target.source.rows = [{"id": 2, "name": "now", "big": "NEW"}]
    move = [
        d(id=2),
        u(id=2, name="n", before={"id": 7}, unchanged=["big"]),
        d(id=3),
        u(id=3, name="n", before={"id": 8}, unchanged=["big"]),
    ]
    target.feed((ORDERS, move), snapshotting=True)
    assert target.read(ORDERS) == [{"id": 2, "name": "n", "big": "NEW"}]


def test_what_was_asked_for_may_be_of_a_later_time(rare: Make) -> None:
    """While the log has not passed the moment of asking, a row that moves on is asked for again."""
    target = rare()
    target.source.rows = [{"id": 1, "name": "x", "big": "B1"}, {"id": 2, "name": "other", "big": "OTHER"}]
    target.source.seen = Replayed(110)
    target.feed((ORDERS, [r(id=1, name="x", big="B1")]), snapshotting=True)
    away = u(id=2, name="x", before={"id": 1}, unchanged=["big"]) | {"position": 100}
    target.feed((ORDERS, [away]), snapshotting=True)
    target.restart()
    back = u(id=1, name="x", before={"id": 2}, unchanged=["big"]) | {"position": 108}
    target.feed((ORDERS, [back, c(id=2, name="other", big="OTHER") | {"position": 108}]))
    assert target.read(ORDERS) == target.source.rows
    target.source.rows = []
    later = u(id=3, name="x", before={"id": 1}, unchanged=["big"]) | {"position": 120}
    target.feed((ORDERS, [later]))
    assert target.read(ORDERS)[-1] == {"id": 3, "name": "x", "big": "B1"}


def test_a_column_that_was_asked_for_may_be_another_rows(rare: Make) -> None:
    """Added with a default that only the source knows, and asked for when keys had moved on already."""
    target = rare()
    target.feed((ORDERS, [c(id=1, name="x", big="X")]))
    wider = table(*ORDERS.columns, Column("more", "text", rewritten=True))
    x, y = {"name": "x", "big": "X", "more": "x"}, {"name": "y", "big": "Y", "more": "y"}
    target.source.rows = [{"id": 2, **x}, {"id": 1, **y}]
    target.source.seen = Replayed(110)
    target.feed((wider, []))
    moved = u(id=2, name="x", before={"id": 1}, unchanged=["big", "more"]) | {"position": 100}
    target.feed((wider, [moved, c(id=1, name="y", big="Y", more="y") | {"position": 100}]))
    assert sorted(target.read(wider), key=lambda row: -row["id"]) == target.source.rows


def test_a_row_that_the_target_lacks_is_asked_for_at_any_time(rare: Make) -> None:
    """One that nobody could tell during a snapshot may go on after it."""
    target = rare()
    target.feed((ORDERS, [c(id=1, name="a", big="B1"), c(id=2, name="b", big="B2")]))
    target.source.rows = [{"id": i, "name": "now", "big": f"S{i}"} for i in (1, 3, 12, 14)]
    target.feed(
        (
            ORDERS,
            [
                u(id=1, name="there", unchanged=["big"]),
                u(id=12, name="moved", before={"id": 2}, unchanged=["big"]),
                u(id=3, name="absent", unchanged=["big"]),
                u(id=14, name="absent, moved", before={"id": 4}, unchanged=["big"]),
                u(id=5, name="gone", unchanged=["big"]),
            ],
        )
    )
    assert target.read(ORDERS) == [
        {"id": 1, "name": "there", "big": "B1"},
        {"id": 3, "name": "absent", "big": "S3"},
        {"id": 12, "name": "moved", "big": "B2"},
        {"id": 14, "name": "absent, moved", "big": "S14"},
    ]
    assert [sorted(k["id"] for k in keys) for keys in target.source.looked_up] == [[3, 5, 14]]


def keys(*ids: int) -> KeysOf:
    return KeysOf(pa.table({"id": pa.array(ids, pa.int32())}))


def test_rows_that_a_snapshot_did_not_find(rig: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    target = rig()
    target.feed((ORDERS, [c(id=i, name=str(i), big="B") for i in range(6)]))
    batch = target.batch((ORDERS, [u(id=1, name="u", unchanged=["big"]), r(id=8, name="r")]), keep=keys(0, 1, 4, 8, 9))
    crash_after(monkeypatch, type(target.sink._target(ORDERS)), "merge")  # swept, not yet written
    with pytest.raises(KeyboardInterrupt):
        target.sink.apply(batch)
    monkeypatch.undo()
    target.restart()
    target.sink.apply(batch)
    state = [(row["id"], row["name"]) for row in target.read(ORDERS)]
    assert state == [(0, "0"), (1, "u"), (4, "4"), (8, "r")]
    target.feed((ORDERS, [c(id=5, name="back")]))
    target.sink.apply(batch)  # done already
    assert [row["id"] for row in target.read(ORDERS)] == [0, 1, 4, 5, 8]
    target.feed(versions=[ORDERS], keep=keys(5))
    assert [row["id"] for row in target.read(ORDERS)] == [5]
    target.feed(versions=[ORDERS], keep=keys())
    assert target.read(ORDERS) == []


PAIRS = table(Column("shop", "int4", nullable=False), Column("name", "text", nullable=False), Column("v", "text"))


def test_rows_that_a_snapshot_did_not_find_among_more_than_memory_holds(
    rig: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are compared stretch by stretch, along the column that tells them apart."""
    monkeypatch.setattr(stretches, "ROWS", 4)
    target, pairs = rig(), replace(PAIRS, key=("shop", "name"))
    names = [*"aÄbBcdeé\U0001f980ZzxyŒ_", "", "aa", "ab", "'"]
    target.feed((pairs, [c(shop=n % 2, name=name, v="v") for n, name in enumerate(names)]))
    left = [(n % 2, name) for n, name in enumerate(names) if n % 3]
    keep = pa.table([pa.array([s for s, _ in left], pa.int32()), [n for _, n in left]], ["shop", "name"])
    target.feed((pairs, [c(shop=9, name="new")]), keep=KeysOf(keep))
    assert {(row["shop"], row["name"]) for row in target.read(pairs)} == {*left, (9, "new")}


def test_rows_of_a_former_key_are_not_found_either(rig: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key has moved to a column that they do not have."""
    monkeypatch.setattr(stretches, "ROWS", 4)
    target, former = rig(), replace(ORDERS, columns=ORDERS.columns[:2])
    target.feed((former, [c(id=n, name="old") for n in range(9)]))
    moved = replace(ORDERS, columns=(*former.columns, Column("u", "text", nullable=False)), key=("u",))
    names = [f"u{n}" for n in range(9)]
    keep = KeysOf(pa.table({"u": names}))
    target.feed((moved, [r(id=n, name="new", u=name) for n, name in enumerate(names)]), keep=keep)
    assert [(row["id"], row["u"]) for row in target.read(moved)] == list(enumerate(names))


def test_rows_that_a_snapshot_did_not_find_are_marked(rare: Make) -> None:
    target = rare(delete_mode="soft")
    target.feed((ORDERS, [c(id=1, name="a"), c(id=2, name="b"), c(id=3, name="c"), d(id=3)]))
    target.feed(versions=[ORDERS], keep=keys(1))
    state = {row["id"]: (row["name"], row["_deleted"], row["_deleted_at"]) for row in target.read(ORDERS, *SOFT)}
    ended = state.pop(2)
    assert state == {1: ("a", False, None), 3: ("c", True, NOW)}
    assert ended[:2] == ("b", True)
    assert ended[2] > NOW


def test_a_soft_delete_during_a_snapshot(rare: Make) -> None:
    target = rare(delete_mode="soft")
    target.feed((ORDERS, [r(id=1, name="a", big="A")]), snapshotting=True)
    target.feed((ORDERS, [d(id=1), d(id=2), u(id=3, name="c", unchanged=["big"])]), snapshotting=True)
    assert [(row["id"], row["big"], row["_deleted"]) for row in target.read(ORDERS, *SOFT)] == [(1, "A", True)]


def test_tables_that_change_their_names(rare: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    target = rare()
    one, two = replace(ORDERS, name="one", id=1), replace(ORDERS, name="two", id=2)
    target.feed((one, [c(id=1, name="first")]))
    target.feed((two, [c(id=2, name="second")]))
    swapped = [replace(one, name="two"), replace(two, name="one")]
    both = [
        TableChanges((swapped[0],), [(swapped[0], rows(ORDERS, [c(id=10, name="first")]))]),
        TableChanges((swapped[1],), [(swapped[1], rows(ORDERS, [c(id=20, name="second")]))]),
    ]
    batch = Batch("query-1", 2, Selection(), both)
    crash_after(monkeypatch, type(target.sink._target(one)), "become")  # one has moved, the other has not
    with pytest.raises(KeyboardInterrupt):
        target.sink.apply(batch)
    monkeypatch.undo()
    target.restart()
    target.sink.apply(batch)
    assert [r["id"] for r in target.read(swapped[0])] == [1, 10]
    assert [r["id"] for r in target.read(swapped[1])] == [2, 20]


@pytest.mark.parametrize("gone", ["files", "log"])
def test_rows_of_a_renamed_table_that_nobody_keeps_any_more(
    rare: Make, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """Another took the name; the old rows are in an old version, and the retention of these has ended."""
    target = rare(delete_mode="soft") if gone == "log" else rare()
    old, new = ORDERS, replace(ORDERS, id=2)
    target.feed((old, [c(id=1, name="a", big="A"), c(id=2, name="b", big="B"), c(id=3, name="c")]))
    target.feed((new, [c(id=7, name="new")]))
    forget(Path(target.sink._target(old).uri), gone)
    target.restart()
    attic = replace(old, name="attic")
    batch = target.batch((attic, [u(id=1, name="a2", unchanged=["big"]), d(id=3), c(id=4, name="d")]))
    target.source.rows = [{"id": i, "name": n, "big": b} for i, n, b in [(1, "a2", "A"), (2, "b", "B"), (4, "d", None)]]
    crash_after(monkeypatch, type(target.sink._target(old)), "merge")
    with pytest.raises(KeyboardInterrupt):
        target.sink.apply(batch)
    monkeypatch.undo()
    for _ in range(2):
        target.restart()
        target.sink.apply(batch)
    assert [tuple(row.values()) for row in target.read(attic)] == [(1, "a2", "A"), (2, "b", "B"), (4, "d", None)]
    assert [row["id"] for row in target.read(new)] == [7]
    assert not target.sink._target(attic).properties()["tidelog.missing"]


def test_an_old_version_in_a_place_with_an_odd_name(rig: Make, tmp_path: Path) -> None:
    """No character of it means anything to whoever looks for its files."""
    target = rig(path=str(tmp_path / "my lake {1}"))
    target.feed((ORDERS, [c(id=1)]))
    place = target.sink._target(ORDERS)
    assert place.holds(place.version())


def forget(table: Path, gone: str) -> None:
    """What a clean-up leaves of a table: what its last version needs."""
    now = DeltaTable(table)
    if gone == "files":
        now.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        return
    now.create_checkpoint()
    for entry in (table / "_delta_log").glob("*.json"):
        if int(entry.stem) < now.version():
            entry.unlink()


LAST = {"date": 2_932_896, **dict.fromkeys(["timestamp", "timestamptz"], 253_402_214_400_000_000)}
FIRST = {"date": -719_162, **dict.fromkeys(["timestamp", "timestamptz"], -62_135_596_800_000_000)}
"""9999-12-31 and 0001-01-01, which people write for never."""


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_days_and_moments_without_end(rig: Make, kind: str) -> None:
    """Python knows none of them, and engines may not be able to count them."""
    target, last = rig(), ENDLESS[arrow(Column("", kind))]
    dated = table(Column("id", "int4", nullable=False), Column("until", kind), Column("name", "text"))
    target.feed((dated, [c(id=1, until=last, name="a"), c(id=2, until=-last - 1), c(id=3, until=10), c(id=4)]))
    target.feed((dated, [u(id=1, until=last, name="b"), u(id=3, until=last), d(id=2), r(id=4, until=-last - 1)]))
    assert numbers(target, dated, "until") == {1: last, 3: last, 4: -last - 1}
    wider = table(*dated.columns, Column("since", kind, fill="infinity", number=4))
    target.feed((wider, [c(id=5, until=datetime(9999, 12, 31), since=datetime(1, 1, 1))]))
    assert numbers(target, wider, "since") == {1: last, 3: last, 4: last, 5: FIRST[kind]}
    assert numbers(target, wider, "until")[5] == LAST[kind]


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
def test_a_moment_that_old_rows_begin_with(rig: Make, zone: None, kind: str) -> None:  # noqa: ARG001
    """It is what the source says, wherever the process runs."""
    target = rig()
    target.feed((ORDERS, [c(id=1)]))
    noon = 1_750_075_200_000_000
    wider = table(*ORDERS.columns, Column("a", kind, fill=str(noon), number=4), Column("b", kind, fill="-infinity"))
    target.feed((wider, [c(id=2, a=10, b=10)]))
    assert numbers(target, wider, "a") == {1: noon, 2: 10}
    assert numbers(target, wider, "b") == {1: -(2**63), 2: 10}


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("kind", ["date", "timestamptz"])
def test_keys_without_end(rare: Make, kind: str) -> None:
    target, last = rare(), ENDLESS[arrow(Column("", kind))]
    columns = Column("id", "int4", nullable=False), Column("until", kind, nullable=False), Column("name", "text")
    dated = table(*columns, key=("until", "id"))
    target.feed((dated, [c(id=1, until=last, name="a"), c(id=2, until=-last - 1, name="b"), c(id=3, until=10)]))
    target.feed((dated, [u(id=1, until=last, name="a2"), u(id=3, until=last, before={"id": 3, "until": 10})]))
    target.feed((dated, [d(id=2, until=-last - 1), r(id=1, until=last, name="a3")]))
    assert numbers(target, dated, "until") == {1: last, 3: last}


def test_what_becomes_text_is_written_as_the_database_does(rig: Make) -> None:
    target, last = rig(), ENDLESS[pa.date32()]
    typed = table(Column("id", "int4"), numeric("n", 20, 10), Column("day", "date"))
    small, large = Decimal("-0.0000000001"), Decimal("1234567890.5")
    target.feed((typed, [c(id=1, n=Decimal(0), day=last), c(id=2, n=small, day=-735_000), c(id=3)]))
    target.feed((typed, [c(id=4, n=large, day=2_932_898), c(id=5, n=Decimal(1), day=-last - 1)]))
    text = table(Column("id", "int4"), Column("n", "text"), Column("day", "text"))
    target.feed((typed, [c(id=6, n=Decimal(0), day=last)]), (text, [c(id=7, n="0", day="0044-08-22 BC")]))
    assert [(row["n"], row["day"]) for row in target.read(text)] == [
        ("0.0000000000", "infinity"),
        ("-0.0000000001", "0044-08-22 BC"),
        (None, None),
        ("1234567890.5000000000", "10000-01-02"),
        ("1.0000000000", "-infinity"),
        ("0.0000000000", "infinity"),
        ("0", "0044-08-22 BC"),
    ]


def numbers(target: Rig, version: Table, column: str) -> dict[int, int]:
    found = target.content(version)
    kind = pa.int32() if pa.types.is_date(found[column].type) else pa.int64()
    return dict(zip(found["id"].to_pylist(), found[column].cast(kind).to_pylist(), strict=True))


FLOATS = table(Column("id", "float8"), Column("v", "int4"), name="floats", id=7)


@pytest.mark.parametrize("kind", ["float8", "float4"])
def test_zero_and_negative_zero_are_one_key(rig: Make, kind: str) -> None:
    """PostgreSQL tells the old key of a row whose zero changes its sign, and regards both as one key."""
    floats = replace(FLOATS, columns=(Column("id", kind, number=1), Column("v", "int4", number=2)))
    target = rig()
    target.feed((floats, [c(id=-0.0, v=1), c(id=1.0, v=2), c(id=float("nan"), v=3)]))
    target.feed((floats, [u({"id": -0.0}, id=0.0, v=4), u(id=float("nan"), v=5)]))
    target.feed((floats, [u({"id": 0.0}, id=-0.0, v=6), u({"id": -0.0}, id=0.0, v=7), u(id=0.0, v=8)]))
    assert sorted(row["v"] for row in target.read(floats)) == [2, 5, 8]
    target.feed((floats, [c(id=-0.0, v=9), d(id=float("nan"))]))
    assert sorted(row["v"] for row in target.read(floats)) == [2, 9]
    seen = pa.table({"id": pa.array([-0.0, 1.0], arrow(floats.columns[0]))})
    target.feed(versions=[floats], keep=KeysOf(seen))
    assert sorted(row["v"] for row in target.read(floats)) == [2, 9]
    target.feed((floats, [d(id=-0.0)]))
    assert [row["v"] for row in target.read(floats)] == [2]


def test_a_table_of_another_pipeline_is_refused(rig: Make) -> None:
    """Two pipelines that started at the same time, when the target was still empty."""
    first, second = rig(), rig()
    second.former_writers, second.query = frozenset(), "query-2"
    second.restart()
    first.feed((ORDERS, [c(id=1)]))
    with pytest.raises(TableRefused, match=r"Another pipeline writes the target table of public\.orders"):
        second.feed((ORDERS, [c(id=2)]))
    assert [row["id"] for row in first.read(ORDERS)] == [1]


def test_a_table_is_taken_over_from_a_former_writer_which_is_then_refused(rig: Make) -> None:
    first, second = rig(), rig()
    first.feed((ORDERS, [c(id=1)]))
    second.former_writers, second.query = frozenset(["query-1"]), "query-2"
    second.restart()
    second.feed((ORDERS, [c(id=2)]))
    with pytest.raises(TableRefused, match="Give each pipeline a path of its own"):
        first.feed((ORDERS, [c(id=3)]))
    assert [row["id"] for row in second.read(ORDERS)] == [1, 2]
