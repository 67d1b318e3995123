"""A mirror of the committed offsets, for people and tools.

Law: the checkpoint's last committed batch is the truth. The store repeats it with the query's id and the batch's, so
that a stale word can be told from a fresh one; nothing is ever resumed from here.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SCHEMA = """
CREATE TABLE IF NOT EXISTS committed (
    query TEXT PRIMARY KEY, batch INTEGER NOT NULL, offset TEXT NOT NULL, at_us INTEGER NOT NULL)
"""


@dataclass(frozen=True)
class Committed:
    query: str
    batch: int
    offset: Mapping[str, Any]
    at_us: int


class OffsetStore:
    """One small file; opened for each call, so that any process may look at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def mirror(self, committed: Committed) -> None:
        row = (committed.query, committed.batch, json.dumps(dict(committed.offset)), committed.at_us)
        with closing(sqlite3.connect(self._path)) as db, db:
            db.execute(_SCHEMA)
            db.execute("INSERT OR REPLACE INTO committed VALUES (?, ?, ?, ?)", row)

    def last(self) -> Committed | None:
        """What was committed last, by whichever query."""
        if not self._path.exists():
            return None
        with closing(sqlite3.connect(self._path)) as db:
            db.execute(_SCHEMA)
            row = db.execute("SELECT * FROM committed ORDER BY at_us DESC LIMIT 1").fetchone()
        return Committed(row[0], row[1], json.loads(row[2]), row[3]) if row else None
