"""Rows that do not fit their types are set aside with their chunk: once, through every crash."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

from tests.integration.postgres.snapshot_rig import HOOKS, Crash, Rig
from tests.servers import Database

BAD = [str(i) for i in range(7, 61, 7)]


@pytest.fixture
def rig(database: Database, tmp_path: Path) -> Rig:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n numeric(8, 2))")
    database.execute(
        "INSERT INTO t SELECT i, CASE WHEN i % 7 = 0 THEN numeric 'NaN' ELSE i END FROM generate_series(1, 60) i"
    )
    source = {"incremental.snapshot.chunk.size": "10", "event.processing.failure.handling.mode": "dead-letter"}
    return Rig(database, tmp_path / "pipeline", source)


def check(rig: Rig) -> None:
    told = [json.loads(letter["payload"])["id"] for letter in rig.letters]
    assert sorted(told, key=int) == BAD
    assert {letter["op"] for letter in rig.letters} == {"r"}
    assert all(letter["position"] > 0 for letter in rig.letters)
    assert sorted(id for (id,) in rig.target["public.t"]) == [i for i in range(1, 61) if i % 7]


@pytest.mark.parametrize("every", [5, 7])
def test_once_through_crashes(rig: Rig, every: int) -> None:
    steps = count(1)

    def step() -> None:
        if next(steps) % every == 0 and next(steps) < 200:
            raise Crash

    for hook in set(HOOKS) - {"committed"}:
        setattr(rig.hooks, hook, step)
    with rig:
        assert rig.survive() >= 2
        check(rig)


def test_a_stage_that_is_lost(rig: Rig) -> None:
    """Letters that are gone are read again with their chunk."""
    with rig:
        rig.run(until=lambda r: bool(r.snapshot.get("emitting")) or _staged(r))
        rig.plan()
        for file in (rig.folder / "journal" / "chunks" / "main").glob("*.letters"):
            file.unlink()
        rig.run()
        check(rig)


def _staged(rig: Rig) -> bool:
    folder = rig.folder / "journal" / "chunks" / "main"
    return folder.exists() and any(folder.glob("*.letters"))


def test_the_stage_is_cleared(rig: Rig) -> None:
    with rig:
        rig.run()
        check(rig)
        left = list((rig.folder / "journal" / "chunks").rglob("*.letters"))
        assert left == []
