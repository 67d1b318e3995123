"""A seeded writer that changes tables as well as rows: columns, types, keys, partitions, and which table has a name."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'glad');
CREATE TABLE plain (id int PRIMARY KEY, grp int NOT NULL DEFAULT 0, v text, m mood);
CREATE TABLE moody (id int PRIMARY KEY, m mood, v text);
CREATE TABLE root (id int PRIMARY KEY, v text, m mood) PARTITION BY RANGE (id);
CREATE TABLE root_0 PARTITION OF root FOR VALUES FROM (0) TO (100);
CREATE TABLE root_1 PARTITION OF root FOR VALUES FROM (100) TO (200);
CREATE TABLE root_d PARTITION OF root DEFAULT;
INSERT INTO plain SELECT i, i % 7, 'p' || i, 'ok' FROM generate_series(1, 200) i;
INSERT INTO moody SELECT i, 'sad', 'm' || i FROM generate_series(1, 200) i;
INSERT INTO root SELECT i, 'r' || i, 'glad' FROM generate_series(1, 250) i
"""
TABLES = ("plain", "moody", "root")
_TYPES = ("int", "bigint", "text", "varchar(30)", "numeric(12,2)")
_COLUMNS = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod)
  FROM pg_attribute a
 WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
   AND a.attname NOT IN ('id', 'grp', 'm')
 ORDER BY a.attnum
"""


@dataclass
class DdlWorkload:
    connection: psycopg.Connection[Any]
    seed: int
    history: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self._number = 0

    def step(self) -> None:
        """One transaction: rows, or a change of a table, or both."""
        work = self.dice.choices([self._rows, self._alter], [3, 1])[0]
        before = len(self.history)
        try:
            with self.connection.transaction():
                work()
                if self.dice.random() < 0.2:
                    self._rows()
        except psycopg.Error as exc:  # such as a value that the new type does not take: nothing was done
            del self.history[before:]
            self.history.append(f"-- refused: {str(exc).splitlines()[0]}")

    def _run(self, sql: str) -> None:
        self.history.append(sql)
        self.connection.execute(sql)

    def _next(self) -> int:
        self._number += 1
        return self._number

    # -- rows --------------------------------------------------------------------------------------------------

    def _rows(self) -> None:
        table, low = self.dice.choice(TABLES), self.dice.randrange(0, 400)
        span = f"id BETWEEN {low} AND {low + self.dice.randrange(30)}"
        work = self.dice.choices(["insert", "update", "delete", "move"], [4, 4, 1, 1])[0]
        if work == "insert":
            mood = self.dice.choice(self._labels())
            series = f"generate_series({low}, {low + 20}) i"
            self._run(f"INSERT INTO {table} (id, m) SELECT i, '{mood}' FROM {series} ON CONFLICT DO NOTHING")
        elif work == "delete":
            self._run(f"DELETE FROM {table} WHERE {span}")
        elif work == "move":
            self._run(f"UPDATE {table} SET id = id + 1000 WHERE {span} AND id < 1000 AND id % 3 = 0")
        elif columns := self._columns(table):
            name, type = self.dice.choice(columns)
            self._run(f"UPDATE {table} SET {name} = '{self._next()}'::{type} WHERE {span}")

    def _columns(self, table: str) -> list[tuple[str, str]]:
        return [(name, type) for name, type in self.connection.execute(_COLUMNS, [table]).fetchall()]

    def _labels(self) -> list[str]:
        found = self.connection.execute("SELECT enumlabel::text FROM pg_enum WHERE enumtypid = 'mood'::regtype")
        return [label for (label,) in found.fetchall()]

    # -- tables ------------------------------------------------------------------------------------------------

    def _alter(self) -> None:
        changes: list[Callable[[], None]] = [
            self._add_column,
            self._drop_column,
            self._rename_column,
            self._retype_column,
            self._recreate,
            self._swap,
            self._truncate,
            self._attach,
            self._detach,
            self._change_key,
            self._constrain,
            self._change_enum,
        ]
        self.dice.choice(changes)()

    def _add_column(self) -> None:
        table, name = self.dice.choice(TABLES), f"c{self._next()}"
        type, default = self.dice.choice(
            [
                ("text", ""),
                ("int", " DEFAULT 7"),
                ("int", " DEFAULT (random() * 1000)::int"),
                ("text", " DEFAULT 'x'"),
                ("numeric(12,2)", " NOT NULL DEFAULT 1.5"),
            ]
        )
        self._run(f"ALTER TABLE {table} ADD COLUMN {name} {type}{default}")
        if default and self.dice.random() < 0.5:
            self._run(f"ALTER TABLE {table} ALTER COLUMN {name} DROP DEFAULT")

    def _drop_column(self) -> None:
        table = self.dice.choice(TABLES)
        if len(columns := self._columns(table)) > 1:
            self._run(f"ALTER TABLE {table} DROP COLUMN {self.dice.choice(columns)[0]}")

    def _rename_column(self) -> None:
        table = self.dice.choice(TABLES)
        if columns := self._columns(table):
            self._run(f"ALTER TABLE {table} RENAME COLUMN {self.dice.choice(columns)[0]} TO c{self._next()}")

    def _retype_column(self) -> None:
        table = self.dice.choice(TABLES)
        if columns := self._columns(table):
            name, type = self.dice.choice(columns)[0], self.dice.choice(_TYPES)
            digits = rf"(('0' || left(regexp_replace({name}::text, '[^0-9]', '', 'g'), 6)))"
            self._run(
                f"ALTER TABLE {table} ALTER COLUMN {name} DROP DEFAULT, ALTER COLUMN {name} TYPE {type} "
                f"USING {digits}::{type}"
            )

    def _recreate(self) -> None:
        table = self.dice.choice(("plain", "moody"))
        self._run(f"CREATE TABLE copy_{table} (LIKE {table} INCLUDING ALL)")
        self._run(f"INSERT INTO copy_{table} SELECT * FROM {table} WHERE id % 2 = 0")
        self._run(f"DROP TABLE {table}")
        self._run(f"ALTER TABLE copy_{table} RENAME TO {table}")

    def _swap(self) -> None:
        table, old = self.dice.choice(("plain", "moody")), f"old_{self._next()}"
        self._run(f"CREATE TABLE new_{old} (LIKE {table} INCLUDING ALL)")
        self._run(f"INSERT INTO new_{old} SELECT * FROM {table} WHERE id % 3 > 0")
        self._run(f"ALTER TABLE {table} RENAME TO {old}")
        self._run(f"ALTER TABLE new_{old} RENAME TO {table}")

    def _partitions(self) -> list[str]:
        found = self.connection.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'root'::regclass"
        )
        return sorted(name for (name,) in found.fetchall())

    def _truncate(self) -> None:
        self._run(f"TRUNCATE {self.dice.choice([*TABLES, *self._partitions()])}")

    def _attach(self) -> None:
        number, name = self._next(), ""
        name, low = f"part_{number}", 10_000 + number * 100
        if self.dice.random() < 0.5:
            self._run(f"CREATE TABLE {name} PARTITION OF root FOR VALUES FROM ({low}) TO ({low + 100})")
        else:
            self._run(f"CREATE TABLE {name} (LIKE root INCLUDING ALL)")
            self._run(f"INSERT INTO {name} (id, m) SELECT i, 'ok' FROM generate_series({low}, {low + 30}) i")
            self._run(f"ALTER TABLE root ATTACH PARTITION {name} FOR VALUES FROM ({low}) TO ({low + 100})")

    def _detach(self) -> None:
        partitions = [name for name in self._partitions() if name.startswith("part_")]
        if partitions:
            name = self.dice.choice(partitions)
            self._run(self.dice.choice([f"ALTER TABLE root DETACH PARTITION {name}", f"DROP TABLE {name}"]))

    def _change_key(self) -> None:
        found = self.connection.execute(
            "SELECT conname::text, array_length(conkey, 1) FROM pg_constraint "
            "WHERE conrelid = 'plain'::regclass AND contype = 'p'"
        ).fetchall()
        for name, columns in found:
            self._run(f"ALTER TABLE plain DROP CONSTRAINT {name}")
            self._run(f"ALTER TABLE plain ADD PRIMARY KEY ({'id, grp' if columns == 1 else 'id'})")

    def _constrain(self) -> None:
        table = self.dice.choice(TABLES)
        self._run(
            self.dice.choice(
                [
                    f"ALTER TABLE {table} ADD CONSTRAINT k{self._next()} CHECK (id > -1) NOT VALID",
                    f"CREATE INDEX ON {table} (m)",
                    f"ALTER TABLE {table} ALTER COLUMN id SET STATISTICS {self.dice.randrange(100)}",
                    f"ALTER TABLE {table} REPLICA IDENTITY {self.dice.choice(['FULL', 'DEFAULT'])}",
                ]
            )
        )

    def _change_enum(self) -> None:
        if self.dice.random() < 0.5:
            self._run(f"ALTER TYPE mood ADD VALUE 'new{self._next()}'")
        else:
            self._run(f"ALTER TYPE mood RENAME VALUE '{self.dice.choice(self._labels())}' TO 'named{self._next()}'")
