"""One behaviour, every sink and engine: what a batch makes of a target.

The replicating sinks must equal the source's table; the histories must hold every change once. All of them run for
real, on temporary directories.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tidelog.contracts import FAILURES, Batch, Sink, TableChanges
from tidelog.errors import ConfigError, UnsupportedChange
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection
from tidelog.spark import sinks
from tidelog.spark.sinks.console import ConsoleSink
from tidelog.spark.sinks.delta import DeltaSink
from tidelog.spark.sinks.delta_rust import RustTarget

Row = dict[str, Any]
TYPES = {
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "text": pa.string(),
    "varchar": pa.string(),
    "json": pa.string(),
    "bytea": pa.binary(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "text[]": pa.list_(pa.string()),
    "int4[]": pa.list_(pa.int32()),
}
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def arrow(column: Column) -> pa.DataType:
    if column.type == "numeric":
        return pa.decimal128((column.modifier - 4) >> 16, (column.modifier - 4) & 0xFFFF)
    return TYPES[column.type]


def numeric(name: str, precision: int, scale: int, **rest: Any) -> Column:
    return Column(name, "numeric", ((precision << 16) | scale) + 4, **rest)


def shape(table: Table, selection: Selection) -> pa.Schema:
    columns = [pa.field(c.name, arrow(c)) for c in selection.columns_of(table)]
    return pa.schema(
        [
            *columns,
            ("_op", pa.string()),
            ("_position", pa.int64()),
            ("_commit_ts", pa.timestamp("us", "UTC")),
            ("_xid", pa.int64()),
            ("_ordinal", pa.int64()),
            ("_before", pa.struct(columns)),
            ("_unchanged", pa.list_(pa.string())),
        ]
    )


def parse(text: str, column: Column) -> Any:
    kind = arrow(column)
    return int(text) if pa.types.is_integer(kind) else Decimal(text) if pa.types.is_decimal(kind) else text


def table(*columns: Column, key: Sequence[str] = ("id",), name: str = "orders", id: int = 1) -> Table:
    numbered = tuple(replace(c, number=c.number or i + 1) for i, c in enumerate(columns))
    return Table(id, "public", name, numbered, tuple(key))


def rows(version: Table, events: Sequence[Row], selection: Selection = Selection()) -> pa.Table:  # noqa: B008
    schema = shape(version, selection)
    meta = [
        {
            "_position": i,
            "_commit_ts": NOW,
            "_xid": 5,
            "_ordinal": i,
            **{"_" + k: v for k, v in e.items() if k != "row"},
        }
        for i, e in enumerate(events)
    ]
    return pa.Table.from_pylist([{**e.get("row", {}), **m} for e, m in zip(events, meta, strict=True)], schema)


def c(**row: Any) -> Row:
    return {"op": "c", "row": row}


def u(before: Row | None = None, unchanged: list[str] | None = None, **row: Any) -> Row:
    return {"op": "u", "row": row, "before": before, "unchanged": unchanged}


def d(**row: Any) -> Row:
    return {"op": "d", "row": row}


T: Row = {"op": "t"}


@dataclass
class Answers:
    """A source that knows the rows of today."""

    rows: list[Row] = field(default_factory=list)
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def read(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        self.asked.append(tuple(columns))
        wanted = pa.schema([shape(table, Selection()).field(name) for name in columns])
        yield from pa.Table.from_pylist([{n: r.get(n) for n in columns} for r in self.rows], wanted).to_batches()


@dataclass
class Rig:
    """A sink on a directory of its own, and a hand that feeds it."""

    options: dict[str, str]
    spark: Any = None
    source: Answers = field(default_factory=Answers)
    next: int = 0
    sink: Any = None

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.sink = sinks.create(self.options, spark=self.spark, source=self.source, parse=parse, shape=shape)

    def feed(self, *runs: tuple[Table, Sequence[Row]], versions: Sequence[Table] = (), selection: Any = None) -> Batch:
        batch = self.batch(*runs, versions=versions, selection=selection)
        self.sink.apply(batch)
        return batch

    def batch(self, *runs: tuple[Table, Sequence[Row]], versions: Sequence[Table] = (), selection: Any = None) -> Batch:
        chosen = selection or Selection()
        met = tuple(dict.fromkeys([*(v for v, _ in runs), *versions]))
        changes = TableChanges(met, [(v, rows(v, events, chosen)) for v, events in runs])
        batch = Batch("query-1", self.next, chosen, [changes])
        self.next += 1
        return batch

    def read(self, version: Table, *extra: str) -> list[Row]:
        options = {k: v for k, v in self.options.items() if k not in {"type", "format"}}
        columns = [c.name for c in version.columns]
        found = sinks.delta.read(options, version, [*columns, *extra]).to_pylist()
        return sorted(found, key=lambda r: [str(r[k]).rjust(9) for k in version.key])


@pytest.fixture(scope="session")
def delta_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("tidelog-sinks")
        .config("spark.jars.packages", "io.delta:delta-spark_4.2_2.13:4.4.0")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield spark
    spark.stop()


@pytest.fixture(params=["rust", "spark"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Rig]:
    """Makes a Delta target, on each engine."""
    engine = request.param
    spark = request.getfixturevalue("delta_spark") if engine == "spark" else None
    base = {"type": "delta", "path": str(tmp_path / "lake"), "engine": engine, "stage": str(tmp_path / "stage")}
    return lambda **options: Rig({**base, **{k.replace("_", "."): v for k, v in options.items()}}, spark)


ORDERS = table(Column("id", "int4", nullable=False), Column("name", "text"), Column("big", "text"))


def test_a_day_in_the_life_of_a_table(rig: Callable[..., Rig]) -> None:
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


def test_every_type_and_odd_names(rig: Callable[..., Rig]) -> None:
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


def test_soft_deletes(rig: Callable[..., Rig]) -> None:
    target = rig(delete_mode="soft", metadata_columns="_op,_position")
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


def test_schema_changes(rig: Callable[..., Rig]) -> None:
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


def test_a_crash_between_evolving_and_merging(rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    target = rig()
    v1 = table(Column("id", "int4"), Column("a", "text"))
    target.feed((v1, [c(id=1, a="1"), c(id=2, a="2")]))
    v2 = table(Column("id", "int4"), Column("b", "text", number=2), Column("c", "text", number=3, rewritten=True))
    target.source.rows = [{"id": 1, "c": "c1"}, {"id": 2, "c": "c2"}]
    batch = target.batch((v1, [u(id=2, a="two")]), (v2, [c(id=3, b="3", c="c3")]))
    kind = type(target.sink._target(v1))
    for step in ("describe", "rewrite", "merge", "merge"):
        crash_after(monkeypatch, kind, step)
        with pytest.raises(KeyboardInterrupt):
            target.sink.apply(batch)
        monkeypatch.undo()
        target.restart()
        if step == "merge":
            break
    crash_before(monkeypatch, DeltaSink, "_commit")
    with pytest.raises(KeyboardInterrupt):
        target.sink.apply(batch)
    monkeypatch.undo()
    target.restart()
    target.sink.apply(batch)
    target.sink.apply(batch)
    assert target.read(v2) == [
        {"id": 1, "b": "1", "c": "c1"},
        {"id": 2, "b": "two", "c": "c2"},
        {"id": 3, "b": "3", "c": "c3"},
    ]


def crash_after(monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> None:
    real = getattr(kind, name)

    def crash(*args: Any, **options: Any) -> None:
        real(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(kind, name, crash)


def crash_before(monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> None:
    def crash(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(kind, name, crash)


def test_tables_that_change_their_names(rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    target = rig()
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


def test_dead_letters_and_several_tables(rig: Callable[..., Rig]) -> None:
    target = rig()
    letters = pa.Table.from_pylist(
        [{"table": "public.orders", "position": 1, "reason": "why", "payload": b"?"}], FAILURES
    )
    tables = [replace(ORDERS, id=i, name=f"t{i}") for i in range(3)]
    changes = [TableChanges((t,), [(t, rows(t, [c(id=t.id, name="x")]))]) for t in tables]
    batch = Batch("query-1", 0, Selection(), changes, letters)
    for _ in range(2):
        target.sink.apply(batch)
    assert [target.read(t)[0]["id"] for t in tables] == [0, 1, 2]
    buried = RustTarget(target.options["path"] + "/_dead_letters").read(["reason"])
    assert buried.to_pylist() == [{"reason": "why"}]


def test_a_table_without_a_key_is_refused(tmp_path: Path) -> None:
    target = Rig({"type": "delta", "path": str(tmp_path), "engine": "rust"})
    with pytest.raises(ConfigError, match=r"public\.orders has no key.*message\.key\.columns.*history"):
        target.feed((replace(ORDERS, key=()), [c(id=1)]))
    target.next = 0
    target.feed((replace(ORDERS, key=()), [c(id=1)]), selection=Selection(message_keys="public.orders:id"))
    assert [r["id"] for r in target.read(ORDERS)] == [1]


def test_a_nullable_key_the_user_named(tmp_path: Path) -> None:
    target = Rig({"type": "delta", "path": str(tmp_path), "engine": "rust"})
    chosen = Selection(message_keys="public.orders:id,name")
    target.feed((ORDERS, [c(id=1, name=None, big="a"), c(id=1, name="n", big="b")]), selection=chosen)
    target.feed((ORDERS, [u(id=1, name=None, big="c"), d(id=1, name="n")]), selection=chosen)
    assert target.read(ORDERS) == [{"id": 1, "name": None, "big": "c"}]


def test_what_only_the_source_knows_needs_a_source(tmp_path: Path) -> None:
    sink = sinks.create({"type": "delta", "path": str(tmp_path), "engine": "rust"}, parse=parse, shape=shape)
    feeder = Rig({"type": "delta", "path": str(tmp_path), "engine": "rust"})
    feeder.feed((ORDERS, [c(id=1, name="x")]))
    volatile = table(*ORDERS.columns, Column("extra", "text", rewritten=True))
    with pytest.raises(UnsupportedChange, match=r"extra.*public\.orders"):
        sink.apply(feeder.batch((volatile, [c(id=2, name="y", extra="e")])))


def test_a_table_that_was_made_anew(tmp_path: Path) -> None:
    target = Rig({"type": "delta", "path": str(tmp_path), "engine": "rust"})
    target.feed((ORDERS, [c(id=1, name="old")]))
    target.feed((replace(ORDERS, id=2), [c(id=5, name="new")]))
    assert [r["id"] for r in target.read(ORDERS)] == [5]
    target.feed((replace(ORDERS, name="attic"), [c(id=6, name="late")]))  # table 1 was renamed before 2 was made
    assert [r["id"] for r in target.read(replace(ORDERS, name="attic"))] == [1, 6]


def test_another_query_goes_on_with_the_target(tmp_path: Path) -> None:
    target = Rig({"type": "delta", "path": str(tmp_path), "engine": "rust"})
    target.feed((ORDERS, [c(id=1, name="kept")]))
    other = replace(ORDERS, id=77)  # a restored database: same table, other id
    target.sink.apply(Batch("query-2", 0, Selection(), [TableChanges((other,), [(other, rows(other, [c(id=2)]))])]))
    assert [r["id"] for r in target.read(ORDERS)] == [1, 2]


def test_appending_is_exact(tmp_path: Path) -> None:
    """Keys beyond all files are appended; one key within them makes it a merge."""
    target = Rig({"type": "delta", "path": str(tmp_path), "engine": "rust"})
    for ids in ([1, 2], [3, 4], [4, 5], [9], [7], [9, 10]):
        target.feed((ORDERS, [c(id=i, name=str(ids)) for i in ids]))
    target.feed((ORDERS, [u(id=20, name="u", unchanged=["big"]), d(id=21)]))
    log = target.sink._target(ORDERS)._table.history()
    assert [r["id"] for r in target.read(ORDERS)] == [1, 2, 3, 4, 5, 7, 9, 10, 20]
    assert [h["operation"] for h in reversed(log)].count("MERGE") == 3


def test_joining_small_files_loses_nothing(tmp_path: Path) -> None:
    target = Rig({"type": "delta", "path": str(tmp_path), "engine": "rust", "optimize.every": "12"})
    for i in range(30):
        target.feed((ORDERS, [c(id=i, name=str(i))]))
    table_ = target.sink._target(ORDERS)._table
    assert [r["id"] for r in target.read(ORDERS)] == list(range(30))
    assert len(table_.file_uris()) < 12
    assert table_.transaction_version("query-1:public.orders") == 29


def test_the_target_is_read_by_range(tmp_path: Path) -> None:
    target = Rig({"type": "delta", "path": str(tmp_path), "engine": "rust"})
    target.feed((ORDERS, [c(id=i, name=str(i)) for i in range(10)]))
    found = sinks.delta.read({"path": str(tmp_path)}, ORDERS, ["id"], '"id" >= 3 AND "id" < 6')
    assert sorted(found["id"].to_pylist()) == [3, 4, 5]


@pytest.fixture(params=["parquet", "delta"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    return Rig({"type": "history", "path": str(tmp_path), "format": request.param})


def written(rig: Rig, version: Table) -> pa.Table:
    where = f"{rig.options['path']}/{version.schema}/{version.name}"
    if rig.options["format"] == "delta":
        target = RustTarget(where)
        return target.scan(None, None).sort_by([("_position", "ascending")])
    return ds.dataset(where).to_table()


def test_every_change_once(history: Rig) -> None:
    keyless = replace(ORDERS, key=())
    history.feed((keyless, [c(id=1, name="a"), u(id=2, name="b", before={"id": 1, "name": "a"}, unchanged=["big"])]))
    batch = history.batch((keyless, [d(id=2), T]))
    history.sink.apply(batch)
    history.restart()
    history.sink.apply(batch)
    found = written(history, keyless)
    assert sorted(found["_op"].to_pylist()) == ["c", "d", "t", "u"]
    update = found.filter(pa.compute.equal(found["_op"], "u")).to_pylist()[0]
    assert update["_before"] == '{"id": 1, "name": "a", "big": null}'
    assert update["_unchanged"] == ["big"]
    assert update["_commit_ts"] == NOW


def test_a_history_follows_the_schema(history: Rig) -> None:
    v1 = table(Column("id", "int4"), Column("n", "int2"), Column("at", "timestamp"))
    v2 = table(Column("id", "int4"), Column("n", "int8"), Column("at", "text"), Column("more", "text[]"))
    history.feed((v1, [c(id=1, n=1, at=datetime(2026, 1, 1))]))
    history.feed((v2, [c(id=2, n=2**40, at="later", more=["m"])]))
    if history.options["format"] == "parquet":
        files = sorted(Path(history.options["path"], "public", "orders").iterdir())
        assert [ds.dataset(f).schema.field("n").type for f in files] == [pa.int16(), pa.int64()]
        return
    found = sorted(written(history, v2).to_pylist(), key=lambda r: r["id"])
    assert [(r["n"], r["at"], r["more"]) for r in found] == [
        (1, "2026-01-01 00:00:00.000000", None),
        (2**40, "later", ["m"]),
    ]


def test_a_history_in_place_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Rig({"type": "history", "path": str(tmp_path)})
    batch = target.batch((ORDERS, [c(id=1)]))
    real = sinks.history.pq.write_table

    def torn(*args: Any, **options: Any) -> None:
        real(*args, **options)
        raise OSError("disk full")

    monkeypatch.setattr(sinks.history.pq, "write_table", torn)
    with pytest.raises(OSError, match="disk full"):
        target.sink.apply(batch)
    monkeypatch.undo()
    assert not list((tmp_path / "public" / "orders").iterdir())
    target.sink.apply(batch)
    assert len(list((tmp_path / "public" / "orders").iterdir())) == 1


def test_the_console_prints_a_line_per_change() -> None:
    out = io.StringIO()
    events = [
        c(id=1, name="ä", big=None),
        u(id=2, name="b", before={"id": 1}, unchanged=["big"]),
        d(id=2),
        T,
        c(id=3),
    ]
    changes = TableChanges((ORDERS,), [(ORDERS, rows(ORDERS, events))])
    ConsoleSink(limit=4, out=out).apply(Batch("q", 7, Selection(), [changes]))
    assert out.getvalue().splitlines() == [
        'public.orders  create  {"id": 1, "name": "ä", "big": null}',
        'public.orders  update  {"id": 2, "name": "b"}  was {"id": 1}  unchanged big',
        'public.orders  delete  {"id": 2}',
        "public.orders  truncate",
        "… and 1 more in batch 7",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"type": "dleta", "path": "x"}, "no sink 'dleta'.*Did you mean 'delta'"),
        ({"path": "x"}, "no type"),
        ({"type": "delta", "pth": "x"}, "no setting 'pth'.*Did you mean 'path'"),
        ({"type": "delta"}, "path is missing"),
        ({"type": "delta", "path": "x", "delete.mode": "sft"}, "Did you mean 'soft'"),
        ({"type": "delta", "path": "x", "metadata.columns": "_lsn"}, "'_lsn' is unknown"),
        ({"type": "delta", "path": "x", "engine": "spark"}, "needs a Spark session"),
        ({"type": "console", "limits": "3"}, "Did you mean 'limit'"),
        ({"type": "history", "path": "x", "format": "orc"}, "not one of parquet, delta"),
    ],
)
def test_mistakes_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sinks.create(options, parse=parse, shape=shape)


def test_storage_options_reach_the_engine() -> None:
    sink: Sink = sinks.create(
        {"type": "delta", "path": "s3://b/x", "engine": "rust", "storage.aws_region": "eu"}, parse=parse, shape=shape
    )
    assert isinstance(sink, DeltaSink)
    assert sink.options.storage == {"aws_region": "eu"}
