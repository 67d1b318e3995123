"""The tables as `check` sees them: which are captured, may we read them, and does a change tell which row it is about.

`relations` asks the catalog; everything else is pure. A table is captured if it is ordinary or the root of a
partitioned one, writes to the log, and the lists select it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidelog.connectors.postgres.client import Session
from tidelog.contracts import Finding
from tidelog.core.requirements import excluded_key
from tidelog.core.settings import nearest
from tidelog.core.unmatched import find_unmatched
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

_RELATIONS = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text,
       c.relreplident::text, c.relispartition, pg_has_role(c.relowner, 'USAGE'), has_schema_privilege(n.oid, 'USAGE'),
       ARRAY(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
       CASE WHEN has_table_privilege(c.oid, 'SELECT') THEN ARRAY[]::text[]
            ELSE ARRAY(SELECT a.attname::text FROM pg_attribute a
                       WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                         AND NOT has_column_privilege(c.oid, a.attnum, 'SELECT')) END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND n.nspname !~ '^pg_toast_temp_'
ORDER BY 2, 3
"""

_INDEXES = """
SELECT i.indrelid::bigint, i.indisprimary, i.indisreplident, i.indimmediate AND i.indisvalid,
       ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY k (number, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
             WHERE k.place <= i.indnkeyatts ORDER BY k.place)
FROM pg_index i WHERE i.indisprimary OR i.indisreplident
"""

_LEAVES = """
SELECT quote_ident(n.nspname) || '.' || quote_ident(l.relname), l.relreplident::text, l.relpersistence = 'u'
FROM pg_partition_tree(%s::oid::regclass) t
JOIN pg_class l ON l.oid = t.relid JOIN pg_namespace n ON n.oid = l.relnamespace
WHERE t.isleaf ORDER BY 1
"""


@dataclass(frozen=True)
class Relation:
    oid: int
    schema: str
    name: str
    kind: str
    """As `pg_class.relkind`: r ordinary, p partitioned, f foreign."""
    persistence: str
    """As `pg_class.relpersistence`: p permanent, u unlogged, t temporary."""
    identity: str
    """As `pg_class.relreplident`: d default, f full, i index, n nothing."""
    partition: bool
    owned: bool
    usable: bool
    """The role may use the schema."""
    columns: tuple[str, ...]
    unreadable: tuple[str, ...]
    """Columns that the role may not select."""
    primary: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    """The columns that the log tells of a row that was updated or deleted."""

    @property
    def qualified(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key; but the replica identity's index where the log tells that one instead."""
        has_other_index = self.identity == "i" and not (self.primary and set(self.primary) <= set(self.told))
        return self.told if has_other_index else self.primary

    def as_table(self) -> Table:
        columns = tuple(Column(name, "") for name in self.columns)
        old_image = "full" if self.identity == "f" else "key"
        return Table(self.oid, self.schema, self.name, columns, self.key, old_image)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def relations(session: Session) -> list[Relation]:
    """Every table of the database that a list might mean."""
    primary: dict[int, tuple[str, ...]] = {}
    immediate: dict[int, tuple[str, ...]] = {}
    chosen: dict[int, tuple[str, ...]] = {}
    for oid, is_primary, is_chosen, works, columns in session.query(_INDEXES):
        if is_primary:
            primary[oid] = tuple(columns)
        if is_primary and works:
            immediate[oid] = tuple(columns)
        if is_chosen and works:
            chosen[oid] = tuple(columns)
    found = []
    for row in session.query(_RELATIONS):
        oid, schema, name, kind, persistence, identity, partition, owned, usable, columns, unreadable = row
        told = {"d": immediate.get(oid, ()), "i": chosen.get(oid, ()), "f": tuple(columns)}.get(identity, ())
        place = (oid, schema, name, kind, persistence, identity, partition, owned, usable)
        found.append(Relation(*place, tuple(columns), tuple(unreadable), primary.get(oid, ()), told))
    return found


def captured(relations: Sequence[Relation], selection: Selection) -> list[Relation]:
    return [
        r
        for r in relations
        if r.kind in "rp" and r.persistence == "p" and not r.partition and selection.has_table(r.schema, r.name)
    ]


def unmatched(relations: Sequence[Relation], selection: Selection) -> Iterator[Finding]:
    """The entries of lists that match nothing."""
    level = "warning" if captured(relations, selection) else "error"
    tables = [r.as_table() for r in relations if r.persistence != "t"]
    for entry in find_unmatched(selection, tables):
        is_hopeless = entry.setting == "table.include.list" and not entry.nearest
        cure = f"Tables are: {_some([table.qualified for table in tables])}." if is_hopeless else entry.cure
        yield Finding(level, entry.setting, entry.meaning, cure)


def selected(relations: Sequence[Relation], captured: Sequence[Relation], selection: Selection) -> Iterator[Finding]:
    """Whether the lists mean what they say."""
    missing = list(unmatched(relations, selection))
    yield from missing
    if captured:
        yield Finding("ok", "tables", f"{len(captured)} captured: {_some([r.qualified for r in captured])}.")
    elif not missing:
        names = [r.qualified for r in relations if r.persistence != "t"]
        cure = f"Check the include and exclude lists; tables are: {_some(names)}."
        yield Finding("error", "tables", "No table is captured.", cure)
    yield from _unfit(relations, selection)


def _unfit(relations: Sequence[Relation], selection: Selection) -> Iterator[Finding]:
    """Tables that the lists select and that cannot be captured."""
    for r in relations:
        if not selection.has_table(r.schema, r.name) or (r.persistence == "t" and not selection.include_tables):
            continue
        if r.kind == "f":
            yield _left_out(r, "is a foreign table: its changes are in another server's log", "Capture it there.")
        elif r.persistence == "t":
            yield _left_out(r, "is temporary: its changes are in no log", "Leave it out of table.include.list.")
        elif r.persistence == "u":
            yield _left_out(r, "is unlogged: its changes are in no log", f"ALTER TABLE {r.quoted} SET LOGGED;")
        elif r.partition and selection.include_tables and not _with_root(r, relations, selection):
            cure = "Name the partitioned table in table.include.list."
            yield _left_out(r, "is a partition: its changes arrive under the partitioned table's name", cure)


def _with_root(partition: Relation, relations: Sequence[Relation], selection: Selection) -> bool:
    return any(
        r.kind == "p" and not r.partition and r.schema == partition.schema and selection.has_table(r.schema, r.name)
        for r in relations
    )


def _left_out(relation: Relation, why: str, cure: str) -> Finding:
    return Finding("warning", f"table {relation.qualified}", f"It is not captured: it {why}.", cure)


def grants(relations: Sequence[Relation], role: str, selection: Selection) -> Iterator[Finding]:
    """What the role lacks to read these tables: one finding for each schema, whatever the number of its tables."""
    for schema in dict.fromkeys(r.schema for r in relations if not r.usable):
        cure = f"GRANT USAGE ON SCHEMA {quoted(schema)} TO {quoted(role)};"
        yield Finding("error", f"schema {schema}", f"{role} may not use it.", cure)
    unreadable = [r for r in relations if {c.name for c in selection.columns_of(r.as_table())} & set(r.unreadable)]
    for schema in dict.fromkeys(r.schema for r in unreadable):
        tables = [r for r in unreadable if r.schema == schema]
        meaning = f"{role} may not read {_some([r.qualified for r in tables])}: snapshots and verify need that."
        cure = f"GRANT SELECT ON {', '.join(r.quoted for r in tables)} TO {quoted(role)};"
        subject = f"table {tables[0].qualified}" if len(tables) == 1 else f"tables of {schema}"
        yield Finding("error", subject, meaning, cure)


def key(relation: Relation, selection: Selection) -> Iterator[Finding]:
    """Whether a change tells which row it is about."""
    table, subject = relation.as_table(), f"table {relation.qualified}"
    names = selection.key_of(table)
    unknown = [c for c in names if c not in relation.columns]
    if unknown:
        near = nearest(unknown[0], relation.columns)
        cure = f"message.key.columns: did you mean {near}?" if near else f"Its columns are {_some(relation.columns)}."
        yield Finding("error", subject, f"message.key.columns names {unknown[0]}, which it does not have.", cure)
    elif not names:
        yield Finding(
            "warning",
            subject,
            "It has no key: the delta sink refuses it, the history sink takes it.",
            f"{_add_key(relation)} or: message.key.columns: {relation.qualified}:column",
        )
    elif not set(names) <= set(relation.told):
        lacking = ", ".join(c for c in names if c not in relation.told)
        meaning = f"A delete in the log does not tell {lacking}, which belongs to its key."
        yield Finding("error", subject, meaning, _full(relation))


def without_identity(relation: Relation, autocreate: str, *, alone: bool) -> Finding:
    """A table without a replica identity: tidelog does not publish it, and captures the others. `alone`: there are no
    others."""
    meaning = "It has no key that the log can use: once published, the server refuses every UPDATE and DELETE on it"
    cure = f"{_add_key(relation)} or: {_full(relation)}" if not relation.primary else _full(relation)
    if autocreate != "filtered":
        return Finding("warning", f"table {relation.qualified}", f"{meaning}.", cure)
    level = "error" if alone else "warning"
    return Finding(level, f"table {relation.qualified}", f"{meaning}, so it is left out.", cure)


def _full(relation: Relation) -> str:
    return f"ALTER TABLE {relation.quoted} REPLICA IDENTITY FULL;"


def hidden_key(relation: Relation, selection: Selection) -> Iterator[Finding]:
    """Whether a column that is to be left out belongs to the key, which is always delivered."""
    if obstacle := excluded_key(relation.as_table(), selection):
        yield Finding("error", f"table {relation.qualified}", obstacle.reason, obstacle.cure)


def blurred(relation: Relation, selection: Selection) -> Iterator[Finding]:
    """Whether two rows would get one key."""
    if names := selection.blurred_keys(relation.as_table()):
        yield Finding("error", f"table {relation.qualified}", *blurred_key(names))


def blurred_key(names: Sequence[str]) -> tuple[str, str]:
    """What it means when a rule makes different keys the same, and what cures it."""
    column = ", ".join(names)
    meaning = (
        f"Its key column {column} is masked or truncated: different rows would get the same key, and overwrite each "
        "other in the target."
    )
    cure = (
        "Hash it instead (column.mask.hash.SHA-256.with.salt.…), or leave it out (column.exclude.list) and name "
        "another key (message.key.columns)."
    )
    return meaning, cure


def twins(tables: Sequence[Relation]) -> Iterator[Finding]:
    """Names that two tables share once they are written with a dot."""
    counted = Counter(t.qualified for t in tables)
    for name in sorted(n for n, times in counted.items() if times > 1):
        meaning = f"{counted[name]} tables are called {name}, because a schema or a table has a dot in its name."
        cure = "Capture one of them only (schema.include.list, schema.exclude.list), or rename one."
        yield Finding("error", f"table {name}", meaning, cure)


def _add_key(relation: Relation) -> str:
    return f"ALTER TABLE {relation.quoted} ADD PRIMARY KEY (…);"


def partitions(session: Session, relation: Relation) -> Iterator[Finding]:
    """What the log tells is decided by each partition, and the root's settings do not reach them."""
    leaves = session.query(_LEAVES, [relation.oid])
    if unlike := [name for name, identity, _ in leaves if identity != relation.identity]:
        setting = {"d": "DEFAULT", "f": "FULL", "n": "NOTHING"}.get(relation.identity, "USING INDEX …")
        cure = " ".join(f"ALTER TABLE {name} REPLICA IDENTITY {setting};" for name in unlike)
        meaning = f"{len(unlike)} of its partitions have another replica identity: {_some(unlike)}."
        yield Finding("warning", f"table {relation.qualified}", meaning, cure)
    if unlogged := [name for name, _, is_unlogged in leaves if is_unlogged]:
        cure = " ".join(f"ALTER TABLE {name} SET LOGGED;" for name in unlogged)
        meaning = f"Changes in {len(unlogged)} of its partitions are in no log: {_some(unlogged)} (unlogged)."
        yield Finding("warning", f"table {relation.qualified}", meaning, cure)


def _some(names: Sequence[str], limit: int = 8) -> str:
    shown = ", ".join(names[:limit]) or "none"
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
