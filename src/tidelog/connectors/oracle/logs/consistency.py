"""Whether the log files that were found tell everything from an SCN on.

A log that was just switched away is in no archive yet, and its online file is not read: then there is a hole, which
time fills. So every redo thread is looked at by itself, under what V$THREAD says of it. The answer is a reason or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tidelog.connectors.oracle.logs.files import LogFile, gap
from tidelog.connectors.oracle.logs.threads import Thread, public

Archives = Callable[[int], Sequence[LogFile]]
"""All archived logs of a thread, the newest first, however old."""


def trouble(scn: int, threads: Iterable[Thread], files: Sequence[LogFile], archives: Archives) -> str | None:
    """Why these files do not tell everything from `scn` on; None when they do."""
    for thread in public(threads):
        own = [file for file in files if file.thread == thread.number]
        reason = _open(scn, thread, own, archives) if thread.open else _closed(scn, thread, own, archives)
        if reason:
            return f"redo thread {thread.number}: {reason}"
    return None


def _open(scn: int, thread: Thread, own: Sequence[LogFile], archives: Archives) -> str | None:
    return _whole(scn, thread, own, archives) if own else "it is open and has no logs"


def _whole(scn: int, thread: Thread, own: Sequence[LogFile], archives: Archives) -> str | None:
    if thread.enable_scn > scn:
        return _since_enabled(thread, own)
    if not any(file.holds(scn) for file in own):
        return _reopened(scn, own, archives(thread.number))
    return _missing(own)


def _since_enabled(thread: Thread, own: Sequence[LogFile]) -> str | None:
    since = [file for file in own if file.next > thread.enable_scn]
    if not since:
        return f"it has no logs since it was enabled at SCN {thread.enable_scn}"
    return _missing(since)


def _reopened(scn: int, own: Sequence[LogFile], archives: Sequence[LogFile]) -> str | None:
    """None of our logs holds the SCN: its archive is late, or the thread was down then and has been opened since."""
    if any(file.holds(scn) for file in archives):
        return f"the archived log that holds SCN {scn} is not among those found yet"
    before = max((f for f in archives if f.next <= scn), key=lambda f: f.sequence, default=None)
    if before is None:
        return f"no log holds SCN {scn}"
    return _missing([before, *own])


def _closed(scn: int, thread: Thread, own: Sequence[LogFile], archives: Archives) -> str | None:
    """It writes no more. Logs beyond its end are of a later life: it was opened again since V$THREAD was read. No logs
    at all is fine here: `gathering` looks whether its last one still waits for the archiver."""
    end = thread.closed_scn
    if not own or (thread.disabled and not end):
        return None
    if end < scn:
        return f"it is closed since SCN {end}, but has logs after SCN {scn}"
    wrote = [file for file in own if file.first <= end]
    if end <= max(scn, thread.enable_scn):
        return _missing(wrote)
    if max((file.next for file in wrote), default=0) < end:
        return f"its last logs, up to SCN {end}, are not there yet"
    return _whole(scn, thread, wrote, archives)


def _missing(files: Iterable[LogFile]) -> str | None:
    sequence = gap(files)
    return None if sequence is None else f"the log with sequence {sequence} is missing"


def archived_everywhere(scn: int, threads: Iterable[Thread], files: Iterable[LogFile]) -> bool:
    """Whether an archived log of every open thread holds the SCN."""
    archived = [file for file in files if file.archived]
    needed = [t.number for t in public(threads) if t.open]
    return bool(needed) and all(any(f.thread == t and f.holds(scn) for f in archived) for t in needed)
