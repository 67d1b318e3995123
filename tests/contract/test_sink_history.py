"""The history sinks hold every change once; the console prints; mistakes in the options are named."""

from __future__ import annotations

import errno
import io
import json
import sys
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from tests.contract.sink_rig import (
    ENDLESS,
    NOW,
    ORDERS,
    KeysOf,
    Rig,
    T,
    arrow,
    c,
    d,
    parse,
    r,
    rows,
    shape,
    table,
    u,
)
from tidelog.contracts import Batch, Sink, TableChanges
from tidelog.errors import ConfigError, NotInstalled, TransientError
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection
from tidelog.spark import sinks
from tidelog.spark.sinks.console import ConsoleSink
from tidelog.spark.sinks.delta import DeltaSink
from tidelog.spark.sinks.delta_rust import RustTarget


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
    update = found.filter(pc.equal(found["_op"], "u")).to_pylist()[0]
    assert update["_before"] == '{"id": 1, "name": "a", "big": null}'
    assert update["_unchanged"] == ["big"]
    assert update["_commit_ts"] == NOW


@pytest.mark.parametrize("kind", ["date", "timestamptz"])
def test_days_and_moments_without_end(history: Rig, kind: str) -> None:
    last = ENDLESS[arrow(Column("", kind))]
    dated = table(Column("id", "int4", nullable=False), Column("until", kind))
    history.feed((dated, [c(id=1, until=last), u(id=1, until=-last - 1, before={"id": 1, "until": last})]))
    assert written(history, dated)["_before"].to_pylist() == [None, '{"id": 1, "until": "infinity"}']
    out = io.StringIO()
    ConsoleSink(out=out).apply(history.batch((dated, [c(id=1, until=last), d(id=1)])))
    assert out.getvalue().splitlines()[0] == 'public.orders  create  {"id": 1, "until": "infinity"}'


def test_what_was_read_comes_after_the_log(history: Rig) -> None:
    history.feed((ORDERS, [u(id=1, name="u"), r(id=1, name="r")]), (ORDERS, [c(id=2), r(id=3)]))
    found = written(history, ORDERS)
    if history.options["format"] == "parquet":
        assert list(zip(found["_op"].to_pylist(), found["id"].to_pylist(), strict=True)) == [
            ("u", 1),
            ("c", 2),
            ("r", 1),
            ("r", 3),
        ]
    history.feed(versions=[ORDERS], keep=KeysOf(pa.table({"id": pa.array([], pa.int32())})))
    assert written(history, ORDERS).num_rows == 4


def test_the_console_prints_reads_last() -> None:
    out = io.StringIO()
    changes = TableChanges((ORDERS,), [(ORDERS, rows(ORDERS, [d(id=1), r(id=1, name="x")]))])
    ConsoleSink(out=out).apply(Batch("q", 0, Selection(), [changes]))
    assert [line.split()[1] for line in out.getvalue().splitlines()] == ["delete", "read"]


def test_an_old_row_as_json() -> None:
    rows = [
        {"a b": 1, "s": 'q"\\\n', "f": 0.1, "d": Decimal("1.50"), "b": b"\xff", "l": ["x", None], "t": NOW, "o": True},
        {"a b": None, "s": None, "f": float("inf"), "d": None, "b": None, "l": None, "t": None, "o": None},
        None,
    ]
    kinds = [pa.int64(), pa.string(), pa.float64(), pa.decimal128(5, 2), pa.binary(), pa.list_(pa.string())]
    names = list(rows[0] or {})
    kind = pa.struct(list(zip(names, [*kinds, pa.timestamp("us", "UTC"), pa.bool_()], strict=True)))
    first, second, third = sinks.history._texts(pa.chunked_array([pa.array(rows, kind)])).to_pylist()
    assert json.loads(first) == {
        "a b": 1,
        "s": 'q"\\\n',
        "f": 0.1,
        "d": "1.50",
        "b": "ff",
        "l": ["x", None],
        "o": True,
        "t": "2026-01-02 03:04:05.000000Z",
    }
    assert json.loads(second) == {**dict.fromkeys(names), "f": "inf"}
    assert third is None


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
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sinks.history.pq, "write_table", torn)
    with pytest.raises(TransientError, match=r"cannot be written: the disk is full\. Free some space"):
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


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(NotInstalled, match=r"pip install 'tidelog\[delta\]'"):
        sinks.create({"type": "delta", "path": "x", "engine": "rust"}, parse=parse, shape=shape)


def test_storage_options_reach_the_engine() -> None:
    sink: Sink = sinks.create(
        {"type": "delta", "path": "s3://b/x", "engine": "rust", "storage.aws_region": "eu"}, parse=parse, shape=shape
    )
    assert isinstance(sink, DeltaSink)
    assert sink.options.storage == {"aws_region": "eu"}
