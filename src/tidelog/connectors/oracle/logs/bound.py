"""How far the log may be mined: where every redo thread has it on disk, and no nearer to the present than allowed."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.connectors.oracle import queries
from tidelog.connectors.oracle.client import Session
from tidelog.connectors.oracle.config import Config
from tidelog.connectors.oracle.faults import ScnUnknown
from tidelog.connectors.oracle.logs.threads import Thread, flushed


def upper(session: Session, config: Config, threads: Iterable[Thread], *, primary: bool = True) -> int:
    """The last SCN that may be mined now.

    A thread whose redo is only on disk up to some SCN may still write more with that very SCN, and LogMiner looks one
    further than asked: so we stay behind by `config.adjustment`."""
    if config.archive_only:
        return int(session.one(queries.newest_archived(config)) or 0) - 1
    current = _deviated(session, config, int(session.one(queries.CURRENT_SCN)))
    written = flushed(threads) if primary else None
    return current if written is None else min(current, written - config.adjustment)


def _deviated(session: Session, config: Config, scn: int) -> int:
    if not config.deviation_ms:
        return scn
    try:
        earlier = session.one(queries.deviated(scn, config.deviation_ms))
    except ScnUnknown:  # older than what the database remembers of times; the present is as good then
        return scn
    return scn if earlier is None else min(scn, int(earlier))
