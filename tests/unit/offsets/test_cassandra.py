"""Cassandra: places in commit logs, a map that keys come to and go from, and the files of a node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.connectors.cassandra import offset, position, properties
from tidelog.connectors.cassandra.position import DONE, Marks, Position
from tidelog.core.offsets.compare import Order
from tidelog.errors import ConfigError

LOG = "CommitLog-6-12345.log"
PLACES = st.builds(lambda log, at: Position(f"CommitLog-6-{log}.log", at), st.integers(0, 3), st.integers(0, 3))


@given(PLACES)
def test_a_place_comes_back_from_its_text(place: Position) -> None:
    assert position.parse(str(place)) == place


def test_a_snapshot_that_is_done() -> None:
    assert str(DONE) == ":-1"
    assert position.parse(":-1") == DONE


@pytest.mark.parametrize("text", ["", ":", "x", f"{LOG}:", f"{LOG}:-1", ":5", f"{LOG}:x", "a.log:1", f"{LOG}:1:2"])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(ConfigError):
        position.parse(text)


@pytest.mark.parametrize(("b", "order"), [("2", -1), ("0", 1), ("1", 0), ("10", -1)])
def test_logs_compare_by_number_and_not_by_letters(b: str, order: int) -> None:
    assert position.compare_logs("CommitLog-6-1.log", f"CommitLog-6-{b}.log") == order
    assert position.compare_logs("commitlog-7-1.log", f"CommitLog-6-{b}.log") == (order or 1)


@given(st.lists(PLACES, max_size=6), PLACES)
def test_a_mark_never_goes_back(found: list[Position], asked: Position) -> None:
    marks = Marks()
    for place in found:
        marks = marks.mark("ks.t", place)
    furthest = max((place.key for place in found), default=(-9, -9, -9))
    assert marks.processed("ks.t", asked) == (asked.key <= furthest)
    assert not marks.processed("ks.other", asked)
    assert not marks.processed("ks.t", DONE)


def test_keys_come_and_go() -> None:
    before = {"ks.a": f"{LOG}:1", "ks.b": f"{LOG}:1"}
    after = offset.amend(before, {"ks.a": None, "ks.b": f"{LOG}:7", "ks.c": ":-1", "ks.d": None})
    assert after == {"ks.b": f"{LOG}:7", "ks.c": ":-1"}
    assert offset.amend(before, {"ks.a": None, "ks.b": None}) == {}
    with pytest.raises(ConfigError):
        offset.amend(before, {"ks.a": "nowhere"})


def test_the_files_of_a_node() -> None:
    context = {"ks.t.snapshot": ":-1", "ks.t.commitlog": f"{LOG}:100"}
    files = offset.files(context)
    assert files == {properties.SNAPSHOTS: {"ks.t": ":-1"}, properties.LOGS: {"ks.t": f"{LOG}:100"}}
    assert offset.of_files(files) == context
    assert offset.files({"ks.t": f"{LOG}:100", "ks.u": ":-1"}).keys() == files.keys()


@given(st.dictionaries(st.text(), st.text()))
def test_properties_come_back(entries: dict[str, str]) -> None:
    assert properties.read(properties.write(entries)) == entries


def test_properties_as_java_writes_them() -> None:
    text = f"#Mon Jan 01\n! note\n\nks.t={LOG}\\:100\nks.u : \\\n   a\\u00e9b\nbare\n"
    assert properties.read(text) == {"ks.t": f"{LOG}:100", "ks.u": "aéb", "bare": ""}
    assert properties.write({"ks.t": f"{LOG}:100"}) == f"ks.t={LOG}\\:100\n"


@pytest.mark.parametrize(
    ("a", "b", "order"),
    [
        ({"k.a": f"{LOG}:1"}, {"k.a": f"{LOG}:2"}, Order.BEFORE),
        ({"k.a": f"{LOG}:1"}, {"k.a.commitlog": f"{LOG}:1"}, Order.SAME),
        ({"k.a": f"{LOG}:1"}, {}, Order.AFTER),
        ({"k.a": f"{LOG}:1", "k.b": f"{LOG}:2"}, {"k.a": f"{LOG}:2", "k.b": f"{LOG}:1"}, Order.UNRELATED),
    ],
)
def test_the_order_of_maps(a: dict[str, str], b: dict[str, str], order: Order) -> None:
    assert offset.compare(a, b) is order
    assert offset.compare(b, a) is order.reverse()


def test_words() -> None:
    assert offset.describe({"k.a": f"{LOG}:1", "k.b": ":-1"}) == f"k.a at {LOG}:1 and 1 more"
    assert offset.describe({}) == "No table processed yet"
