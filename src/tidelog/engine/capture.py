"""The capture: one thread that moves the database's log into the journal, and acknowledges what was delivered.

Data goes forward, only acknowledgements come back. The thread retries what time can cure (`TransientError`); any
other error ends it and is raised to whoever asks the capture next, so nothing fails unseen.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from tidelog.contracts import Connector, Lag, Mixed, Portion, Status, Tail
from tidelog.engine import disk
from tidelog.engine.backoff import Backoff
from tidelog.engine.state_file import write_json
from tidelog.errors import ConfigError, CorruptState, DatabaseAway, StateLost, TransientError
from tidelog.journal.buffer import Abandoned, Buffer
from tidelog.journal.files import Files
from tidelog.journal.journal import SegmentJournal
from tidelog.model.record import Op

_LOG = logging.getLogger("tidelog")
_POLL_S = 0.1
_PING_S = 0.02
_BEAT_S = 1.0
"""Somebody in another process may wait for the log to pass a place, and cannot say so."""
_STATUS_S = 1.0
_LAG_S = 10.0
_IDLE_S = 5.0
_FLUSH_S = 10.0
"""How much reading of a mixed log a restart repeats at most."""
_IDLE_FILE = "idle.json"
_KEPT_BYTES_MAX = 16 << 30
_OPEN_BYTES_MAX = 1 << 30
"""Arrow counts the bytes of a block with 32 bits."""
_GIVEN_UP_S = 3600.0
"""So long the status tells of a transaction that was given up; the notification stays."""


class Capture:
    def __init__(
        self,
        connector: Connector,
        journal: SegmentJournal,
        files: Files,
        *,
        notes: Files | None = None,
        memory_bytes: int = 64 << 20,
        publish: Callable[[Status], None] = lambda _: None,
        persistent: bool = True,
        abandoned: Callable[[Abandoned], None] = lambda _: None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`abandoned` hears of open transactions that were given up. `check` is called before anything is written, and
        raises when this capture may not write any more."""
        self.journal = journal
        self._connector = connector
        self._files = files
        # Notes about empty stretches of the log are kept twice: losing the journal must not lose them.
        self._places = [files, notes] if notes is not None else [files]
        # The raw messages, their joined buffer, the blocks and the segment exist at the same time.
        self._portion_bytes = max(1 << 20, memory_bytes // 5)
        self._open_bytes = min(max(1 << 20, memory_bytes // 2), _OPEN_BYTES_MAX)
        self._persistent = persistent and connector.scope() != ""
        self._tell_abandoned = abandoned
        self._check = check
        self._buffer: Buffer | None = None
        self._note: str | None = None
        self._publish = publish
        self._status = Status("starting")
        self._stopping = threading.Event()
        self._backoff = Backoff("Reading the log")
        self._wanted = threading.Event()
        self._acknowledged = 0
        self._told = 0
        self._seen = 0
        self._goal = 0
        self.schema_end = 0
        """The end of the last record that says how a table was changed without a row."""
        self._events: Counter[str] = Counter()
        self._failure: BaseException | None = None
        self._lag_warning = ""
        self._given_up = ("", float("-inf"))
        self._thread = threading.Thread(target=self._run, name="tidelog-capture", daemon=True)
        self._due = {"status": 0.0, "lag": 0.0, "idle": 0.0, "ping": 0.0, "flush": 0.0}

    # -- for the reader ----------------------------------------------------------------------------------------

    def start(self, position: int, note: str | None = None, log_end: int | None = None) -> None:
        """Serve everything from `position` on; `note` is what the connector has to know to read on from there. What
        the journal holds past `log_end` is not served."""
        self._acknowledged, self._note = position, note
        self._from = self._open(position, log_end)
        self._thread.start()

    def wait(self, beyond: int, seconds: float) -> int:
        """Ask for more than `beyond`; the journal's end after at most `seconds`."""
        self._wanted.set()
        deadline = time.monotonic() + seconds
        while True:
            self.raise_failure()
            end = self.journal.wait(beyond, min(0.2, max(0.0, deadline - time.monotonic())))
            if end > beyond or time.monotonic() >= deadline:
                return end

    def caught_up(self, log_end: int, seconds: float) -> bool:
        """Whether everything the database had logged at `log_end` is in the journal."""
        deadline = time.monotonic() + seconds
        self._goal = log_end
        while self._seen < log_end:
            self.raise_failure()
            if time.monotonic() >= deadline:
                return False
            self._wanted.set()
            time.sleep(0.005)
        return True

    def acknowledge(self, position: int) -> None:
        """Everything before `position` is delivered for good."""
        if position > self._acknowledged:
            with suppress(CorruptState):  # then an older note does: damage shows where records are read
                # What is released takes its notes along: the last of them still counts.
                self._note = self.journal.last_commit(position)[2] or self._note
            self._acknowledged = position
            self.journal.release(position)
            self._wanted.set()

    def settle(self, seconds: float) -> None:
        """Wait until the database has heard of the last acknowledgement."""
        deadline = time.monotonic() + seconds
        while self._told < self._acknowledged and time.monotonic() < deadline and self._failure is None:
            time.sleep(0.02)

    def status(self) -> Status:
        return self._now()

    def noted(self) -> str | None:
        """What the connector has to know to read on from what was acknowledged."""
        return self._note

    def seen(self) -> int:
        """All that was committed when the log ended here is in the journal."""
        return self._seen

    def passed(self, end: int) -> bool:
        """Whether the log is known past `end`: after a loss of the journal, a record of our own that stood there is
        not read again, because the database knows nothing of it."""
        return self._connector.through(self._seen) >= end

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._live()
            self._set(state="stopped")
        except BaseException as exc:  # noqa: BLE001  it is raised again in the thread that asks
            self._failure = self._explain(exc)
            warning = str(self._failure)
            self._status = replace(self._status, state="failed", warning=warning, unreachable_since_us=0, waits_for="")
            with suppress(OSError, StateLost):  # it may be what failed; the next caller gets the failure all the same
                self._check()
                self._publish(self._now())

    def _explain(self, exc: BaseException) -> BaseException:
        if disk.is_full(exc):
            return disk.full_error(Path(place.path("")) for place in self._places if place.local)
        return _disk_error(exc) if isinstance(exc, OSError) else exc

    def _live(self) -> None:
        """One session after the other, until stopped or until an error that time does not cure."""
        reopen = False
        while not self._stopping.is_set():
            try:
                if reopen:
                    self._from = self._open(self._acknowledged)
                self._session()
            except (TransientError, OSError) as exc:
                if isinstance(exc, OSError) and self._files.local:
                    raise
                since_us, waits_for = self._unreachable_since(exc), _awaited(exc)
                self._set(state="reconnecting", warning=str(exc), unreachable_since_us=since_us, waits_for=waits_for)
                self._stopping.wait(self._backoff.failed(str(exc)))
                reopen = True

    def _open(self, position: int, log_end: int | None = None) -> int:
        """The journal ends where the last event does. A place on the empty stretch after it is no gap, for which all
        that is kept for a rewind would have to go. Nor is it where nothing was captured yet: a first batch that was
        not committed is planned again from the slot's place, and the next one begins where that batch ended, which may
        lie anywhere on the stretch. The stretch has no records of the database; those of our own end it."""
        begin = begin_of_idle(self._places, position)
        captured = max(self.journal.reached(), self.journal.newest_version() + 1)
        return self.journal.open(min(max(begin, captured), position), log_end)

    def _session(self) -> None:
        start = skip_idle(self._places, self._from)
        buffer = self._opened()
        tail = self._connector.tail(
            start,
            buffer.tables(self.journal.tables()),
            self._portion_bytes,
            note=self.journal.last_commit(self._from)[2] or self._note,
            kept=buffer.kept(),
        )
        buffer.merging = tail.merging
        self._told = 0  # a new tail has heard nothing yet
        try:
            self._set(state="running", warning="", unreachable_since_us=0, waits_for="")
            self._backoff.succeeded()
            while not self._stopping.is_set():
                self._step(tail)
            self._flush(buffer)
        finally:
            tail.close()

    def _opened(self) -> Buffer:
        """The open transactions of a mixed log: as they were kept, or none. Other logs leave it empty."""
        self._buffer = Buffer(
            self._files,
            memory_bytes=self._open_bytes,
            start=self._from,
            epoch=self.journal.epoch,
            collections=self._connector.selection().transactions,
            limits=self._connector.limits(),
            persistent=self._persistent,
            scope=self._connector.scope(),
        )
        self._buffer.sweep(self.journal.referred())
        return self._buffer

    def _step(self, tail: Tail) -> None:
        if self.journal.full():
            self._hold(tail)
        else:
            if self._is_due("ping", _PING_S if self._seen < self._goal else _BEAT_S):
                tail.ping()
            read = tail.poll(_POLL_S, self._wanted.is_set())
            if isinstance(read, Mixed):
                self._mixed(read)
            elif read is not None:
                self._append(read)
        if self._buffer is not None and self._is_due("flush", _FLUSH_S):
            self._flush(self._buffer)
        self._confirm(tail)
        self._seen = tail.reached() if tail.quiet() else self._seen
        self._report()

    def _mixed(self, read: Mixed) -> None:
        assert self._buffer is not None
        portions = self._buffer.add(read)
        for one in self._buffer.abandoned():
            self._abandon(one)
        for portion in portions:
            self._append(portion)

    def _flush(self, buffer: Buffer) -> None:
        """Keep what is open: a restart reads on from here."""
        if self._persistent:
            buffer.flush()
            buffer.sweep(self.journal.referred())

    def _abandon(self, one: Abandoned) -> None:
        """It is lost: whoever listens hears of it, the status tells it for a while, and the log keeps it."""
        warning = (
            f"The transaction {one.xid:x} was given up, because {one.reason}: its changes are not delivered, even if "
            "it commits. Take a snapshot of its tables, and raise the limit if such transactions are usual."
        )
        self._given_up = warning, time.monotonic()
        _LOG.warning(warning)
        self._tell_abandoned(one)

    def _append(self, portion: Portion) -> None:
        self._check()
        self.journal.append(portion)
        if portion.end:
            self._wanted.clear()
        for block in portion.blocks:
            ops, counts = np.unique(block.records.column("op").to_numpy(), return_counts=True)
            self._events.update({chr(op): int(n) for op, n in zip(ops, counts, strict=True)})
            if ord(Op.SCHEMA) in ops:
                self.schema_end = portion.end

    def _hold(self, tail: Tail) -> None:
        """The journal is full: leave the log to the database, and stay in touch with it."""
        self._set(state="waiting", warning="The journal is full; capture waits until changes are delivered.")
        tail.keep_alive()
        self._stopping.wait(0.05)
        if not self.journal.full():
            self._set(state="running", warning="")

    def _confirm(self, tail: Tail) -> None:
        if self._acknowledged > self._told:
            tail.acknowledge(self._acknowledged)
            self._told = self._acknowledged
            if self._buffer is not None:
                self._buffer.sweep(self.journal.referred())
        elif tail.quiet() and self.journal.end() <= self._acknowledged and self._is_due("idle", _IDLE_S):
            self._pass_idle(tail)

    def _pass_idle(self, tail: Tail) -> None:
        """Nothing captured is pending: let the database forget what others wrote. The note comes first, so that
        a restart knows that the gap between offset and slot was empty."""
        end, seen = self.journal.end(), tail.seen()
        if seen > end:
            note = json.dumps({"position": end, "seen": seen}).encode()
            for place in self._places:
                place.write(_IDLE_FILE, note, durable=True)
            tail.acknowledge(seen)

    # -- telling -----------------------------------------------------------------------------------------------

    def _report(self) -> None:
        if self._is_due("lag", _LAG_S):
            self._watch_lag()
        if self._is_due("status", _STATUS_S):
            self._check()
            self._set()

    def _watch_lag(self) -> None:
        lag = self._connector.lag()
        self._status = replace(self._status, lag_bytes=lag.bytes, kept_bytes=lag.kept_bytes, safe_bytes=lag.safe_bytes)
        self._lag_warning = _warning(lag)

    def _unreachable_since(self, exc: Exception) -> int:
        """An OSError is one of the journal's storage, and says nothing about the database."""
        if isinstance(exc, OSError):
            return self._status.unreachable_since_us
        if not isinstance(exc, DatabaseAway):
            return 0
        return self._status.unreachable_since_us or time.time_ns() // 1000

    def _set(self, **changes: str | int) -> None:
        self._status = replace(self._status, **changes)  # type: ignore[arg-type]
        self._publish(self._now())

    def _now(self) -> Status:
        return replace(
            self._status,
            position=self.journal.end(),
            seen=self._seen,
            acknowledged=self._acknowledged,
            lag_ms=self._lag_ms(),
            events=dict(self._events),
            journal_bytes=self.journal.bytes(),
            updated_us=time.time_ns() // 1000,
            warning=" ".join(filter(None, (self._status.warning, self._lost(), self._lag_warning))),
        )

    def _lost(self) -> str:
        warning, since = self._given_up
        return warning if time.monotonic() - since < _GIVEN_UP_S else ""

    def _lag_ms(self) -> int:
        committed = self.journal.oldest_pending(self._acknowledged)
        return max(0, time.time_ns() // 1_000_000 - committed // 1000) if committed else 0

    def _is_due(self, what: str, every_s: float) -> bool:
        if time.monotonic() - self._due[what] < every_s:
            return False
        self._due[what] = time.monotonic()
        return True


def skip_idle(places: Sequence[Files], start: int) -> int:
    """Where the log goes on after `start`, past a stretch of which a note says that it is empty."""
    return max([start, *(seen for begin, seen in _idle_stretches(places) if begin <= start <= seen)])


def begin_of_idle(places: Sequence[Files], end: int) -> int:
    """Where a stretch of the log begins that is empty up to `end`, as a note says; `end` where none does."""
    return min([end, *(begin for begin, seen in _idle_stretches(places) if begin <= end <= seen)])


def _idle_stretches(places: Sequence[Files]) -> Iterator[tuple[int, int]]:
    for note in filter(None, (place.read(_IDLE_FILE) for place in places)):
        try:
            idle = json.loads(note)
        except ValueError:  # damaged: the other copy counts
            continue
        yield int(idle["position"]), int(idle["seen"])


def last_status(path: Path) -> Status | None:
    """What a capture last wrote; None where there is nothing, or nothing that can be read: the next status replaces it
    within a second."""
    try:
        return Status(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write_status(path: Path) -> Callable[[Status], None]:
    """Publishes a status as a JSON file. A run that ends and its capture may publish at the same moment. The capture
    writes one every second, and no crash makes it worth waiting for a disk: the next one replaces it."""

    def publish(status: Status) -> None:
        write_json(path, asdict(status), durable=False)

    return publish


def _warning(lag: Lag) -> str:
    """Before the server gives up on us, or its disk fills."""
    kept = f"The server keeps {lag.kept_bytes >> 20} MiB of log for us"
    if lag.safe_bytes is not None and lag.safe_bytes < lag.kept_bytes:
        return (
            f"{kept} and drops it after {lag.safe_bytes >> 20} MiB more (max_slot_wal_keep_size): end long "
            "transactions, speed up the sink, or raise that limit."
        )
    if lag.safe_bytes is None and lag.kept_bytes > _KEPT_BYTES_MAX:
        return f"{kept}, without a limit: its disk may fill. End long transactions, or speed up the sink."
    return ""


def _awaited(exc: TransientError | OSError) -> str:
    return exc.awaited if isinstance(exc, TransientError) else "the storage of the journal"


def _disk_error(exc: OSError) -> ConfigError:
    return ConfigError(f"The journal can't be written ({exc.strerror or exc}).", hint="Free space, or move it.")
