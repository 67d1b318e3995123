"""Is the server ready for capture? Each finding says what it means and what exactly cures it.

The check only reads. It looks from the outside in: connection, server, role, tables, publication, slot. Whatever was
found before something failed is kept. What concerns single tables is in `survey.py`, what snapshots need in `needs.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tidelog.connectors.postgres import needs, publication, survey
from tidelog.connectors.postgres.client import Session
from tidelog.connectors.postgres.config import Config
from tidelog.connectors.postgres.scene import Scene, lost_reason, observe
from tidelog.connectors.postgres.sqlstate import UNREACHABLE
from tidelog.connectors.postgres.survey import quoted
from tidelog.contracts import Finding
from tidelog.core.settings import size_text
from tidelog.errors import TidelogError

OLDEST, NEWEST = 13, 18
_RETAINED_BYTES_MUCH = 10 << 30
_SAFE_SHARE_LOW = 0.2


def findings(config: Config) -> list[Finding]:
    found: list[Finding] = []
    try:
        with Session(config, application="tidelog check") as session:
            found.append(Finding("ok", "connection", f"{config.user} is logged in to {_where(config)}."))
            found.extend(_version(session.version))
            if config.streaming and (problem := cannot_stream(session.version)):
                found.append(problem)
            scene = observe(session, config)
            for part in _PARTS:
                found.extend(part(scene))
    except TidelogError as exc:
        found.append(Finding("error", "check" if found else "connection", exc.message, exc.hint or UNREACHABLE))
    return found


def room_for_slot(scene: Scene) -> Iterator[Finding]:
    """What would make the creation of a slot fail."""
    yield from _log(scene)
    yield _room_for_slot(scene)


def fit(scene: Scene) -> Iterator[Finding]:
    """Whether each captured table can be captured as the settings want it."""
    selection = scene.config.selection
    yield from survey.twins(scene.captured)
    for relation in scene.captured:
        yield from survey.hidden_key(relation, selection)
        yield from survey.blurred(relation, selection)
        if not relation.told:
            yield survey.without_identity(relation, scene.config.autocreate, alone=not scene.delivered)


def _version(number: int) -> Iterator[Finding]:
    major = number // 10000
    if major < OLDEST:
        yield Finding("error", "version", f"PostgreSQL {major} is too old.", f"Use PostgreSQL {OLDEST} to {NEWEST}.")
    elif major > NEWEST:
        yield Finding(
            "warning",
            "version",
            f"PostgreSQL {major} is newer than what tidelog was tested with.",
            f"Use PostgreSQL {OLDEST} to {NEWEST}, or look for a newer tidelog.",
        )
    else:
        yield Finding("ok", "version", f"PostgreSQL {major} is supported.")


def cannot_stream(number: int) -> Finding | None:
    """Why the server tells nothing of open transactions, if it does not."""
    if number >= 140000:
        return None
    meaning = f"PostgreSQL {number // 10000} sends transactions only once they have committed."
    return Finding("error", "streaming", meaning, "Set streaming to off, or use PostgreSQL 14 or newer.")


def _log(scene: Scene) -> Iterator[Finding]:
    level = scene.settings["wal_level"]
    if level == "logical":
        yield Finding("ok", "wal_level", "The server writes a logical log.")
        return
    cure = "ALTER SYSTEM SET wal_level = 'logical'; then restart the server."
    if "rds.logical_replication" in scene.settings:
        cure = "Set rds.logical_replication = 1 in the parameter group, then reboot the instance."
    yield Finding("error", "wal_level", f"wal_level is {level}: the log does not hold what capture needs.", cure)


def _standby(scene: Scene) -> Iterator[Finding]:
    if not scene.role.standby:
        return
    if scene.session.version < 160000:
        meaning = "The server is a standby, and before PostgreSQL 16 a standby cannot be captured."
        yield Finding("error", "standby", meaning, "Set database.hostname to the primary.")
    elif scene.config.autocreate != "disabled":
        meaning = "The server is a standby: a publication can only be created on its primary."
        yield Finding("warning", "standby", meaning, "Create it on the primary; publication.autocreate.mode: disabled")


def _capacity(scene: Scene) -> Iterator[Finding]:
    yield _room_for_slot(scene)
    senders = scene.session.query("SELECT count(*) FROM pg_stat_replication")[0][0]
    active = bool(scene.slot and scene.slot["active"])
    yield _room("max_wal_senders", "WAL senders", senders, scene, ours=active)


def _room_for_slot(scene: Scene) -> Finding:
    slots = scene.session.query("SELECT count(*) FROM pg_replication_slots")[0][0]
    return _room("max_replication_slots", "replication slots", slots, scene, ours=scene.slot is not None)


def _room(setting: str, things: str, used: int, scene: Scene, *, ours: bool) -> Finding:
    limit = int(scene.settings[setting])
    if ours or used < limit:
        return Finding("ok", setting, f"{used} of {limit} {things} are in use{', one by us' if ours else ''}.")
    cure = f"ALTER SYSTEM SET {setting} = {limit + 10}; then restart the server."
    if setting == "max_replication_slots":
        cure += " Or drop a slot nobody reads: SELECT slot_name FROM pg_replication_slots WHERE NOT active;"
    return Finding("error", setting, f"All {limit} {things} are in use.", cure)


def _role(scene: Scene) -> Iterator[Finding]:
    role = scene.role
    if role.superuser or role.replication or role.rds:
        yield Finding("ok", f"role {role.name}", "It may read the log.")
        return
    cure = f"ALTER ROLE {quoted(role.name)} REPLICATION;"
    if "rds.logical_replication" in scene.settings:
        cure = f"GRANT rds_replication TO {quoted(role.name)};"
    yield Finding("error", f"role {role.name}", "It may not read the log: it lacks REPLICATION.", cure)


def _tables(scene: Scene) -> Iterator[Finding]:
    others = [r for r in scene.relations if r != scene.signals]
    yield from survey.selected(others, scene.captured, scene.config.selection)
    yield from fit(scene)
    for relation in scene.captured:
        if relation.told:
            yield from survey.key(relation, scene.config.selection)
        if relation.kind == "p":
            yield from survey.partitions(scene.session, relation)


def _snapshots(scene: Scene) -> Iterator[Finding]:
    yield from needs.of_signals(scene.config, scene.relations, standby=scene.role.standby)
    yield from needs.reader(scene.session, scene.config, scene.captured, scene.signals)


def _slot(scene: Scene) -> Iterator[Finding]:
    name, slot = f"slot {scene.config.slot}", scene.slot
    if slot is None:
        yield Finding("ok", name, "It does not exist yet; tidelog creates it at the first start.")
        return
    problem = _unfit(slot, scene, name) or _lost(slot, scene, name)
    if problem:
        yield problem
        return
    use = f"in use by process {slot['active_pid']}" if slot["active"] else "not in use"
    yield _retention(slot, scene, name) or Finding(
        "ok", name, f"It is {use} and holds back {size_text(scene.retained)} of the log."
    )


def _unfit(slot: Mapping[str, Any], scene: Scene, name: str) -> Finding | None:
    config = scene.config
    cure = "Set slot.name to another name."
    if slot["slot_type"] != "logical" or slot["plugin"] != "pgoutput":
        return Finding("error", name, f"It belongs to something else ({slot['plugin'] or 'physical'}).", cure)
    if slot["database"] != config.dbname:
        return Finding("error", name, f"It belongs to the database {slot['database']}, not {config.dbname}.", cure)
    if slot.get("temporary"):
        return Finding("error", name, "It is temporary and belongs to another session.", cure)
    return None


def _lost(slot: Mapping[str, Any], scene: Scene, name: str) -> Finding | None:
    reason = lost_reason(slot)
    if not reason:
        return None
    return Finding(
        "error",
        name,
        f"The server gave up on it ({reason}): changes that were not delivered are lost.",
        f"SELECT pg_drop_replication_slot('{scene.config.slot}'); then tidelog offsets delete, and start again: all "
        "tables are read anew.",
    )


def _retention(slot: Mapping[str, Any], scene: Scene, name: str) -> Finding | None:
    limit, safe, held = int(scene.settings["max_slot_wal_keep_size"]), slot["safe_wal_size"], size_text(scene.retained)
    cure = "Start the pipeline, or raise the limit: ALTER SYSTEM SET max_slot_wal_keep_size = '…';"
    if slot["wal_status"] == "unreserved":
        return Finding(
            "warning", name, f"It holds back {held}, past the limit: the server may drop it at any moment.", cure
        )
    if safe is not None and limit > 0 and safe < limit * _SAFE_SHARE_LOW:
        return Finding(
            "warning", name, f"It holds back {held}; after {size_text(safe)} more the server drops it.", cure
        )
    if limit < 0 and scene.retained > _RETAINED_BYTES_MUCH:
        meaning = f"It holds back {held}, without limit: the server's disk may fill."
        return Finding("warning", name, meaning, "Start the pipeline, or drop the slot if nobody needs it.")
    return None


def _timeouts(scene: Scene) -> Iterator[Finding]:
    sender_ms = int(scene.settings["wal_sender_timeout"])
    idle_ms = int(scene.settings.get("idle_replication_slot_timeout", 0))
    if 0 < sender_ms <= scene.config.status_interval_s * 1000:
        meaning = f"The server cuts a reader that is silent for {sender_ms} ms, and we report less often."
        yield Finding("warning", "wal_sender_timeout", meaning, f"status.update.interval.ms: {max(1, sender_ms // 3)}")
    if idle_ms > 0:
        meaning = f"A pipeline that is stopped for {idle_ms // 60000} min loses its slot, and with it changes."
        cure = "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();"
        yield Finding("warning", "idle_replication_slot_timeout", meaning, cure)


def _where(config: Config) -> str:
    return f"{config.dbname} at {config.host}:{config.port}"


_PARTS: tuple[Callable[[Scene], Iterator[Finding]], ...] = (
    _log,
    _standby,
    _capacity,
    _role,
    _tables,
    _snapshots,
    publication.findings,
    _slot,
    _timeouts,
)
