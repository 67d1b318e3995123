"""Selections: lists of regular expressions that match whole names, and a value that survives a restart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidelog import connectors
from tidelog.errors import ConfigError
from tidelog.model.schema import Column, Table
from tidelog.model.selection import ColumnRule, Selection, matches, split_patterns

ORDERS = Table(7, "public", "orders", (Column("id", "int4"), Column("note", "text"), Column("card", "text")), ("id",))


@pytest.mark.parametrize(
    ("patterns", "parts"),
    [
        ("", []),
        ("a, b ,c", ["a", "b", "c"]),
        ("a{1,2}b,c", ["a{1,2}b", "c"]),
        ("(a,b),[x,y]", ["(a,b)", "[x,y]"]),
        (r"a\,b,c", ["a,b", "c"]),
        (r"public\.t,other\.\(x", [r"public\.t", r"other\.\(x"]),
        (" , ,", []),
        ("a\\", ["a\\"]),
    ],
)
def test_commas_split_only_outside_of_brackets(patterns: str, parts: list[str]) -> None:
    assert split_patterns(patterns) == parts


def test_a_pattern_matches_the_whole_name() -> None:
    assert matches(r"public\..*", "public.orders")
    assert matches(r"x, public\.ord.rs", "public.orders")
    assert not matches(r"public\.order", "public.orders")
    assert not matches(r"orders", "public.orders")


@pytest.mark.parametrize(
    ("selection", "taken"),
    [
        (Selection(), {"public.a", "public.b", "shop.a"}),
        (Selection(include_schemas="shop"), {"shop.a"}),
        (Selection(exclude_schemas="sh.*"), {"public.a", "public.b"}),
        (Selection(include_tables=r".*\.a"), {"public.a", "shop.a"}),
        (Selection(exclude_tables=r"public\.a"), {"public.b", "shop.a"}),
        (Selection(include_schemas="public", include_tables=r".*\.a"), {"public.a"}),
        (Selection(include_tables=r"public\.a", exclude_tables=r"public\..*"), {"public.a"}),
        (Selection(exclude_schemas="public", include_tables=r".*\.a"), {"shop.a"}),
    ],
)
def test_tables(selection: Selection, taken: set[str]) -> None:
    names = [("public", "a"), ("public", "b"), ("shop", "a")]
    assert {f"{s}.{n}" for s, n in names if selection.has_table(s, n)} == taken


def test_a_key_column_is_always_delivered() -> None:
    def names(selection: Selection) -> list[str]:
        return [c.name for c in selection.columns_of(ORDERS)]

    assert names(Selection()) == ["id", "note", "card"]
    assert names(Selection(include_columns=r"public\.orders\.note")) == ["id", "note"]
    assert names(Selection(exclude_columns=r"public\.orders\..*")) == ["id"]
    keyed = Selection(exclude_columns=r".*\.(id|note)", message_keys=r"public\.orders:card")
    assert names(keyed) == ["card"]


def test_the_users_key_goes_before_the_primary_key() -> None:
    selection = Selection(message_keys=r"other\.t:x; public\.ord.*:note, card")
    assert selection.key_of(ORDERS) == ("note", "card")
    assert selection.key_of(replace(ORDERS, name="items")) == ("id",)


def test_rules_by_column() -> None:
    mask, cut = ColumnRule("mask", r"public\.orders\.card", 4), ColumnRule("truncate", r".*\.(note|card)", 9)
    selection = Selection(rules=(mask, cut))
    assert [selection.rules_for(ORDERS, c) for c in ORDERS.columns] == [(), (cut,), (mask, cut)]


def test_a_selection_comes_back_from_its_text_and_differs_by_its_fingerprint() -> None:
    selection = Selection(
        include_tables=r"public\.é.*", rules=(ColumnRule("hash", "x", algorithm="SHA-256", salt="s"),), skipped=("t",)
    )
    again = Selection.from_json(selection.to_json())
    assert again == selection
    assert again.fingerprint == selection.fingerprint
    assert replace(selection, decimals="string").fingerprint != selection.fingerprint
    assert replace(selection, skipped=()).fingerprint != selection.fingerprint


def test_a_table_comes_back_from_its_text_and_differs_by_its_fingerprint() -> None:
    table = replace(ORDERS, columns=(Column("id", "int4", -1, False, 1), Column("b", "text", fill="ü", number=2)))
    assert Table.from_json(table.to_json()) == table
    assert Table.from_json(table.to_json()).fingerprint == table.fingerprint
    assert replace(table, key=()).fingerprint != table.fingerprint
    assert replace(table, columns=table.columns[:1]).fingerprint != table.fingerprint


@pytest.mark.parametrize(
    ("selection", "blurred"),
    [
        ({"rules": (ColumnRule("mask", r".*\.id", 3),)}, ["id"]),
        ({"rules": (ColumnRule("truncate", r".*\.id", 3), ColumnRule("hash", r".*\.id", algorithm="MD5"))}, ["id"]),
        ({"rules": (ColumnRule("hash", r".*\.id", algorithm="MD5"),)}, []),
        ({"rules": (ColumnRule("mask", r".*\.note", 3),)}, []),
        ({"rules": (ColumnRule("mask", r".*\.note", 3),), "message_keys": "public.orders:note"}, ["note"]),
        # The log's own key still tells the rows of a window apart, unless it is not delivered.
        ({"rules": (ColumnRule("mask", r".*\.id", 3),), "message_keys": "public.orders:note"}, ["id"]),
        (
            {
                "rules": (ColumnRule("mask", r".*\.id", 3),),
                "message_keys": "public.orders:note",
                "exclude_columns": r".*\.id",
            },
            [],
        ),
    ],
)
def test_keys_that_rules_blur(selection: dict[str, Any], blurred: list[str]) -> None:
    assert Selection(**selection).blurred_keys(ORDERS) == blurred


@pytest.mark.parametrize("kind", ["schema", "table", "column"])
@pytest.mark.parametrize("connector", ["postgres", "oracle", "iseries"])
def test_one_list_of_a_kind(connector: str, kind: str) -> None:
    """Of two, one would be passed over in silence."""
    options = {"database.user": "u", "database.password": "p", "database.dbname": "d", "database.hostname": "h"}
    lists = {f"{kind}.include.list": "a.*", f"{kind}.exclude.list": "a.b.*"}
    with pytest.raises(ConfigError, match=rf"{kind}\.include\.list and {kind}\.exclude\.list are both set"):
        connectors.create(connector, {**options, **lists})
