"""A definition with every setting checked before anything is started or connected: mistakes are told at once."""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.contracts import Connector
from tidelog.core.settings import nearest, parse
from tidelog.engine.definition import Definition, connector_of, load
from tidelog.errors import ConfigError


def loaded(file: str) -> tuple[Definition, Connector]:
    """The definition, and its connector; nothing is connected yet."""
    definition = load(file)
    connector = connector_of(definition)
    _require_sink(definition)
    return definition, connector


def _require_sink(definition: Definition) -> None:
    from tidelog.spark.sinks import TYPES

    kind = definition.sink["type"]
    if kind not in TYPES:
        near = nearest(kind, list(TYPES))
        hint = f"Did you mean {near!r}?" if near else f"Known are: {', '.join(TYPES)}."
        raise ConfigError(f"There is no sink {kind!r}.", hint=hint)
    parse(TYPES[kind][0], definition.sink_options, subject=f"The sink {kind}")


def require_writable(definition: Definition) -> None:
    """A local folder of the sink can be made and written, as far as rights tell."""
    path = definition.sink.get("path", "")
    if not path or "://" in path:
        return
    folder = Path(path).absolute()
    there = next(p for p in (folder, *folder.parents) if p.exists())
    if not there.is_dir():
        raise ConfigError(f"The sink's path {path} cannot be a folder: {there} is a file.", hint="Change sink: path.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(
            f"The sink's path {path} cannot be written (no right to write in {there}).",
            hint="Change sink: path, or the rights.",
        )
