"""Commands that are printed for copying mean, in a shell, what they name."""

from __future__ import annotations

import shlex

import pytest

from tidelog.core.signals import matching
from tidelog.engine.shell import command, snapshot_command

ODD = ["public.a b", "public.a(b", "public.$a", "public.it's", 'public."a"', "public.a*", "-x.a", "public.`a`", "s.ä"]


@pytest.mark.parametrize("table", ODD)
def test_a_printed_snapshot_names_one_table(table: str) -> None:
    words = shlex.split(snapshot_command("shop", [table, "public.orders"]))
    assert words[:3] == ["tidelog", "snapshot", "shop"]
    assert matching(words[3:4], [*ODD, "public.orders"]) == [table]
    assert words[4:] == ["public.orders"]
    assert not words[3].startswith("-")


def test_words_are_quoted_only_where_a_shell_needs_it() -> None:
    assert command("resume", "shop") == "tidelog resume shop"
    assert command("offsets", "undo", "my shop.yaml") == "tidelog offsets undo 'my shop.yaml'"
