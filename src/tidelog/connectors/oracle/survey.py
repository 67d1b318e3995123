"""What stands in the way of capturing a table: what the log tells of it, its names, its types, and who may read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidelog.connectors.oracle import columns, queries, walk
from tidelog.connectors.oracle.catalog import NAME_LENGTH_MAX, Catalog
from tidelog.connectors.oracle.client import Session
from tidelog.connectors.oracle.config import Config
from tidelog.connectors.oracle.queries import Statement
from tidelog.connectors.oracle.redo.values import is_large
from tidelog.contracts import Finding
from tidelog.errors import ConfigError
from tidelog.model.schema import Table

ALL_COLUMNS = "ALL COLUMN LOGGING"
_TABLES_READ_MAX = 50
"""So many tables are tried to be read; grants are rarely made one by one."""
_ZONE = "SELECT /* tidelog zone */ PROPERTY_VALUE FROM DATABASE_PROPERTIES WHERE PROPERTY_NAME = 'DBTIMEZONE'"


def findings(
    session: Session, config: Config, captured: Sequence[Table], database: Mapping[str, Any]
) -> Iterator[Finding]:
    catalog = Catalog(session, config.selection)
    logged = catalog.logged(captured)
    for table in captured:
        yield from _logged(table, logged[table.schema, table.name], database)
        yield from _names(table)
        yield from _columns(table, config)
        yield from _key(table, config)
    yield from _hybrid(session, config)
    yield from _readable(session, config, captured)
    yield from _signals(catalog, config)


def _logged(table: Table, groups: set[str], database: Mapping[str, Any]) -> Iterator[Finding]:
    if database["all"] == "YES" or ALL_COLUMNS in groups:
        return
    meaning = "The log tells only the columns that an UPDATE changes: the rest of the row would be unknown."
    cure = f"ALTER TABLE {walk.quoted(table)} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS;"
    yield Finding("error", f"table {table.qualified}", meaning, cure)


def _names(table: Table) -> Iterator[Finding]:
    long = [name for name in (table.name, *(c.name for c in table.columns)) if len(name) > NAME_LENGTH_MAX]
    if long:
        meaning = f"LogMiner does not tell changes of it: {long[0]} is longer than {NAME_LENGTH_MAX} characters."
        cure = "Rename it (ALTER TABLE … RENAME), or leave the table out by table.exclude.list."
        yield Finding("error", f"table {table.qualified}", meaning, cure)


def _columns(table: Table, config: Config) -> Iterator[Finding]:
    chosen = config.selection.columns_of(table)
    if untold := [c for c in chosen if columns.text(c.type, "c") == "NULL"]:
        meaning = f"Values of type {untold[0].type} ({untold[0].name}) are not told by LogMiner: they are always null."
        cure = f"Leave it out: column.exclude.list {table.qualified}.{untold[0].name}"
        yield Finding("warning", f"table {table.qualified}", meaning, cure)
    large = [c for c in chosen if is_large(c)]
    if large and not config.lob:
        meaning = f"{large[0].name} is of type {large[0].type}: its changes are not captured."
        yield Finding(
            "warning", f"table {table.qualified}", meaning, "Set lob.enabled to true, or leave the column out."
        )


def _key(table: Table, config: Config) -> Iterator[Finding]:
    if config.selection.key_of(table):
        return
    meaning = "It has no key: targets can only compare whole rows, and its snapshot needs the undo of all its time."
    cure = f"ALTER TABLE {walk.quoted(table)} ADD PRIMARY KEY (…); or set message.key.columns."
    yield Finding("warning", f"table {table.qualified}", meaning, cure)


def _hybrid(session: Session, config: Config) -> Iterator[Finding]:
    """Values that come as bytes of the block are read as most databases have them."""
    if config.strategy != "hybrid":
        return
    zone, charset = session.one(_ZONE), session.one(queries.CHARSET)
    cure = "Choose online_catalog, and take a new snapshot of tables that are altered."
    if zone not in ("00:00", "+00:00", "UTC", "GMT"):
        meaning = f"DBTIMEZONE is {zone}: after DDL, TIMESTAMP WITH LOCAL TIME ZONE is read as if it were UTC."
        yield Finding("warning", "log.mining.strategy", meaning, cure)
    if charset not in ("AL32UTF8", "UTF8", "US7ASCII"):
        meaning = f"The character set is {charset}: after DDL, texts that are not plain ASCII can't be read."
        yield Finding("warning", "log.mining.strategy", meaning, cure)


def _readable(session: Session, config: Config, captured: Sequence[Table]) -> Iterator[Finding]:
    """Whether snapshots may read the tables as of an SCN."""
    if config.snapshot.mode == "no_data":
        return
    scn = int(session.one(queries.CURRENT_SCN))
    user = config.reader or config.user
    for table in captured[:_TABLES_READ_MAX]:
        sql = f"SELECT /* tidelog readable */ 1 FROM {walk.quoted(table)} AS OF SCN :scn FETCH FIRST 1 ROWS ONLY"
        try:
            session.query(Statement(sql, {"scn": scn}))
        except ConfigError as error:
            cure = f"GRANT SELECT, FLASHBACK ON {walk.quoted(table)} TO {user};"
            yield Finding(
                "error", f"table {table.qualified}", f"{user} can't read it as of an SCN: {error.message}", cure
            )


def _signals(catalog: Catalog, config: Config) -> Iterator[Finding]:
    if not config.snapshot.signal_table:
        return
    schema, _, name = config.snapshot.signal_table.rpartition(".")
    if catalog.named(schema, name) is None:
        cure = (
            f"CREATE TABLE {config.snapshot.signal_table} (id VARCHAR2(42) PRIMARY KEY, type VARCHAR2(32) NOT NULL, "
            "data VARCHAR2(2048)); or correct signal.data.collection, written as SCHEMA.TABLE."
        )
        yield Finding("error", "signal.data.collection", f"{config.snapshot.signal_table} does not exist.", cure)
