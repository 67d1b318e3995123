"""tidelog speaks Kafka Connect's REST: the same script to both, the same codes and shapes from both.

Where tidelog answers otherwise on purpose, `deviations` says so with its reason, difference by difference: one that is
not listed fails, and so does one that is listed and no longer there.
"""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Played
from tests.conformance.deviations import DEVIATIONS, known
from tests.conformance.script import STEPS
from tests.conformance.shapes import Answer, differences

pytestmark = pytest.mark.timeout(1800)  # the first test waits for both servers and the whole script


@pytest.mark.parametrize("name", STEPS)
def test_the_answers_agree(name: str, played: Played) -> None:
    theirs, ours = played[name]
    step = STEPS[name]
    found = differences(theirs, ours, step.values, is_map=step.is_map)
    assert found == known(name), f"{step.method} {step.path}\nKafka Connect: {theirs}\ntidelog: {ours}"


def test_an_error_has_one_form(played: Played) -> None:
    for name, (_, ours) in played.items():
        if ours.status >= 400:
            assert sorted(ours.body) == ["error_code", "message"], name
            assert ours.body["error_code"] == ours.status, name


def test_every_deviation_is_of_a_step_and_has_a_reason() -> None:
    for deviation in DEVIATIONS:
        assert deviation.reason.endswith(".")
        assert not [step for step in deviation.steps if step not in STEPS]


def test_differences_are_seen() -> None:
    theirs = Answer(200, {"name": "a", "tasks": [{"id": 0}], "config": {"a": "b"}}, "application/json")
    assert not differences(
        theirs, Answer(200, {"name": "b", "tasks": [{"id": 1}], "config": {"c": "d"}}, "application/json")
    )
    assert differences(theirs, Answer(201, {"name": 1, "tasks": [], "config": {"c": 1}, "more": 1})) == {
        "status 200 → 201",
        "content type application/json → none",
        "$.name text → number",
        "$.tasks[] missing",
        "$.config.* text → number",
        "$.more added",
    }
    assert differences(theirs, Answer(200, {**theirs.body, "name": "b"}, "application/json"), ("$.name",)) == {
        "$.name a → b"
    }
    assert differences(theirs, Answer(404, {"error_code": 404}, "application/json")) == {"status 200 → 404"}
