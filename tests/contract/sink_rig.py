"""What the sink suites share: tables, changes as a decoder makes them, a source that answers, a sink to feed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidelog.contracts import Batch, Keys, TableChanges, Watermark
from tidelog.core import metadata
from tidelog.core.snapshot.watermark import Replayed
from tidelog.engine.filled_targets import FilledTargets
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection
from tidelog.spark import sinks

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
ENDLESS = {pa.date32(): 2**31 - 1, pa.timestamp("us"): 2**63 - 1, pa.timestamp("us", "UTC"): 2**63 - 1}
"""PostgreSQL's `infinity` as its decoder tells it; the other end is one less below zero."""
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
            (metadata.OP, pa.string()),
            (metadata.POSITION, pa.int64()),
            (metadata.COMMIT_TS, pa.timestamp("us", "UTC")),
            (metadata.XID, pa.int64()),
            (metadata.ORDINAL, pa.int64()),
            (metadata.BEFORE, pa.struct(columns)),
            (metadata.UNCHANGED, pa.list_(pa.string())),
        ]
    )


def parse(text: str, table: Table, column: Column) -> Any:  # noqa: ARG001
    kind = arrow(column)
    if text.endswith("infinity"):
        return ENDLESS[kind] if text == "infinity" else -ENDLESS[kind] - 1
    return (
        int(text)
        if pa.types.is_integer(kind) or pa.types.is_timestamp(kind)
        else Decimal(text)
        if pa.types.is_decimal(kind)
        else text
    )


def table(*columns: Column, key: Sequence[str] = ("id",), name: str = "orders", id: int = 1) -> Table:
    numbered = tuple(replace(c, number=c.number or i + 1) for i, c in enumerate(columns))
    return Table(id, "public", name, numbered, tuple(key))


def rows(version: Table, events: Sequence[Row], selection: Selection = Selection()) -> pa.Table:  # noqa: B008
    schema = shape(version, selection)
    meta = [
        {
            metadata.POSITION: i,
            metadata.COMMIT_TS: NOW,
            metadata.XID: 5,
            metadata.ORDINAL: i,
            **{metadata.hidden(k): v for k, v in e.items() if k != "row"},
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


def r(**row: Any) -> Row:
    return {"op": "r", "row": row}


T: Row = {"op": "t"}


@dataclass
class Answers:
    """A source that knows the rows of today."""

    rows: list[Row] = field(default_factory=list)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    looked_up: list[list[Row]] = field(default_factory=list)
    seen: Watermark = field(default_factory=lambda: Replayed(1 << 40))
    """What it shows has seen the log up to here."""
    now: Table | None = None
    """The table as it is by now; None: as the log tells of it."""
    told: Table | None = None
    """The version that the log told of last."""

    def read(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        self.asked.append(tuple(columns))
        wanted = pa.schema([shape(table, Selection()).field(name) for name in columns])
        same = {n for n in columns if self.now is None or table.column(n) in self.now.columns}
        if same.issuperset(table.key):
            found = [{n: r.get(n) if n in same else None for n in columns} for r in self.rows]
            yield from pa.Table.from_pylist(found, wanted).to_batches()

    def read_keys(self, table: Table, columns: Sequence[str], keys: pa.Table) -> Iterator[pa.RecordBatch]:
        self.looked_up.append(keys.to_pylist())
        yield from self.read(table, columns)  # more than asked for, as a source may

    def present(self, ids: Sequence[int]) -> list[Table]:  # noqa: ARG002
        return [self.now or self.told or ORDERS]

    def horizon(self) -> Watermark:
        return self.seen


@dataclass
class KeysOf:
    """Keys as a sink gets them: in portions, as often as it asks."""

    table: pa.Table
    size: int = 3

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def portions(self) -> Iterator[pa.Table]:
        return (self.table.slice(at, self.size) for at in range(0, self.table.num_rows, self.size))


@dataclass
class Rig:
    """A sink on a directory of its own, and a hand that feeds it."""

    options: dict[str, str]
    spark: Any = None
    source: Answers = field(default_factory=Answers)
    filled: FilledTargets = field(default_factory=FilledTargets)
    former_writers: frozenset[str] | None = None
    query: str = "query-1"
    next: int = 0
    sink: Any = None

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.sink = sinks.create(
            self.options,
            spark=self.spark,
            source=self.source,
            parse=parse,
            shape=shape,
            filled=self.filled,
            former_writers=self.former_writers,
        )

    def feed(self, *runs: tuple[Table, Sequence[Row]], **more: Any) -> Batch:
        batch = self.batch(*runs, **more)
        self.sink.apply(batch)
        return batch

    def batch(
        self,
        *runs: tuple[Table, Sequence[Row]],
        versions: Sequence[Table] = (),
        selection: Any = None,
        snapshotting: bool = False,
        keep: Keys | None = None,
    ) -> Batch:
        chosen = selection or Selection()
        met = tuple(dict.fromkeys([*(v for v, _ in runs), *versions]))
        self.source.told = met[-1]
        changes = TableChanges(
            met, [(v, rows(v, events, chosen)) for v, events in runs], snapshotting, keep, (self.next, 0)
        )
        batch = Batch(self.query, self.next, chosen, [changes])
        self.next += 1
        return batch

    def read(self, version: Table, *extra: str) -> list[Row]:
        found = self.content(version, *extra).to_pylist()
        return sorted(found, key=lambda r: [str(r[k]).rjust(9) for k in version.key])

    def content(self, version: Table, *extra: str) -> pa.Table:
        options = {k: v for k, v in self.options.items() if k not in {"type", "format"}}
        return sinks.delta.read(options, version, [*(c.name for c in version.columns), *extra])


ORDERS = table(Column("id", "int4", nullable=False), Column("name", "text"), Column("big", "text"))


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
