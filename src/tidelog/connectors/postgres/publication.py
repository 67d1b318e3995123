"""The publication as the catalog has it: which tables' changes are in the log, and whether they always were.

Law: a table's changes are in the log, without a gap, between two looks at the catalog if one and the same row of the
catalog publishes it at both. Each of these rows has a *mark*: its oid and the transaction that wrote it (`xmin`), so a
row that was deleted and inserted again, or changed and changed back, has another mark. A table that two rows publish
(it is listed, and so is its schema) is covered as long as one of them stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidelog.connectors.postgres.client import Session
from tidelog.connectors.postgres.config import Config
from tidelog.connectors.postgres.scene import Scene
from tidelog.connectors.postgres.survey import Relation, quoted
from tidelog.contracts import Finding

OPERATIONS = {"insert": "c", "update": "u", "delete": "d", "truncate": "t"}
"""The operations of a publication, with the letters of `skipped.operations`."""

_PUBLICATION = "SELECT to_jsonb(p), pg_has_role(p.pubowner, 'USAGE') FROM pg_publication p WHERE p.pubname = %s"

_LISTED = """
SELECT n.nspname::text, c.relname::text
  FROM pg_publication p JOIN pg_class c ON c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE p.pubname = %s AND c.oid >= 16384
   AND (EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid)
        OR NOT c.relispartition AND (p.puballtables OR {in_schema}))
"""
_IS_IN_SCHEMA = "EXISTS (SELECT FROM pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = n.oid)"
"""PostgreSQL 15."""

_PARTS = """
SELECT r.prrelid::bigint, to_jsonb(r)->>'prqual' IS NOT NULL, to_jsonb(r)->>'prattrs' IS NOT NULL
  FROM pg_publication_rel r
 WHERE r.prpubid = %s AND r.prrelid = ANY(%s::oid[])
   AND (to_jsonb(r)->>'prqual' IS NOT NULL OR to_jsonb(r)->>'prattrs' IS NOT NULL)
 ORDER BY 1
"""
"""Row filters and column lists, which PostgreSQL has since 15."""

_MARKS = """
SELECT c.oid::bigint, to_jsonb(p), c.relkind = 'p', m.mark
  FROM pg_class c
  JOIN pg_publication p ON p.pubname = %s
  JOIN LATERAL (
       SELECT concat_ws(':', p.oid, p.xmin) AS mark WHERE p.puballtables
        UNION ALL
       SELECT concat_ws(':', 'table', p.oid, p.xmin, r.oid, r.xmin)
         FROM pg_publication_rel r
        WHERE r.prpubid = p.oid AND r.prrelid = c.oid
          AND to_jsonb(r)->>'prqual' IS NULL AND to_jsonb(r)->>'prattrs' IS NULL
        {in_schema}) m ON true
 WHERE c.oid = ANY(%s::oid[])
"""
_IN_SCHEMA = """
        UNION ALL
       SELECT concat_ws(':', 'schema', p.oid, p.xmin, s.oid, s.xmin, d.xmin)
         FROM pg_publication_namespace s
         JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
                         AND d.refclassid = 'pg_namespace'::regclass AND d.refobjid = s.pnnspid
        WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace
"""
"""PostgreSQL 15. The row in pg_depend that ties a table to its schema is written anew when the table moves."""


def marks(session: Session, config: Config, ids: Sequence[int]) -> dict[int, frozenset[str]]:
    """By table, the marks of the rows that publish all of its changes; none where a part of them is left out: by a row
    filter, a column list, an operation that is not published, or because partitions come under their own names."""
    sql = _MARKS.format(in_schema=_IN_SCHEMA if session.version >= 150000 else "")
    found: dict[int, set[str]] = {id: set() for id in ids}
    for id, publication, is_partitioned, mark in session.query(sql, [config.publication, list(ids)]):
        is_whole = not lacking_operations(publication, config.selection.skipped)
        if is_whole and (publication["pubviaroot"] or not is_partitioned):
            found[id].add(mark)
    return {id: frozenset(own) for id, own in found.items()}


def listed_tables(session: Session, name: str) -> set[tuple[str, str]]:
    """Schema and name of the tables that a publication lists, or that its schemas hold. From the catalog's own tables:
    the view `pg_publication_tables` waits for whoever holds a lock on one of them."""
    sql = _LISTED.format(in_schema=_IS_IN_SCHEMA if session.version >= 150000 else "false")
    return set(session.query(sql, [name]))


def lacking_operations(publication: Mapping[str, Any], skipped: Sequence[str]) -> list[str]:
    """The operations that are to be delivered and are not published."""
    return [name for name, letter in OPERATIONS.items() if not publication[f"pub{name}"] and letter not in skipped]


# -- is it what a pipeline needs --------------------------------------------------------------------------------------


def findings(scene: Scene) -> Iterator[Finding]:
    """Whether the publication tells all that is to be captured; errors are what a start refuses."""
    config, name = scene.config, f"publication {scene.config.publication}"
    rows = scene.session.query(_PUBLICATION, [config.publication])
    if not rows:
        yield _without(scene, name)
        return
    publication, owned = rows[0]
    listed = listed_tables(scene.session, config.publication)
    able = scene.role.superuser or (owned and all(r.owned for r in scene.published))
    problems = [
        *_operations(publication, config, name),
        *_root(publication, scene, name),
        *_parts(publication, scene, name),
        *_missing(listed, able, scene, name),
        *(_extra(listed, able, scene, name) if not publication["puballtables"] and publication["pubviaroot"] else ()),
    ]
    yield from problems or [Finding("ok", name, "It exists and publishes the captured tables.")]


def _without(scene: Scene, name: str) -> Finding:
    """What it means that there is no publication, with a slot or without, and whether a start can create it."""
    sql, role = creation(scene.config, scene.published), scene.role
    if scene.slot_works:
        return _dropped(scene, name, sql)
    if scene.config.autocreate == "disabled":
        meaning = "It does not exist, and publication.autocreate.mode is disabled: no change would ever arrive."
        return Finding("error", name, meaning, sql)
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


def _dropped(scene: Scene, name: str, sql: str) -> Finding:
    """The slot is older than any publication of today: what was written in between is not published."""
    slot, config = scene.config.slot, scene.config
    meaning = f"It does not exist, but the slot {slot} does: changes since the publication was dropped are lost."
    create = f"{sql} " if config.autocreate == "disabled" else ""
    cure = (
        "Correct publication.name. Or start over (a new publication alone does not bring the changes back): "
        f"{create}SELECT pg_drop_replication_slot('{slot}'); then `tidelog offsets delete`, and start again: all "
        "tables are read anew."
    )
    return Finding("error", name, meaning, cure)


def creation(config: Config, tables: Sequence[Relation]) -> str:
    """The statement that creates the publication."""
    which = "FOR ALL TABLES"
    if config.autocreate != "all_tables":
        which = f"FOR TABLE {', '.join(r.quoted for r in tables) or '…'}"
    return f"CREATE PUBLICATION {quoted(config.publication)} {which} WITH (publish_via_partition_root = true);"


def _operations(publication: Mapping[str, Any], config: Config, name: str) -> Iterator[Finding]:
    if lacking := lacking_operations(publication, config.selection.skipped):
        cure = f"ALTER PUBLICATION {quoted(config.publication)} SET (publish = 'insert, update, delete, truncate');"
        yield Finding("error", name, f"It leaves out every {' and '.join(lacking)}: the target would differ.", cure)


def _parts(publication: Mapping[str, Any], scene: Scene, name: str) -> Iterator[Finding]:
    """Row filters and column lists: a snapshot reads what they leave out, and the log never tells when it changes."""
    rows = {r.oid: r for r in scene.published}
    found = scene.session.query(_PARTS, [publication["oid"], list(rows)])
    for oid, filters_rows, lists_columns in found:
        table, quoted_name = rows[oid], quoted(scene.config.publication)
        what = " and ".join(w for w, is_set in (("rows", filters_rows), ("columns", lists_columns)) if is_set)
        meaning = f"It publishes only some {what} of {table.qualified}: the log does not tell when others change."
        cure = f"ALTER PUBLICATION {quoted_name} DROP TABLE {table.quoted}; "
        cure += f"ALTER PUBLICATION {quoted_name} ADD TABLE {table.quoted};"
        yield Finding("error", name, meaning, cure)


def _root(publication: Mapping[str, Any], scene: Scene, name: str) -> Iterator[Finding]:
    if not publication["pubviaroot"] and any(r.kind == "p" for r in scene.captured):
        cure = f"ALTER PUBLICATION {quoted(scene.config.publication)} SET (publish_via_partition_root = true);"
        meaning = "It publishes partitions under their own names, not under the partitioned table's."
        yield Finding("error", name, meaning, cure)


def _missing(listed: set[tuple[str, str]], able: bool, scene: Scene, name: str) -> Iterator[Finding]:
    lacking = [r for r in scene.published if (r.schema, r.name) not in listed]
    if not lacking:
        return
    names = ", ".join(r.qualified for r in lacking)
    cure = f"ALTER PUBLICATION {quoted(scene.config.publication)} ADD TABLE {', '.join(r.quoted for r in lacking)};"
    if scene.config.autocreate == "filtered" and able:
        yield Finding("warning", name, f"It lacks {names}; tidelog adds this at the next start.", cure)
    elif scene.signals in lacking:
        yield Finding("error", name, f"It lacks {names}: no signal would ever arrive.", cure)
    elif scene.config.autocreate == "filtered" or set(scene.delivered) <= set(lacking):
        yield Finding("error", name, f"It lacks {names}: their changes do not arrive.", cure)
    else:
        yield Finding("warning", name, f"It lacks {names}: they are left out until a start finds them there.", cure)


def _extra(listed: set[tuple[str, str]], able: bool, scene: Scene, name: str) -> Iterator[Finding]:
    filtered = scene.config.autocreate == "filtered"
    wanted = scene.published if filtered else [*scene.captured, *scene.published]
    extra = sorted(listed - {(r.schema, r.name) for r in wanted})
    if not extra or not scene.captured:
        return
    names = ", ".join(".".join(table) for table in extra)
    tables = ", ".join(r.quoted for r in scene.published)
    cure = f"ALTER PUBLICATION {quoted(scene.config.publication)} SET TABLE {tables};"
    if filtered and not able:
        meaning = f"It also publishes {names}, and {scene.role.name} may not change that, as the mode filtered would."
        yield Finding("error", name, meaning, f"{cure} or: publication.autocreate.mode: disabled")
    else:
        after = "tidelog removes this at the next start" if filtered else "sent by the server, thrown away here"
        yield Finding("warning", name, f"It also publishes {names}: {after}.", cure)
