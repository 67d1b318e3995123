"""People who write to the source while it is read: every kind of change, near the cursor and far from it."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from tests.integration.postgres.snapshot_rig import Rig
from tests.servers import Database

ROWS = 300
STEP = 10
"""Distance of the keys at the start: there is room between them."""

_TABLE = f"""
CREATE TABLE items (id int PRIMARY KEY, v text, n int NOT NULL DEFAULT 0, big text);
ALTER TABLE items ALTER COLUMN big SET STORAGE EXTERNAL;
INSERT INTO items SELECT i * {STEP}, 'v' || i, i, repeat(md5(i::text), 100) FROM generate_series(1, {ROWS}) i
"""

SIGNALS = "CREATE TABLE signals (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))"

WINDOWS = {
    "read-only": {},
    "insert_insert": {"read.only": "false", "signal.data.collection": "public.signals"},
    "insert_delete": {
        "read.only": "false",
        "signal.data.collection": "public.signals",
        "incremental.snapshot.watermarking.strategy": "insert_delete",
    },
}
"""The settings by how windows are told."""


def create_items(database: Database) -> None:
    """300 rows with a column whose values lie outside the row (TOAST)."""
    database.execute(_TABLE)


def items(database: Database, folder: Path, windows: str = "read-only", size: int = 10, **more: str) -> Rig:
    """A pipeline over the table of `create_items`."""
    create_items(database)
    if WINDOWS[windows]:
        database.execute(SIGNALS)
    source = {"incremental.snapshot.chunk.size": str(size), **WINDOWS[windows], **more}
    return Rig(database, folder / "pipeline", source, parallelism=4)


def write_at(rig: Rig, *hooks: str, seed: int = 1, long: int = 7, most: int = 10**9) -> Writer:
    """Let somebody write whenever the pipeline gets to one of these steps."""
    writer = Writer(rig.database, seed=seed, long=long, most=most)
    for hook in hooks:
        setattr(rig.hooks, hook, writer)
    return writer


def finished(rig: Rig) -> bool:
    """Whether every snapshot that was asked for is delivered."""
    return bool(rig.log) and not rig.snapshot.get("entries")


def times(step: Callable[[], object], at: int) -> Callable[[], None]:
    """A hook that does something the `at`-th time it is called."""
    calls = count(1)

    def hook() -> None:
        if next(calls) == at:
            step()

    return hook


class Writer:
    """Call it to have one round of changes of every kind committed. `long` says over how many calls a transaction
    stays open that also writes in each of them."""

    def __init__(self, database: Database, *, seed: int = 0, long: int = 7, most: int = 10**9) -> None:
        self._random = random.Random(seed)
        self._connection = database.connect()
        self._other = database.connect(autocommit=False)
        self._long, self._most = long, most
        self.calls = 0

    def __call__(self) -> None:
        if self.calls >= self._most or self._connection.closed:
            return
        self.calls += 1
        for change in (self._insert, self._update, self._delete, self._move, self._again, self._undone, self._partly):
            change()
        self._lingering()

    def close(self) -> None:
        self._other.commit()
        self._other.close()
        self._connection.close()

    # -- kinds of change -----------------------------------------------------------------------------------------

    def _insert(self) -> None:
        self._run("INSERT INTO items VALUES (%s, 'new', 0, repeat('n', 3000)) ON CONFLICT DO NOTHING", self._between())

    def _update(self) -> None:
        some = self._random.randrange(17)
        self._run("UPDATE items SET n = n + 1 WHERE id > 0 AND id %% 17 = %s", some)  # `big` is unchanged
        self._run("UPDATE items SET big = repeat(%s, 3000) WHERE id = %s", str(self.calls % 10), self._key())

    def _delete(self) -> None:
        self._run("DELETE FROM items WHERE id = %s", self._key())

    def _move(self) -> None:
        """A key change, forth or back; and one that a second one follows."""
        for old in self._key(), self._between():
            new = self._between()
            self._run(_MOVE, new, old, new)
            self._run(_MOVE, new + 3, new, new + 3)

    def _again(self) -> None:
        key = self._key()
        with self._connection.transaction():
            self._run("DELETE FROM items WHERE id = %s", key)
            self._run("INSERT INTO items VALUES (%s, 'again', %s, repeat('a', 2500))", key, self.calls)

    def _undone(self) -> None:
        with self._connection.transaction(force_rollback=True):
            self._run("UPDATE items SET v = 'undone' WHERE id BETWEEN 1 AND %s", self._key())
            self._run("DELETE FROM items WHERE id BETWEEN %s AND 100000", self._key())

    def _partly(self) -> None:
        with self._connection.transaction():
            for i in range(4):
                with self._connection.transaction(force_rollback=bool(i % 2)):
                    self._run("UPDATE items SET v = %s WHERE id = %s", f"part {i}", self._key())
                    self._run("INSERT INTO items VALUES (%s, 'part', 1, NULL) ON CONFLICT DO NOTHING", self._between())

    def _lingering(self) -> None:
        """Rows of its own, so that it waits for nobody and nobody for it."""
        self._other.execute("INSERT INTO items VALUES (%s, 'long', 0, repeat('l', 2500))", [-self.calls])
        self._other.execute("UPDATE items SET n = n + 1 WHERE id < 0")
        if not self.calls % self._long:
            self._other.execute("UPDATE items SET id = %s WHERE id = %s", [10**6 + self.calls, -self.calls])
            self._other.commit() if self._random.random() < 0.7 else self._other.rollback()

    # -- small things --------------------------------------------------------------------------------------------

    def _run(self, sql: str, *values: Any) -> psycopg.Cursor[Any]:
        return self._connection.execute(sql.encode(), values)

    def _key(self) -> int:
        """Of a row that was there at the start."""
        return self._random.randint(1, ROWS) * STEP

    def _between(self) -> int:
        return self._random.randint(1, ROWS) * STEP + self._random.randint(1, 3)


_MOVE = "UPDATE items SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM items WHERE id = %s)"
