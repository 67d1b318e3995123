"""The offset's attributes of incremental snapshots."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.snapshot.document import COLLECTIONS, Asked, Document, read, unwrapped, wrapped, write
from tidelog.core.snapshot.java import JavaValue
from tidelog.errors import CorruptState

KEY = (JavaValue("int", 5), None)
MAXIMUM = (JavaValue("int", 9), JavaValue("string", "z"))


def test_nothing_asked_for_writes_nothing() -> None:
    assert write([], KEY, MAXIMUM) == {}
    assert read({"lsn": 1}) is None
    assert read({COLLECTIONS: None}) is None
    assert read({COLLECTIONS: "[]"}) is None


def test_the_form() -> None:
    written = write([Asked("public.a", "x=1 or y=2", "s", "1"), Asked("public.ü", id="2")])
    assert list(written) == [
        "incremental_snapshot_primary_key",
        "incremental_snapshot_maximum_key",
        "incremental_snapshot_collections",
        "incremental_snapshot_correlation_id",
    ]
    assert written["incremental_snapshot_primary_key"] == "aced000570"
    assert written["incremental_snapshot_correlation_id"] == "2"
    assert written[COLLECTIONS] == (
        '[{"incremental_snapshot_collections_id":"public.a",'
        '"incremental_snapshot_collections_additional_condition":"(x=1 or y=2)",'
        '"incremental_snapshot_collections_surrogate_key":"s",'
        '"incremental_snapshot_collections_correlation_id":"1"},'
        '{"incremental_snapshot_collections_id":"public.ü",'
        '"incremental_snapshot_collections_additional_condition":null,'
        '"incremental_snapshot_collections_surrogate_key":null,'
        '"incremental_snapshot_collections_correlation_id":"2"}]'
    )


def test_without_an_id() -> None:
    queue = (Asked("public.a"),)
    assert "incremental_snapshot_correlation_id" not in write(queue)
    assert read(write(queue)) == Document(queue)


def test_an_empty_id_is_none() -> None:
    written = write([Asked("public.a", id="1"), Asked("public.b", id="")])
    assert written["incremental_snapshot_correlation_id"] == "1"
    assert [entry["incremental_snapshot_collections_correlation_id"] for entry in json.loads(written[COLLECTIONS])] == [
        "1",
        None,
    ]
    entry = {"incremental_snapshot_collections_id": "public.b", "incremental_snapshot_collections_correlation_id": ""}
    found = read({COLLECTIONS: json.dumps([entry]), "incremental_snapshot_correlation_id": "7"})
    assert found is not None
    assert found.asked_by(found.queue[0]) == "7"


def test_keys() -> None:
    queue = (Asked("public.a", id="1"),)
    assert read(write(queue, KEY, MAXIMUM)) == Document(queue, KEY, MAXIMUM, "1")


def test_documents_of_older_versions() -> None:
    entry = {
        "incremental_snapshot_collections_id": "public.a",
        "incremental_snapshot_collections_additional_condication": "x = 1",
    }
    found = read({COLLECTIONS: json.dumps([entry]), "incremental_snapshot_correlation_id": "7"})
    assert found == Document((Asked("public.a", "x = 1"),), id="7")
    assert found.asked_by(found.queue[0]) == "7"
    assert found.asked_by(Asked("public.b", id="8")) == "8"


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("(x=1 or y=2)", "x=1 or y=2"),
        ("x=1", "x=1"),
        ("(a) or (b)", "(a) or (b)"),
        ("((a) or (b))", "(a) or (b)"),
        ("(x = ')')", "x = ')'"),
        ("(x = ') or (')", "x = ') or ('"),
        ("(x = 'it''s)')", "x = 'it''s)'"),
        ('("a)" = 1)', '"a)" = 1'),
        ("(a", "(a"),
        ("a)", "a)"),
        ("", ""),
        ("()", ""),
    ],
)
def test_parentheses_around_the_whole_go(text: str, bare: str) -> None:
    assert unwrapped(text) == bare


def test_a_blank_condition_is_none() -> None:
    assert wrapped("  ") == ""


CONDITIONS = st.text("ab ()'\"=1\n").filter(lambda c: c.strip() and unwrapped(wrapped(c)) == c) | st.just("")
ASKED = st.builds(Asked, st.text(min_size=1), CONDITIONS, st.text(), st.none() | st.text(min_size=1))


@given(st.lists(ASKED, min_size=1).map(tuple))
def test_round_trip(queue: tuple[Asked, ...]) -> None:
    found = read(json.loads(json.dumps(write(queue, KEY, MAXIMUM))))
    assert found is not None
    assert (found.queue, found.sent, found.maximum) == (queue, KEY, MAXIMUM)


@pytest.mark.parametrize("condition", ["a = 1", "(a) or (b)", "x = ')('", "f(a, (b))"])
def test_conditions_come_back_as_they_were_written(condition: str) -> None:
    queue = (Asked("public.a", condition),)
    assert read(write(queue)) == Document(queue)


@pytest.mark.parametrize(
    "text", ["{}", "x", "[1]", "[{}]", 5, '[{"incremental_snapshot_collections_id": 1}]', '[{"a": "b"}]']
)
def test_damage_is_told(text: object) -> None:
    with pytest.raises(CorruptState, match="incremental_snapshot_collections"):
        read({COLLECTIONS: text})


def test_a_damaged_key_is_told() -> None:
    written = write([Asked("public.a")], KEY)
    with pytest.raises(CorruptState, match="cannot be read"):
        read({**written, "incremental_snapshot_primary_key": written["incremental_snapshot_primary_key"][:-2]})
