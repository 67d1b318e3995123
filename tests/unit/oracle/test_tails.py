"""Both tails with the transaction buffer, over simulated databases, with crashes: what comes out is what was done."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.oracle.rig import BUFFERED, UNBUFFERED, played


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("adapter", [BUFFERED, UNBUFFERED])
def test_every_change_once(seed: int, adapter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = played(seed, adapter, tmp_path, monkeypatch)
    assert rig.told == rig.expected()
    assert rig.told
