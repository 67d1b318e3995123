"""Reading chunks: a span of a table, between two places of the journal.

A journal has no snapshots, but order: what was committed before the journal stood at the first place is in the rows
that are read afterwards; what came between the two places may be in them or not, and there the log wins. Rows that
somebody is changing are waited for, so nothing that is not committed is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from tidelog.connectors.iseries import config, texts, walk
from tidelog.connectors.iseries.catalog import Catalog
from tidelog.connectors.iseries.client import Session, driver
from tidelog.connectors.iseries.config import Config
from tidelog.connectors.iseries.journals import end_of, journal_of
from tidelog.contracts import Scan, Span, Watermark
from tidelog.core.snapshot.watermark import Replayed
from tidelog.errors import ConfigError
from tidelog.model.schema import Table


def create(options: Mapping[str, str], pipeline: str = "tidelog") -> IseriesChunks:
    return IseriesChunks(config.read(options, pipeline))


def warm() -> None:
    driver()


class IseriesChunks:
    """A `ChunkReader`. One job serves all of its chunks."""

    def __init__(self, settings: Config) -> None:
        self._config = settings
        self._session: Session | None = None
        self._journal: tuple[str, str] | None = None

    def open(self, scan: Scan, span: Span, *, attempt: str, asked_by: str = "", texts: bool = False) -> Chunk:  # noqa: ARG002
        if self._session is None or self._session.closed:
            self._session = Session(self._config)
        if self._journal is None:
            self._journal = journal_of(self._session, self._config)
        return Chunk(self._session, self._config, self._journal, scan, span, texts)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


class Chunk:
    """An `OpenChunk`."""

    def __init__(
        self, session: Session, settings: Config, journal: tuple[str, str], scan: Scan, span: Span, as_texts: bool
    ) -> None:
        self._session, self._config, self._journal = session, settings, journal
        self.watermark: Watermark = Replayed(end_of(session, journal))
        found = Catalog(session, settings.selection, ccsids=settings.ccsids).present([scan.table.id])
        if not found:
            raise ConfigError(f"The table {scan.table.qualified} does not exist any more.", hint=walk.GONE)
        self.table: Table = found[0]
        self._texts = as_texts
        self._where = walk.within(walk.plan(scan, self.table), span)
        chosen = self.table.columns if as_texts else settings.selection.columns_of(self.table)
        self._columns = [c for c in chosen if not scan.columns or c.name in scan.columns]
        self._letters: list[pa.RecordBatch] = []

    def rows(self) -> Iterator[pa.RecordBatch]:
        for batch in texts.read(self._session, self.table, self._columns, self._where):
            if self._texts:
                yield batch
                continue
            decoded = texts.typed(batch, self.table, self._config.selection)
            self._letters += [decoded.failures] if decoded.failures is not None else []
            yield decoded.rows

    def letters(self) -> pa.Table:
        return texts.letters(self._letters)

    def end(self) -> int:
        return end_of(self._session, self._journal)

    def close(self) -> None:
        """Nothing: the job serves the next chunk."""
