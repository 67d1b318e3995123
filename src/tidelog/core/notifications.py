"""Notifications: what happens to snapshots, and transactions that were given up, told in the form that users know.

`id` is the id of the signal that asked, also when several snapshots run. Everything in `additional_data` is a text, and
only what is known is told. Time comes from the caller.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.contracts import Key
from tidelog.core.snapshot.state import INCREMENTAL, SIGNAL, News

TYPES = (
    "STARTED",
    "IN_PROGRESS",
    "TABLE_SCAN_COMPLETED",
    "COMPLETED",
    "ABORTED",
    "SKIPPED",
    "PAUSED",
    "RESUMED",
    "MALFORMED",
)
_DONE = ("SUCCEEDED", "EMPTY")
_PERCENT_MAX = 99.9
"""Of a table that is still read, however many rows were expected."""
_NULL = "<null>"


@dataclass(frozen=True)
class Notification:
    id: str
    aggregate_type: str
    type: str
    additional_data: Mapping[str, str] = field(default_factory=dict)
    timestamp_ms: int = 0

    def to_json(self) -> str:
        told = {
            "id": self.id,
            "aggregate_type": self.aggregate_type,
            "type": self.type,
            "additional_data": dict(self.additional_data),
            "timestamp": self.timestamp_ms,
        }
        return json.dumps(told, ensure_ascii=False)


def of_news(news: News, *, connector: str, timestamp_ms: int, rate: float = 0.0) -> Notification:
    """`rate` is how many rows of the table are read in a second; 0 when it is not known."""
    texts = {"connector_name": connector, **_collections(news)}
    match news.type:
        case "IN_PROGRESS":
            texts |= {"current_collection_in_progress": news.table, **_keys(news), **progress(news, rate)}
        case "TABLE_SCAN_COMPLETED":
            texts |= {"scanned_collection": news.table, **progress(news, rate), "status": news.status}
    if news.reason:
        texts["reason"] = news.reason
    return Notification(news.id, aggregate(news.kind), news.type, texts, timestamp_ms)


def abandoned(id: str, reason: str, events: int, size: int, *, connector: str, timestamp_ms: int) -> Notification:
    """A transaction that is not delivered, whatever becomes of it."""
    texts = {"connector_name": connector, "reason": reason, "events": str(events), "bytes": str(size)}
    return Notification(id, "Transaction", "ABANDONED", texts, timestamp_ms)


def aggregate(kind: str) -> str:
    """By the kind of a snapshot: only an incremental one lets the stream go on meanwhile."""
    if kind == SIGNAL:
        return "Signal"
    return "Incremental Snapshot" if kind == INCREMENTAL else "Initial Snapshot"


def progress(news: News, rate: float) -> dict[str, str]:
    """The estimate comes from statistics: more rows may be there than were expected, or fewer."""
    done = news.status in _DONE
    told = {"total_rows_scanned": str(news.rows)}
    if news.estimate > 0:
        told["estimated_rows"] = str(news.estimate)
    if done or news.estimate > 0:
        told["percent"] = "100.0" if done else f"{min(_PERCENT_MAX, 100 * news.rows / news.estimate):.1f}"
    if rate > 0:
        told["rows_per_second"] = f"{rate:.0f}"
    if done:
        told["seconds_left"] = "0"
    elif rate > 0 and news.estimate >= news.rows > 0:
        told["seconds_left"] = str(math.ceil((news.estimate - news.rows) / rate))
    return told


def key_text(key: Key | None) -> str:
    return _NULL if key is None else ",".join(_NULL if value is None else value for value in key)


def _collections(news: News) -> dict[str, str]:
    tables = news.tables or ((news.table,) if news.table else ())
    return {"data_collections": ",".join(tables)} if tables else {}


def _keys(news: News) -> dict[str, str]:
    """A table that is walked by the place of its rows has no keys to tell."""
    if news.maximum is None and news.key is None:
        return {}
    return {"maximum_key": key_text(news.maximum), "last_processed_key": key_text(news.key)}
