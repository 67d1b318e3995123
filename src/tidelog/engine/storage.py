"""Where a pipeline's journal lies, and how it is opened."""

from __future__ import annotations

from tidelog.engine.definition import Definition
from tidelog.engine.home import Home
from tidelog.journal.files import Files
from tidelog.journal.journal import SegmentJournal
from tidelog.journal.ledger import Ledger


def files_of(definition: Definition, home: Home) -> Files:
    return Files(definition.storage.path or str(home.journal))


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
