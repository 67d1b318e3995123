"""Cases of incremental snapshots: keys in the offset, its document, signals, windows, PostgreSQL's snapshots."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import psycopg

from tidelog.connectors.postgres import client
from tidelog.connectors.postgres.config import read as config
from tidelog.core import signals
from tidelog.core.signals import Execute, Malformed, Stop, Window
from tidelog.core.snapshot import document, java
from tidelog.core.snapshot.document import Asked
from tidelog.core.snapshot.java import JavaValue
from tidelog.core.snapshot.watermark import Visible
from tidelog.errors import CorruptState, TidelogError, TransientError

Given = Mapping[str, Any]


def context(case: Given) -> Any:
    given = case["input"]
    if given["op"] == "signal_metadata":
        text = _metadata(given)
        return {"json": json.loads(text)} if isinstance(case["expected"], dict) else text
    return {
        "decode_key": _decode,
        "load": _load,
        "store": _store,
        "roundtrip": _roundtrip,
        "watermark_rows": _watermarks,
        "chunk_read_error": _read_error,
    }[given["op"]](given)


def signal(given: Given) -> Any:
    match given["op"]:
        case "source_row":
            found = signals.of_row(given["after"])
            return found and dict(zip(("id", "type", "data"), found, strict=True))
        case "file":
            found = signals.of_lines(given["lines"])
            return {"count": sum(not isinstance(s, Malformed) for s in found)}
        case op:
            return _request(signals.parse("1", f"{op}-snapshot", given["data"]))


def postgres(given: Given) -> Any:
    try:
        found = Visible.parse(given["value"] or "")
    except ValueError:
        return {"error": True}
    return {"xmin": found.xmin, "xmax": found.xmax, "xip": list(found.running)}


def _request(found: Any) -> Any:
    match found:
        case Execute(collections=names):
            return {"valid": True, "collections": list(names)}
        case Stop(collections=names):
            told = None if names is None else list(names)
            return {"valid": True, "collections": told, "stopped": "all" if names is None else told}
        case _:
            return {"valid": False, "stopped": None}


def _decode(given: Given) -> Any:
    try:
        found = java.decode(given["hex"])
    except CorruptState:
        return {"error": True}
    if not any(v is not None and v.kind.startswith(("local", "instant", "zoned", "offset")) for v in found or ()):
        assert java.encode(java.decode(java.encode(found))) == java.encode(found)
    return None if found is None else [_shown(value) for value in found]


def _shown(value: JavaValue | None) -> Any:
    match value:
        case None:
            return None
        case JavaValue("timestamp", (epoch_ms, nanos)):
            return {"timestamp": {"epoch_ms": epoch_ms, "nanos": nanos}}
        case JavaValue("date" | "sql_date" | "sql_time" as kind, epoch_ms):
            return {kind: {"epoch_ms": epoch_ms}}
        case JavaValue("bytes", data):
            return {"bytes": data.hex()}
        case JavaValue("decimal" | "bigint" | "uuid" as kind, number):
            return {kind: str(number)}
        case JavaValue(kind, plain):
            return {kind: plain}


def _load(given: Given) -> Any:
    found = document.read(given["offset"])
    queue = found.queue if found else ()
    return {
        "ids": [asked.table for asked in queue],
        "correlations": [asked.id for asked in queue],
        "conditions": [document.wrapped(asked.condition) or None for asked in queue],
        "surrogate_keys": [asked.surrogate or None for asked in queue],
        "correlation": found.id if found else None,
    }


def _asked(given: Given) -> list[Asked]:
    return [
        Asked(table, asked.get("additional_condition") or "", asked.get("surrogate_key") or "", asked["id"])
        for asked in given["signals"]
        for table in asked["collections"]
    ]


def _store(given: Given) -> Any:
    written = document.write(_asked(given))
    entries = json.loads(written.get(document.COLLECTIONS, "[]"))
    conditions = [entry[f"{document.COLLECTIONS}_additional_condition"] for entry in entries]
    return {**written, "keys": sorted(written), "collection_condition": conditions[0] if conditions else None}


def _values(key: list[Any] | None) -> java.Values | None:
    return None if key is None else tuple(None if v is None else JavaValue(_kind(v), v) for v in key)


def _kind(value: bool | float | str) -> str:
    kinds = {bool: "boolean", int: "long", float: "double", str: "string"}
    return "bigint" if type(value) is int and not -(1 << 63) <= value < 1 << 63 else kinds[type(value)]


def _plain(values: java.Values | None) -> list[Any] | None:
    return None if values is None else [None if v is None else v.value for v in values]


def _roundtrip(given: Given) -> Any:
    """A restart knows only what was sent; the end of the chunk that was on its way is not even written."""
    sent, maximum = _values(given.get("last_sent")), _values(given.get("maximum"))
    found = document.read(document.write([Asked("public.a", id="s")], sent, maximum))
    assert found is not None
    return {"chunk_end": _plain(found.sent), "maximum": _plain(found.maximum)}


def _metadata(given: Given) -> str:
    parts = (given.get(name) or "" for name in ("open", "close", "correlation", "collection"))
    return signals.window_data(*parts)


def _watermarks(given: Given) -> Any:
    queue, window, rows, chunk = _asked(given), None, [], 0
    for step in given["steps"]:
        if step == "next_collection":
            queue = queue[1:]
        elif step == "open":
            chunk += 1
            window = Window(str(uuid.UUID(int=chunk)), "2026-01-01T00:00:00Z", queue[0].id or "", queue[0].table)
            rows.append(_row(window, chunk, window.open_row()))
        else:
            assert window is not None
            rows.append(_row(window, chunk, window.close_row("2026-01-01T00:00:05Z")))
    return {"rows": rows}


def _row(window: Window, chunk: int, row: signals.Row) -> dict[str, Any]:
    id, type, data = row
    told = json.loads(data or "{}")
    return {
        "id": id.replace(window.chunk, f"<chunk{chunk}>"),
        "type": type,
        **{name: told.get(name) for name in ("correlationId", "dataCollectionId")},
    }


_ERRORS = {
    "non-transient-connection": psycopg.errors.ConnectionFailure,
    "transient-connection": psycopg.errors.ConnectionException,
    "sql": psycopg.errors.UndefinedTable,
}


def _read_error(given: Given) -> Any:
    """A connection is given up for what time may cure; a statement that was refused leaves it alone."""
    options = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "t"}
    try:
        with client.translated(config(options)):
            raise _ERRORS[given["error"]]("it failed")
    except TidelogError as ours:
        return {"close_connection": isinstance(ours, TransientError)}
