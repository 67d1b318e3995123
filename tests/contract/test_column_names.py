"""A table may have columns of any name, also those that tidelog uses itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tests.contract.sink_rig import ORDERS, Rig, c, d, r, table, u
from tidelog.core import metadata
from tidelog.errors import ConfigError, TableRefused
from tidelog.model.schema import Column, Table
from tidelog.spark.sinks.delta_rust import RustTarget

HOSTILE = (
    *metadata.visible().values(),
    "_deleted",
    "_deleted_at",
    "_row",
    "__tidelog_delete",
    "__tidelog_keep_0",
    "s",
    "t",
    "table",
    "least",
    "rows",
)
NAMED = table(Column("id", "int4", nullable=False), *(Column(name, "text") for name in HOSTILE))


def row(id: int, text: str) -> dict[str, object]:
    return {"id": id, **dict.fromkeys(HOSTILE, text)}


@pytest.fixture(params=["hard", "soft"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_delta_takes_any_column(tmp_path: Path, mode: str) -> None:
    options = {"type": "delta", "path": str(tmp_path), "delete.mode": mode}
    if mode == "soft":
        options |= {"metadata.prefix": "cdc_", "metadata.columns": "_op,_position"}
    rig = Rig(options)
    rig.feed((NAMED, [c(**row(1, "a")), c(**row(2, "b")), c(**row(3, "c"))]))
    left_out = ["_op", "__tidelog_delete", "_row"]
    told = {name: text for name, text in row(1, "A").items() if name not in left_out}
    moved = {name: text for name, text in row(20, "B").items() if name not in left_out}
    rig.feed((NAMED, [u(unchanged=left_out, **told), u(before={"id": 2}, unchanged=left_out, **moved), d(id=3)]))
    rig.feed((NAMED, [r(**row(4, "d"))]))
    expected = {
        1: row(1, "A") | dict.fromkeys(left_out, "a"),
        4: row(4, "d"),
        20: row(20, "B") | dict.fromkeys(left_out, "b"),
    }
    marks = ("cdc_deleted", "cdc_op") if mode == "soft" else ()
    found = rig.read(NAMED, *marks)
    alive = {one["id"]: one for one in found if not one.get("cdc_deleted")}
    assert {id: {name: one[name] for name in ("id", *HOSTILE)} for id, one in alive.items()} == expected
    if mode == "soft":
        assert {one["id"] for one in found if one["cdc_deleted"]} == {2, 3}
        assert {one["id"]: one["cdc_op"] for one in alive.values()} == {1: "u", 4: "r", 20: "u"}


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_the_history_takes_any_column(tmp_path: Path, kind: str) -> None:
    options = {"type": "history", "path": str(tmp_path), "format": kind}
    with pytest.raises(TableRefused, match=r"public\.orders has a column _op.*metadata\.prefix"):
        Rig(options).feed((NAMED, [c(**row(1, "a"))]))
    rig = Rig(options | {"metadata.prefix": "cdc_"})
    rig.feed((NAMED, [c(**row(1, "a")), u(before=row(1, "a"), **row(1, "b"))]))
    found = history(tmp_path, kind).sort_by("cdc_ordinal").to_pylist()
    assert [(one["cdc_op"], one["_op"], one["table"]) for one in found] == [("c", "a", "a"), ("u", "b", "b")]
    assert '"__tidelog_delete": "a"' in found[1]["cdc_before"]


def history(folder: Path, kind: str) -> pa.Table:
    place = str(folder / "public" / "orders")
    return ds.dataset(place, format="parquet").to_table() if kind == "parquet" else RustTarget(place).scan(None, None)


def test_the_console_prints_any_column(capsys: pytest.CaptureFixture[str]) -> None:
    Rig({"type": "console"}).feed((NAMED, [c(**row(1, "a"))]))
    assert '"_op": "a", "_position": "a"' in capsys.readouterr().out


TWINS = table(Column("id", "int4", nullable=False), Column("a", "text"), Column("A", "text"))


@pytest.mark.parametrize(
    ("options", "version", "says"),
    [
        (
            {"type": "history", "format": "delta"},
            TWINS,
            "columns a and A, which differ in.*exclude",
        ),
        ({"type": "delta"}, TWINS, "columns a and A, which differ in.*exclude"),
        ({"type": "delta"}, replace(ORDERS, key=()), "has no key.*message.key.columns"),
        ({"type": "delta", "metadata.columns": "_op"}, NAMED, "a column _op.*metadata.prefix"),
        ({"type": "delta", "delete.mode": "soft"}, NAMED, "a column _deleted.*metadata.prefix"),
    ],
)
def test_what_a_sink_cannot_take_is_said_in_one_sentence(
    tmp_path: Path, options: dict[str, str], version: Table, says: str
) -> None:
    with pytest.raises(TableRefused, match=says):
        Rig(options | {"path": str(tmp_path)}).feed((version, [c(id=1)]))


@pytest.mark.parametrize("prefix", ["", "1x", "Cdc_", "a-b"])
def test_a_prefix_is_a_name(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(ConfigError, match=r"metadata\.prefix"):
        Rig({"type": "delta", "path": str(tmp_path), "metadata.prefix": prefix})


def test_files_of_an_earlier_attempt_do_not_stay(tmp_path: Path) -> None:
    """A batch that was never committed comes again under other settings, with fewer runs of rows."""
    rig = Rig({"type": "history", "path": str(tmp_path)})
    wider = replace(ORDERS, columns=(*ORDERS.columns, Column("more", "text", number=9)))
    runs: Sequence[tuple[Table, list[dict[str, object]]]] = [
        (ORDERS, [c(id=1)]),
        (wider, [c(id=2)]),
        (ORDERS, [c(id=3)]),
    ]
    rig.feed(*runs)
    rig.restart()
    rig.next = 0
    rig.feed((ORDERS, [c(id=1), c(id=2), c(id=3)]))
    assert history(tmp_path, "parquet")["id"].to_pylist() == [1, 2, 3]
