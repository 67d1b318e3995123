"""Finding the log files that hold everything from an SCN on, and knowing when they are gone.

What is missing is looked for again, with growing pauses: an archiver needs its time. Nobody waits here; until the next
look is due, the answer is that there is nothing yet. When the looks are used up, the log is lost: a person decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tidelog.connectors.oracle import queries
from tidelog.connectors.oracle.client import Session
from tidelog.connectors.oracle.config import Config
from tidelog.connectors.oracle.logs import files, threads
from tidelog.connectors.oracle.logs.consistency import trouble
from tidelog.connectors.oracle.logs.files import LogFile
from tidelog.connectors.oracle.logs.threads import Thread
from tidelog.errors import LogLate, PositionLost, TransientError

START_OVER = (
    "To go on, restore the archived logs (RMAN: RESTORE ARCHIVELOG), or start over: delete the offset, and take a new "
    "snapshot of the tables. Keep archived logs for longer than the connector may stand still."
)


class Gathering:
    """Looks for logs over a session; remembers how often it did in vain."""

    def __init__(self, config: Config, clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = clock
        self._looks = 0
        self._due = 0.0

    def find(self, session: Session, scn: int, known: Sequence[Thread]) -> list[LogFile] | None:
        """All logs from `scn` on; None if some are not there yet, or it is not time to look again. `known` are the
        threads as they were just before."""
        if self._looks and self._clock() < self._due:
            return None
        found = collect(session, self._config, scn, known)
        reason = trouble(scn, known, found, lambda thread: archives(session, self._config, thread))
        reason = reason or _at_the_edges(session, scn, found, known)
        if reason is None and found:
            self._looks = 0
            return found
        if self._config.archive_only and awaited(session, scn, found):
            self._looks, self._due = 1, self._clock() + self._config.archive_poll_s
            return None
        if self._looks >= self._config.log_retries:
            raise lost(session, scn, found, reason or "there are no logs")
        self._due = self._clock() + min(
            self._config.log_delay_max_s, self._config.log_delay_s * 2 ** min(self._looks, 30)
        )
        self._looks += 1
        return None


def collect(session: Session, config: Config, scn: int, known: Sequence[Thread]) -> list[LogFile]:
    """The files of all public threads, one for each log."""
    private = {thread.number for thread in known if thread.private}
    found = [files.of_row(row) for row in session.query(queries.logs(config, scn))]
    return [f for f in files.collected(found, scn, config.destinations) if f.thread not in private]


def state(session: Session) -> list[Thread]:
    return [threads.of_row(row) for row in session.query(queries.THREADS)]


def archives(session: Session, config: Config, thread: int) -> list[LogFile]:
    return [files.of_row(row) for row in session.query(queries.archives(config, thread))]


def lost(session: Session, scn: int, found: Sequence[LogFile], reason: str) -> PositionLost | TransientError:
    """What to say when the logs do not turn up: they were deleted, nobody ever archived them, or they are only late."""
    deleted = [files.of_row(row) for row in session.query(queries.deleted(scn))]
    if not deleted and (late := awaited(session, scn, found)):
        return LogLate(
            f"Redo log {late} is not archived yet, and the log can't be read past SCN {scn} without it ({reason}).",
            hint="Look at the archiver: V$ARCHIVE_DEST, V$RECOVERY_FILE_DEST. tidelog goes on by itself.",
        )
    return not_found(scn, deleted, reason)


def not_found(scn: int, deleted: Sequence[LogFile], reason: str = "") -> PositionLost:
    why = f" ({reason})" if reason else ""
    if deleted:
        names = ", ".join(dict.fromkeys(file.name or f"sequence {file.sequence}" for file in deleted))
        return PositionLost(f"The archived log with SCN {scn} has been deleted: {names}{why}.", hint=START_OVER)
    return PositionLost(f"None of the log files contain SCN {scn}{why}.", hint=START_OVER)


def awaited(session: Session, scn: int, found: Sequence[LogFile], only: Collection[int] | None = None) -> str:
    """A log (of these threads) that we need and that the archive, as far as we look at it, does not have yet: its
    online file has it."""
    known = {file.log for file in found}
    for _, thread, sequence, _, _, status, _, following in session.query(queries.ONLINE_LOGS):
        needed = status != "UNUSED" and (following is None or following > scn) and (only is None or thread in only)
        if needed and (thread, sequence) not in known:
            return f"{sequence} of thread {thread}"
    return ""


def _at_the_edges(session: Session, scn: int, found: Sequence[LogFile], known: Sequence[Thread]) -> str | None:
    """A thread that was closed, or enabled later, may lack logs at that end and be complete; or one of them is not
    archived yet."""
    told = [t.number for t in threads.public(known) if t.enable_scn > scn or (not t.open and t.closed_scn > scn)]
    late = awaited(session, scn, found, told) if told else ""
    return f"redo log {late} is not archived yet" if late else None


def oldest(session: Session, config: Config) -> int | None:
    """The oldest SCN that the log files hold."""
    found = session.one(queries.oldest(config))
    return None if found is None else int(found)


def require(session: Session, config: Config, scn: int) -> None:
    """That the log reaches back to `scn`: one below the first change of the oldest file is enough."""
    reach = oldest(session, config)
    if reach is None or scn < reach - 1:
        deleted = [files.of_row(row) for row in session.query(queries.deleted(scn))]
        raise not_found(scn, deleted, f"the oldest begins at SCN {reach}" if reach is not None else "")
