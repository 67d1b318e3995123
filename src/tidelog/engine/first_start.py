"""Is this the first start of a pipeline, or was its state folder left behind?

An empty state folder looks like a first start, which reads every table. It is empty as well in another working
directory or a new container. What an earlier start leaves outside the folder tells the two apart: a slot in the
database, a journal elsewhere, offsets in a shared store, rows in the target. Where one of them is found, a person
chooses.

A start that is accepted leaves a file in the state folder before it creates a slot: a process that dies before its
first batch is committed can then start again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from tidelog.contracts import Connector, ControlStore
from tidelog.engine.definition import Definition, redact
from tidelog.engine.home import Home
from tidelog.engine.owner import owner_of, read_owner
from tidelog.engine.readers import Readers
from tidelog.engine.state_file import read_json, write_json
from tidelog.engine.storage import files_of
from tidelog.errors import ConfigError
from tidelog.model.schema import Table

_LOG = logging.getLogger("tidelog")
_RESNAPSHOTS = ("always", "when_needed")
"""Modes that read everything again without asking."""
CHOSEN_BY_MODE = ("no_data", *_RESNAPSHOTS)
"""Modes that go on over what an earlier start left."""

FindWritten = Callable[[Sequence[Table]], str]
"""The name of a table that has rows in the target already; empty when none has."""


def starts_over(
    definition: Definition,
    home: Home,
    connector: Connector,
    store: ControlStore,
    find_written: FindWritten,
    *,
    fresh: bool = False,
) -> bool:
    """Whether the pipeline reads everything again over what an earlier start left; a real first start does not.
    `fresh` is the command's flag, beside the setting. Refused where nobody has chosen."""
    if home.has_begun:
        if fresh:
            raise _not_empty(definition.name, home)
        home.first_start.unlink(missing_ok=True)  # a choice counts once
        return False
    mode = connector.snapshot_settings().mode
    if mode == "no_data":
        if fresh:
            raise ConfigError(
                "--fresh reads every table again, and snapshot.mode: no_data reads none.", hint="Leave out one of them."
            )
        return False
    fresh = fresh or definition.limits.fresh or _accepted_as(home) == _FRESH
    traces = list(_traces(definition, home, connector, store, find_written))
    if traces and not fresh and mode not in _RESNAPSHOTS:
        raise _choice(definition.name, home, traces)
    if traces:
        _LOG.warning("%s starts over and reads every table again, over %s", definition.name, ", ".join(traces))
    accept(home, fresh=bool(traces) or fresh)
    return bool(traces) or fresh


# -- the accepted start ----------------------------------------------------------------------------------------------

_FIRST, _FRESH = "first", "fresh"


def accept(home: Home, *, fresh: bool = False) -> None:
    """Note that this folder belongs to the slot that is about to be created, or was chosen to start over."""
    write_json(home.first_start, {"accepted": _FRESH if fresh else _FIRST})


def _accepted_as(home: Home) -> str:
    content = read_json(home.first_start, "Delete it and start again; the start then asks what to do.")
    return str(content["accepted"]) if content else ""


# -- what an earlier start has left ----------------------------------------------------------------------------------


def _traces(
    definition: Definition, home: Home, connector: Connector, store: ControlStore, find_written: FindWritten
) -> Iterator[str]:
    """In words. Offsets in the store are always of a batch that was committed; everything else may be of the start that
    this folder has accepted."""
    if any(stored.offset is not None for stored in store.offsets(definition.name)):
        yield "its offsets in the store"
    if _accepted_as(home):
        return
    files = files_of(definition, home)
    place = redact({"path": files.uri})["path"]
    if definition.limits.apart or home.holder("capture") is not None:
        # Slot and journal belong to `tidelog capture`, which starts before its first query.
        if Readers(files).is_known(definition.name):
            yield f"its place in the journal of the capture ({place})"
    else:
        if slot := connector.find_server_state():
            yield slot
        if read_owner(files) == owner_of(definition, connector):
            yield f"its journal ({place})"
    if table := find_written(connector.tables()):
        yield f"rows of {table} in the target"


def _choice(name: str, home: Home, traces: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"The state folder {home.path} of the pipeline {name!r} has no checkpoint, but the pipeline has run before, or "
        f"another one uses the same place. Found: {', '.join(traces)}. Continuing would read every table again.",
        hint="Restore the state folder (check TIDELOG_HOME and the working directory), or give each pipeline a name "
        "and a path of its own. Or choose: read everything again with `tidelog run --fresh` (or stream: {start: "
        "fresh}), or set snapshot.mode: no_data to continue where the slot stands, without a snapshot.",
    )


def _not_empty(name: str, home: Home) -> ConfigError:
    return ConfigError(
        f"The pipeline {name!r} has a checkpoint in {home.path}; --fresh is for a start without one.",
        hint=f"To read everything again: tidelog offsets delete {name}, then run without --fresh.",
    )
