"""A capture that runs apart leaves word of where it stands, and what it has to know there."""

from __future__ import annotations

from pathlib import Path

from tidelog.engine.readers import Readers
from tidelog.journal.files import Files


def test_what_was_announced_is_gone_on_with(tmp_path: Path) -> None:
    readers = Readers(Files(str(tmp_path)))
    assert (readers.resume(None, 7), readers.note()) == (7, None)
    readers.announce(40, "scn 39")
    assert (readers.resume(None, 7), readers.note()) == (40, "scn 39")
    readers.acknowledge("lake", 30)
    assert readers.resume(readers.least(3600, lambda _: None), 7) == 30
