"""What the server has for a pipeline: asked once, for `check` and for a start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.connectors.postgres import needs, survey
from tidelog.connectors.postgres.client import Session
from tidelog.connectors.postgres.config import Config
from tidelog.connectors.postgres.survey import Relation

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
    def delivered(self) -> list[Relation]:
        """The captured tables that can be published: the server refuses UPDATE and DELETE on the others once they are,
        so these are left out."""
        return [r for r in self.captured if r.told]

    @property
    def published(self) -> list[Relation]:
        """The tables that belong in the publication."""
        return [*self.delivered, *([self.signals] if self.signals is not None else [])]

    @property
    def slot_works(self) -> bool:
        """Whether there is a slot, and the server still has the log that it needs."""
        return self.slot is not None and not lost_reason(self.slot)


def lost_reason(slot: Mapping[str, Any]) -> str:
    """Why the server gave up a slot; empty if it did not."""
    reason = slot.get("invalidation_reason") or ("conflict" if slot.get("conflicting") else "")
    return reason or ("wal_removed" if slot["wal_status"] == "lost" else "")


def observe(session: Session, config: Config) -> Scene:
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
