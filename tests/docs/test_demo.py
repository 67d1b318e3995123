"""`make demo`, the first of the two commands, runs to its end and finds no difference."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import patience
from tests.reaper import REPO


@pytest.mark.timeout(1800)
def test_the_demo_ends_in_sync(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    tmp_path.chmod(0o755)  # PostgreSQL runs as another user when we are root
    done = patience.run([sys.executable, "-m", "demo.run", "--seconds", "3"], cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in sync: 5 tables" in done.stdout
