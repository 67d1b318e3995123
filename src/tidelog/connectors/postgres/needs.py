"""What snapshots need beside the log: the role that reads rows, and the table of signals.

Chunks are read, and windows told, by `snapshot.database.user` if there is one: so that role is asked what it may do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.connectors.postgres import survey
from tidelog.connectors.postgres.client import Session, as_reader
from tidelog.connectors.postgres.config import Config
from tidelog.connectors.postgres.survey import Relation, quoted
from tidelog.contracts import Finding
from tidelog.errors import TidelogError

_HIDDEN = "SELECT oid::bigint FROM pg_class WHERE oid = ANY(%s::oid[]) AND row_security_active(oid)"
_MAY = "SELECT has_schema_privilege(%s, 'USAGE'), has_table_privilege(%s::oid, %s)"
_COLUMNS = "id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048)"


# -- the role that reads rows --------------------------------------------------------------------------------------


def reader(session: Session, config: Config, captured: Sequence[Relation], signals: Relation | None) -> list[Finding]:
    """What the role that reads rows may and may not do; `session` is the one of `database.user`."""
    if not config.reader:
        return [*_reads(session, config.user, config, captured), *_writes(session, config.user, config, signals)]
    try:
        with Session(as_reader(config), application="tidelog check") as own:
            theirs = {r.oid: r for r in survey.relations(own)}
            mine = [theirs[r.oid] for r in captured if r.oid in theirs]
            found = [*_reads(own, config.reader, config, mine), *_writes(own, config.reader, config, signals)]
    except TidelogError as exc:
        return [_no_way_in(config, exc)]
    return found or [Finding("ok", f"role {config.reader}", "It may read the captured tables.")]


def _no_way_in(config: Config, exc: TidelogError) -> Finding:
    name = quoted(config.reader)
    return Finding(
        "error",
        f"role {config.reader}",
        f"It reads the tables (snapshot.database.user), and it can't log in: {exc.message}",
        f"Check snapshot.database.password and pg_hba.conf, or: CREATE ROLE {name} LOGIN PASSWORD '…';",
    )


def _reads(session: Session, role: str, config: Config, captured: Sequence[Relation]) -> Iterator[Finding]:
    hidden = {row[0] for row in session.query(_HIDDEN, [[r.oid for r in captured]])}
    yield from survey.grants(captured, role, config.selection)
    for relation in captured:
        if relation.oid in hidden:
            meaning = f"A policy decides which of its rows {role} sees: a snapshot refuses to read only some."
            cure = f"ALTER ROLE {quoted(role)} BYPASSRLS;"
            yield Finding("error", f"table {relation.qualified}", meaning, cure)


# -- the table of signals ------------------------------------------------------------------------------------------


def signals(config: Config, relations: Sequence[Relation]) -> Relation | None:
    """The table of signals, if there is one."""
    name = config.snapshot.signal_table
    return next((r for r in relations if name and r.qualified == name), None)


def of_signals(config: Config, relations: Sequence[Relation], *, standby: bool) -> Iterator[Finding]:
    """Whether the table of signals can be what it is for."""
    name, found = config.snapshot.signal_table, signals(config, relations)
    if not name:
        return
    subject = f"table {name}"
    if found is None:
        schema, _, table = name.rpartition(".")
        cure = f"CREATE TABLE {quoted(schema or 'public')}.{quoted(table)} ({_COLUMNS});"
        cure += "" if schema else f" and: signal.data.collection: public.{name}"
        yield Finding("error", subject, "It is to hold signals (signal.data.collection), and does not exist.", cure)
        return
    problems = [*_shape(found, subject), *_logged(found, subject), *_deletable(found, config, subject)]
    if standby and config.snapshot.writes_windows:
        meaning = "Windows are to be told in it (read.only: false), and a standby takes no writes."
        problems.append(Finding("error", subject, meaning, "read.only: true"))
    yield from problems or [Finding("ok", subject, "It exists and can hold signals.")]


def _shape(relation: Relation, subject: str) -> Iterator[Finding]:
    if len(relation.columns) != 3:
        meaning = (
            f"It has the columns {', '.join(relation.columns)}, and a signal has an id, a type and data, nothing else."
        )
        cure = f"DROP TABLE {relation.quoted}; CREATE TABLE {relation.quoted} ({_COLUMNS});"
        yield Finding("error", subject, meaning, cure)


def _logged(relation: Relation, subject: str) -> Iterator[Finding]:
    if relation.kind != "r":
        meaning = "It is to hold signals (signal.data.collection), and is no ordinary table."
        yield Finding("error", subject, meaning, "signal.data.collection: the name of an ordinary table")
    elif relation.persistence != "p":
        meaning = "It is unlogged: what is written to it is not in the log, and no signal is heard."
        yield Finding("error", subject, meaning, f"ALTER TABLE {relation.quoted} SET LOGGED;")


def _deletable(relation: Relation, config: Config, subject: str) -> Iterator[Finding]:
    if relation.told:
        return
    closes = config.snapshot.writes_windows and config.snapshot.strategy == "insert_delete"
    meaning = "It has no key that the log can use: once published, the server refuses every UPDATE and DELETE on it"
    yield Finding(
        "error" if closes else "warning",
        subject,
        f"{meaning}, and with them the end of each window." if closes else f"{meaning}, also yours.",
        f"ALTER TABLE {relation.quoted} REPLICA IDENTITY FULL;",
    )


def _writes(session: Session, role: str, config: Config, relation: Relation | None) -> Iterator[Finding]:
    """Windows are told by rows, by the role that reads the chunk."""
    if relation is None or not config.snapshot.writes_windows:
        return
    needed = ["INSERT", "SELECT", "DELETE"] if config.snapshot.strategy == "insert_delete" else ["INSERT"]
    rights = [session.query(_MAY, [relation.schema, relation.oid, right])[0] for right in needed]
    subject = f"table {relation.qualified}"
    if not rights[0][0]:
        cure = f"GRANT USAGE ON SCHEMA {quoted(relation.schema)} TO {quoted(role)};"
        yield Finding("error", subject, f"{role} tells windows in it, and may not use its schema.", cure)
    lacking = [right for right, (_, may) in zip(needed, rights, strict=True) if not may]
    if lacking:
        meaning = f"{role} tells windows in it (read.only: false), and lacks {' and '.join(lacking)}."
        cure = f"GRANT {', '.join(lacking)} ON {relation.quoted} TO {quoted(role)}; or: read.only: true"
        yield Finding("error", subject, meaning, cure)
