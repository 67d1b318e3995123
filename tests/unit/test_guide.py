"""The guides say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts import settings_reference

from tidelog import connectors
from tidelog.cli.loading import loaded
from tidelog.cli.main import COMMANDS
from tidelog.connectors import PLUGINS


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


def test_the_map_of_a_connector_names_every_file() -> None:
    folder = Path(connectors.__file__).parent / "postgres"
    named = set(re.findall(r"`([a-z_]+)`", (folder / "README.md").read_text("utf-8")))
    assert named == {file.stem for file in folder.glob("[!_]*.py")}


def test_what_cannot_be_captured_yet_is_listed() -> None:
    page = (settings_reference.GUIDE / "offsets.md").read_text("utf-8")
    part = page.split("## Connectors that do not capture yet")[1].split("##")[0].split(":")[0]
    assert {p.title for p in PLUGINS if not p.captures} == set(re.split(r",\s+|\s+and\s+", part.strip()))
