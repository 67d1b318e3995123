"""Where control state rests: connectors, offsets with the history of their edits, signals and notifications.

One file (SQLite) serves a machine, a PostgreSQL database serves several; both behave alike. What they keep about a
running query repeats its checkpoint, which stays the truth.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.contracts import ControlStore
from tidelog.errors import ConfigError
from tidelog.stores.sqlite import SqliteStore

FILE = "tidelog.sqlite"
_POSTGRES = ("postgresql://", "postgres://")


def open_store(where: str | None = None) -> ControlStore:
    """The store at a path or a `postgresql://` URL; None: the one that the environment names. Nothing is touched yet:
    a file, or the tables in a database, appear with the first use."""
    named = where or os.environ.get("TIDELOG_OFFSET_STORAGE") or str(_home() / FILE)
    if named.startswith(_POSTGRES):
        from tidelog.stores.postgres import PostgresStore  # loads a driver that not everybody has

        return PostgresStore(named)
    if "://" in named:
        raise ConfigError(
            f"Control state cannot be kept at a URL that begins with {named.partition('://')[0]}://.",
            hint="Give offset.storage a file path, or postgresql://user:password@host:port/database.",
        )
    return SqliteStore(Path(named).expanduser().absolute())


def _home() -> Path:
    return Path(os.environ.get("TIDELOG_HOME") or ".tidelog")
