"""Crashes at every step of a snapshot: what comes after goes on from the logged offsets, and the target is exact."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.integration.postgres.snapshot_rig import HOOKS, Crash, Rig, nothing
from tests.integration.postgres.snapshot_writers import Writer, finished, items, times, write_at
from tests.integration.postgres.world import until
from tests.servers import Database
from tidelog.engine import capture

MODES = ["read-only", "insert_insert"]


def _die() -> None:
    raise Crash


def _both(*steps: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        for step in steps:
            step()

    return run


def _survive(rig: Rig, writer: Writer, restarted: Callable[[], None] = lambda: None) -> int:
    crashes = rig.survive(restarted=restarted)
    writer.close()
    rig.run()
    rig.check("items")
    return crashes


@pytest.mark.parametrize("windows", MODES)
def test_a_crash_at_every_step(database: Database, tmp_path: Path, windows: str) -> None:
    """Every 19th step is the last one: windows open and closed, buffers full, emissions half done."""
    with items(database, tmp_path, windows, 30) as rig:
        writer, steps = Writer(database, most=20), count(1)

        def step() -> None:
            writer()
            if next(steps) % 19 == 0:
                raise Crash

        for hook in HOOKS:
            setattr(rig.hooks, hook, step)
        rig.hooks.committed = writer
        assert _survive(rig, writer) >= 2


@pytest.mark.long
@pytest.mark.parametrize("at", [4, *(pytest.param(at, marks=pytest.mark.long) for at in (1, 9))])
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("windows", [*MODES, "insert_delete"])
def test_a_crash_at(database: Database, tmp_path: Path, windows: str, hook: str, at: int) -> None:
    with items(database, tmp_path, windows) as rig:
        writer = write_at(rig, "read", most=40)
        setattr(rig.hooks, hook, _both(getattr(rig.hooks, hook), times(_die, at)))
        assert _survive(rig, writer) == 1


@pytest.mark.parametrize(("windows", "done"), [("read-only", 1), ("insert_insert", 2)])
def test_half_way_through_an_emission(database: Database, tmp_path: Path, windows: str, done: int) -> None:
    with items(database, tmp_path, windows, 20) as rig:
        writer = write_at(rig, "staged", most=20)
        rig.run(until=lambda r: len(r.snapshot.get("emitting", ())) > 1)
        rig.partitions = done
        assert _survive(rig, writer) == 1


def test_before_the_offset_is_logged(database: Database, tmp_path: Path) -> None:
    """What was planned and never logged is planned again, maybe otherwise."""
    with items(database, tmp_path, size=20) as rig:
        writer = write_at(rig, "staged", most=20)
        rig.run(until=lambda r: len(r.reads) > 60)
        for _ in range(3):
            rig._reader().latestOffset(rig.start)
            rig.crash()
            writer()
        rig.run(until=finished)
        writer.close()
        rig.run()
        rig.check("items")


def _lose(journal: Path, lost: str) -> None:
    for part in journal.iterdir():
        if lost == "all" or (part.name == "chunks") == (lost == "chunks"):
            shutil.rmtree(part) if part.is_dir() else part.unlink()


@pytest.mark.parametrize("windows", MODES)
@pytest.mark.parametrize("lost", ["chunks", "log", "all"])
def test_the_journal_is_lost(database: Database, tmp_path: Path, windows: str, lost: str) -> None:
    """With a batch planned that should deliver from it, and windows open behind it. The stage is read again, the log
    comes again from the server: it was told to keep it from the oldest window on."""
    few = {"maxeventspertrigger": "60"}  # so that windows stay open over several batches
    with items(database, tmp_path, windows, 20, **few) as rig:
        writer = write_at(rig, "staged", "committed", most=30)
        rig.run(until=lambda r: len(r.reads) > 60)
        rig.hooks.planned = times(_die, 1)
        crashes = _survive(rig, writer, restarted=lambda: _lose(rig.folder / "journal", lost))
        assert crashes == 1


def _tear(journal: Path, kind: str, torn: Callable[[bytes], bytes]) -> None:
    files = list(journal.glob(f"chunks/*/*.{kind}"))
    assert files
    for file in files:
        content = file.read_bytes()
        file.unlink()  # what somebody has mapped stays as it is
        file.write_bytes(torn(content))


def _empty(_: bytes) -> bytes:
    return b""


def _cut(content: bytes) -> bytes:
    return content[: len(content) * 2 // 3]


def _holed(content: bytes) -> bytes:
    middle = slice(len(content) // 4, len(content) * 3 // 4)
    return content[: middle.start] + bytes(middle.stop - middle.start) + content[middle.stop :]


@pytest.mark.parametrize("torn", [_empty, _cut, _holed])
@pytest.mark.parametrize("kind", ["json", "arrow"])
def test_the_power_went_before_staged_chunks_were_on_the_disk(
    database: Database, tmp_path: Path, kind: str, torn: Callable[[bytes], bytes]
) -> None:
    """They have their names and not all of their bytes: they are read again, in a batch that delivers them too."""
    with items(database, tmp_path, "read-only", 20) as rig:
        writer = write_at(rig, "staged", most=20)
        rig.run(until=lambda r: bool(r.snapshot.get("emitting")))
        rig.hooks.planned = times(_die, 1)
        crashes = _survive(rig, writer, restarted=lambda: _tear(rig.folder / "journal", kind, torn))
        assert crashes == 1


def test_another_parallelism_and_another_chunk_size(database: Database, tmp_path: Path) -> None:
    with items(database, tmp_path, size=15) as rig:
        writer, changes = write_at(rig, "staged", "committed", most=40), iter([(1, "7"), (3, "40")])

        def changed() -> None:
            rig.parallelism, rig.source["incremental.snapshot.chunk.size"] = next(changes)

        rig.hooks.executed = _both(times(_die, 3), times(_die, 7))
        assert _survive(rig, writer, restarted=changed) == 2


@pytest.mark.parametrize("crashes", [1, 2])
def test_a_first_batch_that_is_not_committed_while_others_write(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crashes: int
) -> None:
    """The slot moves on over the empty stretch, and Spark asks for the place of a first start once more."""
    monkeypatch.setattr(capture, "_IDLE_S", 0.05)
    with items(database, tmp_path, "read-only", 30) as rig:
        database.execute("CREATE TABLE noise (id int)")
        confirmed = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE database = current_database()"

        def pass_idle_stretch() -> None:
            before = database.execute(confirmed)
            database.execute("INSERT INTO noise SELECT generate_series(1, 1000)")
            until(lambda: database.execute(confirmed) != before, "the idle acknowledgement")
            raise Crash

        rig.hooks.executed = pass_idle_stretch
        for _ in range(crashes):
            with pytest.raises(Crash):
                rig.batch()
            rig.crash()
            initial = rig._reader().initialOffset()
            rig.log[:2] = [(initial, initial), (initial, rig.log[1][1])]
        rig.hooks.executed = nothing
        database.execute("UPDATE items SET v = 'later' WHERE id < 10")
        rig.run()
        rig.check("items")
