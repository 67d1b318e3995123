"""What the catalog knows of tables: resolved types, keys, and the values that old rows hold in new columns.

The log names types by number and says nothing of keys or defaults; the catalog tells these as they are *now*. So the
log's word on names and types of columns always wins, and the catalog only adds to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelog.connectors.postgres.client import Session
from tidelog.connectors.postgres.rewrites import Rewrites, differ, keep_traces
from tidelog.connectors.postgres.wire import Relation, RelationColumn
from tidelog.model.schema import UNSURE, Column, Table
from tidelog.model.selection import Selection

_KINDS = {"e": "enum", "c": "composite", "r": "range", "m": "multirange"}
_IDENTITIES = {"d": "key", "i": "key", "f": "full", "n": "none"}

_TYPES = """
SELECT t.oid, t.typname, t.typtype, t.typbasetype, t.typtypmod,
       CASE WHEN t.typcategory = 'A' AND t.typname NOT LIKE '%%vector' THEN t.typelem ELSE 0 END
  FROM pg_type t
 WHERE t.oid = ANY(%s)
"""

_FILES = """
WITH RECURSIVE part(root, oid) AS (
    SELECT c.oid, c.oid FROM pg_class c WHERE c.oid = ANY(%s)
    UNION ALL
    SELECT p.root, i.inhrelid FROM part p JOIN pg_inherits i ON i.inhparent = p.oid
), file(root, name) AS (
    SELECT p.root, coalesce(max(nullif(c.relfilenode, 0)::bigint)::text, '')
      FROM part p JOIN pg_class c ON c.oid = p.oid GROUP BY p.root
)
"""
"""Of a partitioned table the newest file of its partitions counts. It comes from the snapshot that shows the columns:
`pg_relation_filenode` looks past it, and an old definition with a new file would hide a change."""

_ATTRIBUTE = """
       a.attname, a.attnum, a.atttypid, a.atttypmod, a.attnotnull,
       CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1] END,
       a.atthasdef OR a.attidentity <> '', a.atthasmissing, a.attgenerated, f.name, a.xmin::text
"""

_COLUMNS = f"""{_FILES}
SELECT a.attrelid, {_ATTRIBUTE}
  FROM pg_attribute a JOIN file f ON f.root = a.attrelid
 WHERE a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attrelid, a.attnum
"""

_KEY = """(
SELECT ARRAY(SELECT a.attname::text
               FROM unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY k(attnum, place)
               JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
              ORDER BY k.place)
  FROM pg_index i
  LEFT JOIN pg_index d ON d.indrelid = c.oid AND d.indisreplident AND d.indisvalid AND c.relreplident = 'i'
 WHERE i.indrelid = c.oid AND i.indisvalid AND (i.indisprimary OR i.indexrelid = d.indexrelid)
   AND (d.indexrelid IS NULL OR i.indexrelid = d.indexrelid
        OR i.indkey[0:i.indnkeyatts - 1]::int2[] <@ d.indkey[0:d.indnkeyatts - 1]::int2[])
 ORDER BY i.indisprimary DESC
 LIMIT 1
)"""
"""The key that deletes carry: the index `d` of REPLICA IDENTITY USING INDEX, or the primary key if that index contains
all of its columns; without such an index, the primary key."""

_KEYS = f"SELECT c.oid, {_KEY} FROM pg_class c WHERE c.oid = ANY(%s)"

_IS_TABLE = """
       c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
   AND n.nspname NOT LIKE 'pg\\_%%' AND n.nspname <> 'information_schema'
"""

_NAMES = f"""
SELECT c.oid, n.nspname, c.relname
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE {_IS_TABLE}
"""

_TABLES = f"""{_FILES}
SELECT c.oid, n.nspname, c.relname, c.relreplident, {_KEY}, {_ATTRIBUTE}
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN file f ON f.root = c.oid
  LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE {_IS_TABLE}
 ORDER BY n.nspname, c.relname, a.attnum
"""
"""In one statement, so that a table that is altered or dropped meanwhile is never seen half."""

_LOCKED = """
SELECT relation FROM pg_locks
 WHERE locktype = 'relation' AND mode = 'AccessExclusiveLock' AND granted
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@dataclass(frozen=True)
class Attribute:
    """A column as the catalog has it now."""

    name: str
    number: int
    type_oid: int
    modifier: int
    not_null: bool
    fill: str | None
    rewritten: bool
    generated: bool
    storage: str
    definition: str


@dataclass(frozen=True)
class Resolved:
    """A type as decoding knows it, and the modifier that a domain brings along."""

    name: str
    modifier: int = -1


_UNKNOWN = Resolved("unknown")


class Catalog:
    """Asks over one session and remembers types: they keep their number for life."""

    def __init__(self, session: Session, selection: Selection, *, slot: str = "") -> None:
        """`slot` names the replication slot whose log is read, if one is."""
        self._session = session
        self._selection = selection
        self._slot = slot
        self._types: dict[int, Resolved] = {}
        self._rewrites = Rewrites()

    def describe(self, relation: Relation, known: Table | None) -> Table:
        """The version of a table that a relation message announces; `known` is the version before it.

        The catalog knows what a column is, beyond its name, only while it still shows the very columns of the
        message. When it has moved on, a column that was known keeps its identity, and that of a new one is unsure."""
        attributes = [a for a in self._attributes([relation.oid]).get(relation.oid, []) if not a.generated]
        self._learn([c.type_oid for c in relation.columns])
        shown = [_as_relation(a) for a in attributes] == [replace(c, in_identity=False) for c in relation.columns]
        if shown:
            columns = tuple(map(self._column, relation.columns, attributes))
        else:
            settled = self._settled(attributes)
            columns = tuple(self._remembered(c, known, settled.get(c.name)) for c in relation.columns)
        table = Table(
            id=relation.oid,
            schema=relation.schema,
            name=relation.name,
            columns=columns,
            key=self._key(relation),
            old_image=_IDENTITIES.get(relation.identity, "key"),
        )
        return table if not shown else keep_traces(self._rewrites.trace(table, known), known)

    def locked(self) -> frozenset[int]:
        """The tables that DDL may be changing, unseen until it commits."""
        return frozenset(int(oid) for (oid,) in self._session.query(_LOCKED))

    def captured(self) -> list[Table]:
        """Every table that the selection takes, as it is now."""
        tables = self.present(list(self.captured_names()))
        return [table for table in tables if self._selection.has_table(table.schema, table.name)]

    def captured_names(self) -> dict[int, str]:
        """The names of the captured tables, without asking for anything else."""
        rows = self._session.query(_NAMES, [])
        return {oid: f"{schema}.{name}" for oid, schema, name in rows if self._selection.has_table(schema, name)}

    def present(self, oids: Sequence[int]) -> list[Table]:
        """These tables as they are now; what is gone is left out."""
        found: dict[int, Table] = {}
        attributes: dict[int, list[Attribute]] = {}
        for oid, schema, name, identity, key, *attribute in self._session.query(_TABLES, [list(oids)]):
            found.setdefault(oid, Table(oid, schema, name, (), tuple(key or ()), _IDENTITIES[identity]))
            attributes.setdefault(oid, []).extend([_attribute(attribute)] if attribute[0] is not None else [])
        self._learn([a.type_oid for many in attributes.values() for a in many])
        return [replace(table, columns=self._columns(attributes[oid])) for oid, table in found.items()]

    def _columns(self, attributes: Sequence[Attribute]) -> tuple[Column, ...]:
        return tuple(self._column(_as_relation(a), a) for a in attributes if not a.generated)

    def changed(self, known: Mapping[int, Table]) -> list[tuple[Table, Table]]:
        """The tables that are no longer as they are known, before and now."""
        pairs = ((known[table.id], table) for table in self.present(list(known)))
        traced = ((before, self._rewrites.trace(now, before)) for before, now in pairs)
        return [(before, now) for before, now in traced if before.shape != now.shape or differ(before, now)]

    def _column(self, column: RelationColumn, attribute: Attribute | None) -> Column:
        resolved = self._types[column.type_oid]
        modifier = column.modifier if column.modifier != -1 else resolved.modifier
        plain = Column(column.name, resolved.name, modifier)
        if attribute is None:
            return plain
        same_type = attribute.type_oid == column.type_oid
        return replace(
            plain,
            nullable=not attribute.not_null,
            number=attribute.number,
            fill=attribute.fill if same_type else None,
            rewritten=attribute.rewritten or not same_type,
            storage=attribute.storage,
            definition=attribute.definition,
        )

    def _remembered(self, column: RelationColumn, known: Table | None, settled: Attribute | None) -> Column:
        plain = self._column(column, None)
        for before in known.columns if known is not None else ():
            if (before.name, before.type, before.modifier) == (plain.name, plain.type, plain.modifier):
                return before
        if settled is not None and _as_relation(settled) == replace(column, in_identity=False):
            return self._column(column, settled)
        return replace(plain, number=UNSURE)

    def _settled(self, attributes: Sequence[Attribute]) -> dict[str, Attribute]:
        """By name, the columns that were defined before everything that the slot can still tell. They have had their
        name all the time, so a column of that name in the log is the same one."""
        found = self._session.query(
            "SELECT catalog_xmin::text FROM pg_replication_slots WHERE slot_name = %s", [self._slot]
        )
        if not found or found[0][0] is None:
            return {}
        oldest = int(found[0][0])
        return {a.name: a for a in attributes if 0 < (oldest - int(a.definition)) % 2**32 < 2**31}

    def _key(self, relation: Relation) -> tuple[str, ...]:
        """The columns that the message marks decide, because the catalog may have moved on since; the catalog gives
        their order, and the primary key where the index of the replica identity contains it."""
        marked = tuple(c.name for c in relation.columns if c.in_identity)
        known = self._keys([relation.oid]).get(relation.oid, ())
        if relation.identity in "di" and marked:
            fits = set(known) == set(marked) or (relation.identity == "i" and known and set(known) <= set(marked))
            return known if fits else marked
        names = {c.name for c in relation.columns}
        return known if known and names.issuperset(known) else ()

    def _attributes(self, oids: Sequence[int]) -> dict[int, list[Attribute]]:
        found: dict[int, list[Attribute]] = {}
        for oid, *attribute in self._session.query(_COLUMNS, [list(oids)]):
            found.setdefault(oid, []).append(_attribute(attribute))
        return found

    def _keys(self, oids: Sequence[int]) -> dict[int, tuple[str, ...]]:
        return {oid: tuple(names) for oid, names in self._session.query(_KEYS, [list(oids)]) if names}

    def _learn(self, oids: Sequence[int]) -> None:
        """Resolve types that are not known yet, with what they are made of."""
        # One that was not to be seen may be by now: what creates it may just have committed.
        missing = sorted(oid for oid in set(oids) if self._types.get(oid, _UNKNOWN) is _UNKNOWN)
        if not missing:
            return
        rows = self._session.query(_TYPES, [missing])
        self._learn([row[3] or row[5] for row in rows if row[3] or row[5]])
        for oid, name, kind, base, modifier, element in rows:
            self._types[oid] = self._resolve(name, kind, base, modifier, element)
        for oid in missing:
            self._types.setdefault(oid, _UNKNOWN)

    def _resolve(self, name: str, kind: str, base: int, modifier: int, element: int) -> Resolved:
        if kind == "d":
            inner = self._types[base]
            return Resolved(inner.name, modifier if modifier != -1 else inner.modifier)
        if element:
            return Resolved(f"{self._types[element].name}[]")
        return Resolved(_KINDS.get(kind, name))


def _as_relation(attribute: Attribute) -> RelationColumn:
    return RelationColumn(attribute.name, attribute.type_oid, attribute.modifier, in_identity=False)


def _attribute(row: Sequence[Any]) -> Attribute:
    name, number, type_oid, modifier, not_null, fill, default, missing, generated, storage, xmin = row
    rewritten = bool(default and not missing)
    return Attribute(name, number, type_oid, modifier, not_null, fill, rewritten, bool(generated), storage, xmin)
