"""Is the server ready for capture? Each finding says what it means and what exactly cures it.

The check only reads. It looks from the outside in: connection, server, role, tables, publication, slot. Whatever was
found before something failed is kept. What concerns single tables is in `survey.py`, what snapshots need in `needs.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.connectors.postgres import needs, survey
from tidelog.connectors.postgres.client import Session
from tidelog.connectors.postgres.config import Config
from tidelog.connectors.postgres.sqlstate import UNREACHABLE
from tidelog.connectors.postgres.survey import Relation, quoted
from tidelog.contracts import Finding
from tidelog.core.settings import size_text
from tidelog.errors import ConfigError, TidelogError

OLDEST, NEWEST = 13, 18
_RETAINED_BYTES_MUCH = 10 << 30
_SAFE_SHARE_LOW = 0.2

_SETTINGS = (
    "wal_level",
    "max_replication_slots",
    "max_wal_senders",
    "max_slot_wal_keep_size",
    "wal_sender_timeout",
    "idle_replication_slot_timeout",
    "rds.logical_replication",
)

_ROLE = """
SELECT r.rolname::text, r.rolsuper, r.rolreplication,
       EXISTS (SELECT FROM pg_roles g WHERE g.rolname = 'rds_replication' AND pg_has_role(g.oid, 'MEMBER')),
       has_database_privilege(current_database(), 'CREATE'), pg_is_in_recovery()
FROM pg_roles r WHERE r.rolname = current_user
"""

_SLOT = """
SELECT to_jsonb(s), pg_wal_lsn_diff(
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, s.restart_lsn)::bigint
FROM pg_replication_slots s WHERE s.slot_name = %s
"""

_PUBLICATION = "SELECT to_jsonb(p), pg_has_role(p.pubowner, 'USAGE') FROM pg_publication p WHERE p.pubname = %s"

_PUBLISHED = "SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = %s"


@dataclass(frozen=True)
class Role:
    name: str
    superuser: bool
    replication: bool
    rds: bool
    creates: bool
    standby: bool


@dataclass(frozen=True)
class Scene:
    """What every part of the check may want to know."""

    session: Session
    config: Config
    settings: Mapping[str, int | str]
    role: Role
    relations: Sequence[Relation]
    captured: Sequence[Relation]
    signals: Relation | None
    """The table of signals, which is published and not delivered."""
    slot: Mapping[str, Any] | None
    retained: int

    @property
    def published(self) -> list[Relation]:
        return [*self.captured, *([self.signals] if self.signals is not None else [])]


def findings(config: Config) -> list[Finding]:
    found: list[Finding] = []
    try:
        with Session(config, application="tidelog check") as session:
            found.append(Finding("ok", "connection", f"{config.user} is logged in to {_where(config)}."))
            found.extend(_version(session.version))
            if config.streaming and (problem := cannot_stream(session.version)):
                found.append(problem)
            scene = _scene(session, config)
            for part in _PARTS:
                found.extend(part(scene))
    except TidelogError as exc:
        found.append(Finding("error", "check" if found else "connection", exc.message, exc.hint or UNREACHABLE))
    return found


def require_room_for_slot(session: Session, config: Config) -> None:
    """Raises what would make the creation of a slot fail, before anything is created for it."""
    scene = _scene(session, config)
    for finding in (*_log(scene), _room_for_slot(scene)):
        if finding.level == "error":
            raise ConfigError(finding.meaning, hint=finding.cure)


def _scene(session: Session, config: Config) -> Scene:
    settings = dict(
        session.query(f"SELECT name, {_BASE_UNIT} FROM pg_settings WHERE name = ANY(%s)", [list(_SETTINGS)])
    )
    slots = session.query(_SLOT, [config.slot])
    relations = survey.relations(session)
    signals = needs.signals(config, relations)
    return Scene(
        session=session,
        config=config,
        settings={name: int(text) if text.lstrip("-").isdigit() else text for name, text in settings.items()},
        role=Role(*session.query(_ROLE)[0]),
        relations=relations,
        captured=[r for r in survey.captured(relations, config.selection) if r != signals],
        signals=signals,
        slot=slots[0][0] if slots else None,
        retained=int(slots[0][1] or 0) if slots else 0,
    )


_BASE_UNIT = "CASE unit WHEN 'MB' THEN (setting::bigint << 20)::text WHEN 's' THEN setting || '000' ELSE setting END"
"""Sizes in bytes, durations in milliseconds; -1 and 0 keep their meaning."""


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
    for name, meaning, cure in survey.twins(scene.captured):
        yield Finding("error", f"table {name}", meaning, cure)
    selection = scene.config.selection
    others = [r for r in scene.relations if r != scene.signals]
    yield from survey.selected(others, scene.captured, selection)
    for relation in scene.captured:
        yield from survey.identity(relation, selection)
        yield from survey.blurred(relation, selection)
        if relation.kind == "p":
            yield from survey.partitions(scene.session, relation)


def _snapshots(scene: Scene) -> Iterator[Finding]:
    yield from needs.of_signals(scene.config, scene.relations, standby=scene.role.standby)
    yield from needs.reader(scene.session, scene.config, scene.captured, scene.signals)


def _publication(scene: Scene) -> Iterator[Finding]:
    config, name = scene.config, f"publication {scene.config.publication}"
    rows = scene.session.query(_PUBLICATION, [config.publication])
    if not rows:
        yield _creatable(scene, name)
        return
    publication, owned = rows[0]
    listed = {tuple(row) for row in scene.session.query(_PUBLISHED, [config.publication])}
    able = scene.role.superuser or (owned and all(r.owned for r in scene.published))
    problems = [
        *_operations(publication, config, name),
        *_root(publication, scene, name),
        *_missing(listed, able, scene, name),
        *(_extra(listed, able, scene, name) if not publication["puballtables"] and publication["pubviaroot"] else ()),
    ]
    yield from problems or [Finding("ok", name, "It exists and publishes the captured tables.")]


def _creatable(scene: Scene, name: str) -> Finding:
    """Whether we may create the publication that is missing."""
    sql, role = creation(scene.config, scene.published), scene.role
    if scene.config.autocreate == "disabled":
        return Finding("error", name, "It does not exist, and publication.autocreate.mode is disabled.", sql)
    obstacle = ""
    if scene.config.autocreate == "all_tables" and not role.superuser:
        obstacle = "only a superuser may publish all tables"
    elif not (role.creates or role.superuser):
        obstacle = f"{role.name} may not create publications in this database"
    elif foreign := [r.qualified for r in scene.published if not r.owned]:
        obstacle = f"{role.name} does not own {', '.join(foreign)}"
    if obstacle and not (role.superuser and scene.config.autocreate == "filtered"):
        meaning = f"It does not exist, and tidelog cannot create it: {obstacle}."
        return Finding("error", name, meaning, f"As owner or superuser: {sql}")
    return Finding("ok", name, "It does not exist yet; tidelog creates it at the first start.")


def creation(config: Config, tables: Sequence[Relation]) -> str:
    """The statement that creates the publication."""
    which = "FOR ALL TABLES"
    if config.autocreate != "all_tables":
        which = f"FOR TABLE {', '.join(r.quoted for r in tables) or '…'}"
    return f"CREATE PUBLICATION {quoted(config.publication)} {which} WITH (publish_via_partition_root = true);"


def _operations(publication: Mapping[str, Any], config: Config, name: str) -> Iterator[Finding]:
    letters = {"insert": "c", "update": "u", "delete": "d", "truncate": "t"}
    lacking = [
        o for o, letter in letters.items() if not publication[f"pub{o}"] and letter not in config.selection.skipped
    ]
    if lacking:
        cure = f"ALTER PUBLICATION {quoted(config.publication)} SET (publish = 'insert, update, delete, truncate');"
        yield Finding("error", name, f"It leaves out every {' and '.join(lacking)}: the target would differ.", cure)


def _root(publication: Mapping[str, Any], scene: Scene, name: str) -> Iterator[Finding]:
    if not publication["pubviaroot"] and any(r.kind == "p" for r in scene.captured):
        cure = f"ALTER PUBLICATION {quoted(scene.config.publication)} SET (publish_via_partition_root = true);"
        meaning = "It publishes partitions under their own names, not under the partitioned table's."
        yield Finding("error", name, meaning, cure)


def _missing(listed: set[tuple[str, ...]], able: bool, scene: Scene, name: str) -> Iterator[Finding]:
    lacking = [r for r in scene.published if (r.schema, r.name) not in listed]
    if not lacking:
        return
    names = ", ".join(r.qualified for r in lacking)
    cure = f"ALTER PUBLICATION {quoted(scene.config.publication)} ADD TABLE {', '.join(r.quoted for r in lacking)};"
    if scene.config.autocreate == "filtered" and able:
        yield Finding("warning", name, f"It lacks {names}; tidelog adds this at the next start.", cure)
    else:
        yield Finding("error", name, f"It lacks {names}: their changes do not arrive.", cure)


def _extra(listed: set[tuple[str, ...]], able: bool, scene: Scene, name: str) -> Iterator[Finding]:
    extra = sorted(listed - {(r.schema, r.name) for r in scene.published})
    if not extra or not scene.captured:
        return
    names, filtered = ", ".join(".".join(table) for table in extra), scene.config.autocreate == "filtered"
    tables = ", ".join(r.quoted for r in scene.published)
    cure = f"ALTER PUBLICATION {quoted(scene.config.publication)} SET TABLE {tables};"
    if filtered and not able:
        meaning = f"It also publishes {names}, and {scene.role.name} may not change that, as the mode filtered would."
        yield Finding("error", name, meaning, f"{cure} or: publication.autocreate.mode: disabled")
    else:
        after = "tidelog removes this at the next start" if filtered else "sent by the server, thrown away here"
        yield Finding("warning", name, f"It also publishes {names}: {after}.", cure)


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
    reason = slot.get("invalidation_reason") or ("conflict" if slot.get("conflicting") else "")
    if slot["wal_status"] != "lost" and not reason:
        return None
    return Finding(
        "error",
        name,
        f"The server gave up on it ({reason or 'wal_removed'}): changes that were not delivered are lost.",
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
    _publication,
    _slot,
    _timeouts,
)
