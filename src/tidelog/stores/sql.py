"""All that a store does, in the SQL that SQLite and PostgreSQL share; a dialect adds how a transaction begins and ends.

Law: every call is one transaction, and the writers of one connector take turns, so each decides on what the one before
has left. Numbers come from a row that is counted up in the same transaction: they grow in the order of the commits, and
whoever has seen one has seen all below it.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tidelog.errors import Conflict, NotFound
from tidelog.model.control import Change, Committed, Connector, Kept, Partition, Told
from tidelog.stores import kept
from tidelog.stores.kept import Mirror, canonical, digest, named, written

FORMAT = 1
KINDS = ("signal", "notification")
SCHEMA = (
    # What a connector was is forgotten with it; its version is not, so that a stale writer never meets it again.
    """CREATE TABLE connector (
        name TEXT PRIMARY KEY, config TEXT, target TEXT NOT NULL, version BIGINT NOT NULL,
        updated_us BIGINT NOT NULL)""",
    """CREATE TABLE committed (
        connector TEXT NOT NULL, part TEXT NOT NULL, partition TEXT NOT NULL, query TEXT NOT NULL,
        batch BIGINT NOT NULL, document TEXT NOT NULL, contained BIGINT NOT NULL, at_us BIGINT NOT NULL,
        PRIMARY KEY (connector, part))""",
    """CREATE TABLE seen (
        connector TEXT NOT NULL, part TEXT NOT NULL, query TEXT NOT NULL, batch BIGINT NOT NULL,
        PRIMARY KEY (connector, part, query))""",
    """CREATE TABLE change (
        id BIGINT PRIMARY KEY, connector TEXT NOT NULL, part TEXT NOT NULL, partition TEXT NOT NULL,
        action TEXT NOT NULL, before TEXT, after TEXT, who TEXT NOT NULL, why TEXT NOT NULL,
        at_us BIGINT NOT NULL, undoes BIGINT)""",
    "CREATE INDEX change_of ON change (connector, part, id)",
    "CREATE INDEX change_by ON change (connector, id)",
    "CREATE TABLE applied (change BIGINT PRIMARY KEY, at_us BIGINT NOT NULL)",
    """CREATE TABLE told (
        number BIGINT PRIMARY KEY, kind TEXT NOT NULL, connector TEXT NOT NULL, digest TEXT NOT NULL, id TEXT NOT NULL,
        type TEXT NOT NULL, data TEXT NOT NULL, at_us BIGINT NOT NULL)""",
    "CREATE UNIQUE INDEX told_once ON told (kind, connector, digest)",
    "CREATE INDEX told_after ON told (kind, connector, number)",
    "CREATE TABLE counter (name TEXT PRIMARY KEY, value BIGINT NOT NULL)",
    "INSERT INTO counter VALUES ('change', 0), ('told', 0)",
)
HISTORY = ("change", "applied")
"""Rows of these tables stay as they were written; each dialect makes its database refuse anything else."""

Run = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""One statement, with `?` for each value, in the open transaction."""

_CHANGE = """
    SELECT c.id, c.connector, c.partition, c.action, c.before, c.after, c.who, c.why, c.at_us, a.at_us, c.undoes
    FROM change c LEFT JOIN applied a ON a.change = c.id
"""


class SqlStore(ABC):
    @abstractmethod
    def _reading(self) -> AbstractContextManager[Run]:
        """A transaction that sees one state."""

    @abstractmethod
    def _writing(self, name: str) -> AbstractContextManager[Run]:
        """A transaction that is alone with what is kept of `name`; an exception undoes it."""

    @abstractmethod
    def close(self) -> None: ...

    # -- connectors

    def connectors(self) -> list[Connector]:
        sql = "SELECT name, config, target, version, updated_us FROM connector WHERE config IS NOT NULL"
        with self._reading() as run:
            return sorted(map(_connector, run(sql, ())), key=lambda c: c.name)

    def connector(self, name: str) -> Connector:
        with self._reading() as run:
            return _existing(run, name)

    def create(self, connector: Connector) -> Connector:
        with self._writing(connector.name) as run:
            last = run("SELECT version, config FROM connector WHERE name = ?", (connector.name,))
            if last and last[0][1] is not None:
                raise Conflict(f"Connector {connector.name} exists.", hint="Take another name, or change that one.")
            return _put(run, connector, last[0][0] + 1 if last else 1)

    def update(self, connector: Connector) -> Connector:
        with self._writing(connector.name) as run:
            current = _existing(run, connector.name)
            if current.version != connector.version:
                raise Conflict(
                    f"Connector {connector.name} was changed meanwhile: version {current.version} is the last, "
                    f"not {connector.version}.",
                    hint="Read it again, then repeat the change.",
                )
            return _put(run, connector, current.version + 1)

    def forget(self, name: str) -> None:
        with self._writing(name) as run:
            version = _existing(run, name).version + 1
            run("UPDATE connector SET config = NULL, version = ? WHERE name = ?", (version, name))

    # -- offsets

    def offsets(self, name: str) -> list[Kept]:
        with self._reading() as run:
            mirrors, newest = _mirrors(run, name), _newest(run, name)
        return [kept.standing(json.loads(p), mirrors.get(p), newest.get(p)) for p in sorted({*mirrors, *newest})]

    def mirror(self, name: str, partition: Partition, committed: Committed) -> None:
        whole = canonical(partition)
        key = (name, digest(whole))
        with self._writing(name) as run:
            seen = run(
                "SELECT batch FROM seen WHERE connector = ? AND part = ? AND query = ?", (*key, named(committed.query))
            )
            last = _mirrors(run, name).get(whole)
            kept.accept(name, committed, seen[0][0] if seen else None, last)
            _repeat(run, key, whole, committed)
            known = last.contained if last and last.committed.query == committed.query else 0
            if (contained := kept.contained(committed.offset)) > known:
                _apply(run, key, contained, committed.at_us)

    def change(self, change: Change, *, expected: int) -> Change:
        name, whole = change.connector, canonical(change.partition)
        with self._writing(name) as run:
            now = kept.standing(change.partition, _mirrors(run, name).get(whole), _newest(run, name).get(whole))
            kept.expect(name, expected, now)
            made = replace(
                change, id=_next(run, "change"), before=now.offset, applied_us=None, at_us=change.at_us or _now_us()
            )
            _add(run, made, whole)
        return made

    def pending(self, name: str) -> list[Change]:
        with self._reading() as run:
            newest = _newest(run, name)
        return sorted((c for c in newest.values() if c.applied_us is None), key=lambda c: c.id)

    def history(self, name: str, *, limit: int = 100, before: int | None = None) -> list[Change]:
        sql = f"{_CHANGE} WHERE c.connector = ? AND c.id < ? ORDER BY c.id DESC LIMIT ?"
        with self._reading() as run:
            return [_change(row) for row in run(sql, (name, 2**63 - 1 if before is None else before, max(0, limit)))]

    # -- signals and notifications

    def tell(self, kind: str, told: Told) -> Told:
        data = written(told.data)
        known = digest(told.id, told.type, str(told.at_us), canonical(told.data))
        find = "SELECT number FROM told WHERE kind = ? AND connector = ? AND digest = ?"
        add = "INSERT INTO told VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        with self._writing(told.connector) as run:
            if there := run(find, (_kind(kind), told.connector, known)):
                return replace(told, number=there[0][0])
            made = replace(told, number=_next(run, "told"))
            run(add, (made.number, kind, told.connector, known, told.id, told.type, data, told.at_us))
        return made

    def told(self, kind: str, name: str, *, after: int = 0, limit: int = 100) -> list[Told]:
        sql = """SELECT connector, id, type, data, at_us, number FROM told
                 WHERE kind = ? AND connector = ? AND number > ? ORDER BY number DESC LIMIT ?"""
        with self._reading() as run:
            rows = run(sql, (_kind(kind), name, after, max(0, limit)))
        return [Told(c, i, t, json.loads(data), at, number) for c, i, t, data, at, number in reversed(rows)]


# -- connectors


def _existing(run: Run, name: str) -> Connector:
    sql = "SELECT name, config, target, version, updated_us FROM connector WHERE name = ? AND config IS NOT NULL"
    if rows := run(sql, (name,)):
        return _connector(rows[0])
    raise NotFound(f"There is no connector {name}.", hint="Create it first, or look for its name in the list.")


def _put(run: Run, connector: Connector, version: int) -> Connector:
    made = replace(connector, version=version, updated_us=_now_us())
    run(
        """INSERT INTO connector VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET config = excluded.config,
           target = excluded.target, version = excluded.version, updated_us = excluded.updated_us""",
        (named(made.name), written(made.config), made.target, version, made.updated_us),
    )
    return made


def _connector(row: tuple[Any, ...]) -> Connector:
    name, config, target, version, updated_us = row
    return Connector(name, json.loads(config), target, version, updated_us)


# -- offsets


def _mirrors(run: Run, name: str) -> dict[str, Mirror]:
    """By partition, in its canonical form."""
    sql = "SELECT partition, query, batch, document, at_us, contained FROM committed WHERE connector = ?"
    return {
        partition: Mirror(Committed(query, batch, json.loads(document), at_us), contained)
        for partition, query, batch, document, at_us, contained in run(sql, (name,))
    }


def _newest(run: Run, name: str) -> dict[str, Change]:
    """The last change of each partition, by its canonical form."""
    sql = f"{_CHANGE} WHERE c.id IN (SELECT max(id) FROM change WHERE connector = ? GROUP BY part)"
    return {row[2]: _change(row) for row in run(sql, (name,))}


def _repeat(run: Run, key: tuple[str, str], whole: str, committed: Committed) -> None:
    run(
        """INSERT INTO seen VALUES (?, ?, ?, ?)
           ON CONFLICT (connector, part, query) DO UPDATE SET batch = excluded.batch""",
        (named(key[0]), key[1], committed.query, committed.batch),
    )
    document, contained = written(committed.offset), kept.contained(committed.offset)
    run(
        """INSERT INTO committed VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (connector, part) DO UPDATE SET
           query = excluded.query, batch = excluded.batch, document = excluded.document,
           contained = excluded.contained, at_us = excluded.at_us""",
        (*key, whole, committed.query, committed.batch, document, contained, committed.at_us),
    )


def _apply(run: Run, key: tuple[str, str], contained: int, at_us: int) -> None:
    """Note the newest change that a commit contains; one that another has replaced before was never applied. The count
    goes on above it, for the offset may come from a time with another store."""
    sql = "SELECT max(id) FROM change WHERE connector = ? AND part = ? AND id <= ?"
    [[newest]] = run(sql, (*key, contained))
    if newest is not None and not run("SELECT 1 FROM applied WHERE change = ?", (newest,)):
        run("INSERT INTO applied VALUES (?, ?)", (newest, at_us))
    run("UPDATE counter SET value = ? WHERE name = 'change' AND value < ?", (contained, contained))


def _add(run: Run, change: Change, whole: str) -> None:
    before, after = (None if d is None else written(d) for d in (change.before, change.after))
    part, edit = digest(whole), (change.action, before, after, change.who, change.why, change.at_us, change.undoes)
    row = (change.id, named(change.connector), part, whole, *edit)
    run("INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def _change(row: tuple[Any, ...]) -> Change:
    number, connector, partition, action, before, after, *rest = row
    return Change(number, connector, json.loads(partition), action, _document(before), _document(after), *rest)


def _document(text: str | None) -> dict[str, Any] | None:
    return None if text is None else json.loads(text)


def _next(run: Run, counter: str) -> int:
    run("UPDATE counter SET value = value + 1 WHERE name = ?", (counter,))
    [[value]] = run("SELECT value FROM counter WHERE name = ?", (counter,))
    return int(value)


def _kind(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
    return kind


def _now_us() -> int:
    return time.time_ns() // 1000
