"""What the catalog knows of tables: resolved types, keys, and the values that old rows hold in new columns.

The log names types by number and says nothing of keys or defaults; the catalog tells these as they are *now*. So the
log's word on names and types of columns always wins, and the catalog only adds to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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

_COLUMNS = """
WITH RECURSIVE part(root, oid) AS (
    SELECT c.oid, c.oid FROM pg_class c WHERE c.oid = ANY(%s)
    UNION ALL
    SELECT p.root, i.inhrelid FROM part p JOIN pg_inherits i ON i.inhparent = p.oid
), file(root, name) AS (
    SELECT root, coalesce(max(pg_relation_filenode(oid)::bigint)::text, '') FROM part GROUP BY root
)
SELECT a.attrelid, a.attname, a.attnum, a.atttypid, a.atttypmod, a.attnotnull,
       CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1] END,
       a.atthasdef OR a.attidentity <> '', a.atthasmissing, a.attgenerated, f.name, a.xmin::text
  FROM pg_attribute a JOIN file f ON f.root = a.attrelid
 WHERE a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attrelid, a.attnum
"""
"""Of a partitioned table the newest file of its partitions counts. It is looked up no earlier than the column's row: so
a new definition never comes with the file of before."""

_KEYS = """
SELECT DISTINCT ON (i.indrelid) i.indrelid,
       ARRAY(SELECT a.attname::text
               FROM unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY k(attnum, place)
               JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
              ORDER BY k.place)
  FROM pg_index i
 WHERE i.indrelid = ANY(%s) AND i.indisvalid AND (i.indisprimary OR i.indisreplident)
 ORDER BY i.indrelid, i.indisprimary DESC
"""

_TABLES = """
SELECT c.oid, n.nspname, c.relname, c.relreplident
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
   AND n.nspname NOT LIKE 'pg\\_%%' AND n.nspname <> 'information_schema'
 ORDER BY n.nspname, c.relname
"""

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

    def __init__(self, session: Session, selection: Selection) -> None:
        self._session = session
        self._selection = selection
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
            columns = tuple(self._remembered(c, known) for c in relation.columns)
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
        found = [row for row in self._session.query(_TABLES) if self._selection.has_table(row[1], row[2])]
        return self._tables(found)

    def present(self, oids: Sequence[int]) -> list[Table]:
        """These tables as they are now; what is gone is left out."""
        found = [row for row in self._session.query(_TABLES) if row[0] in set(oids)]
        return self._tables(found)

    def changed(self, known: Mapping[int, Table]) -> list[tuple[Table, Table]]:
        """The tables that are no longer as they are known, before and now."""
        pairs = ((known[table.id], table) for table in self.present(list(known)))
        traced = ((before, self._rewrites.trace(now, before)) for before, now in pairs)
        return [(before, now) for before, now in traced if before.shape != now.shape or differ(before, now)]

    def _tables(self, found: Sequence[tuple[int, str, str, str]]) -> list[Table]:
        oids = [row[0] for row in found]
        attributes, keys = self._attributes(oids), self._keys(oids)
        self._learn([a.type_oid for many in attributes.values() for a in many])
        return [
            Table(
                id=oid,
                schema=schema,
                name=name,
                columns=tuple(self._column(_as_relation(a), a) for a in attributes.get(oid, []) if not a.generated),
                key=keys.get(oid, ()),
                old_image=_IDENTITIES[identity],
            )
            for oid, schema, name, identity in found
        ]

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

    def _remembered(self, column: RelationColumn, known: Table | None) -> Column:
        plain = self._column(column, None)
        for before in known.columns if known is not None else ():
            if (before.name, before.type, before.modifier) == (plain.name, plain.type, plain.modifier):
                return before
        return replace(plain, number=UNSURE)

    def _key(self, relation: Relation) -> tuple[str, ...]:
        """The primary key; else the identity that the log itself marks, unless that is the whole row."""
        names = {c.name for c in relation.columns}
        known = self._keys([relation.oid]).get(relation.oid, ())
        if known and names.issuperset(known):
            return known
        if relation.identity == "f":
            return ()
        return tuple(c.name for c in relation.columns if c.in_identity)

    def _attributes(self, oids: Sequence[int]) -> dict[int, list[Attribute]]:
        found: dict[int, list[Attribute]] = {}
        for row in self._session.query(_COLUMNS, [list(oids)]):
            oid, name, number, type_oid, modifier, not_null, fill, default, missing, generated, storage, xmin = row
            rewritten = bool(default and not missing)
            attribute = Attribute(
                name, number, type_oid, modifier, not_null, fill, rewritten, bool(generated), storage, xmin
            )
            found.setdefault(oid, []).append(attribute)
        return found

    def _keys(self, oids: Sequence[int]) -> dict[int, tuple[str, ...]]:
        return {oid: tuple(names) for oid, names in self._session.query(_KEYS, [list(oids)])}

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
