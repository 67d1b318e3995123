"""Document 001's tests: changes of every kind while chunks are read and delivered; the target equals the source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.postgres.snapshot_rig import HOOKS
from tests.integration.postgres.snapshot_writers import ROWS, STEP, WINDOWS, finished, items, write_at
from tests.servers import Database

RUNS = {"incremental.snapshot.chunk.target.ms": "250"}


@pytest.mark.parametrize("hook", ["opened", "read", "staged", "planned"])
def test_every_change_at_each_step(database: Database, tmp_path: Path, hook: str) -> None:
    _write_and_check(database, tmp_path, "read-only", 10, [hook], 1)


@pytest.mark.parametrize("windows", WINDOWS)
def test_every_change_everywhere(database: Database, tmp_path: Path, windows: str) -> None:
    _write_and_check(database, tmp_path, windows, 20, HOOKS, 2, most=40)


@pytest.mark.parametrize("windows", ["read-only", "insert_insert"])
def test_every_change_while_readings_grow(database: Database, tmp_path: Path, windows: str) -> None:
    """Chunks of a fixed size are read in runs: 10 rows at first, then as many as fit into the time."""
    with items(database, tmp_path, windows, 10, **RUNS) as rig:
        writer = write_at(rig, *HOOKS, seed=3, most=40)
        rig.run(until=finished)
        writer.close()
        rig.run()
        rig.check("items")


def test_small_chunks_are_read_in_runs(database: Database, tmp_path: Path) -> None:
    """Each row once, by far fewer readings than there are chunks; what the offset holds of them stays small."""
    with items(database, tmp_path, "read-only", 500, **RUNS) as rig:
        database.execute(f"INSERT INTO items SELECT i, 'v', i, '' FROM generate_series({ROWS * STEP + 1}, 20000) i")
        rig.parallelism, readings = 1, 0

        def count() -> None:
            nonlocal readings
            readings += 1
            assert len(json.dumps(rig.snapshot)) < 4_000

        rig.hooks.opened = count
        rig.run(until=finished)
        ids = [row["id"] for _, row in rig.reads]
        assert ids == sorted(set(ids))
        assert len(ids) == ROWS + 20_000 - ROWS * STEP
        assert readings < len(ids) // 500 // 2
        rig.check("items")


@pytest.mark.long
@pytest.mark.parametrize("size", [5, 10])
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("windows", WINDOWS)
def test_every_change_everywhere_long(database: Database, tmp_path: Path, windows: str, hook: str, size: int) -> None:
    _write_and_check(database, tmp_path, windows, size, [hook], 3)


def _write_and_check(
    database: Database, folder: Path, windows: str, size: int, hooks: Sequence[str], seed: int, most: int = 10**9
) -> None:
    with items(database, folder, windows, size) as rig:
        writer = write_at(rig, *hooks, seed=seed, most=most)
        rig.run(until=finished)
        assert writer.calls > 5
        writer.close()
        rig.run()
        rig.check("items")


def test_chunks_of_five(database: Database, tmp_path: Path) -> None:
    """All rows once, in key order, when nobody writes; and windows close though nobody writes: no heartbeat."""
    with items(database, tmp_path, size=5) as rig:
        rig.run(until=finished)
        assert [row["id"] for _, row in rig.reads] == [i * STEP for i in range(1, ROWS + 1)]
        assert len(rig.log) - 1 <= ROWS // 5 // rig.parallelism + 4  # looks in vain do not count
        assert len(rig.told("COMPLETED")) == 0  # told when the last batch is committed
        rig.run()
        assert [n["id"] for n in rig.told("COMPLETED")] == ["initial"]
        rig.check("items")


@pytest.mark.parametrize("windows", ["read-only", "insert_insert"])
def test_a_stale_row_is_not_delivered(database: Database, tmp_path: Path, windows: str) -> None:
    """What changes between the reading and its delivery is delivered as it is, once the chunk comes."""
    with items(database, tmp_path, windows, 100) as rig:

        def change() -> None:
            database.execute("UPDATE items SET v = 'changed', big = 'b' WHERE id IN (50, 1500, 2990)")
            database.execute("DELETE FROM items WHERE id IN (60, 1510)")
            database.execute("UPDATE items SET id = id + 1 WHERE id IN (70, 1520)")
            rig.hooks.read = lambda: None
            rig.catch_up()

        rig.hooks.read = change
        rig.run()
        read = {row["id"]: row for _, row in rig.reads}
        assert not {60, 70, 1510, 1520} & {id for id, row in read.items() if id <= 1000}
        assert all(row["v"] == "changed" for id, row in read.items() if id in (50, 1500, 2990))
        rig.check("items")


def test_a_transaction_over_many_batches(database: Database, tmp_path: Path) -> None:
    """It writes behind, in and ahead of the cursor, and commits when the walk is past most of it."""
    with items(database, tmp_path) as rig, database.connect(autocommit=False) as long:
        assert rig.start  # a slot would wait for the transaction
        long.execute("UPDATE items SET n = -1 WHERE id % 70 = 0")
        rig.run(until=lambda r: len(r.reads) > 100)
        long.execute("UPDATE items SET id = id + 5 WHERE id % 90 = 0 AND id % 70 <> 0")
        long.execute("DELETE FROM items WHERE id = 110")
        rig.run(until=lambda r: len(r.reads) > 200)
        long.commit()
        rig.run()
        rig.check("items")
