"""Document 001's tests: changes of every kind while chunks are read and delivered; the target equals the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.postgres.snapshot_rig import HOOKS, Rig
from tests.integration.postgres.snapshot_writers import ROWS, WINDOWS, Writer, create_items
from tests.servers import Database

Make = Callable[..., Rig]


@pytest.fixture
def make(database: Database, tmp_path: Path) -> Iterator[Make]:
    made: list[Rig] = []

    def rig(mode: str = "read-only", size: int = 10, **more: str) -> Rig:
        create_items(database)
        source = {"incremental.snapshot.chunk.size": str(size), **WINDOWS[mode], **more}
        made.append(Rig(database, tmp_path / "pipeline", source, parallelism=4))
        return made[0]

    yield rig
    for one in made:
        one.crash()


def _write_at(rig: Rig, seed: int, *hooks: str) -> Writer:
    writer = Writer(rig.database, seed=seed)
    for hook in hooks:
        setattr(rig.hooks, hook, writer)
    return writer


@pytest.mark.parametrize("hook", HOOKS)
def test_every_change_at_each_step(make: Make, hook: str) -> None:
    rig = make()
    writer = _write_at(rig, 1, hook)
    rig.run(until=_done)
    writer.close()
    rig.run()
    assert writer.calls > 5
    rig.check("items")


def _done(rig: Rig) -> bool:
    return bool(rig.log) and not rig.snapshot.get("entries")
