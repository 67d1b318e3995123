"""Notifications in the form that users know."""

from __future__ import annotations

import json

import pytest

from tidelog.core.notifications import TYPES, Notification, abandoned, key_text, of_news
from tidelog.core.snapshot.state import News


def told(news: News, rate: float = 0.0) -> Notification:
    return of_news(news, connector="shop", timestamp_ms=1_700_000_000_000, rate=rate)


def test_the_form() -> None:
    found = told(News("STARTED", "signal-1", "incremental", table="public.a", tables=("public.a", "public.ü")))
    assert json.loads(found.to_json()) == {
        "id": "signal-1",
        "aggregate_type": "Incremental Snapshot",
        "type": "STARTED",
        "additional_data": {"connector_name": "shop", "data_collections": "public.a,public.ü"},
        "timestamp": 1_700_000_000_000,
    }


def test_a_transaction_that_was_given_up() -> None:
    found = abandoned("1f00", "it has 9 events", 9, 300, connector="shop", timestamp_ms=5)
    assert (found.id, found.aggregate_type, found.type) == ("1f00", "Transaction", "ABANDONED")
    assert found.additional_data == {
        "connector_name": "shop",
        "reason": "it has 9 events",
        "events": "9",
        "bytes": "300",
    }


def test_progress() -> None:
    news = News(
        "IN_PROGRESS", "1", "incremental", "public.a", rows=500, estimate=2000, key=("5", None), maximum=("9", "z")
    )
    assert told(news, rate=100.0).additional_data == {
        "connector_name": "shop",
        "data_collections": "public.a",
        "current_collection_in_progress": "public.a",
        "maximum_key": "9,z",
        "last_processed_key": "5,<null>",
        "total_rows_scanned": "500",
        "estimated_rows": "2000",
        "percent": "25.0",
        "rows_per_second": "100",
        "seconds_left": "15",
    }


def test_what_is_not_known_is_not_told() -> None:
    found = told(News("IN_PROGRESS", "1", "initial", "public.a")).additional_data
    assert found.keys() == {
        "connector_name",
        "data_collections",
        "current_collection_in_progress",
        "total_rows_scanned",
    }


def test_more_rows_than_expected() -> None:
    found = told(News("IN_PROGRESS", "1", "initial", "public.a", rows=30, estimate=10), rate=1.0).additional_data
    assert found["percent"] == "99.9"
    assert "seconds_left" not in found


def test_a_table_that_is_through() -> None:
    found = told(News("TABLE_SCAN_COMPLETED", "1", "incremental", "public.a", status="SUCCEEDED", rows=7))
    assert found.additional_data["scanned_collection"] == "public.a"
    assert found.additional_data["total_rows_scanned"] == "7"
    assert found.additional_data["status"] == "SUCCEEDED"
    assert "reason" not in found.additional_data


@pytest.mark.parametrize("status", ["SUCCEEDED", "EMPTY"])
@pytest.mark.parametrize("estimate", [0, 5, 700])
def test_a_table_that_is_through_is_whole(status: str, estimate: int) -> None:
    """However many rows were expected."""
    found = told(News("TABLE_SCAN_COMPLETED", "1", "incremental", "a", status=status, rows=7, estimate=estimate), 1.0)
    assert (found.additional_data["percent"], found.additional_data["seconds_left"]) == ("100.0", "0")


def test_a_signal_that_was_not_understood() -> None:
    found = told(News("MALFORMED", "1", "signal", reason="it has no message"))
    assert found.aggregate_type == "Signal"
    assert found.additional_data == {"connector_name": "shop", "reason": "it has no message"}


def test_what_was_skipped_is_told_with_its_reason() -> None:
    found = told(News("SKIPPED", "1", "incremental", tables=("a", "b"), reason="no such table"))
    assert found.additional_data == {"connector_name": "shop", "data_collections": "a,b", "reason": "no such table"}


def test_a_reason_stands_apart_from_the_status() -> None:
    news = News(
        "TABLE_SCAN_COMPLETED", "1", "incremental", "public.a", status="SQL_EXCEPTION", reason="no such table: a"
    )
    found = told(news).additional_data
    assert (found["status"], found["reason"]) == ("SQL_EXCEPTION", "no such table: a")


@pytest.mark.parametrize(
    ("kind", "aggregate"),
    [("incremental", "Incremental Snapshot"), ("initial", "Initial Snapshot"), ("blocking", "Initial Snapshot")],
)
def test_aggregates(kind: str, aggregate: str) -> None:
    assert told(News("COMPLETED", "1", kind)).aggregate_type == aggregate


@pytest.mark.parametrize("type", TYPES)
def test_everything_told_is_a_text(type: str) -> None:
    news = News(type, "1", "incremental", "public.a", ("public.a",), "EMPTY", 3, 4, ("1",), ("2",))
    found = told(news, rate=2.5)
    assert found.id == "1"
    assert found.type == type
    assert all(isinstance(value, str) for value in found.additional_data.values())


def test_no_key() -> None:
    assert key_text(None) == "<null>"
