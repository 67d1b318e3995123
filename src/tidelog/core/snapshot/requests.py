"""What people ask of snapshots: begin, stop, pause, go on. Each request is followed once, by its id."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tidelog.core.snapshot.plan import grounded, news_of
from tidelog.core.snapshot.state import BLOCKING, HANDLED_MAX, INITIAL, Entry, News, Snapshot


@dataclass(frozen=True)
class Wanted:
    """A table, and which of its rows."""

    table: str
    condition: str = ""
    sweep: bool = False
    """Whether the target may lose what the source does not have: for all rows of a table that has a key."""
    only_sweep: bool = False
    """Whether only rows are to be lost, and none to be read."""
    after: int = 0
    """Of a table that is new to the log: the id below which transactions may have written what the log never tells."""


def handled(snapshot: Snapshot, id: str) -> bool:
    return id in snapshot.handled


def handle(snapshot: Snapshot, id: str) -> Snapshot:
    """Remember that a request was followed."""
    return replace(snapshot, handled=(*snapshot.handled, id)[-HANDLED_MAX:])


def ask(snapshot: Snapshot, id: str, wanted: Sequence[Wanted], kind: str, *, surrogate: str = "") -> Snapshot:
    """Add tables to the queue; those that make the stream wait come first."""
    there = {(e.id, e.table) for e in snapshot.entries}
    waits = {e.table: e.after for e in snapshot.entries if e.after}  # whoever asks for a new table waits as well
    new = [
        Entry(
            id,
            w.table,
            kind,
            w.condition,
            surrogate,
            w.sweep and not w.condition,
            only_sweep=w.only_sweep,
            after=waits.get(w.table, w.after),
        )
        for w in wanted
        if (id, w.table) not in there
    ]
    if not new:
        return skip(snapshot, id, [w.table for w in wanted], kind, "there is nothing to read")
    ahead = [e for e in snapshot.entries if e.kind == BLOCKING] if kind == BLOCKING else list(snapshot.entries)
    behind = [e for e in snapshot.entries if e not in ahead]
    asked = dict(snapshot.asked)
    asked[id] = (*asked.get(id, ()), *(e.table for e in new))
    started = News("STARTED", id, kind, table=new[0].table)
    return replace(
        snapshot, entries=(*ahead, *new, *behind), asked=tuple(asked.items()), news=(*snapshot.news, started)
    )


def repeat(snapshot: Snapshot, id: str, wanted: Sequence[Wanted]) -> Snapshot:
    """Ask for tables to be read again. A table that waits to be read in full is not asked for twice: that reading also
    sweeps then."""
    new = []
    for w in wanted:
        waiting = next((e for e in snapshot.entries if e.table == w.table and _is_unopened_whole(e)), None)
        if waiting is None:
            new.append(w)
            continue
        merged = replace(
            waiting,
            sweep=waiting.sweep or w.sweep,
            only_sweep=waiting.only_sweep and w.only_sweep,
            after=max(waiting.after, w.after),
        )
        snapshot = replace(snapshot, entries=tuple(merged if e is waiting else e for e in snapshot.entries))
    return ask(snapshot, id, new, INITIAL) if new else snapshot


def _is_unopened_whole(entry: Entry) -> bool:
    return entry.kind == INITIAL and not entry.opened and not entry.condition


def skip(snapshot: Snapshot, id: str, tables: Sequence[str], kind: str, reason: str) -> Snapshot:
    """Tell of a request that is not followed."""
    return replace(snapshot, news=(*snapshot.news, News("SKIPPED", id, kind, tables=tuple(tables), reason=reason)))


def miss(snapshot: Snapshot, id: str, tables: Sequence[str], kind: str, reason: str) -> Snapshot:
    """Tell of a part of a request that is not followed: whoever asked for more hears it."""
    told = [News("TABLE_SCAN_COMPLETED", id, kind, table=t, status="SKIPPED", reason=reason) for t in tables]
    return replace(snapshot, news=(*snapshot.news, *told))


def stop(snapshot: Snapshot, tables: Collection[str] | None, lost: str = "") -> Snapshot:
    """Take tables out of the queue, all of them if none is named; what is delivered stays delivered. `lost` says what
    that means for tables whose rows nobody has asked for, because they were to be read anyway."""
    gone = [e for e in snapshot.entries if tables is None or e.table in tables]
    left = tuple(e for e in snapshot.entries if e not in gone)
    news = [news_of("TABLE_SCAN_COMPLETED", e, "STOPPED", lost if e.kind == INITIAL else "") for e in gone]
    for id in dict.fromkeys(e.id for e in gone):
        if not any(e.id == id for e in left):
            news.append(news_of("ABORTED", next(e for e in gone if e.id == id)))
    return replace(snapshot, entries=left, news=(*snapshot.news, *news), paused=snapshot.paused and bool(left))


def pause(snapshot: Snapshot) -> Snapshot:
    """Nothing stays in flight meanwhile, so the log may go."""
    if snapshot.paused or not snapshot.entries:
        return snapshot
    told = [news_of("PAUSED", e) for e in _first_of_each(snapshot)]
    return replace(grounded(snapshot), paused=True, news=(*snapshot.news, *told))


def resume(snapshot: Snapshot) -> Snapshot:
    if not snapshot.paused:
        return snapshot
    told = [news_of("RESUMED", e) for e in _first_of_each(snapshot)]
    return replace(snapshot, paused=False, news=(*snapshot.news, *told))


def uncover(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """Forget tables that are no longer among those covered."""
    lost = [e.table for e in snapshot.entries if e.table not in names]
    return stop(snapshot, lost) if lost else snapshot


def cover(snapshot: Snapshot, tables: Sequence[tuple[int, Wanted]], *, after: int) -> Snapshot:
    """Snapshot tables that are newly covered. One that was covered before comes back by its marks."""
    seen = {*snapshot.known, *(oid for oid, _ in snapshot.coverage)}
    new = [replace(w, after=after) for oid, w in tables if oid not in seen]
    if snapshot.known and new:
        snapshot = ask(snapshot, f"new-{after}", new, INITIAL)
    return replace(snapshot, known=tuple(oid for oid, _ in tables))


def _first_of_each(snapshot: Snapshot) -> list[Entry]:
    return list({e.id: e for e in reversed(snapshot.entries)}.values())[::-1]
