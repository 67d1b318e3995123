"""The guides say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts import settings_reference

from tidelog.cli.loading import loaded
from tidelog.cli.main import COMMANDS


def test_the_settings_in_the_guides_are_up_to_date() -> None:
    assert settings_reference.stale() == [], "run: python scripts/settings_reference.py"


def test_every_command_is_in_the_guide() -> None:
    page = (settings_reference.GUIDE / "cli.md").read_text("utf-8")
    assert all(f"`tidelog {name}" in page for name in COMMANDS)


def test_the_definition_in_the_guide_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "x")
    page = (settings_reference.GUIDE / "postgres.md").read_text("utf-8")
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "shop.yaml").write_text(text)
    assert loaded(str(tmp_path / "shop.yaml"))[0].name == "shop"
