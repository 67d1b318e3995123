"""A seeded writer whose every committed change is known: each change gives its row a version of its own."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import psycopg

SCHEMA = """
CREATE TABLE a (id bigint PRIMARY KEY, version bigint NOT NULL, name text, amount numeric(12, 2), at timestamptz);
CREATE TABLE b (part int, id bigint, version bigint NOT NULL, body text, PRIMARY KEY (part, id));
ALTER TABLE b ALTER COLUMN body SET STORAGE EXTERNAL;
"""

Change = tuple[str, str, int, int]
"""Table, operation, id, version."""


@dataclass
class Workload:
    connection: psycopg.Connection[Any]
    seed: int = 1
    changes: Counter[Change] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._version = 0
        self._next_id = 1

    @property
    def total(self) -> int:
        return sum(self.changes.values())

    def transact(self) -> None:
        """One transaction of one to a few thousand changes; some are rolled back, some partly."""
        self._pending: list[Change] = []
        with self.connection.transaction() as transaction:
            for _ in range(self._dice.choice([1, 1, 1, 2, 3, 5])):
                self._statement(self._dice.choice([1, 1, 2, 5, 20, 200, 1500]))
                if self._dice.random() < 0.05:
                    self._undone()
            if self._dice.random() < 0.08:
                self._pending = []
                raise psycopg.Rollback(transaction)
        self.changes.update(self._pending)

    def _undone(self) -> None:
        kept = list(self._pending)
        with self.connection.transaction() as savepoint:
            self._statement(10)
            raise psycopg.Rollback(savepoint)
        self._pending = kept

    def _statement(self, rows: int) -> None:
        work = self._dice.choices([self._insert, self._update, self._delete, self._move], [5, 4, 1.5, 0.5])[0]
        work(self._dice.choice("ab"), rows)

    def _insert(self, table: str, rows: int) -> None:
        first, self._next_id = self._next_id, self._next_id + rows
        if table == "a":
            values = "i, %(v)s + i, 'name ' || i, i * 1.01, now()"
        else:
            values = "i %% 7, i, %(v)s + i, repeat('x', (i %% 4)::int * 1000)"
        series = "generate_series(%(f)s::bigint, %(l)s::bigint) i"
        self._run(table, "c", f"INSERT INTO {table} SELECT {values} FROM {series}", first, rows)

    def _update(self, table: str, rows: int) -> None:
        change = "name = name || '.'" if table == "a" else "part = part"
        self._run(
            table,
            "u",
            f"UPDATE {table} SET version = %(v)s + id, {change} WHERE id BETWEEN %(f)s AND %(l)s",
            self._somewhere(),
            rows,
        )

    def _move(self, table: str, rows: int) -> None:
        """A key change; in `b` the long text stays where it is and is not in the log."""
        if table == "b":
            self._run(
                table,
                "u",
                "UPDATE b SET part = part + 100, version = %(v)s + id WHERE id BETWEEN %(f)s AND %(l)s",
                self._somewhere(),
                min(rows, 20),
            )

    def _delete(self, table: str, rows: int) -> None:
        sql = f"DELETE FROM {table} WHERE id BETWEEN %(f)s AND %(l)s"
        self._run(table, "d", sql, self._somewhere(), max(1, rows // 3))

    def _somewhere(self) -> int:
        return self._dice.randrange(max(1, self._next_id - 3000), self._next_id + 1)

    def _run(self, table: str, op: str, sql: str, first: int, rows: int) -> None:
        self._version += 1_000_000_000
        bounds = {"v": self._version, "f": first, "l": first + rows - 1}
        done = self.connection.execute(f"{sql} RETURNING id, version", bounds).fetchall()
        # The log tells only the key of a deleted row.
        self._pending += [(table, op, id, 0 if op == "d" else version) for id, version in done]
