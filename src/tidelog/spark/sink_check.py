"""Can the sink take what the source gives? `check` asks before anything runs, and `run` asks the same at its start."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.contracts import Connector, Finding
from tidelog.engine.definition import Definition, redact
from tidelog.errors import ConfigError, TidelogError
from tidelog.model.schema import Table
from tidelog.model.selection import Selection
from tidelog.spark.sinks.delta_jars import is_available, starts_with_delta
from tidelog.spark.sinks.storage_errors import unknown_scheme

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_usable(definition: Definition) -> None:
    """The packages of the sink are installed, its storage is of a known kind, and its local folders can be written;
    nothing is left there."""
    if needs_delta_rs(definition):
        from tidelog.spark.sinks.delta_rs import driver

        driver()
    _require_known_scheme(definition)
    for what, setting, path in _places(definition):
        if "://" not in path:
            _require_writable(what, setting, path)


def findings(definition: Definition, connector: Connector) -> Iterator[Finding]:
    try:
        require_usable(definition)
        _require_reachable(definition)
    except TidelogError as exc:
        yield Finding("error", "sink", exc.message, exc.hint)
    else:
        yield Finding("ok", "sink", f"The sink {definition.sink['type']} can be used.")
    yield from _tables(definition, connector)


def _tables(definition: Definition, connector: Connector) -> Iterator[Finding]:
    try:
        tables, selection = connector.tables(), connector.selection()
    except TidelogError:  # the source's own findings tell of it
        return
    refused = _refused(definition, tables, selection)
    level = "error" if len(refused) == len(tables) else "warning"
    for name, reason, cure in refused:
        meaning = reason if level == "error" else f"{reason} It will be set aside; the other tables are not affected."
        yield Finding(level, name, meaning, cure)


def _refused(definition: Definition, tables: Sequence[Table], selection: Selection) -> list[tuple[str, str, str]]:
    from tidelog.spark import sinks

    required = sinks.requirements(definition.sink)
    others = [table for table in tables if not selection.excluded_keys(table)]  # of these, the source's findings tell
    found = [(table.qualified, required.obstacle(table, selection)) for table in others]
    return [(name, obstacle.reason, obstacle.cure) for name, obstacle in found if obstacle is not None]


def needs_delta_rs(definition: Definition, spark: SparkSession | None = None) -> bool:
    """Whether Python writes Delta, and not Spark: with the engine `auto`, where `spark`, or the session that is yet to
    start, is without Delta."""
    sink = definition.sink
    engine = sink.get("engine", "auto") if _writes_delta(sink) else ""
    if engine == "auto":
        return not (starts_with_delta(definition.spark_conf) if spark is None else is_available(spark))
    return engine == "rust"


def _writes_delta(sink: Mapping[str, str]) -> bool:
    return sink["type"] == "delta" or sink.get("format") == "delta"


def _require_known_scheme(definition: Definition) -> None:
    """Spark alone knows which storage it can write."""
    scheme, separator, _ = definition.sink.get("path", "").partition("://")
    if not separator or (_writes_delta(definition.sink) and not needs_delta_rs(definition)):
        return
    from tidelog.spark.sinks import delta_rs, history

    known = delta_rs.known_schemes() if _writes_delta(definition.sink) else history.SCHEMES
    if known and scheme.lower() not in known:
        raise unknown_scheme(scheme)


def _places(definition: Definition) -> list[tuple[str, str, str]]:
    """What each place is, which setting names it, and its path."""
    named = (
        ("The sink's path", "sink: path", definition.sink.get("path", "")),
        ("The sink's stage", "sink: stage", definition.sink.get("stage", "")),
        ("The journal's path", "journal: path", definition.storage.path),
    )
    return [(what, setting, path.removeprefix("file://")) for what, setting, path in named if path]


def _require_writable(what: str, setting: str, path: str) -> None:
    """Rights alone do not tell of a full or a read-only disk: so a file without a name is written."""
    folder = Path(path).absolute()
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir():
        raise ConfigError(f"{what} {path} cannot be a folder: {there} is a file.", hint=f"Change {setting}.")
    try:
        with tempfile.TemporaryFile(dir=there) as probe:
            probe.write(b"tidelog")
    except OSError as exc:
        raise ConfigError(
            f"{what} {path} cannot be written ({exc.strerror or exc} in {there}).",
            hint=f"Change {setting}, or the rights.",
        ) from exc


def _require_reachable(definition: Definition) -> None:
    """The target's storage answers, with the settings that the sink has for it."""
    path = definition.sink.get("path", "")
    if "://" not in path or not needs_delta_rs(definition):
        return
    from tidelog.spark.failures import summary
    from tidelog.spark.sinks.delta_options import storage
    from tidelog.spark.sinks.delta_rs import driver
    from tidelog.spark.sinks.target import own_uri

    options = storage({name: text for name, text in definition.sink.items() if name.startswith("storage.")})
    try:
        driver().DeltaTable.is_deltatable(own_uri(path, "_tables"), storage_options=options)
    except Exception as exc:  # delta-rs raises OSError, ValueError and errors of its own, by the kind of storage
        shown, said = redact({"path": path})["path"], redact({"path": summary(exc)})["path"]
        raise ConfigError(
            f"The sink's path {shown} cannot be reached: {said.rstrip('.')}.",
            hint="Check the path and the settings under storage.",
        ) from exc
