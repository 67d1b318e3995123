"""A definition with every setting checked before anything is started or connected: mistakes are told at once."""

from __future__ import annotations

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
