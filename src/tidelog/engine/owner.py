"""Whose a journal is: positions of two databases look alike, and what one of them wrote must never stand for the other.

A file beside the segments names the pipeline that writes them, and the database they are of. Machines are no part of
it: a pipeline may move, and so may its database.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tidelog.contracts import Connector
from tidelog.engine.definition import Definition
from tidelog.errors import ConfigError
from tidelog.journal.files import Files

_FILE = "owner.json"


@dataclass(frozen=True)
class Owner:
    pipeline: str
    connector: str
    database: str

    def __str__(self) -> str:
        return f"the pipeline {self.pipeline!r} ({self.connector}, database {self.database!r})"


def owner_of(definition: Definition, connector: Connector) -> Owner:
    return Owner(definition.name, definition.connector, _database(definition.source, connector.names()["database"]))


def _database(source: Mapping[str, str], name: str) -> str:
    """Where a database has no name, its machine's stands for it; that one may change."""
    named = source.get("database.dbname") or name != source.get("database.hostname")
    return name if named else ""


def claim(files: Files, owner: Owner) -> None:
    """Before anything is written. What nobody has claimed belongs to who comes first."""
    if require(files, owner) is None:
        files.write(_FILE, json.dumps(asdict(owner)).encode(), durable=True)


def require(files: Files, owner: Owner) -> Owner | None:
    """Refuse to write what another one writes; returns who has claimed it."""
    known = read_owner(files)
    if known is not None and known != owner:
        raise ConfigError(
            f"The journal belongs to {known}, not to {owner}.",
            hint="Give each pipeline a journal.path of its own. If this one takes the place of that one, delete the "
            "journal first: it is read from the database again.",
        )
    return known


def require_source(files: Files, owner: Owner) -> None:
    """Refuse to read what is of another database. Several queries, under names of their own, may read one journal."""
    known = read_owner(files)
    if known is not None and (known.connector, known.database) != (owner.connector, owner.database):
        raise ConfigError(
            f"The journal belongs to {known}; this query is of {owner.connector}, database {owner.database!r}.",
            hint="Set journal.path to that of the capture that reads this database.",
        )


def read_owner(files: Files) -> Owner | None:
    """Who has claimed the journal; None also where a loss of power has torn the file."""
    text = files.read(_FILE)
    try:
        return Owner(**json.loads(text)) if text else None
    except ValueError:
        return None
