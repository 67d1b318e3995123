"""A capture that runs apart leaves word of where it stands, and what it has to know there."""

from __future__ import annotations

from pathlib import Path

from tidelog.engine.readers import Known, Readers
from tidelog.journal.files import Files


def test_what_was_announced_is_gone_on_with(tmp_path: Path) -> None:
    readers = Readers(Files(str(tmp_path)))
    assert (readers.resume(None, 7), readers.note()) == (7, None)
    readers.announce(40, "scn 39")
    assert (readers.resume(None, 7), readers.note()) == (40, "scn 39")
    readers.acknowledge("lake", 30)
    assert readers.resume(readers.least(3600, lambda _: None), 7) == 30


def test_who_looks_once_is_forgotten_without_a_word(tmp_path: Path) -> None:
    """Till then the log stays for its tasks."""
    told: list[Known] = []
    now = [0.0]
    readers = Readers(Files(str(tmp_path)), now=lambda: now[0])
    readers.acknowledge(readers.visit("lake"), 30)
    Readers(Files(str(tmp_path)), now=lambda: now[0]).acknowledge("lake", 70)
    assert readers.least(3600, told.append) == 30
    now[0] = 3000.0
    Readers(Files(str(tmp_path)), now=lambda: now[0]).acknowledge("lake", 80)
    now[0] = 4000.0
    assert readers.least(3600, told.append) == 80
    assert not told
    now[0] = 9000.0
    assert readers.least(3600, told.append) is None
    assert [reader.name for reader in told] == ["lake"]
