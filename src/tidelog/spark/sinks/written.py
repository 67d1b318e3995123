"""Whether a target has rows already, looked at before the first start of a pipeline.

Every Delta table that the sink writes is in its book of places; a history is a folder for each table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pyarrow.fs as fs

from tidelog.errors import TargetAway, TidelogError
from tidelog.model.schema import Table
from tidelog.spark.sinks import history
from tidelog.spark.sinks.delta_options import Options, storage
from tidelog.spark.sinks.delta_rs import driver
from tidelog.spark.sinks.delta_rust import RustEngine
from tidelog.spark.sinks.places import BOOK
from tidelog.spark.sinks.target import Engine, own_uri, uri

T = TypeVar("T")

_LOG = logging.getLogger("tidelog")
_LOOKED_AT_MAX = 20
"""Tables of a history: each costs a request."""


def find_written(sink: Mapping[str, str], tables: Sequence[Table]) -> str:
    """The first of these tables that has rows in the target; empty when none has. A target that only Spark can open
    cannot be looked at here."""
    look = {"delta": _in_delta, "history": _in_history}.get(sink["type"])
    found = _look(lambda: look(_options(sink), tables)) if look else None
    return found or ""


def find_writers(
    sink: Mapping[str, str], tables: Sequence[Table], engine: Engine | None = None
) -> frozenset[str] | None:
    """The queries that have written these tables into a target of Delta tables; None for another kind of sink. Raises
    if `engine`, by default delta-rs, cannot read the target."""
    if sink["type"] != "delta":
        return None
    chosen = Options.of(_options(sink))
    wanted = {_end(uri(chosen.path, table.schema, table.name)) for table in tables}
    return frozenset(query for query, end in _book(chosen, engine) if end in wanted)


def _options(sink: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in sink.items() if name != "type"}


def _look(look: Callable[[], T]) -> T | None:
    """None where the target cannot be read."""
    try:
        return look()
    except (TidelogError, OSError) as exc:
        reason = str(exc).splitlines()[0]
        _LOG.warning("What the target holds could not be looked up before the first start: %s", reason)
        return None


def _in_delta(options: Mapping[str, str], tables: Sequence[Table]) -> str:
    chosen = Options.of(options)
    written = {end for _, end in _book(chosen)}
    return next((t.qualified for t in tables if _end(uri(chosen.path, t.schema, t.name)) in written), "")


def _book(options: Options, engine: Engine | None = None) -> list[tuple[str, tuple[str, ...]]]:
    """Of each place in the book the query that took it, and its end: that is enough, since the book lies in the same
    folder, whatever the path to it is called now."""
    book = (engine or RustEngine(options.storage)).target(own_uri(options.path, BOOK))
    try:
        rows = book.read(["query", "uri"]).to_pylist() if book.schema() is not None else []
    except driver().exceptions.DeltaError as exc:
        raise TargetAway(str(exc)) from exc
    return [(row["query"], _end(row["uri"])) for row in rows if row["uri"]]


def _end(place: str) -> tuple[str, ...]:
    return tuple(place.split("/")[-2:])


def _in_history(options: Mapping[str, str], tables: Sequence[Table]) -> str:
    access = storage({name: text for name, text in options.items() if name.startswith("storage.")})
    for table in tables[:_LOOKED_AT_MAX]:
        system, folder = history.filesystem(uri(options["path"], table.schema, table.name), access)
        if system.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
            return table.qualified
    return ""
