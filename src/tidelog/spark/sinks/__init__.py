"""The targets, by the name a pipeline gives them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from tidelog.contracts import Sink, Source
from tidelog.core.evolve import Parse
from tidelog.core.requirements import Requirements
from tidelog.core.settings import Setting, nearest
from tidelog.engine.filled_targets import FilledTargets
from tidelog.errors import ConfigError
from tidelog.spark.sinks import console, delta, delta_options, history

TYPES: Mapping[str, tuple[tuple[Setting, ...], Callable[..., Sink]]] = {
    "console": (console.SETTINGS, console.create),
    "delta": (delta_options.SETTINGS, delta.create),
    "history": (history.SETTINGS, history.create),
}


_REQUIREMENTS: Mapping[str, Callable[[Mapping[str, str]], Requirements]] = {
    "console": console.requirements,
    "delta": delta.requirements,
    "history": history.requirements,
}


def requirements(sink: Mapping[str, str]) -> Requirements:
    """What the sink requires of a table; `sink` are its settings and its `type`."""
    options = dict(sink)
    return _REQUIREMENTS[_known(options.pop("type", ""))](options)


def create(
    options: Mapping[str, str],
    *,
    spark: Any = None,
    source: Source | None = None,
    parse: Parse,
    shape: delta.Shape,
    filled: FilledTargets | None = None,
    former_writers: Collection[str] | None = None,
) -> Sink:
    """The sink that `options` describe. `parse` reads the database's text of a value, `shape` is `Decoder.schema`,
    `filled` are the target tables that it has filled, `former_writers` the queries whose tables it may take over; None
    where it may take over any."""
    rest = dict(options)
    make = TYPES[_known(rest.pop("type", ""))][1]
    return make(
        rest,
        spark=spark,
        source=source,
        parse=parse,
        shape=shape,
        filled=filled or FilledTargets(),
        former_writers=former_writers,
    )


def _known(kind: str) -> str:
    if kind not in TYPES:
        near = nearest(kind, list(TYPES))
        raise ConfigError(
            f"There is no sink {kind!r}." if kind else "The sink has no type.",
            hint=f"Did you mean {near!r}?" if near else f"Known are: {', '.join(TYPES)}.",
        )
    return kind
