"""Where a pipeline's journal lies, and how it is opened."""

from __future__ import annotations

from pathlib import Path

from tidelog.engine.definition import Definition
from tidelog.engine.home import Home
from tidelog.journal.files import Files
from tidelog.journal.journal import SegmentJournal
from tidelog.journal.ledger import Ledger


def files_of(definition: Definition, home: Home) -> Files:
    """By an absolute path: executors work in another folder than the driver."""
    path = definition.storage.path or str(home.journal)
    return Files(path if "://" in path else str(Path(path).absolute()))


def journal_of(definition: Definition, ledger: str, files: Files) -> SegmentJournal:
    storage = definition.storage
    return SegmentJournal(
        files,
        Ledger(ledger),
        max_bytes=storage.bytes_max,
        retention_bytes=storage.retention_bytes,
        compression=storage.compression,
        persistent=storage.persistent,
    )
