"""The one schedule of all retries."""

from __future__ import annotations

import logging

import pytest

from tidelog.engine.backoff import Backoff


def test_the_delay_doubles_up_to_a_limit_and_starts_anew_after_a_success() -> None:
    backoff = Backoff("Reading")
    delays = [backoff.failed("away") for _ in range(40)]
    assert delays[:7] == [0.5, 1, 2, 4, 8, 16, 30]
    assert set(delays[7:]) == {30}
    assert backoff.failures == 40
    backoff.succeeded()
    assert (backoff.failures, backoff.failed("away")) == (0, 0.5)


def test_the_log_gets_each_new_reason_once(caplog: pytest.LogCaptureFixture) -> None:
    backoff = Backoff("Reading")
    with caplog.at_level(logging.INFO, "tidelog"):
        for reason in ("away", "away", "refused", "refused"):
            backoff.failed(reason)
        backoff.succeeded()
        backoff.succeeded()
    assert [record.getMessage() for record in caplog.records] == [
        "Reading: attempt 1 failed, the next one follows in 0.5 s: away",
        "Reading: attempt 3 failed, the next one follows in 2.0 s: refused",
        "Reading: succeeded on attempt 5",
    ]
