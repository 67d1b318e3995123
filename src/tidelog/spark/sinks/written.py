"""Whether a target has rows already, looked at before the first start of a pipeline.

Every Delta table that the sink writes is in its book of places; a history is a folder for each table.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import pyarrow.fs as fs

from tidelog.errors import TargetAway, TidelogError
from tidelog.model.schema import Table
from tidelog.spark.sinks import history
from tidelog.spark.sinks.delta_options import Options, storage
from tidelog.spark.sinks.delta_rs import driver
from tidelog.spark.sinks.delta_rust import RustEngine
from tidelog.spark.sinks.places import BOOK
from tidelog.spark.sinks.target import own_uri, uri

_LOG = logging.getLogger("tidelog")
_LOOKED_AT_MAX = 20
"""Tables of a history: each costs a request."""


def find_written(sink: Mapping[str, str], tables: Sequence[Table]) -> str:
    """The first of these tables that has rows in the target; empty when none has. A target that only Spark can open
    cannot be looked at here."""
    look = {"delta": _in_delta, "history": _in_history}.get(sink["type"])
    options = {name: text for name, text in sink.items() if name != "type"}
    try:
        return look(options, tables) if look else ""
    except (TidelogError, OSError) as exc:
        reason = str(exc).splitlines()[0]
        _LOG.warning("Whether the target has rows already could not be looked up before the first start: %s", reason)
        return ""


def find_writers(sink: Mapping[str, str]) -> frozenset[str] | None:
    """The queries that have written to a target of Delta tables; None where that cannot be told."""
    if sink["type"] != "delta":
        return None
    options = {name: text for name, text in sink.items() if name != "type"}
    try:
        return frozenset(_book(Options.of(options), "query"))
    except (TidelogError, OSError) as exc:
        reason = str(exc).splitlines()[0]
        _LOG.warning("Whether other pipelines write to the target could not be looked up: %s", reason)
        return None


def _book(options: Options, column: str) -> list[str]:
    """A column of the book of places; empty where there is none yet."""
    book = RustEngine(options.storage).target(own_uri(options.path, BOOK))
    try:
        values: list[str | None] = book.read([column])[column].to_pylist() if book.schema() is not None else []
    except driver().exceptions.DeltaError as exc:
        raise TargetAway(str(exc)) from exc
    return [value for value in values if value]


def _in_delta(options: Mapping[str, str], tables: Sequence[Table]) -> str:
    chosen = Options.of(options)
    # The end of a place is enough: the book lies in the same folder, whatever the path to it is called now.
    written = {_end(place) for place in _book(chosen, "uri")}
    return next((t.qualified for t in tables if _end(uri(chosen.path, t.schema, t.name)) in written), "")


def _end(place: str) -> tuple[str, ...]:
    return tuple(place.split("/")[-2:])


def _in_history(options: Mapping[str, str], tables: Sequence[Table]) -> str:
    access = storage({name: text for name, text in options.items() if name.startswith("storage.")})
    for table in tables[:_LOOKED_AT_MAX]:
        system, folder = history.filesystem(uri(options["path"], table.schema, table.name), access)
        if system.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
            return table.qualified
    return ""
