"""One folder per database, the same file names in each; `create` finds the folder by the connector's name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from tidelog.contracts import ChunkReader, Connector, Decoder
from tidelog.core.settings import nearest
from tidelog.errors import ConfigError

_FOLDERS = {"postgres": "postgres", "postgresql": "postgres"}


def create(name: str, options: Mapping[str, str], *, pipeline: str = "tidelog") -> Connector:
    """The connector `name` with its settings; nothing is connected yet. What it creates in the database is named
    after the pipeline, so that two pipelines never share it by accident."""
    found: Connector = import_module(f"{__name__}.{_folder(name)}.connector").create(options, pipeline)
    return found


def decoder(name: str) -> Decoder:
    """The connector's decoder alone: executors decode without a connection and without a driver."""
    found: Decoder = import_module(f"{__name__}.{_folder(name)}.decode").PostgresDecoder()
    return found


def chunk_reader(name: str, options: Mapping[str, str], pipeline: str = "tidelog") -> ChunkReader:
    """The connector's reader of chunks, for executors; nothing is connected yet."""
    found: ChunkReader = import_module(f"{__name__}.{_folder(name)}.chunks").create(options, pipeline)
    return found


def warm(name: str) -> None:
    """Load what reading chunks needs: the drivers are large, and the first batch should not wait for them."""
    import_module(f"{__name__}.{_folder(name)}.chunks").warm()


def _folder(name: str) -> str:
    if name not in _FOLDERS:
        near = nearest(name, list(_FOLDERS))
        raise ConfigError(
            f"There is no connector {name!r}.",
            hint=f"Did you mean {near!r}?" if near else f"Known are: {', '.join(sorted(_FOLDERS))}.",
        )
    return _FOLDERS[name]
