"""The guide says what the settings say, and names the authority that the journal asks for."""

from __future__ import annotations

from pathlib import Path

from tidelog.connectors.iseries.config import SETTINGS
from tidelog.core import selecting
from tidelog.core.snapshot import settings as snapshots

PAGE = (Path(__file__).parents[3] / "docs/guide/iseries.md").read_text(encoding="utf-8")


def test_the_page_has_every_setting_of_its_own() -> None:
    shared = {setting.name for setting in (*selecting.SETTINGS, *snapshots.SETTINGS)}
    for setting in SETTINGS:
        if setting.name not in shared:
            shown = "required" if setting.default is None else f"`{setting.default}`" if setting.default else ""
            assert f"| `{setting.name}` | {shown} | {setting.meaning} |" in PAGE


def test_the_page_asks_for_existence_of_the_journal() -> None:
    assert "OBJTYPE(*JRN)    USER(TIDELOG) AUT(*OBJEXIST *OBJOPR *READ *EXECUTE)" in PAGE
