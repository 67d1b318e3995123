"""A spill that is being written, while the buffer reads on.

Blocks are handed to a thread: the kernel copies them, and the disk takes them, while the next reading is sorted. Only a
few may wait there, so memory is bounded. What went wrong in the thread is raised by the next call, and by every one
after it: a file that lacks a block never gets its name.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from tidelog.contracts import RECORDS
from tidelog.journal import spill
from tidelog.journal.files import Files
from tidelog.journal.holding import Bundle, Open, payload_edges
from tidelog.journal.spill import Ranges

_AHEAD = 2
"""So many blocks wait, or are being written."""


class Worker:
    """A thread that does one thing after the other. It holds up nobody: it goes with the process, and when nobody has
    this any more."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        threading.Thread(target=_work_off, args=(self._tasks,), name="spill", daemon=True).start()
        weakref.finalize(self, self._tasks.put, None).atexit = False

    def submit(self, work: Callable[[], None]) -> Future[None]:
        done: Future[None] = Future()
        self._tasks.put((done, work))
        return done


_Task = tuple[Future[None], Callable[[], None]]


def _work_off(tasks: SimpleQueue[_Task | None]) -> None:
    while (task := tasks.get()) is not None:
        done, work = task
        try:
            work()
        except BaseException as exc:  # noqa: BLE001 - whoever asked for it is told
            done.set_exception(exc)
        else:
            done.set_result(None)
        del task, done, work  # whatever they hold


class Draft:
    def __init__(
        self,
        files: Files,
        path: str,
        thread: Worker,
        *,
        durable: bool,
        metadata: Mapping[bytes, bytes] | None = None,
    ) -> None:
        self.path = path
        self.bytes = 0
        self._blocks: list[tuple[Ranges, Sequence[Open]]] = []
        self._files = files
        self._durable = durable
        self._thread = thread
        self._waiting: deque[Future[None]] = deque()
        self._parts = ExitStack()
        out = self._parts.enter_context(files.create(path, durable=durable))
        schema = RECORDS.with_metadata(metadata)
        self._writer = self._parts.enter_context(pa.ipc.new_file(out, schema))

    def lay(self, bundle: Bundle) -> Ranges:
        """Write a bundle, as one block; where its owners have their records then."""
        self._submit(self._write, bundle.rows)
        ranges = _ranges(bundle, self.path, len(self._blocks))  # while it is written
        self._blocks.append((ranges, bundle.owners))
        self.bytes += bundle.rows.nbytes
        return ranges

    def close(self) -> None:
        """All is written, and the file has its name."""
        directory = spill.directory(self._blocks)
        self._settle(0)
        self._submit(self._close, directory)
        self._settle(0)

    def _submit(self, work: Callable[[Any], None], what: Any) -> None:
        self._settle(_AHEAD - 1)
        self._waiting.append(self._thread.submit(partial(work, what)))

    def _settle(self, most: int) -> None:
        """Wait until so many are left. What failed stays: it fails again."""
        while len(self._waiting) > most or (self._waiting and self._waiting[0].done()):
            self._waiting[0].result()
            self._waiting.popleft()

    def _write(self, records: pa.RecordBatch) -> None:
        self._writer.write_batch(records)
        if self._durable:
            self._files.sync_draft(self.path)

    def _close(self, directory: Mapping[bytes, bytes]) -> None:
        self._writer.write_batch(pa.RecordBatch.from_pylist([], RECORDS), custom_metadata=directory)
        self._parts.close()


def _ranges(bundle: Bundle, path: str, index: int) -> Ranges:
    firsts, lasts = bundle.firsts, bundle.lasts
    sizes = payload_edges(bundle.rows, lasts) - payload_edges(bundle.rows, firsts)
    ordinals = bundle.rows.column("ordinal").to_numpy()[firsts]
    checksums = list(spill.checksums(bundle.rows, firsts, lasts))
    return Ranges(path, index, bundle.table, bundle.undo, firsts, lasts, ordinals.tolist(), sizes.tolist(), checksums)
