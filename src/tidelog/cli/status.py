"""`tidelog status`: what the pipeline is doing, and how far behind it is.

Reads what the running pipeline, or the last one, wrote about itself, and asks the
source how much of its log it keeps for us.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import closing
from dataclasses import asdict
from typing import Any

from tidelog.cli.display import duration, walk_text
from tidelog.cli.loading import loaded
from tidelog.contracts import Connector
from tidelog.core.settings import counted, size_text, utc_text
from tidelog.engine.dead_letters import DeadLetters, TableLetters
from tidelog.engine.definition import Definition
from tidelog.engine.home import Home
from tidelog.engine.set_aside import SetAside
from tidelog.engine.watching import Walk, walks
from tidelog.errors import CorruptState, TidelogError
from tidelog.stores import open_store

EXAMPLE = """\
examples:
  tidelog status shop.yaml
  tidelog status shop.yaml --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    report = gather(*loaded(arguments.file))
    print(json.dumps(report, indent=2) if arguments.json else text(report))
    return 0


def gather(definition: Definition, connector: Connector) -> dict[str, Any]:
    home = Home.at(definition.name)
    return {
        "name": definition.name,
        "home": str(home.path),
        "run_pid": home.holder("run"),
        "capture_pid": home.holder("capture"),
        "capture": _written(home),
        "committed": _committed(definition),
        "snapshots": asdict(walks(home)),
        "set_aside": [asdict(aside) for aside in SetAside(home).all() if aside.waits],
        "dead_letters": [asdict(letters) for letters in DeadLetters(home).all()],
        "source": _source(connector),
    }


def _committed(definition: Definition) -> list[dict[str, Any]]:
    with closing(open_store(definition.store or None)) as store:
        return [asdict(kept) for kept in store.offsets(definition.name)]


def _written(home: Home) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(home.status.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as exc:
        raise CorruptState(f"{home.status} is not JSON.", hint="Delete it; a running pipeline writes it anew.") from exc
    return found


def _source(connector: Connector) -> dict[str, Any]:
    """What the server says of our slot; an unreachable one is an answer too."""
    try:
        with closing(connector):
            lag = connector.lag()
    except TidelogError as exc:
        return {"error": exc.message}
    return {"lag_bytes": lag.bytes, "kept_bytes": lag.kept_bytes, "safe_bytes": lag.safe_bytes}


def text(report: dict[str, Any]) -> str:
    lines = [f"{report['name']}: {_state(report)}"]
    if written := report["capture"]:
        lines += _captured(written)
    lines += _snapshots(report["snapshots"], alive=report["run_pid"] is not None)
    lines += [_row("set aside", f"{a['name']}: {a['reason']} {a['cure']}") for a in report["set_aside"]]
    lines += [_row("undecoded", _letters_text(TableLetters(**raw))) for raw in report["dead_letters"]]
    lines.append(_row("source", _told(report["source"])))
    lines.append(_row("state", report["home"]))
    return "\n".join(lines)


def _state(report: dict[str, Any]) -> str:
    pids = [f"{role} by process {report[f'{role}_pid']}" for role in ("run", "capture") if report[f"{role}_pid"]]
    written = report["capture"]
    if pids:
        ended = not written or written["state"] in ("stopped", "failed")  # what the run before this one wrote last
        return f"{'starting' if ended else written['state']} ({', '.join(pids)})"
    if not written:
        return "never ran here"
    return "failed" if written["state"] == "failed" else "not running"


def _captured(written: dict[str, Any]) -> list[str]:
    events = written.get("events") or {}
    by_operation = ", ".join(f"{op} {number:,}" for op, number in sorted(events.items()))
    rows = [
        _row("captured", f"{counted(sum(events.values()), 'event')}{f' ({by_operation})' if by_operation else ''}"),
        _row("lag", _lag(written)),
        _row("journal", size_text(written["journal_bytes"])),
    ]
    rows += [_row("as of", f"{_age(written['updated_us'])} ago")] if written["updated_us"] else []
    return [*rows, _row("warning", written["warning"])] if written.get("warning") else rows


def _lag(written: dict[str, Any]) -> str:
    if since_us := written.get("unreachable_since_us"):
        return f"not known: the database has not answered since {utc_text(since_us)} ({_age(since_us)})"
    if waits_for := written.get("waits_for"):
        return f"not known: waiting for {waits_for}"
    if written["state"] == "failed":
        return "not known: the log is not read any more"
    return duration(written["lag_ms"])


def _age(us: int) -> str:
    return duration(max(0.0, time.time() * 1000 - us / 1000))


def _snapshots(found: dict[str, Any], *, alive: bool) -> list[str]:
    tables = [Walk(**table) for table in found["tables"]]
    still = "paused" if found["paused"] else "" if alive else "goes on with the next run"
    begun = [_row("snapshot", f"{w.table}: {walk_text(w, still).strip()}") for w in tables if w.begun]
    waiting = [w.table for w in tables if not w.begun]
    return [*begun, _row("waiting", ", ".join(waiting))] if waiting else begun


def _letters_text(letters: TableLetters) -> str:
    what = "record" if letters.records == 1 else "records"
    counted = f"{letters.records:,} {what} could not be decoded ({letters.counted()})"
    return f"{letters.table}: {counted}; the last: {letters.reason}"


def _told(source: dict[str, Any]) -> str:
    if "error" in source:
        return str(source["error"])
    safe = source["safe_bytes"]
    limit = "without limit" if safe is None else f"and {size_text(safe)} more at most"
    return f"keeps {size_text(source['kept_bytes'])} of log for us, {limit}"


def _row(title: str, value: str) -> str:
    return f"  {title:<9} {value}"
