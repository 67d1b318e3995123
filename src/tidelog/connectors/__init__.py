"""One folder per database, the same file names in each; `create` finds the folder by the connector's name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol, cast

from tidelog.connectors.plugins import PLUGINS, Plugin, capturing, plugin
from tidelog.contracts import ChunkReader, Connector, Decoder
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.document import Document

__all__ = [
    "PLUGINS",
    "Offsets",
    "Plugin",
    "captures",
    "chunk_reader",
    "create",
    "decoder",
    "edited",
    "offsets",
    "plugin",
    "warm",
]


class Offsets(Protocol):
    """What each folder's `offset` has."""

    DOCUMENT: Document

    def compare(self, a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
        """Where the first offset lies, seen from the second."""

    def describe(self, offset: Mapping[str, Any]) -> str:
        """The offset in one plain sentence."""


def create(name: str, options: Mapping[str, str], *, pipeline: str = "tidelog") -> Connector:
    """The connector `name` with its settings; nothing is connected yet. What it creates in the database is named
    after the pipeline, so that two pipelines never share it by accident."""
    found: Connector = import_module(f"{__name__}.{_folder(name)}.connector").create(options, pipeline)
    return found


def decoder(name: str) -> Decoder:
    """The connector's decoder alone: executors decode without a connection and without a driver."""
    found: Decoder = import_module(f"{__name__}.{_folder(name)}.decode").create()
    return found


def chunk_reader(name: str, options: Mapping[str, str], pipeline: str = "tidelog") -> ChunkReader:
    """The connector's reader of chunks, for executors; nothing is connected yet."""
    found: ChunkReader = import_module(f"{__name__}.{_folder(name)}.chunks").create(options, pipeline)
    return found


def warm(name: str) -> None:
    """Load what reading chunks needs: the drivers are large, and the first batch should not wait for them."""
    import_module(f"{__name__}.{_folder(name)}.chunks").warm()


def offsets(name: str) -> Offsets:
    """The offset documents of a database, whether or not its changes are captured; needs no driver."""
    return cast(Offsets, import_module(f"{__name__}.{plugin(name).name}.offset"))


def edited(name: str, offset: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """An offset in which a person changes some keys; where several of them tell one place, the others follow."""
    module = offsets(name)
    follow = getattr(module, "edited", None)
    return dict(follow(offset, changes)) if follow is not None else {**offset, **changes}


def captures(name: str) -> bool:
    """Whether its changes can be captured; its offsets can be managed anyway."""
    return plugin(name).captures


def _folder(name: str) -> str:
    return capturing(name).name
