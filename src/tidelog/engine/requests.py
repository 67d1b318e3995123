"""What people ask of a pipeline by its name: a signal is left in its home, and whoever runs it follows.

The words are those of every channel. What could not be understood is refused here, where somebody reads the answer, and
not left for a run that can only skip it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tidelog.core import signals
from tidelog.core.snapshot.settings import SnapshotSettings
from tidelog.engine import checkpoint
from tidelog.engine.home import Home
from tidelog.engine.signals import send
from tidelog.errors import ConfigError
from tidelog.model.offset import Offset


def snapshot(
    home: Home,
    tables: Sequence[str],
    *,
    where: str = "",
    surrogate_key: str = "",
    blocking: bool = False,
    id: str = "",
) -> str:
    """Ask for a snapshot of the tables whose names match; returns the id under which it is known."""
    data = wanted(tables, where=where, surrogate_key=surrogate_key, blocking=blocking)
    return ask(home, "execute-snapshot", data, id)


def wanted(tables: Sequence[str], *, where: str, surrogate_key: str, blocking: bool) -> dict[str, object]:
    """The words in which a snapshot is asked for."""
    data: dict[str, object] = {"type": "blocking" if blocking else "incremental", "data-collections": list(tables)}
    if where:
        data["additional-conditions"] = [{"data-collection": table, "filter": where} for table in tables]
    if surrogate_key:
        data["surrogate-key"] = surrogate_key
    return data


def stop(home: Home, tables: Sequence[str] = ()) -> str:
    """End the snapshots of these tables, or all of them; what is delivered stays."""
    return ask(home, "stop-snapshot", {"data-collections": list(tables)} if tables else {})


def pause(home: Home) -> str:
    return ask(home, "pause-snapshot", {})


def resume(home: Home) -> str:
    return ask(home, "resume-snapshot", {})


def pending(home: Home) -> set[str]:
    """The ids of the signals that nobody has followed yet."""
    found: set[str] = set()
    for path in home.signals.glob("*.json"):
        try:
            found |= {signal.id for signal in signals.of_lines(path.read_text(encoding="utf-8").splitlines())}
        except FileNotFoundError:  # followed at this moment
            continue
    return found


def runner(home: Home) -> int | None:
    """The process that follows signals now, if one does: a run, or a query of one's own; 0 when it did not say."""
    run = home.holder("run")
    if run is not None:
        return run
    return home.holder("journal") if home.holder("capture") is None else None


def require_heard(settings: SnapshotSettings) -> None:
    """Whether a pipeline with these settings looks into its home."""
    if "in-process" not in settings.signals:
        raise ConfigError(
            "This pipeline does not listen: signal.enabled.channels leaves out in-process.",
            hint="Add in-process, or ask through one of the channels it has.",
        )


def ask(home: Home, type: str, data: Mapping[str, object], id: str = "") -> str:
    """Leave any signal for whoever runs the pipeline; returns its id."""
    understood = signals.parse(id, type, json.dumps(data))
    if isinstance(understood, signals.Malformed):
        raise ConfigError(f"This cannot be asked: {understood.reason}.", hint="Nothing was changed.")
    if id and id in _used(home):
        raise ConfigError(
            f"The id {id!r} was used before: a signal is followed once.", hint="Take another one, or none."
        )
    return send(home.signals, type, data, id)


def _used(home: Home) -> set[str]:
    """Asked of the checkpoint, wherever the pipeline keeps its offsets besides."""
    found = checkpoint.committed(home)
    handled = Offset.from_json(found.offset).snapshot.get("handled", ()) if found is not None else ()
    return {*handled, *pending(home)}
