"""Transaction metadata: BEGIN and END, and how many events of which table lie between them.

A transaction may be met again half-way after a restart; then its counts go on and no second BEGIN is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_ID = "transaction_id"
_ORDER = "transaction_data_collection_order_"


@dataclass(frozen=True)
class Transaction:
    """One transaction while its events pass."""

    id: str
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def event(self, collection: str) -> Transaction:
        return Transaction(self.id, {**self.counts, collection: self.counts.get(collection, 0) + 1})

    def begin(self) -> dict[str, Any]:
        return {"status": "BEGIN", "id": self.id}

    def end(self) -> dict[str, Any]:
        collections = [{"data_collection": k, "event_count": n} for k, n in self.counts.items()]
        return {"status": "END", "id": self.id, "event_count": self.total, "data_collections": collections}

    def to_offset(self) -> dict[str, Any]:
        """The keys that an offset inside a transaction carries."""
        return {_ID: self.id, **{_ORDER + k: n for k, n in self.counts.items()}}

    @staticmethod
    def from_offset(document: Mapping[str, Any]) -> Transaction | None:
        if document.get(_ID) is None:
            return None
        counts = {k.removeprefix(_ORDER): int(n) for k, n in document.items() if k.startswith(_ORDER)}
        return Transaction(str(document[_ID]), counts)


def begin(open_before: Transaction | None, id: str) -> tuple[Transaction, list[dict[str, Any]]]:
    """Start a transaction, or go on with the one that was open; what is to be told of it."""
    if open_before is not None and open_before.id == id:
        return open_before, []
    started = Transaction(id)
    return started, [started.begin()]
