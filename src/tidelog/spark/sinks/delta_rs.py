"""A Delta table as delta-rs has it open: loaded once, then following its log.

Errors of delta-rs and of the storage end here, as what they mean. After each of them the table is loaded anew: its
state in memory may be half-way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelog.core.evolve import plain
from tidelog.errors import ConfigError, NotInstalled
from tidelog.spark.sinks.delta_properties import commit_name, local_log
from tidelog.spark.sinks.storage_errors import explain

_THREADS_MIN = 16
_NO_SCHEME = "tidelog"


def driver() -> Any:
    # Read when delta-rs starts its threads. By default it has one per core, too few where several tables are written.
    os.environ.setdefault("TOKIO_WORKER_THREADS", str(max(_THREADS_MIN, os.cpu_count() or 1)))
    try:
        import deltalake
    except ImportError as exc:
        raise NotInstalled(
            "The Delta sink needs the package deltalake.", hint="Run: pip install 'tidelog[delta]'"
        ) from exc
    return deltalake


def known_schemes() -> frozenset[str]:
    """The schemes of the storage that delta-rs can write, as it names them; empty if it does not say."""
    try:
        driver().DeltaTable(f"{_NO_SCHEME}://")
    except driver().exceptions.DeltaError as exc:
        _, found, names = str(exc).partition("Known schemes: ")
        return frozenset(re.findall(r"[\w+]+", names.splitlines()[0])) if found else frozenset()
    return frozenset()


@dataclass(frozen=True)
class _CommitFile:
    """A file in a table's log; that of another table differs, whatever its name."""

    path: Path
    inode: int
    modified_ns: int

    @staticmethod
    def of(path: Path) -> _CommitFile | None:
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        return _CommitFile(path, found.st_ino, found.st_mtime_ns)


@dataclass
class DeltaRsTable:
    uri: str
    storage: Mapping[str, str] = field(default_factory=dict)
    _table: Any = field(default=None, init=False)
    _newest_commit: _CommitFile | None = field(default=None, init=False)
    """As of the last look at the table's log."""

    def schema(self) -> pa.Schema | None:
        table = self._open()
        if table is None:
            return None
        return shape_of(table)

    def properties(self) -> Mapping[str, str]:
        table = self._open()
        return {} if table is None else dict(table.metadata().configuration)

    def exists(self) -> bool:
        with self._guard():
            found = bool(driver().DeltaTable.is_deltatable(self.uri, storage_options=dict(self.storage)))
        if not found:
            self._table = None
        return found

    def identity(self) -> str:
        return str(self._existing().metadata().id)

    def version(self) -> int:
        return int(self._existing().version())

    def holds(self, version: int) -> bool:
        options = dict(self.storage)
        with self._guard():
            if not driver().DeltaTable.is_deltatable(self.uri, storage_options=options):
                return False
            try:
                then = driver().DeltaTable(self.uri, version=version, storage_options=options)
            except driver().exceptions.DeltaError:
                driver().DeltaTable(self.uri, storage_options=options)  # else nothing can be read just now
                return False
            return not then.repair(dry_run=True)["files_removed"]

    def applied(self, app: str) -> int:
        table = self._open(refresh=True)
        with self._guard():
            found = None if table is None else table.transaction_version(app)
        return -1 if found is None else int(found)

    def _shape(self, columns: Sequence[str] | None = None) -> pa.Schema:
        schema = self.schema()
        assert schema is not None
        return schema if columns is None else pa.schema([schema.field(c) for c in columns])

    def _existing(self) -> Any:
        table = self._open()
        assert table is not None, self.uri
        return table

    def _open(self, refresh: bool = False) -> Any:
        if refresh and self._table is not None and self._was_replaced():
            self._table = None
        if self._table is None:
            self._load()
        elif refresh:
            with self._guard():
                self._table.update_incremental()
            self._newest_commit = self._find_newest_commit()
        return self._table

    def _load(self) -> None:
        if not self.exists():
            return
        with self._guard():
            self._table = driver().DeltaTable(self.uri, storage_options=dict(self.storage))
        self._newest_commit = self._find_newest_commit()

    def _was_replaced(self) -> bool:
        """delta-rs takes a folder that is gone for one without new commits, and goes on in another table's log."""
        known = self._newest_commit
        return known is not None and _CommitFile.of(known.path) != known

    def _find_newest_commit(self) -> _CommitFile | None:
        """Of a local table. Elsewhere, the next commit fails where the table is gone."""
        log = local_log(self.uri)
        return None if log is None else _CommitFile.of(log / commit_name(self._table.version()))

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """What goes wrong with the storage, or because another writer got in the way, is tried again with the batch, on
        the table as it is then."""
        try:
            yield
        except (driver().exceptions.DeltaError, OSError, pa.ArrowInvalid) as exc:  # the last in the middle of a scan
            self._table = None
            if "append-only" in str(exc):
                raise ConfigError(
                    f"{self.uri} takes no changes of rows: its property delta.appendOnly is set.",
                    hint="Unset it, or choose the sink `history`.",
                ) from exc
            raise explain(f"The Delta table {self.uri}", exc) from exc
        except BaseException as exc:
            self._table = None  # its state may be half-way: read it anew
            if type(exc).__name__ == "PanicException":  # it is no Exception, and no module has it
                raise explain(f"The Delta table {self.uri}", exc) from exc
            raise


def shape_of(table: Any) -> pa.Schema:
    return pa.schema([f.with_type(plain(f.type)) for f in pa.schema(table.schema().to_arrow())])
