"""Changes of a table's rows that are not in the log, or that the log tells ambiguously.

`ATTACH PARTITION`, `DETACH PARTITION`, `DROP TABLE` and `TRUNCATE` of one partition write no event of the root.
`ALTER TYPE … RENAME VALUE` changes the text of every stored value, and so does adding or dropping an attribute of a
composite type.

pgoutput identifies columns by name only. If rows and columns both change between two looks at the catalog, a name may
mean two different columns: one may have been replaced by another of its name and type, computed anew without changing
its type, or may have been generated before. A key may have been another one for a while.

All of them show in the catalog. `describe` reads that part of the catalog as a text for each table, and `difference`
compares two of these texts.

Harmless changes give no difference: a new partition that was created as one, an attached partition without rows, a
rewrite of a file that kept its rows (`VACUUM FULL`, `CLUSTER`), a new label of an enum, and a column that is added,
dropped, renamed, retyped or constrained.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any

from tidelog.connectors.postgres.client import Session
from tidelog.contracts import UnloggedChange
from tidelog.errors import TidelogError, TransientError

_PARTITIONED = "SELECT oid::bigint FROM pg_class WHERE oid = ANY(%s) AND relkind = 'p'"

_PARTITIONS = """
WITH RECURSIVE part(root, oid, attached, is_leaving) AS (
    SELECT i.inhparent, i.inhrelid, i.xmin::text, coalesce((to_jsonb(i) ->> 'inhdetachpending')::boolean, false)
      FROM pg_inherits i WHERE i.inhparent = ANY(%s)
    UNION ALL
    SELECT p.root, i.inhrelid, i.xmin::text,
           p.is_leaving OR coalesce((to_jsonb(i) ->> 'inhdetachpending')::boolean, false)
      FROM part p JOIN pg_inherits i ON i.inhparent = p.oid
)
SELECT root::bigint, oid::bigint, coalesce(pg_relation_filenode(oid), 0)::bigint, attached
  FROM part WHERE NOT is_leaving
"""
"""`DETACH PARTITION … CONCURRENTLY` takes two transactions; the root shows no row of the partition after the first."""

_TYPES = """
WITH RECURSIVE used(root, type) AS (
    SELECT a.attrelid, a.atttypid
      FROM pg_attribute a
     WHERE a.attrelid = ANY(%s) AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
    UNION
    SELECT u.root, part.type
      FROM used u JOIN pg_type t ON t.oid = u.type
     CROSS JOIN LATERAL (
           SELECT t.typbasetype WHERE t.typtype = 'd'
           UNION ALL SELECT t.typelem WHERE t.typcategory = 'A'
           UNION ALL SELECT r.rngsubtype FROM pg_range r
                      WHERE t.oid IN (r.rngtypid, (to_jsonb(r) ->> 'rngmultitypid')::oid)
           UNION ALL SELECT a.atttypid FROM pg_attribute a
                      WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
           ) part(type)
     WHERE part.type >= 16384
)
SELECT u.root::bigint, 'labels', e.oid::bigint, e.enumlabel::text
  FROM used u JOIN pg_enum e ON e.enumtypid = u.type
UNION ALL
SELECT u.root::bigint, 'attributes', t.oid::bigint,
       (SELECT string_agg(a.attnum::text, ',' ORDER BY a.attnum)
          FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped)
  FROM used u JOIN pg_type t ON t.oid = u.type AND t.typtype = 'c'
"""
"""Types that were created by users have numbers from 16384 on."""

_TABLES = """
SELECT c.oid::bigint, json_build_object(
       'major', current_setting('server_version_num')::int / 10000,
       'files', CASE WHEN c.relkind <> 'p' THEN json_build_object(c.oid, c.relfilenode::bigint) ELSE (
           WITH RECURSIVE part(oid) AS (
               SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = c.oid
               UNION ALL SELECT i.inhrelid FROM part p JOIN pg_inherits i ON i.inhparent = p.oid
           )
           SELECT json_object_agg(l.oid, l.relfilenode::bigint ORDER BY l.oid)
             FROM part p JOIN pg_class l ON l.oid = p.oid WHERE l.relfilenode <> 0) END,
       'numbers', c.relnatts,
       'primary', (SELECT json_build_array(p.oid::bigint, p.conkey) FROM pg_constraint p
                    WHERE p.conrelid = c.oid AND p.contype = 'p'),
       'identity', (SELECT i.indkey[0:i.indnkeyatts - 1]::int2[] FROM pg_index i
                     WHERE i.indrelid = c.oid AND i.indisreplident AND c.relreplident = 'i'),
       'columns', (SELECT json_object_agg(a.attnum, json_build_array(
                          a.attname, a.atttypid::bigint, a.atttypmod, a.attgenerated <> '', a.xmin::text,
                          hashtextextended(concat_ws('|', a.attacl, a.attnotnull, a.atthasdef, a.attidentity,
                                                     a.attstattarget, a.attstorage, a.attoptions), 0))
                          ORDER BY a.attnum)
                     FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped))::text
  FROM pg_class c
 WHERE c.oid = ANY(%s)
"""
"""One statement, and no function that looks past its snapshot: parts of different moments would hide a change between
them. `relnatts` is the highest number that any column ever had. A primary key is known by its constraint, because
REINDEX CONCURRENTLY gives it another index. A column's digest covers what may be altered without touching a value."""

_MEMBERS = """
SELECT c.oid::bigint, quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relkind = 'r',
       EXISTS (SELECT FROM pg_attribute a JOIN pg_attribute s ON s.attrelid = a.attrelid AND s.attnum = -1
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.xmin = s.xmin AND a.cmin = s.cmin),
       has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE'), c.xmin::text,
       c.relfrozenxid::text, coalesce(i.xmin, c.xmin)::text, age(coalesce(i.xmin, c.xmin))
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
 WHERE c.oid = ANY(%s)
"""
"""ATTACH PARTITION writes the table's own columns anew, and leaves its system columns as they were created."""
_FIRST_PAGES = 1000
_NAMES_MAX = 5


@dataclass(frozen=True)
class _Member:
    """A partition as it is now."""

    oid: int
    name: str
    is_leaf: bool
    is_created_as_partition: bool
    is_readable: bool
    changed: str
    """The transaction that wrote its row of `pg_class` last: the one that named its file, or a later one."""
    frozen: str
    """No transaction before this one has written a row that is not frozen. A new file begins with the oldest
    transaction that was running, and VACUUM may advance it later."""
    attached: str
    """The transaction that made it a partition."""
    attached_age: int
    """How many transactions ago that was."""


def describe(session: Session, ids: Sequence[int]) -> dict[int, str]:
    """For each table, the part of the catalog that shows unlogged changes."""
    texts = dict(session.query(_TABLES, [list(ids)]))
    more: dict[int, dict[str, dict[str, Any]]] = {}
    partitioned = [oid for (oid,) in session.query(_PARTITIONED, [list(ids)])]
    more.update((oid, {"partitions": {}}) for oid in partitioned)
    for root, oid, file, attached in session.query(_PARTITIONS, [partitioned]) if partitioned else []:
        more[root]["partitions"][str(oid)] = [file, attached]
    for root, kind, oid, value in session.query(_TYPES, [list(ids)]):
        shown = _short(value) if kind == "labels" else value
        more.setdefault(root, {}).setdefault(kind, {})[str(oid)] = shown
    for oid, parts in more.items():
        if oid in texts:
            texts[oid] = json.dumps({"table": json.loads(texts[oid]), **parts}, sort_keys=True, separators=(",", ":"))
    return texts


def _short(label: str) -> str:
    return blake2s(label.encode(), digest_size=4).hexdigest()


def difference(session: Session, before: str, now: str) -> UnloggedChange | None:
    """What changed a table's rows between two texts of `describe`; None if nothing did."""
    old, new = json.loads(before), json.loads(now)
    changes = [*_compare_types(old, new)]
    table_before, table_now = _Table.of(old), _Table.of(new)
    if table_before is not None and table_now is not None:
        changes += [*_compare_columns(table_before, table_now), *_compare_key(table_before, table_now)]
    if "partitions" in old and "partitions" in new:
        changes += _compare_partitions(session, old["partitions"], new["partitions"])
    if not changes:
        return None
    reasons = " and ".join(change.reason for change in changes)
    return UnloggedChange(reasons, only_removes=all(change.only_removes for change in changes))


def _compare_types(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[UnloggedChange]:
    changes = []
    if _differ(old.get("labels", {}), new.get("labels", {})):
        changes.append(UnloggedChange("a value of an enum was renamed"))
    if _differ(old.get("attributes", {}), new.get("attributes", {})):
        changes.append(UnloggedChange("a composite type has other attributes"))
    return changes


def _differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """A label or a type that is new, or gone, is no value of a row that was there before."""
    return any(old[oid] != new[oid] for oid in old.keys() & new.keys())


# -- columns -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    name: str
    kind: tuple[int, int]
    """The type, and its modifier."""
    is_generated: bool
    definition: str
    """The transaction that wrote its row of the catalog last."""
    options: int
    """A digest of what can be altered without touching a value: constraints, defaults, privileges, statistics."""


@dataclass(frozen=True)
class _Table:
    """The description of a table itself, out of a text."""

    major: int
    files: Mapping[str, int]
    """Where its rows lie, by the oid of the table or of its partition."""
    highest_number: int
    constraint: int
    """Of the primary key; 0 if the replica identity is another key, or there is none."""
    key: tuple[int, ...]
    """Numbers of the columns that identify a row in the log."""
    columns: Mapping[int, _Column]

    @staticmethod
    def of(text: Mapping[str, Any]) -> _Table | None:
        """None for a text of an earlier version, which did not describe the table."""
        raw = text.get("table", text)
        if "columns" not in raw:
            return None
        columns = {
            int(number): _Column(name, (kind, modifier), is_generated, definition, options)
            for number, (name, kind, modifier, is_generated, definition, options) in (raw["columns"] or {}).items()
        }
        constraint, primary = raw["primary"] or (0, [])
        identity = raw["identity"] or []
        if identity and not (primary and set(primary) <= set(identity)):
            constraint, primary = 0, sorted(identity)
        return _Table(raw["major"], raw["files"] or {}, raw["numbers"], constraint, tuple(primary), columns)


def _is_rewritten(before: _Table, now: _Table) -> bool:
    """Whether rows that were there before lie in another file; a new partition brings a file of its own."""
    return any(before.files[oid] != now.files[oid] for oid in before.files.keys() & now.files.keys())


def _compare_columns(before: _Table, now: _Table) -> Iterator[UnloggedChange]:
    numbers_before = {column.name: number for number, column in before.columns.items()}
    transient = set(range(before.highest_number + 1, now.highest_number + 1)) - now.columns.keys()
    may_be_rewritten = _is_rewritten(before, now) and before.major == now.major
    for number, column in now.columns.items():
        if column.is_generated:  # the log does not carry it
            continue
        earlier = before.columns.get(number)
        if numbers_before.get(column.name, number) != number:
            yield UnloggedChange(f"another column is now called {column.name}")
        elif earlier is None:
            if any(gone < number for gone in transient):
                yield UnloggedChange(f"a column was added and dropped before {column.name}, maybe of the same name")
        elif earlier.is_generated:
            yield UnloggedChange(f"the column {column.name} is no longer generated")
        elif may_be_rewritten and _may_be_computed_anew(earlier, column):
            yield UnloggedChange(f"the values of the column {column.name} may have been rewritten")


def _may_be_computed_anew(before: _Column, now: _Column) -> bool:
    """A type that changed is followed by the log's own description of the table; options explain a new definition."""
    is_same = (before.name, before.kind, before.options) == (now.name, now.kind, now.options)
    return is_same and before.definition != now.definition


def _compare_key(before: _Table, now: _Table) -> Iterator[UnloggedChange]:
    if before.key != now.key:
        yield UnloggedChange("its primary key or replica identity was changed")
        return
    # A key column that gets another type gets another constraint, too; an upgrade of the server gives new numbers.
    kinds_before, kinds = (
        [table.columns[number].kind if number in table.columns else None for number in now.key]
        for table in (before, now)
    )
    is_made_anew = before.constraint != now.constraint and before.constraint and now.constraint
    if is_made_anew and kinds_before == kinds and before.major == now.major:
        yield UnloggedChange("its primary key was made anew")


# -- partitions ----------------------------------------------------------------------------------------------------


def _compare_partitions(session: Session, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[UnloggedChange]:
    """Of each partition, a text holds its file and the transaction that made it a partition; texts that an earlier
    version wrote hold the file alone."""
    before = {
        oid: state if isinstance(state, list) else [state, new.get(oid, [0, ""])[1]] for oid, state in old.items()
    }
    gone = [int(oid) for oid in before if oid not in new]
    added = [int(oid) for oid in new if oid not in before]
    returned = [int(oid) for oid in new if oid in before and before[oid][1] != new[oid][1]]
    rewritten = [int(oid) for oid in new if oid in before and before[oid][0] != new[oid][0]]
    if not (gone or added or returned or rewritten):
        return []
    members = {member.oid: member for member in _members(session, [*gone, *added, *returned, *rewritten])}
    changes = []
    if back := [members[oid] for oid in returned if oid in members]:
        changes.append(UnloggedChange(f"{_named(back)} detached and attached again"))
    if attached := _attached(session, [members[oid] for oid in added if oid in members]):
        changes.append(UnloggedChange(f"{_named(attached)} attached with rows"))
    if gone:
        left = [members[oid] for oid in gone if oid in members]
        detached = [f"{_named(left)} detached"] if left else []
        dropped = [_counted(len(gone) - len(left), "dropped")] if len(gone) > len(left) else []
        changes.append(UnloggedChange(" and ".join([*detached, *dropped]), only_removes=True))
    if truncated := [m for oid in rewritten if (m := members.get(oid)) is not None and not _keeps_rows(session, m)]:
        changes.append(UnloggedChange(f"{_named(truncated)} truncated", only_removes=True))
    return changes


def _members(session: Session, oids: Sequence[int]) -> list[_Member]:
    return [_Member(*row) for row in session.query(_MEMBERS, [list(oids)])]


def _attached(session: Session, added: Sequence[_Member]) -> list[_Member]:
    """Partitions that may have brought rows along. A partition of an attached table was created as one, too."""
    attached = [member for member in added if not member.is_created_as_partition]
    if not attached:
        return []
    last = min(attached, key=lambda member: member.attached_age).attached
    leaves = [member for member in added if member.is_leaf]
    # Rows that were written in the transaction of the ATTACH itself may have been written before it.
    is_old = f"age(xmin) >= age('{last}'::xid)"
    has_none = all(_has_row(session, member, is_old) is False for member in leaves)
    return [] if has_none else attached


def _keeps_rows(session: Session, member: _Member) -> bool:
    """Whether a partition with another file holds a row that is older than that file: then the file was rewritten, and
    not emptied. `VACUUM FULL` and `CLUSTER` keep the transaction ids of rows, and the order of their pages. Where no
    old row is found at the beginning, the keys are compared for nothing, and nothing is lost."""
    if not member.is_leaf:
        return True
    age = f"greatest(age('{member.changed}'::xid), age('{member.frozen}'::xid))"
    return _has_row(session, member, f"age(xmin) > {age} AND ctid < '({_FIRST_PAGES},0)'") is True


def _has_row(session: Session, member: _Member, condition: str) -> bool | None:
    """Whether a partition holds such a row; None if that cannot be read. Ages grow with every transaction, so a
    condition takes all that it compares."""
    try:
        if not session.query("SELECT coalesce(pg_relation_size(%s::oid), 0) > 0", [member.oid])[0][0]:
            return False
        if not member.is_readable:
            return None
        rows = f"SELECT FROM ONLY {member.name} WHERE {condition}"
        return bool(session.query(f"SELECT EXISTS ({rows})")[0][0])
    except TransientError:
        raise
    except TidelogError:  # it is gone, or a policy hides its rows
        return None


def _named(members: Collection[_Member]) -> str:
    names = sorted(member.name for member in members)
    if len(names) == 1:
        return f"the partition {names[0]} was"
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return f"the partitions {', '.join(names[:_NAMES_MAX])}{more} were"


def _counted(count: int, what: str) -> str:
    return f"a partition was {what}" if count == 1 else f"{count} partitions were {what}"
