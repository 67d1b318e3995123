"""What the next batch does for the snapshots: which staged chunks it delivers, and which spans it reads.

Pure: the database answers through `World`, so that the connector and a model of a database drive the same code. One
call is one batch. Its result goes into the offset before anything is read or delivered, and a batch that is planned
again after a crash is planned from that offset alone: this is what makes it exactly once.

Laws: a chunk is delivered only when the log is known past it, and its window reaches to the end of the delivering
batch. A chunk whose table has another shape by now is read again. What is in flight is bounded. Only reaching the
maximum ends a table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from tidelog.contracts import Key, Scan
from tidelog.core.snapshot import sizes
from tidelog.core.snapshot.cost import Cost
from tidelog.core.snapshot.state import BLOCKING, INITIAL, Chunk, Emission, Entry, News, Snapshot
from tidelog.core.snapshot.world import Bounds, Manifest, Now, World
from tidelog.errors import ConfigError
from tidelog.model.schema import Table


def advance(snapshot: Snapshot, world: World, now: Now, bounds: Bounds) -> Snapshot:
    """The state at the end of the next batch, from the settled state at its start and the requests since."""
    snapshot = _settle(snapshot, world, now)
    if snapshot.paused or not snapshot.entries:
        return grounded(snapshot) if snapshot.paused else snapshot
    snapshot = _stage(snapshot, world, now, bounds)
    snapshot = _check(snapshot, world)  # after staging: what was read last may have seen another table too
    snapshot = _emit(snapshot, now)
    if now.full:
        snapshot = grounded(snapshot)
    elif not world.rests():
        snapshot = _plan(snapshot, world, now, bounds)
    return _retire(_forget(snapshot))


def _settle(snapshot: Snapshot, world: World, now: Now) -> Snapshot:
    if not snapshot.settling:
        return snapshot
    ends = world.log_end() if any(not until for _, until in snapshot.settling) else 0
    settling = tuple((oid, until or ends) for oid, until in snapshot.settling if not until or until > now.reached)
    return replace(snapshot, settling=settling)


def grounded(snapshot: Snapshot) -> Snapshot:
    """With nothing in flight: the walks go on from their cursors, later."""
    return replace(snapshot, entries=tuple(replace(e, chunks=()) for e in snapshot.entries), windows=())


def walk_of(table: Table, key: Sequence[str]) -> str:
    """What a walk depends on."""
    columns = [(c.name, c.type, c.modifier) for name in key for c in table.columns if c.name == name]
    return hashlib.sha256(json.dumps(columns).encode()).hexdigest()[:12]


def scan_of(entry: Entry, table: Table) -> Scan:
    return Scan(table, entry.key, entry.condition, export=entry.export)


# -- what became of the tables -----------------------------------------------------------------------------------


def _check(snapshot: Snapshot, world: World) -> Snapshot:
    for entry in [e for e in snapshot.entries if e.opened]:
        table = world.present(entry)
        if table is None or table.qualified != entry.table:
            snapshot = end(snapshot, entry, "UNKNOWN_SCHEMA")
        elif walk_of(table, entry.key) != entry.walk or (entry.export and not world.exported(entry.export)):
            snapshot = _put(snapshot, entry, entry.closed())
        else:
            snapshot = _put(snapshot, entry, _current(entry, table.shape, world.logged(entry.oid)))
    return snapshot


def _current(entry: Entry, shape: str, logged: str) -> Entry:
    """Chunks that saw another table than there is now, or than the log has told since, are read again."""
    for chunk in entry.chunks:
        told_since = logged not in (chunk.logged, chunk.shape)
        if chunk.staged and (chunk.shape != shape or told_since):
            entry = _again(entry, chunk, logged)
    return entry


def _again(entry: Entry, chunk: Chunk, logged: str) -> Entry:
    fresh = Chunk(entry.next, chunk.low, chunk.high, chunk.since, logged, keys=chunk.keys)
    chunks = tuple(fresh if c is chunk else c for c in entry.chunks)
    return replace(entry, chunks=chunks, next=entry.next + 1)


# -- staged, emitted ---------------------------------------------------------------------------------------------


def _stage(snapshot: Snapshot, world: World, now: Now, bounds: Bounds) -> Snapshot:
    for entry, chunk in snapshot.planned:
        current = _find(snapshot, entry)
        manifest = world.manifest(entry.name(chunk))
        if current is None or chunk not in current.chunks:
            continue
        if manifest is None:  # its batch is over, so it was read; what was read is lost
            snapshot = _put(snapshot, current, _again(current, chunk, chunk.logged))
        elif manifest.refused:
            snapshot = _refuse(snapshot, current, world, manifest.refused)
        elif manifest.failed:
            snapshot = _put(snapshot, current, _failed(current, chunk, bounds))
        else:
            snapshot = _put(snapshot, current, _staged(current, chunk, manifest, now, bounds))
    return snapshot


def _failed(entry: Entry, chunk: Chunk, bounds: Bounds) -> Entry:
    """Once more from there, by smaller chunks."""
    before = entry.chunks[: entry.chunks.index(chunk)]
    return replace(entry, chunks=before, next=entry.next + 1, size=sizes.smaller(entry.size, bounds))


def _staged(entry: Entry, chunk: Chunk, found: Manifest, now: Now, bounds: Bounds) -> Entry:
    passed = 0 if now.windowed else found.passed
    done = replace(chunk, attempt=found.attempt, passed=passed, rows=found.rows, shape=found.shape)
    chunks = tuple(done if c is chunk else c for c in entry.chunks)
    size = sizes.after(entry.size, found, now.cost, now.readings.get(entry.oid, Cost()), bounds)
    return replace(entry, chunks=chunks, size=size)


def _emit(snapshot: Snapshot, now: Now) -> Snapshot:
    """Contiguous chunks that the log has passed, as long as the batch has room; at least one."""
    taken = 0
    emissions: list[Emission] = []
    windows = dict(snapshot.windows)
    for entry in snapshot.entries:
        while entry.chunks and _passed(entry, chunk := entry.chunks[0], now, windows):
            if emissions and now.rows is not None and taken + chunk.rows > now.rows:
                break
            taken += chunk.rows
            windows.pop(chunk.attempt, None)
            emitted = _emitted(entry, chunk)
            emissions.append(Emission(replace(emitted, chunks=()), chunk))
            snapshot, entry = _put(snapshot, entry, emitted), emitted
    if not emissions:
        return snapshot
    news = [news_of("IN_PROGRESS", e.entry) for e in _last_of_each(emissions)]
    return replace(
        snapshot,
        emitting=tuple(_marked(snapshot, emissions)),
        news=(*snapshot.news, *news),
        windows=tuple(windows.items()),
    )


def _emitted(entry: Entry, chunk: Chunk) -> Entry:
    if chunk.keys:
        return replace(entry, chunks=entry.chunks[1:], swept=True)
    rows, emitted = entry.rows + chunk.rows, entry.emitted + 1
    return replace(entry, chunks=entry.chunks[1:], cursor=chunk.high, rows=rows, emitted=emitted)


def _passed(entry: Entry, chunk: Chunk, now: Now, windows: dict[str, int]) -> bool:
    if not chunk.staged:
        return False
    if entry.kind == BLOCKING:
        return True  # the stream waits: its events come after the rows, and lead to them or past them
    passed = windows.get(chunk.attempt, 0) if now.windowed else chunk.passed
    return 0 < passed <= now.reached


def _last_of_each(emissions: Sequence[Emission]) -> list[Emission]:
    return list({(e.entry.id, e.entry.table): e for e in emissions}.values())


def _marked(snapshot: Snapshot, emissions: Sequence[Emission]) -> list[Emission]:
    """The last chunk of the last initial table is marked. A sweep has no rows: whatever it still does, they are over.
    Whether a table that waits behind is empty is not known yet."""
    open_ones = [e for e in snapshot.entries if e.kind == INITIAL and not e.delivered]
    initial = [e for e in emissions if e.entry.kind == INITIAL and not e.chunk.keys]
    if open_ones or not initial:
        return list(emissions)
    return [replace(e, last=e is initial[-1]) for e in emissions]


# -- planned -----------------------------------------------------------------------------------------------------


def _plan(snapshot: Snapshot, world: World, now: Now, bounds: Bounds) -> Snapshot:
    """Up to `parallelism` spans for this batch, of the first entries; twice as many in flight at most."""
    snapshot = _alone(snapshot) if snapshot.blocking else snapshot
    parallelism = max(1, bounds.parallelism)
    room = min(parallelism - len(snapshot.planned), 2 * parallelism - snapshot.flying)
    for entry in snapshot.entries:
        if room <= 0 or (snapshot.blocking and entry.kind != BLOCKING):
            break
        snapshot, opened = _open(snapshot, entry, world, bounds)
        table = world.present(opened) if opened is not None else None
        if opened is None or table is None:
            continue
        try:
            planned = _longer(opened, table, world, now, sizes.wanted(opened.size, bounds), room)
        except ConfigError as exc:  # a condition may fail at any row
            snapshot = _refuse(snapshot, opened, world, exc.message)
            continue
        snapshot = _put(snapshot, opened, planned)
        room -= len(planned.chunks) - len(opened.chunks)
    return snapshot


def _longer(entry: Entry, table: Table, world: World, now: Now, rows: int, room: int) -> Entry:
    """With the next spans; after the last of them, the sweep if there is one."""
    logged = world.logged(entry.oid)
    if not entry.walked:
        assert entry.maximum is not None
        keys = world.boundaries(scan_of(entry, table), entry.front, entry.maximum, rows, room)
        return _with_spans(entry, keys, now.floor, logged)
    if entry.sweep and not entry.swept and not any(c.keys for c in entry.chunks):
        sweep = Chunk(entry.next, None, None, now.floor, logged, keys=True)
        return replace(entry, chunks=(*entry.chunks, sweep), next=entry.next + 1)
    return entry


def _alone(snapshot: Snapshot) -> Snapshot:
    """While the stream waits, the log passes no chunk: those of others would take the room for ever."""
    entries = tuple(e if e.kind == BLOCKING else replace(e, chunks=()) for e in snapshot.entries)
    return replace(snapshot, entries=entries)


def _with_spans(entry: Entry, keys: Sequence[Key], since: int, logged: str) -> Entry:
    for high in keys:
        chunk = Chunk(entry.next, entry.front, high, since, logged)
        entry = replace(entry, chunks=(*entry.chunks, chunk), next=entry.next + 1)
    return entry


def _open(snapshot: Snapshot, entry: Entry, world: World, bounds: Bounds) -> tuple[Snapshot, Entry | None]:
    """Fix the maximum of an entry whose turn it is; None when it is not ready, or over already."""
    if entry.opened:
        return snapshot, entry
    if entry.after and not world.settled(entry.after):
        return snapshot, None
    table = world.present(entry)
    if table is None:
        return end(snapshot, entry, "UNKNOWN_SCHEMA"), None
    try:
        key = world.walked(table, entry.surrogate)
        scan = Scan(table, key, entry.condition)
        export = "" if key else world.export(scan)  # before the maximum: what it sees lies below that
        maximum = None if entry.only_sweep else world.maximum(scan)
        estimate, row_bytes = world.estimate(scan), world.row_bytes(table)
    except ConfigError as exc:
        return _refuse(snapshot, entry, world, exc.message), None
    if maximum is None and not entry.sweep:
        return end(snapshot, entry, "EMPTY"), None
    opened = replace(
        entry,
        oid=table.id,
        key=key,
        types=",".join(table.column(name).type for name in key),
        walk=walk_of(table, key),
        maximum=maximum,
        export=export,
        estimate=estimate,
        size=sizes.first(row_bytes, bounds),
    )
    return _put(snapshot, entry, opened), opened


def _forget(snapshot: Snapshot) -> Snapshot:
    """Windows of attempts that nobody waits for."""
    since = snapshot.since
    return replace(snapshot, windows=tuple(w for w in snapshot.windows if since is not None and w[1] >= since))


def _retire(snapshot: Snapshot) -> Snapshot:
    for entry in [e for e in snapshot.entries if e.over]:
        snapshot = end(snapshot, entry, "SUCCEEDED")
    return snapshot


# -- small steps -------------------------------------------------------------------------------------------------


def _find(snapshot: Snapshot, entry: Entry) -> Entry | None:
    return next((e for e in snapshot.entries if (e.id, e.table) == (entry.id, entry.table)), None)


def _put(snapshot: Snapshot, old: Entry, new: Entry) -> Snapshot:
    same = (old.id, old.table)
    return replace(snapshot, entries=tuple(new if (e.id, e.table) == same else e for e in snapshot.entries))


def end(snapshot: Snapshot, entry: Entry, status: str, reason: str = "") -> Snapshot:
    """Take an entry out, and tell what became of it; the last of its request ends that too."""
    same = (entry.id, entry.table)
    left = tuple(e for e in snapshot.entries if (e.id, e.table) != same)
    news = [news_of("TABLE_SCAN_COMPLETED", entry, status, reason)]
    if not any(e.id == entry.id for e in left):
        news.append(news_of("COMPLETED", entry))
    settling = snapshot.settling
    if entry.opened and entry.oid not in {oid for oid, _ in settling}:
        settling = (*settling, (entry.oid, 0))
    return replace(snapshot, entries=left, news=(*snapshot.news, *news), settling=settling)


def _refuse(snapshot: Snapshot, entry: Entry, world: World, reason: str) -> Snapshot:
    """A table that can't be read ends its snapshot; one that everybody counts on, all. A table that is gone is no
    wonder: that is told by whoever looks for it. Nor is one that has another key meanwhile: its walk begins anew."""
    table = world.present(entry, again=True)
    if table is None:
        return snapshot
    if entry.opened and walk_of(table, entry.key) != entry.walk:
        return _put(snapshot, entry, entry.closed())
    if entry.kind == INITIAL:
        raise ConfigError(f"The table {entry.table} cannot be read: {reason}")
    return end(snapshot, entry, "SQL_EXCEPTION", reason)


def news_of(type: str, entry: Entry, status: str = "", reason: str = "") -> News:
    return News(
        type,
        entry.id,
        entry.kind,
        table=entry.table,
        status=status,
        reason=reason.rstrip("."),
        rows=entry.rows,
        estimate=entry.estimate,
        key=entry.cursor,
        maximum=entry.maximum,
    )
