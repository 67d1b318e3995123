"""Signals: understood, or a value that says why not; never an exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core import signals
from tidelog.core.signals import (
    Execute,
    Log,
    Malformed,
    Pause,
    Resume,
    Stop,
    Window,
    WindowClose,
    WindowOpen,
    condition_for,
    matching,
    of_lines,
    of_row,
    of_values,
    parse,
    tables_of,
)


def execute(**data: Any) -> Any:
    return parse("1", "execute-snapshot", {name.replace("_", "-"): value for name, value in data.items()})


def reason(found: Any) -> str:
    assert isinstance(found, Malformed), found
    return found.reason


def test_execute_in_full() -> None:
    data = {
        "type": "BLOCKING",
        "data-collections": ["public.a", "public.b.*"],
        "additional-conditions": [{"data-collection": "public.a", "filter": "x = 1"}],
        "surrogate-key": "k",
    }
    expected = Execute("1", ("public.a", "public.b.*"), "blocking", (("public.a", "x = 1"),), "k")
    assert parse("1", "execute-snapshot", data) == expected
    assert parse("1", "execute-snapshot", json.dumps(data)) == expected


def test_a_type_that_is_missing_is_incremental() -> None:
    assert execute(data_collections=["a.b"]) == Execute("1", ("a.b",))
    assert execute(data_collections=["a.b"], type=None) == Execute("1", ("a.b",))


def test_one_condition_for_all() -> None:
    found = execute(data_collections=["a.b", "a.c"], additional_condition="x = 1")
    assert [condition_for(found, table) for table in ("a.b", "a.c")] == ["x = 1", "x = 1"]


def test_a_column_may_be_called_almost_like_a_word_of_sql() -> None:
    assert execute(data_collections=["a.b"], additional_condition="selected").conditions == ((".*", "selected"),)


def test_the_first_condition_that_matches_counts() -> None:
    conditions = [
        {"data-collection": "a.b", "filter": "first"},
        {"data-collection": "a\\..*", "filter": "second"},
        {"data-collection": "a.c", "filter": "third"},
    ]
    found = execute(data_collections=["a.*"], additional_conditions=conditions)
    told = [condition_for(found, table) for table in ("a.b", "a.c", "a.bb", "z.a.b")]
    assert told == ["first", "second", "second", ""]


@pytest.mark.parametrize(
    ("data", "part"),
    [
        ({}, "names no table"),
        ({"data-collections": []}, "names no table"),
        ({"data-collections": None}, "names no table"),
        ({"data-collections": "a.b"}, "not a list"),
        ({"data-collections": [["a.b"]]}, '["a.b"]'),
        ({"data-collections": ["a.b", 42]}, "42"),
        ({"data-collections": [" "]}, "not a table's name"),
        ({"data-collections": ["a.("]}, "not a regular expression"),
        ({"data-collections": ["a.b"], "type": "fast"}, "incremental, blocking"),
        ({"data-collections": ["a.b"], "type": 1}, "its type is 1"),
        ({"data-collections": ["a.b"], "surrogate-key": 1}, "surrogate-key is 1"),
        ({"data-collections": ["a.b"], "additional-condition": []}, "not a text"),
        ({"data-collections": ["a.b"], "additional-conditions": {"a": 1}}, "not a list"),
        ({"data-collections": ["a.b"], "additional-conditions": ["x"]}, "no object"),
        ({"data-collections": ["a.b"], "additional-conditions": [{"filter": "x"}]}, "null"),
        ({"data-collections": ["a.b"], "additional-conditions": [{"data-collection": "x"}]}, "without a filter"),
        ({"data-colections": ["a.b"]}, "did you mean 'data-collections'"),
        ({"data-collections": ["a.b"], "filter": "id = 5"}, "there is no 'filter'; known are: type, data-collections"),
        (
            {"data-collections": ["a.b"], "additional-conditions": [{"data-collection": "x", "filter": "x", "y": 1}]},
            "'y'",
        ),
        (
            {"data-collections": ["a.b"], "additional-conditions": [{"data-collection": "x", "filter": "SELECT 1"}]},
            "a filter is a condition",
        ),
        ({"data-collections": ["a.b"], "additional-condition": "select * from a.b"}, "a filter is a condition"),
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        (7, "not a JSON object"),
    ],
)
def test_what_execute_does_not_understand(data: Any, part: str) -> None:
    assert part in reason(parse("1", "execute-snapshot", data))


@pytest.mark.parametrize("data", [None, "", "{}", {}, {"data-collections": []}, {"data-collections": None}])
def test_stop_all(data: Any) -> None:
    assert parse("1", "stop-snapshot", data) == Stop("1", None)


def test_stop_some() -> None:
    data = {"type": "incremental", "data-collections": ["a.b"]}
    assert parse("1", "stop-snapshot", data) == Stop("1", ("a.b",), "incremental")


@pytest.mark.parametrize(
    "data",
    [
        "{",
        "null",
        "[]",
        {"data-collections": [["a.b"]]},
        {"data-collections": "a.b"},
        {"data-collections": {}},
        {"data-collections": [None]},
        {"data-collections": [""]},
        {"data_collections": ["a.b"]},
        {"data-collection": ["a.b"]},
        {"tables": ["a.b"]},
        {"data-collections": ["a.b"], "additional-conditions": []},
    ],
)
def test_a_stop_that_is_not_understood_stops_nothing(data: Any) -> None:
    assert isinstance(parse("1", "stop-snapshot", data), Malformed)


def test_the_others() -> None:
    assert parse("1", "pause-snapshot", None) == Pause("1")
    assert parse("1", "resume-snapshot", '{"type": "incremental"}') == Resume("1")
    assert parse("1", "log", '{"message": "at {}"}') == Log("1", "at {}")
    assert "no message" in reason(parse("1", "log", "{}"))
    assert signals.told("at {}, {}", "0/16") == "at 0/16, 0/16"


def test_an_unknown_type_names_the_nearest() -> None:
    assert "did you mean 'execute-snapshot'?" in reason(parse("1", "exectue-snapshot", None))
    assert "known are" in reason(parse("1", "zzz", None))


def test_rows() -> None:
    assert of_row(["1", "log", "{}"]) == ("1", "log", "{}")
    assert of_row(["1", "log", None]) == ("1", "log", None)
    assert of_row(["1", "log", None, "more"]) is None
    assert of_row(["1", "log"]) is None
    assert of_row(None) is None


def test_lines() -> None:
    good = {"id": 1, "type": "log", "data": {"message": "m"}}
    text = {"id": "2", "type": "log", "data": '{"message": "n"}'}
    lines = ["", "  \n", json.dumps(good) + "\n", "{", json.dumps(text), "[]", '{"type": "log"}', '{"id": "3"}']
    found = of_lines(lines)
    assert [s for s in found if isinstance(s, Log)] == [Log("1", "m"), Log("2", "n")]
    wrong = [s for s in found if isinstance(s, Malformed)]
    assert len(wrong) == 4
    assert wrong[-1].id == "3"


def test_lines_without_an_id_are_told_apart() -> None:
    first, second, again = of_lines(["{", "[", "{ "])
    assert first.id == again.id != second.id


CAPTURED = ["s.b", "s.a", "t.a", "s.aa", "s.x$y"]


def test_tables_by_patterns_then_by_name() -> None:
    assert tables_of(Execute("1", ("t\\..*", "s.a+", ".*b")), CAPTURED) == ["t.a", "s.a", "s.aa", "s.b"]
    assert tables_of(Execute("1", ("s.a", "s.a", ".*a")), CAPTURED) == ["s.a", "s.aa", "t.a"]
    assert tables_of(Execute("1", ("a", "s", "S.A")), CAPTURED) == []
    assert matching(["s.x$y"], CAPTURED) == ["s.x$y"]


def test_a_window_says_at_its_end_what_it_said_at_its_beginning() -> None:
    window = Window("c", "2026-01-01T00:00:00Z", "signal-1", "public.a")
    opened, closed = window.open_row(), window.close_row("2026-01-01T00:00:05Z")
    assert opened[:2] == ("c-open", "snapshot-window-open")
    assert closed[:2] == ("c-close", "snapshot-window-close")
    told = {
        "openWindowTimestamp": "2026-01-01T00:00:00Z",
        "correlationId": "signal-1",
        "dataCollectionId": "public.a",
    }
    assert json.loads(opened[2] or "") == told
    assert json.loads(closed[2] or "") == {**told, "closeWindowTimestamp": "2026-01-01T00:00:05Z"}
    assert parse(*opened) == WindowOpen("c")
    assert parse(*closed) == WindowClose("c")


def test_the_rows_of_a_window_fit_the_table() -> None:
    window = Window("d139b9b7-7777-4547-917d-111111111111", "2026-01-01T00:00:00Z")
    for id, type, _ in (window.open_row(), window.close_row("2026-01-01T00:00:05Z")):
        assert len(id) <= 42
        assert len(type) <= 32


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(signals._MEMBERS), inner, max_size=5),
    max_leaves=8,
)


@given(st.sampled_from([*signals._BUILD, "?"]), JSON | st.text())
def test_nothing_fails(type: str, data: Any) -> None:
    assert parse("1", type, data).id == "1"


@given(st.lists(JSON.map(json.dumps) | st.text()))
def test_no_line_fails(lines: list[str]) -> None:
    assert len(of_lines(lines)) == sum(bool(line.strip()) for line in lines)


@pytest.mark.parametrize("pattern", ["a{99999999999}", "(" * 5000 + ")" * 5000])
def test_a_pattern_that_python_chokes_on(pattern: str) -> None:
    found = parse("1", "execute-snapshot", {"data-collections": [pattern]})
    assert isinstance(found, Malformed)
    assert "is not a regular expression" in found.reason


def test_json_that_is_nested_too_deeply() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    (line,) = of_lines([deep])
    assert isinstance(line, Malformed)
    assert line.id.startswith("nameless-")
    found = parse("1", "execute-snapshot", deep)
    assert isinstance(found, Malformed)
    assert found == Malformed("1", "execute-snapshot: its JSON is nested too deeply")


@pytest.mark.parametrize("half", ["\\ud800", "\\u0000"])
@pytest.mark.parametrize(
    "signal",
    [
        '{"id": "x%s", "type": "pause-snapshot"}',
        '{"id": "x", "type": "execute-snapshot", "data": {"data-collections": ["public.a%s"]}}',
        '{"id": "x", "type": "execute-snapshot", "data": {"data-collections": ["a"], "surrogate-key": "%s"}}',
        '{"id": "x", "type": "execute-snapshot", "data": {"data-collections": ["a"], "additional-condition": "%s"}}',
        '{"id": "x", "type": "log", "data": {"message": "%s"}}',
    ],
)
def test_what_json_can_spell_and_nobody_can_write(signal: str, half: str) -> None:
    (found,) = of_lines([signal % half])
    assert isinstance(found, Malformed)
    assert f"{found.id}{found.reason}".encode()


def test_rows_with_another_number_of_columns() -> None:
    assert of_values(["1", "pause-snapshot", None]) == Pause("1")
    found = of_values(["1", "pause-snapshot", None, "more"])
    assert found == Malformed("1", "the table of signals has 4 columns, and a signal has an id, a type and data")
