"""What became of the rows of a table whose file was replaced.

TRUNCATE, VACUUM FULL, CLUSTER, SET LOGGED and many forms of ALTER TABLE give a table another file, and the catalog does
not tell which of them did. The rows do, by the transactions that wrote them: VACUUM FULL and CLUSTER keep these, ALTER
TABLE writes all rows again under its own, and TRUNCATE leaves none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from tidelog.connectors.postgres.client import Session
from tidelog.errors import TidelogError, TransientError

_MEMBERS = """
SELECT c.oid::bigint, quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relkind = 'r',
       EXISTS (SELECT FROM pg_attribute a JOIN pg_attribute s ON s.attrelid = a.attrelid AND s.attnum = -1
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.xmin = s.xmin AND a.cmin = s.cmin),
       has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE'), c.relpersistence = 'u',
       c.relfilenode = c.oid, c.xmin::text, c.cmin::text
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = ANY(%s)
"""
"""ATTACH PARTITION writes the table's own columns anew, and leaves its system columns as they were created. A table's
first file has the number of the table."""


@dataclass(frozen=True)
class Member:
    """A table with rows of its own, or a partition, as it is now."""

    oid: int
    name: str
    is_leaf: bool
    is_created_as_partition: bool
    is_readable: bool
    is_unlogged: bool
    has_first_file: bool
    """Its file was never replaced, as TRUNCATE, VACUUM FULL and most rewrites do it."""
    xid: str
    """The transaction that wrote its row of `pg_class` last: the one that named its file, or a later one."""
    command: str
    """The number of that command in its transaction."""


class Rows(Enum):
    """What became of the rows of a file that was replaced."""

    KEPT = auto()
    REMOVED = auto()
    """All of them; those that are there now were inserted later, and the log tells of them."""
    UNSURE = auto()
    """They may have been written again with other values, or while the table was unlogged."""


class ReplacedFiles:
    """Judges tables by their present rows."""

    def __init__(self, session: Session, horizon: str) -> None:
        """`horizon` is the oldest transaction that was running when the tables had their earlier files; empty if that
        is not known."""
        self._session = session
        self._horizon = int(horizon) % 2**32 if horizon else 0
        self._verdicts: dict[int, Rows] = {}

    def members(self, oids: Iterable[str] | Iterable[int]) -> list[Member]:
        """These tables and partitions as they are now; what is gone is left out."""
        wanted = [int(oid) for oid in oids]
        return [Member(*row) for row in self._session.query(_MEMBERS, [wanted])] if wanted else []

    def rows(self, member: Member) -> Rows:
        """What became of the rows of a file that was replaced; asked once."""
        if member.oid not in self._verdicts:
            self._verdicts[member.oid] = self._judge(member)
        return self._verdicts[member.oid]

    def _judge(self, member: Member) -> Rows:
        if not member.is_leaf:
            return Rows.KEPT
        if self.has_row(member) is False:
            return Rows.REMOVED
        if self._horizon and self.has_row(member, f"age(xmin) > age('{self._horizon}'::xid)"):
            return Rows.KEPT
        # ALTER TABLE writes all rows in the command that replaces the file; what is inserted later is in the log.
        age = f"age('{member.xid}'::xid)"
        is_written_with_file = (
            f"age(xmin) NOT BETWEEN 0 AND {age} OR (age(xmin) = {age} AND cmin::text::bigint <= {member.command})"
        )
        is_inserted_later = self.has_row(member, is_written_with_file) is False
        return Rows.REMOVED if is_inserted_later and not member.is_unlogged else Rows.UNSURE

    def has_row(self, member: Member, condition: str = "true") -> bool | None:
        """Whether it holds such a row; None if that cannot be read. Ages grow with every transaction, so a condition
        takes all that it compares."""
        try:
            if not self._session.query("SELECT coalesce(pg_relation_size(%s::oid), 0) > 0", [member.oid])[0][0]:
                return False
            if not member.is_readable:
                return None
            rows = f"SELECT FROM ONLY {member.name} WHERE {condition}"
            return bool(self._session.query(f"SELECT EXISTS ({rows})")[0][0])
        except TransientError:
            raise
        except TidelogError:  # it is gone, or a policy hides its rows
            return None
