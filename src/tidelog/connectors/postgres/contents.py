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

Whether a file kept its rows is proved by one that was there when the earlier text was read (`replaced_files`). So the
oldest transaction of that moment, the *horizon*, is kept beside each text.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any

from tidelog.connectors.postgres.client import Session
from tidelog.connectors.postgres.replaced_files import Member, ReplacedFiles, Rows
from tidelog.contracts import CatalogText, UnloggedChange

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
SELECT p.root::bigint, p.oid::bigint, c.relfilenode::bigint, p.attached, c.relpersistence = 'u'
  FROM part p JOIN pg_class c ON c.oid = p.oid
 WHERE NOT p.is_leaving
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
                          a.attname, a.atttypid::bigint, a.atttypmod, a.attgenerated <> '', a.xmin::text)
                          ORDER BY a.attnum)
                     FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped))::text,
       pg_snapshot_xmin(pg_current_snapshot())::text
  FROM pg_class c
 WHERE c.oid = ANY(%s)
"""
"""One statement, and no function that looks past its snapshot: parts of different moments would hide a change between
them. `relnatts` is the highest number that any column ever had. A primary key is known by its constraint, because
REINDEX CONCURRENTLY gives it another index."""

_NAMES_MAX = 5


def describe(session: Session, ids: Sequence[int]) -> dict[int, CatalogText]:
    """For each table, the part of the catalog that shows unlogged changes."""
    texts: dict[int, str] = {}
    horizons: dict[int, str] = {}
    for oid, text, horizon in session.query(_TABLES, [list(ids)]):
        texts[oid], horizons[oid] = text, horizon
    more: dict[int, dict[str, dict[str, Any]]] = {}
    partitioned = [oid for (oid,) in session.query(_PARTITIONED, [list(ids)])]
    more.update((oid, {"partitions": {}}) for oid in partitioned)
    for root, oid, *state in session.query(_PARTITIONS, [partitioned]) if partitioned else []:
        more[root]["partitions"][str(oid)] = state
    for root, kind, oid, value in session.query(_TYPES, [list(ids)]):
        shown = _short(value) if kind == "labels" else value
        more.setdefault(root, {}).setdefault(kind, {})[str(oid)] = shown
    for oid, parts in more.items():
        if oid in texts:
            texts[oid] = json.dumps({"table": json.loads(texts[oid]), **parts}, sort_keys=True, separators=(",", ":"))
    return {oid: CatalogText(text, horizons[oid]) for oid, text in texts.items()}


def _short(label: str) -> str:
    return blake2s(label.encode(), digest_size=4).hexdigest()


def difference(session: Session, before: CatalogText, now: CatalogText) -> UnloggedChange | None:
    """What changed a table's rows between two texts of `describe`; None if nothing did."""
    return _Comparison(session, json.loads(before.text), json.loads(now.text), before.moment).change()


class _Comparison:
    """Of two texts, as JSON."""

    def __init__(self, session: Session, old: Mapping[str, Any], new: Mapping[str, Any], horizon: str) -> None:
        self._old, self._new = old, new
        self._before, self._now = _Table.of(old), _Table.of(new)
        self._files = ReplacedFiles(session, horizon)

    def change(self) -> UnloggedChange | None:
        changes = [*_compare_types(self._old, self._new), *self._compare_tables(), *self._compare_partitions()]
        if not changes:
            return None
        reasons = " and ".join(change.reason for change in changes)
        return UnloggedChange(reasons, only_removes=all(change.only_removes for change in changes))

    # -- tables ----------------------------------------------------------------------------------------------------

    def _compare_tables(self) -> Iterator[UnloggedChange]:
        if self._before is not None and self._now is not None:
            yield from self._compare_columns(self._before, self._now)
            yield from _compare_key(self._before, self._now)

    def _compare_columns(self, before: _Table, now: _Table) -> Iterator[UnloggedChange]:
        numbers_before = {column.name: number for number, column in before.columns.items()}
        transient = set(range(before.highest_number + 1, now.highest_number + 1)) - now.columns.keys()
        redefined = []
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
            elif _is_redefined(earlier, column):
                redefined.append(column.name)
        if redefined and self._are_rewritten(before, now):
            names = f"the column {redefined[0]}" if len(redefined) == 1 else f"the columns {', '.join(redefined)}"
            yield UnloggedChange(f"the values of {names} may have been rewritten")

    def _are_rewritten(self, before: _Table, now: _Table) -> bool:
        """Whether rows that were there before may have other values; a new partition brings a file of its own."""
        if before.major != now.major:  # pg_upgrade gives other numbers
            return False
        replaced = [int(oid) for oid in before.files.keys() & now.files.keys() if before.files[oid] != now.files[oid]]
        return any(self._files.rows(member) == Rows.UNSURE for member in self._files.members(replaced))

    # -- partitions ------------------------------------------------------------------------------------------------

    def _compare_partitions(self) -> Iterator[UnloggedChange]:
        """Of each partition, a text holds its file, the transaction that made it a partition, and whether it is
        unlogged; texts that an earlier version wrote hold the file, or the file and the transaction."""
        if "partitions" not in self._old or "partitions" not in self._new:
            return
        new: Mapping[str, list[Any]] = self._new["partitions"]
        old = {oid: self._state(oid, state) for oid, state in self._old["partitions"].items()}
        gone, added = [oid for oid in old if oid not in new], [oid for oid in new if oid not in old]
        stayed = [oid for oid in new if oid in old]
        if self._is_upgraded():  # pg_upgrade gives other numbers to all that stayed
            stayed = []
        returned = [oid for oid in stayed if old[oid][1] != new[oid][1]]
        toggled = [oid for oid in stayed if old[oid][2] != new[oid][2]]
        replaced = [oid for oid in stayed if old[oid][0] != new[oid][0] and oid not in toggled]
        if back := self._files.members(returned):
            yield UnloggedChange(f"{_named(back)} detached and attached again")
        if attached := self._attached(self._files.members(added)):
            yield UnloggedChange(f"{_named(attached)} attached with rows")
        unlogged = [*self._written_unlogged(self._files.members(added)), *self._files.members(toggled)]
        if logged_again := [member for member in unlogged if not member.is_unlogged]:
            yield UnloggedChange(f"{_named(logged_again)} unlogged for a while")
        if still := [member for member in unlogged if member.is_unlogged]:
            yield UnloggedChange(f"{_named(still)} made unlogged (what changes there is not captured until SET LOGGED)")
        yield from self._gone(gone)
        yield from self._replaced(self._files.members(replaced))

    def _state(self, oid: str, state: Any) -> list[Any]:
        """With what an earlier version did not write as it is now."""
        written = state if isinstance(state, list) else [state]
        return [*written, *self._new["partitions"].get(oid, [0, "", False])[len(written) :]]

    def _is_upgraded(self) -> bool:
        return self._before is not None and self._now is not None and self._before.major != self._now.major

    def _attached(self, added: Sequence[Member]) -> list[Member]:
        """Partitions that may have brought rows along. A partition of an attached table was created as one, too. The
        transactions of rows do not tell whether they were written before the ATTACH: its own may be an old one, and
        may have had others within it."""
        attached = [member for member in added if not member.is_created_as_partition]
        is_empty = all(self._files.has_row(member) is False for member in added if member.is_leaf) if attached else True
        return [] if is_empty else attached

    def _written_unlogged(self, added: Sequence[Member]) -> list[Member]:
        """Partitions that were created as such, and may have got rows that the log does not tell: SET LOGGED replaces
        the file."""
        return [
            member
            for member in added
            if member.is_created_as_partition
            and (member.is_unlogged or (not member.has_first_file and self._files.rows(member) == Rows.UNSURE))
        ]

    def _gone(self, gone: Sequence[str]) -> Iterator[UnloggedChange]:
        if not gone:
            return
        left = self._files.members(gone)
        detached = [f"{_named(left)} detached"] if left else []
        dropped = [_counted(len(gone) - len(left), "dropped")] if len(gone) > len(left) else []
        yield UnloggedChange(" and ".join([*detached, *dropped]), only_removes=True)

    def _replaced(self, members: Sequence[Member]) -> Iterator[UnloggedChange]:
        """The log tells by itself of a new type, for which all rows are written again, too."""
        verdicts = {member: self._files.rows(member) for member in members}
        if emptied := [m for m, rows in verdicts.items() if rows == Rows.REMOVED]:
            yield UnloggedChange(f"{_named(emptied)} truncated", only_removes=True)
        if unsure := [m for m, rows in verdicts.items() if rows == Rows.UNSURE]:
            yield UnloggedChange(f"{_named(unsure)} truncated or rewritten", only_removes=self._is_retyped())

    def _is_retyped(self) -> bool:
        """Whether the new description of the columns explains that all rows were written again."""
        if self._before is None or self._now is None:
            return False
        before = self._before.columns
        return any(n not in before or before[n].kind != column.kind for n, column in self._now.columns.items())


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
            int(number): _Column(name, (kind, modifier), is_generated, definition)
            for number, (name, kind, modifier, is_generated, definition, *_) in (raw["columns"] or {}).items()
        }
        constraint, primary = raw["primary"] or (0, [])
        identity = raw["identity"] or []
        if identity and not (primary and set(primary) <= set(identity)):
            constraint, primary = 0, sorted(identity)
        return _Table(raw["major"], raw["files"] or {}, raw["numbers"], constraint, tuple(primary), columns)


def _is_redefined(before: _Column, now: _Column) -> bool:
    """A type that changed is followed by the log's own description of the table."""
    return (before.name, before.kind) == (now.name, now.kind) and before.definition != now.definition


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


# -- names ---------------------------------------------------------------------------------------------------------


def _named(members: Collection[Member]) -> str:
    names = sorted(member.name for member in members)
    if len(names) == 1:
        return f"the partition {names[0]} was"
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return f"the partitions {', '.join(names[:_NAMES_MAX])}{more} were"


def _counted(count: int, what: str) -> str:
    return f"a partition was {what}" if count == 1 else f"{count} partitions were {what}"
