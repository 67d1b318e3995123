"""The folder of a table: readable by everybody, and no other table's, whatever the two are called."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.sinks.target import folder_name, uri

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=63)


def name_of(folder: str) -> str:
    """The other way round."""
    return re.sub(r"-([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), folder).encode("latin-1").decode()


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("orders", "orders"),
        ("order_2026", "order_2026"),
        ("Orders", "Orders"),
        ("kä", "k-c3-a4"),
        ("a b%2F.c", "a-20b-252F-2ec"),
        ("_hidden", "-5fhidden"),
        (".", "-2e"),
        ("a--1", "a-2d-2d1"),
        ("day=1", "day-3d1"),
    ],
)
def test_names_as_folders(name: str, folder: str) -> None:
    assert folder_name(name) == folder


@given(NAMES)
def test_a_folder_is_plain_and_not_hidden(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9-][A-Za-z0-9_-]*", folder_name(name))


@given(NAMES)
def test_a_folder_tells_its_table(name: str) -> None:
    assert name_of(folder_name(name)) == name


@given(NAMES, NAMES)
def test_two_tables_never_share_a_folder(one: str, other: str) -> None:
    assert (folder_name(one) == folder_name(other)) == (one == other)


def test_a_table_lies_below_its_schema() -> None:
    assert uri("s3://bucket/lake/", "public", "Größe") == "s3://bucket/lake/public/Gr-c3-b6-c3-9fe"
