"""Which failures of a query are retried, and how a start waits for its turn."""

from __future__ import annotations

import threading

import pytest

from tidelog.engine import backoff
from tidelog.errors import CorruptState, TransientError
from tidelog.spark import failures, query_start
from tidelog.spark.failures import Retries


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_FIRST_S", 0.001)
    monkeypatch.setattr(failures, "_CHECK_S", 0.001)


@pytest.mark.parametrize(("error", "retried"), [(TransientError("away"), 6), (CorruptState("a file is gone"), 3)])
def test_a_query_is_given_up_after_too_many_failures_in_a_row(error: Exception, retried: int) -> None:
    retries = Retries("shop")
    for progressed in [True] * 10 + [False] * (retried - 1):
        retries.pause(error, progressed=progressed, meanwhile=lambda: None)
    with pytest.raises(type(error)) as given_up:
        retries.pause(error, progressed=False, meanwhile=lambda: None)
    assert given_up.value is error


def test_a_pause_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_FIRST_S", 3600.0)
    monkeypatch.setattr(backoff, "_LIMIT_S", 3600.0)

    def give_up() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Retries("shop").pause(TransientError("away"), progressed=False, meanwhile=give_up)


def test_a_start_that_waits_for_its_turn_can_be_given_up() -> None:
    checks = []

    def give_up() -> None:
        checks.append(1)
        if len(checks) == 2:
            raise KeyboardInterrupt

    def wait() -> None:
        with pytest.raises(KeyboardInterrupt), query_start.take_turn(give_up):
            pass

    with query_start.take_turn(give_up):
        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join()
    assert len(checks) == 2
    with query_start.take_turn(give_up):  # the one that gave up holds nothing
        assert len(checks) == 2
