"""Cases of incremental snapshots: keys in the offset, its document, signals, windows, PostgreSQL's snapshots."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import psycopg

from tidelog.connectors.postgres import client
from tidelog.connectors.postgres.config import read as config
from tidelog.core import signals
from tidelog.core.signals import Execute, Malformed, Stop, Window
from tidelog.core.snapshot import document, java
from tidelog.core.snapshot.document import Asked, Document
from tidelog.core.snapshot.java import JavaValue
from tidelog.core.snapshot.watermark import Visible
from tidelog.errors import CorruptState, TidelogError, TransientError

Given = Mapping[str, Any]


def context(case: Given) -> Any:
    try:
        return _OPS[case["input"]["op"]](case["input"], case["expected"])
    except CorruptState:
        return {"error": True}


def signal(given: Given) -> Any:
    match given["op"]:
        case "source_row":
            found = signals.of_row(given.get("after"))
            return found and dict(zip(("id", "type", "data"), found, strict=True))
        case "file":
            # What a signal asks for is none of a file's business: who has an id is one.
            return {"count": sum(not signal.id.startswith("nameless-") for signal in signals.of_lines(given["lines"]))}
        case op:
            return _request(signals.parse("1", op if op == "log" else f"{op}-snapshot", given.get("data")))


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
        case Malformed():
            return {"valid": False, "collections": None, "stopped": None}
        case _:
            return {"valid": True}


def _decode(given: Given, expected: Any) -> Any:
    found = None if given["hex"] is None else java.decode(given["hex"])
    if not any(v is not None and v.kind.startswith(("local", "instant", "zoned", "offset")) for v in found or ()):
        assert java.encode(java.decode(java.encode(found))) == java.encode(found)
    wanted = expected if isinstance(expected, list) else []
    return None if found is None else [_named(_shown(v), w) for v, w in zip_longest(found, wanted[: len(found)])]


def _named(shown: Any, wanted: Any) -> Any:
    """Who says `date` where we say `sql_date` means the same."""
    if not isinstance(shown, dict) or not isinstance(wanted, dict):
        return shown
    return {short if (short := name.removeprefix("sql_")) in wanted else name: v for name, v in shown.items()}


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


def _load(given: Given, _: Any) -> Any:
    return _told(document.read(given["offset"]))


def _told(found: Document | None) -> dict[str, Any]:
    queue = found.queue if found else ()
    return {
        "ids": [asked.table for asked in queue],
        "correlations": [asked.id for asked in queue],
        "conditions": [document.wrapped(asked.condition) or None for asked in queue],
        "surrogate_keys": [asked.surrogate or None for asked in queue],
        "correlation": found.id if found else None,
        "chunk_end": _plain(found.sent) if found else None,
        "maximum": _plain(found.maximum) if found else None,
    }


def _asked(given: Given) -> list[Asked]:
    return [
        Asked(table, asked.get("additional_condition") or "", asked.get("surrogate_key") or "", asked.get("id"))
        for asked in given["signals"]
        for table in asked["collections"]
    ]


def _store(given: Given, _: Any) -> Any:
    written = document.write(_asked(given))
    entries = json.loads(written.get(document.COLLECTIONS, "[]"))
    conditions = [entry[f"{document.COLLECTIONS}_additional_condition"] for entry in entries]
    found = {"keys": sorted(written), "collection_condition": conditions[0] if conditions else None}
    return {**_told(document.read(written)), **written, **found}


def _values(key: list[Any] | None) -> java.Values | None:
    return None if key is None else tuple(None if v is None else JavaValue(_kind(v), v) for v in key)


def _kind(value: bool | float | str) -> str:
    kinds = {bool: "boolean", int: "long", float: "double", str: "string"}
    return "bigint" if type(value) is int and not -(1 << 63) <= value < 1 << 63 else kinds[type(value)]


def _plain(values: java.Values | None) -> list[Any] | None:
    return None if values is None else [None if v is None else v.value for v in values]


def _roundtrip(given: Given, _: Any) -> Any:
    """A restart knows only what was sent; the end of the chunk that was on its way is not even written."""
    sent, maximum = _values(given.get("last_sent")), _values(given.get("maximum"))
    asked = _asked(given) if "signals" in given else [Asked("public.a", id="s")]
    return _told(document.read(document.write(asked, sent, maximum)))


def _metadata(given: Given, expected: Any) -> Any:
    parts = (given.get(name) or "" for name in ("open", "close", "correlation", "collection"))
    text = signals.window_data(*parts)
    return {"json": json.loads(text)} if isinstance(expected, dict) else text


def _watermarks(given: Given, expected: Given) -> Any:
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
    # What is not known is left out, which may be told as null.
    return {"rows": [{**dict.fromkeys(told), **row} for told, row in zip_longest(expected["rows"], rows, fillvalue={})]}


def _row(window: Window, chunk: int, row: signals.Row) -> dict[str, Any]:
    id, type, data = row
    told = json.loads(data or "{}")
    names = ("correlationId", "dataCollectionId")
    known = {name: told[name] for name in names if name in told}
    return {"id": id.replace(window.chunk, f"<chunk{chunk}>"), "type": type, **known}


_ERRORS = {
    "non-transient-connection": psycopg.errors.ConnectionFailure,
    "transient-connection": psycopg.errors.ConnectionException,
    "sql": psycopg.errors.UndefinedTable,
}


def _read_error(given: Given, _: Any) -> Any:
    """A connection is given up for what time may cure; a statement that was refused leaves it alone."""
    options = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "t"}
    try:
        with client.translated(config(options)):
            raise _ERRORS[given["error"]]("it failed")
    except TidelogError as ours:
        return {"close_connection": isinstance(ours, TransientError)}


_OPS = {
    "decode_key": _decode,
    "load": _load,
    "store": _store,
    "roundtrip": _roundtrip,
    "signal_metadata": _metadata,
    "watermark_rows": _watermarks,
    "chunk_read_error": _read_error,
}
