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


def _in_delta(options: Mapping[str, str], tables: Sequence[Table]) -> str:
    chosen = Options.of(options)
    book = RustEngine(chosen.storage).target(own_uri(chosen.path, BOOK))
    try:
        places = book.read(["uri"])["uri"].to_pylist() if book.schema() is not None else []
    except driver().exceptions.DeltaError as exc:
        raise TargetAway(str(exc)) from exc
    # The end of a place is enough: the book lies in the same folder, whatever the path to it is called now.
    written = {_end(place) for place in places if place}
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
