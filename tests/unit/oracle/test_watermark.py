"""The low watermark: STARTs without an end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.oracle.world import UNBUFFERED, World, commit, insert
from tidelog.connectors.oracle.queries import COMMIT, REPLICATION_MARKER, ROLLBACK, START
from tidelog.connectors.oracle.watermark import Watermark, oldest_open

A, B = bytes.fromhex("0a00140012345678"), bytes.fromhex("0b00140012345678")


@pytest.mark.parametrize("end", [COMMIT, ROLLBACK, REPLICATION_MARKER])
def test_every_end_ends(end: int) -> None:
    rows = [(10, A, START, 1), (20, B, START, 1), (30, A, end, 1)]
    assert oldest_open(rows, 40) == 19
    assert oldest_open([*rows, (35, B, end, 1)], 40) == 40


def test_a_rollback_that_names_the_slot_alone() -> None:
    slot = A[:4] + b"\xff" * 4
    assert oldest_open([(10, A, START, 1), (20, slot, ROLLBACK, 1)], 30) == 30
    twin = A[:4] + b"\0\0\0\1"
    assert oldest_open([(10, A, START, 1), (12, twin, START, 1), (20, slot, ROLLBACK, 1)], 30) == 9


def test_private_threads_do_not_count() -> None:
    assert oldest_open([(10, A, START, 2)], 40, {2}) == 40


def test_it_stays_below_what_is_open_also_without_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch, UNBUFFERED)
    ended = world.committed(1)
    silent = world.begin(silent=True)
    insert(silent, world.table, 2)
    began = silent.work.start_scn
    watermark = Watermark(world.config)
    low = 1000
    for _ in range(4):
        world.committed(3)
        low = watermark.look(low, world.settle() - 1)
    assert ended.work.start_scn < low < began
    commit(silent)
    for _ in range(3):
        low = watermark.look(low, world.settle() - 1)
    watermark.close()
    assert low > began


def test_it_does_not_pass_what_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch, UNBUFFERED)
    begun = world.begin()
    insert(begun, world.table, 1)
    read = world.settle() - 1
    watermark = Watermark(world.config)
    watermark.look(1000, read)
    commit(begun)  # it has ended, but nobody has read that
    world.settle()
    assert watermark.look(1000, read) < begun.work.start_scn
    watermark.close()
