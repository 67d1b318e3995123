"""What people do to a table while it is read: the pipeline goes on, and the snapshot ends or reads again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.postgres.snapshot_writers import items, times
from tests.servers import Database
from tidelog.engine.signals import send
from tidelog.errors import TransientError

ALTERED = {
    "add": "ALTER TABLE items ADD COLUMN extra int NOT NULL DEFAULT 7",
    "drop": "ALTER TABLE items DROP COLUMN n",
    "rename": "ALTER TABLE items RENAME COLUMN v TO w",
    "retype": "ALTER TABLE items ALTER COLUMN n TYPE text",
    "retype of the key": "ALTER TABLE items ALTER COLUMN id TYPE bigint",
}


@pytest.mark.parametrize("change", ALTERED)
def test_a_table_that_is_altered(database: Database, tmp_path: Path, change: str) -> None:
    """Between the reading of a chunk and its delivery; rows are written before and after."""
    with items(database, tmp_path, size=20) as rig:

        def alter() -> None:
            database.execute("UPDATE items SET big = 'before' WHERE id IN (10, 810, 2010)")
            database.execute(ALTERED[change])
            database.execute("UPDATE items SET big = 'after' WHERE id IN (20, 820, 2020)")
            database.execute("DELETE FROM items WHERE id IN (30, 830, 2030)")
            rig.hooks.committed = times(lambda: told.append(len(rig.reads)), 1)

        told: list[int] = []
        rig.hooks.staged = times(alter, 6)
        rig.run()
        rig.check_loosely("items")
        assert rig.statuses() == [("initial", "public.items", "SUCCEEDED")]
        later = [row for _, row in rig.reads[told[0] :]]
        assert len(later) > 100
        assert all(set(row) == _columns(database) for row in later)


def _columns(database: Database) -> set[str]:
    found = database.execute("SELECT column_name::text FROM information_schema.columns WHERE table_name = 'items'")
    return {name for (name,) in found}


def test_a_change_that_writes_no_row(database: Database, tmp_path: Path) -> None:
    """Nothing in the log tells of it: the chunk that was staged before is read again all the same."""
    with items(database, tmp_path, size=20) as rig:
        rig.hooks.staged = times(lambda: database.execute("ALTER TABLE items ADD COLUMN extra int DEFAULT 7"), 6)
        rig.run()
        rig.check_loosely("items")
        assert all(row["extra"] == 7 for _, row in rig.reads if row["id"] > 2500)


@pytest.mark.parametrize("windows", ["read-only", "insert_insert"])
def test_a_truncate(database: Database, tmp_path: Path, windows: str) -> None:
    """Chunks that were read before it are worth nothing."""
    with items(database, tmp_path, windows, 20) as rig:

        def truncate() -> None:
            database.execute("TRUNCATE items")
            database.execute("INSERT INTO items SELECT i, 'new', i, NULL FROM generate_series(5, 500, 9) i")

        rig.hooks.staged = times(truncate, 6)
        rig.run()
        rig.check("items")
        assert [status for _, _, status in rig.statuses()] == ["SUCCEEDED"]


@pytest.mark.parametrize("step", ["DROP TABLE items", "ALTER TABLE items RENAME TO others"])
def test_a_table_that_goes(database: Database, tmp_path: Path, step: str) -> None:
    """The snapshot of it ends and says so; the next table has its turn."""
    database.execute("CREATE TABLE more (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO more SELECT i, 'm' || i FROM generate_series(1, 50) i")
    with items(database, tmp_path, size=20) as rig:
        rig.hooks.staged = times(lambda: database.execute(step), 6)
        rig.run()
        database.execute("INSERT INTO more VALUES (51, 'later')")
        rig.run()
        rig.check("more")
        assert rig.statuses() == [
            ("initial", "public.items", "UNKNOWN_SCHEMA"),
            ("initial", "public.more", "SUCCEEDED"),
        ]
        assert [n["id"] for n in rig.told("COMPLETED")] == ["initial"]


def test_an_empty_table_and_one_that_was_emptied(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE empty (id int PRIMARY KEY)")
    with items(database, tmp_path, size=20) as rig:
        rig.hooks.opened = times(lambda: database.execute("DELETE FROM items WHERE id > 100"), 6)
        rig.run()
        rig.check("items")
        assert rig.statuses() == [("initial", "public.empty", "EMPTY"), ("initial", "public.items", "SUCCEEDED")]


def test_keys_of_two_columns_with_a_collation(database: Database, tmp_path: Path) -> None:
    """Document 001's predicate loses rows here; the database compares, and an insert pushes nothing out."""
    database.execute('CREATE TABLE pairs (a text COLLATE "C", b int, v text, PRIMARY KEY (a, b))')
    database.execute("INSERT INTO pairs SELECT chr(65 + i % 7 + 32 * (i % 2)), i / 7, i FROM generate_series(1, 150) i")
    with items(database, tmp_path, size=10, **{"table.include.list": "public.pairs"}) as rig:
        new = iter(range(1000))
        write = "INSERT INTO pairs VALUES ('D', %s, 'new'), ('a', -%s, 'new') ON CONFLICT DO NOTHING"

        def insert() -> None:
            database.execute(write, [n := 100 + next(new), n])

        rig.hooks.opened = insert
        rig.run()
        rig.check("pairs", "a,b")


@pytest.mark.parametrize("kind", ["initial", "incremental"])
def test_a_key_that_is_renamed_before_a_chunk_is_read(database: Database, tmp_path: Path, kind: str) -> None:
    """The chunk that was planned names a column that is gone: the walk begins anew, by the new name."""
    mode = "initial" if kind == "initial" else "no_data"
    with items(database, tmp_path, size=20) as rig:
        rig.source["snapshot.mode"] = mode
        if kind == "incremental":
            rig.run()
            send(rig.folder / "signals", "execute-snapshot", {"data-collections": ["public.items"]}, "asked")
        rig.hooks.planned = times(lambda: database.execute("ALTER TABLE items RENAME COLUMN id TO pk"), 2)
        rig.run()
        assert {row["pk"] for _, row in rig.reads if "pk" in row} == {
            pk for (pk,) in database.execute("SELECT pk FROM items")
        }
        assert [status for _, _, status in rig.statuses()] == ["SUCCEEDED"]


def test_a_chunk_that_fails(database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is tried again after a moment, from where it was, by smaller chunks; why is told once; and what counts as
    delivered is what was."""
    failures = 3

    def fail() -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise TransientError("canceling statement due to statement timeout")

    with items(database, tmp_path) as rig, caplog.at_level("INFO", "tidelog"):
        rig.source["incremental.snapshot.chunk.size"] = "auto"
        rig.hooks.opened = fail
        rig.run(until=lambda _: failures < 0)
        (entry,) = rig.snapshot["entries"]
        assert entry["size"] < 20_000
        assert not entry.get("emitted")
        rig.run()
        rig.check("items")
    told = [r.getMessage() for r in caplog.records if "statement timeout" in r.getMessage()]
    assert told[0].startswith("Reading a chunk: attempt 1 failed"), told
    assert told[0].endswith("canceling statement due to statement timeout")
