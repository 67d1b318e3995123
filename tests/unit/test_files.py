"""Files of a journal, while others write beside us."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tidelog.journal.files import Files


def test_a_folder_may_be_made_while_it_is_listed(tmp_path: Path) -> None:
    """Without care a query that begins beside its capture's first segment would fail; here a few times a second."""
    folder, over = tmp_path / "segments", threading.Event()
    files = Files(str(tmp_path))

    def make() -> None:
        while not over.is_set():
            folder.mkdir()
            folder.rmdir()

    maker = threading.Thread(target=make)
    maker.start()
    try:
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            assert files.names("segments") == []
    finally:
        over.set()
        maker.join()
