"""What SQL Server and Db2 have in common: changes are read from capture tables, in the order of two LSNs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.core.offsets import compare
from tidelog.core.offsets.common import INCREMENTAL, SNAPSHOT, SNAPSHOT_COMPLETED, TRANSACTION
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.document import Form as Shape
from tidelog.core.offsets.fields import Field, Null, whole
from tidelog.core.offsets.lsn import Form

_PLACE = ("commit_lsn", "change_lsn", "event_serial_no")
FORMS = (
    Shape("snapshot", "a snapshot", ("snapshot", "snapshot_completed", *_PLACE), ("commit_lsn",), mark="snapshot"),
    Shape("streaming", "streaming", _PLACE, ("commit_lsn",)),
)


def fields(lsn: Form, commit: str, change: str) -> tuple[Field, ...]:
    return (
        SNAPSHOT,
        SNAPSHOT_COMPLETED,
        Field(
            "commit_lsn",
            "The LSN of the commit of the last transaction of which something was delivered.",
            lsn.kind(),
            commit,
        ),
        Field(
            "change_lsn",
            "The LSN of the last delivered change of that transaction; null after a snapshot.",
            lsn.kind(),
            change,
            null=Null.KEPT,
        ),
        Field(
            "event_serial_no",
            "Which event of that change was the last: an update has two.",
            whole(),
            1,
            null=Null.REFUSED,
        ),
        *TRANSACTION,
        *INCREMENTAL,
    )


def order(lsn: Form, a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
    return compare.of(_place(lsn, a), _place(lsn, b))


def describe(offset: Mapping[str, Any]) -> str:
    parts = [f"Commit LSN {offset.get('commit_lsn')}"]
    if offset.get("change_lsn") is not None:
        parts.append(f"change LSN {offset['change_lsn']}, event {offset.get('event_serial_no', 0)}")
    if offset.get("snapshot") is not None:
        parts.append("in a snapshot")
    return ", ".join(parts)


def _place(lsn: Form, offset: Mapping[str, Any]) -> tuple[int, int, int]:
    commit, change = lsn.number(offset.get("commit_lsn")), lsn.number(offset.get("change_lsn"))
    return commit, change, offset.get("event_serial_no") or 0
