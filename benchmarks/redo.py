"""Redo SQL to columns: how many statements a CPU-second reads.

    python -m benchmarks.redo [--statements 200000] [--rounds 5]

Statements of a table with eight columns, as LogMiner writes them, in blocks as Spark tasks get them. Read by shape
they become, for every column, an Arrow array of texts with the kind of each value: inserts the new row, deletes the
old one, updates both. Beside it the reference that reads one statement at a time, and the whole way to typed rows.
Everything is printed, and written to `results/redo.json`.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from benchmarks import environment
from benchmarks.stream import RESULTS, save, say
from tidelog.connectors.oracle import payload, types
from tidelog.connectors.oracle.decode import OracleDecoder
from tidelog.connectors.oracle.redo import dml, shapes
from tidelog.connectors.oracle.redo.values import quoted
from tidelog.contracts import RECORDS
from tidelog.model.record import Op
from tidelog.model.schema import Table
from tidelog.model.selection import Selection

STATEMENTS = 200_000
BLOCK = 10_000
SCALAR = 20
"""The reference reads one in so many: it takes as much longer."""
SEED = 6
TARGET = 300_000
PACKAGES = ("tidelog", "pyarrow", "numpy")

TABLE = Table(
    1,
    "SHOP",
    "ORDERS",
    (
        types.column("ID", "NUMBER", precision=12, scale=0, nullable=False),
        types.column("CUSTOMER", "NUMBER", precision=10, scale=0),
        types.column("STATUS", "VARCHAR2", length=20),
        types.column("NAME", "VARCHAR2", length=100),
        types.column("AMOUNT", "NUMBER", precision=12, scale=2),
        types.column("CREATED", "DATE"),
        types.column("CHANGED", "TIMESTAMP(6)", scale=6),
        types.column("NOTE", "VARCHAR2", length=400),
    ),
    ("ID",),
)
NAMES = tuple(column.name for column in TABLE.columns)
PEOPLE = ("Ann Smith", "Bob O'Neil", "María García López", "Li Wei", "J. van den Berg")
CHANGED = (2, 4, 6)
"""The columns that an update sets."""

CAPTION = """\
by shape   all columns of every row as Arrow texts with kinds; statements per second of CPU, all threads counted
one by one the exact parser that `by shape` falls back to
typed      from the journal's payloads to typed rows with the old row beside them, as a sink gets them
ragged     any column but the key may be null, so that a block has many shapes"""


@dataclass(frozen=True)
class Load:
    op: Op
    make: Callable[[random.Random, float], str]


def values(chance: random.Random, nulls: float) -> list[str]:
    day, clock = (
        f"2026-{chance.randrange(1, 13):02d}-{chance.randrange(1, 29):02d}",
        f"{chance.randrange(24):02d}:10:11",
    )
    note = "NULL" if chance.random() < 0.2 else quoted("left at the door " * chance.randrange(1, 4))
    row = [
        quoted(str(chance.randrange(10**9))),
        quoted(str(chance.randrange(10**6))),
        quoted(chance.choice(("NEW", "PAID", "SENT", "RETURNED"))),
        quoted(chance.choice(PEOPLE)),
        quoted(f"{chance.randrange(10**6) / 100:.2f}"),
        f"TO_DATE('{day} {clock}', 'YYYY-MM-DD HH24:MI:SS')",
        f"TO_TIMESTAMP('{day} {clock}.{chance.randrange(10**6):06d}')",
        note,
    ]
    return [value if i == 0 or chance.random() >= nulls else "NULL" for i, value in enumerate(row)]


def insert(chance: random.Random, nulls: float) -> str:
    names = ",".join(f'"{name}"' for name in NAMES)
    return f'insert into "SHOP"."ORDERS"({names}) values ({",".join(values(chance, nulls))});'


def update(chance: random.Random, nulls: float) -> str:
    new = values(chance, nulls)
    assigned = ", ".join(f'"{NAMES[i]}" = {new[i]}' for i in CHANGED)
    return f'update "SHOP"."ORDERS" set {assigned} where {where(chance, nulls)};'


def delete(chance: random.Random, nulls: float) -> str:
    return f'delete from "SHOP"."ORDERS" where {where(chance, nulls)};'


def where(chance: random.Random, nulls: float) -> str:
    pairs = zip(NAMES, values(chance, nulls), strict=True)
    return " and ".join(f'"{n}" IS NULL' if v == "NULL" else f'"{n}" = {v}' for n, v in pairs)


LOADS = {"insert": Load(Op.CREATE, insert), "update": Load(Op.UPDATE, update), "delete": Load(Op.DELETE, delete)}


# -- runs ----------------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    figures = {name: measured(name, load, options.statements, options.rounds) for name, load in LOADS.items()}
    ratios = {f"{name}_per_cpu_s": found["by_shape"] for name, found in figures.items()}
    print_table(figures)
    report = {"statements": options.statements, "block": BLOCK, "rounds": options.rounds, "per_cpu_s": figures}
    save({**report, "ratios": ratios, "target": TARGET, "environment": facts()}, options.out)
    return 0 if all(rate >= TARGET for rate in ratios.values()) else 1


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Redo SQL statements read per CPU-second.")
    parser.add_argument("--statements", type=int, default=STATEMENTS, help="of each kind (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="the median counts (default %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS / "redo.json", help="where the results go")
    return parser.parse_args(arguments)


def measured(name: str, load: Load, count: int, rounds: int) -> dict[str, int]:
    chance = random.Random(SEED)
    plain = [load.make(chance, 0.0) for _ in range(count)]
    ragged = [load.make(chance, 0.3) for _ in range(count)]
    blocks, ragged_blocks = list(cut(plain)), list(cut(ragged))
    records = [journalled(block, load.op) for block in blocks]
    runs: dict[str, tuple[Callable[[], None], int]] = {
        "by_shape": (lambda: by_shape(blocks, load.op), count),
        "by_shape_ragged": (lambda: by_shape(ragged_blocks, load.op), count),
        "one_by_one": (lambda: one_by_one(plain[::SCALAR]), len(plain[::SCALAR])),
        "typed": (lambda: typed(records), count),
    }
    found: dict[str, int] = {}
    for way, (run, statements) in runs.items():
        run()
        found[way] = round(statements / statistics.median(cpu_s(run) for _ in range(rounds)))
        say(f"{name}, {way.replace('_', ' ')}: {found[way]:,} statements per CPU-second")
    return {**found, "bytes": round(statistics.mean(len(sql.encode()) for sql in plain))}


def cut(statements: list[str]) -> Iterator[pa.BinaryArray]:
    for start in range(0, len(statements), BLOCK):
        yield pa.array(statements[start : start + BLOCK], pa.binary())


def journalled(block: pa.BinaryArray, op: Op) -> pa.RecordBatch:
    """The statements as the journal holds them."""
    same = {"position": 4096, "xid": 1, "committed": 0, "lsn": 1, "op": ord(op), "ordinal": 0, "table_ordinal": 0}
    columns = {n: pa.repeat(pa.scalar(value, RECORDS.field(n).type), len(block)) for n, value in same.items()}
    columns["payload"] = payload.pack(code=1, sql=block, user=pa.repeat("SHOP", len(block)))
    arrays = [columns[f.name] if f.name in columns else pa.nulls(len(block), f.type) for f in RECORDS]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


def cpu_s(run: Callable[[], None]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def by_shape(blocks: list[pa.BinaryArray], op: Op) -> None:
    for block in blocks:
        found = shapes.read(block, TABLE)
        assert not found.failed
        images = {Op.CREATE: [found.after], Op.DELETE: [found.before]}.get(op, [found.before, found.after])
        for image in images:
            texts, kinds = [image.texts(i) for i in range(len(NAMES))], image.kinds
            assert len(texts[0]) == kinds.shape[1] == len(block)


def one_by_one(statements: list[str]) -> None:
    for sql in statements:
        dml.parse(sql, TABLE)


def typed(records: list[pa.RecordBatch]) -> None:
    decoder, selection = OracleDecoder(), Selection()
    for block in records:
        assert decoder.typed(block, TABLE, selection).rows.num_rows == block.num_rows


# -- figures -------------------------------------------------------------------------------------------------------


def print_table(figures: dict[str, dict[str, int]]) -> None:
    print(f"\n{'per CPU-second':<16}{'by shape':>12}{'ragged':>12}{'one by one':>12}{'typed':>12}{'bytes':>8}")
    for name, found in figures.items():
        row = "".join(f"{found[way]:>12,}" for way in ("by_shape", "by_shape_ragged", "one_by_one", "typed"))
        print(f"{name:<16}{row}{found['bytes']:>8}")
    print(f"\n{CAPTION}\ntarget     {TARGET:,} by shape")


def facts() -> dict[str, object]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": environment.cpu_model(),
        "python": platform.python_version(),
        **{name: environment.version_of(name) for name in PACKAGES},
    }


if __name__ == "__main__":
    sys.exit(main())
