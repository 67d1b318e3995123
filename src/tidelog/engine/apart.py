"""`tidelog capture`: the reader of the log in a process of its own, for several queries, or to outlive Spark.

Capture alone writes the journal. Queries follow it and tell how far they are; the least of them is acknowledged.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial

from tidelog.contracts import Connector, Status
from tidelog.engine.capture import Capture, write_status
from tidelog.engine.definition import Definition, connector_of
from tidelog.engine.first_start import accept
from tidelog.engine.following import STATUS
from tidelog.engine.home import Home, Lock
from tidelog.engine.notices import Notices
from tidelog.engine.owner import claim, owner_of
from tidelog.engine.readers import Known, Readers
from tidelog.engine.startup import start_when_reachable, waiting_for
from tidelog.engine.storage import files_of, journal_of
from tidelog.errors import TransientError
from tidelog.journal.files import Files

_CHECK_S = 1.0
_EXPIRY_S = 3600.0


def run_apart(
    definition: Definition,
    stop: threading.Event,
    watch: Callable[[Status], None] = lambda _: None,
    *,
    expiry_s: float = _EXPIRY_S,
) -> None:
    """Capture until `stop` is set."""
    home = Home.open(definition.name)
    with home.lock("capture"), home.lock("journal") as lock:
        connector = connector_of(definition)
        try:
            _serve(definition, home, lock, connector, stop, watch, expiry_s)
        except _Stopped:
            return
        finally:
            connector.close()


def _serve(
    definition: Definition,
    home: Home,
    lock: Lock,
    connector: Connector,
    stop: threading.Event,
    watch: Callable[[Status], None],
    expiry_s: float,
) -> None:
    files = files_of(definition, home)
    claim(files, owner_of(definition, connector))
    readers = Readers(files)
    capture = Capture(
        connector,
        journal_of(definition, str(home.ledger), files),
        files,
        memory_bytes=definition.storage.memory_bytes,
        notes=Files(str(home.path)),
        publish=_publish(home, files),
        persistent=definition.storage.persistent,
        abandoned=Notices(connector.snapshot_settings(), home, definition.name).abandoned,
        check=lock.require_kept,
    )
    forgotten: list[Known] = []
    first = not readers.note()
    prepared = start_when_reachable(partial(_prepare, connector, home), _waiting(stop, watch), first=first)
    start = readers.resume(readers.least(expiry_s, forgotten.append), prepared)
    note = readers.note() or json.dumps(connector.document(start, 0, 0))
    capture.start(start, note)
    readers.announce(start, note)
    try:
        while not stop.wait(_CHECK_S):
            lock.require_kept()
            capture.wait(capture.journal.end(), 0)
            least = readers.least(expiry_s, forgotten.append)
            if least is not None:
                capture.acknowledge(least)
                readers.announce(least, capture.noted())
            watch(_with_warning(capture.status(), forgotten))
    finally:
        capture.stop()


class _Stopped(Exception):
    """`stop` was set before the database answered."""


def _waiting(stop: threading.Event, watch: Callable[[Status], None]) -> Callable[[TransientError], None]:
    def wait(reason: TransientError) -> None:
        watch(Status(waiting_for(reason), warning=str(reason)))
        if stop.is_set():
            raise _Stopped

    return wait


def _prepare(connector: Connector, home: Home) -> int:
    if not connector.find_server_state():
        accept(home)  # the slot is new, and so is a pipeline of this name
    return connector.prepare()


def _publish(home: Home, files: Files) -> Callable[[Status], None]:
    """Told twice: for `tidelog status` here, and beside the journal for queries that run elsewhere."""
    locally = write_status(home.status)

    def publish(status: Status) -> None:
        locally(status)
        files.write(STATUS, json.dumps(asdict(status)).encode())

    return publish


def _with_warning(status: Status, forgotten: list[Known]) -> Status:
    if not forgotten:
        return status
    names = ", ".join(sorted({k.name for k in forgotten}))
    return replace(status, warning=f"Forgotten, because silent for too long: {names}. Their next start begins anew.")
