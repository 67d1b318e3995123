"""From rows of the log to records: the one way, whether the database gathers transactions or the buffer does.

Rows are sorted into records, undo and the rest, a batch at once; the redo SQL is not looked at. What LogMiner could not
read (STATUS 2 with a reason), what it does not support, and gaps in the log are reported. DDL makes a new version of
its table, under which all rows that follow are told.

Of a table with large objects several rows may tell one change. There an undo is a record as well, and `merging` finds
out what it takes back, because one undo may take back all of them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.connectors.oracle import draft, payload, queries
from tidelog.connectors.oracle.config import Config
from tidelog.connectors.oracle.draft import STEP, Draft
from tidelog.connectors.oracle.redo import rowid
from tidelog.connectors.oracle.row import Ints, Mask, Rows, Texts
from tidelog.connectors.oracle.versions import Versions
from tidelog.contracts import Block
from tidelog.errors import UnsupportedChange
from tidelog.model.record import Op
from tidelog.model.schema import Table

_LOG = logging.getLogger("tidelog.oracle")

UNDO = 4
"""Flag of a payload: the row takes back a change."""
_OPS = np.zeros(256, np.uint8)
_OPS[[queries.INSERT, queries.DELETE, queries.UPDATE]] = [ord(Op.CREATE), ord(Op.DELETE), ord(Op.UPDATE)]
_LARGE = [
    queries.SELECT_LOB_LOCATOR,
    queries.LOB_WRITE,
    queries.LOB_TRIM,
    queries.LOB_ERASE,
    queries.XML_BEGIN,
    queries.XML_WRITE,
    queries.LONG_BEGIN,
    queries.LONG_WRITE,
]
_OPS[_LARGE] = ord(Op.UPDATE)
_TEMPORARY = b"/* No SQL_REDO for temporary tables */"
_TRUNCATE = re.compile(rb"(?:/\*.*?\*/|\s)*truncate\s+table\b", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Sorted:
    """What rows of the log are."""

    table: Ints
    """Index into `versions`; -1: of none that is captured."""
    versions: list[Table]
    op: NDArray[np.uint8]
    record: Mask
    undo: Mask


class Dispatch:
    def __init__(self, versions: Versions, config: Config) -> None:
        self._tables = versions
        self._lob = config.lob
        self._hybrid = config.strategy == "hybrid"
        self._failures = config.selection.failures
        self._flags = payload.SHOWN if config.include_redo_sql else 0
        self._gaps: set[int] = set()

    def pieces(self, rows: Rows) -> Iterator[tuple[int, Rows]]:
        """Cut before each DDL, with the place of each piece: the rows of one piece have the same versions."""
        cuts = np.flatnonzero(rows.code == queries.DDL).tolist()
        edges = sorted({0, *cuts, len(rows)})
        for first, last in pairwise(edges):
            yield first, rows.part(first, last)

    def sort(self, rows: Rows, ignored: Mask) -> Sorted:
        """One piece; of `ignored` rows nothing is wanted."""
        self._report(rows, ignored)
        op = np.where(rows.code < len(_OPS), _OPS[rows.code % len(_OPS)], 0).astype(np.uint8)
        told = (op != 0) & ~ignored
        schema = self._schema(rows) if rows.code[0] == queries.DDL else None
        table, versions = self._tables.of(rows, told)
        undo = told & (rows.rollback != 0) & (table >= 0)
        record = told & (table >= 0) & ~undo & _has_sql(rows)
        record &= self._plain(rows) | self._merged_rows(table, versions)
        record = self._readable(rows, record)
        if schema is not None and not ignored[0]:
            changed, kind = schema
            table[0], op[0], record[0] = len(versions), ord(kind), True
            versions = [*versions, changed]
        return Sorted(table, versions, op, record, undo)

    def emit(self, found: Draft, rows: Rows, kinds: Sorted, keep: Mask, xid: Ints, base: int) -> None:
        """Put the records and undos that are kept into a draft, under these transactions."""
        for index, table in enumerate(kinds.versions):
            mine = keep & (kinds.table == index)
            merged = self._tables.is_merged(table)
            if merged:
                found.merged.add(table.fingerprint)
            places = np.flatnonzero(mine & (kinds.record | (kinds.undo & merged)))
            if len(places):
                found.blocks.append(self._block(table, rows, kinds, places, xid, base))
            if not merged:
                self._undo(found, rows, np.flatnonzero(mine & kinds.undo), xid, base)

    def undo_in(self, found: Draft, rows: Rows, kinds: Sorted, place: int, xid: int, base: int) -> None:
        """One undo, in a transaction that the row does not name."""
        if not self._tables.is_merged(kinds.versions[kinds.table[place]]):
            self._undo(found, rows, np.array([place]), np.full(len(rows), xid), base)

    # -- records -----------------------------------------------------------------------------------------------

    def _block(self, table: Table, rows: Rows, kinds: Sorted, places: Ints, xid: Ints, base: int) -> Block:
        mine = rows.take(places)
        packed = payload.pack(
            code=mine.code,
            sql=pa.array(mine.sql, pa.binary()),
            thread=mine.thread,
            flags=self._flags | np.where(kinds.undo[places], UNDO, 0),
            sequence=mine.sequence,
            ssn=mine.ssn,
            time_us=mine.time_us,
            start_scn=mine.start_scn,
            start_us=mine.start_us,
            rowid=_strings(mine.rowid),
            rs_id=_strings(mine.rs_id),
            user=_strings(mine.user),
            client=_strings(mine.client),
            info=_strings(mine.info),
        )
        return draft.block(
            table,
            key=np.zeros(len(places), np.int64) if self._tables.is_merged(table) else _keys(mine.rowid),
            ordinal=(base + places) * STEP + 1,
            xid=xid[places],
            scn=mine.scn,
            op=kinds.op[places],
            payload=packed,
        )

    def _undo(self, found: Draft, rows: Rows, places: Ints, xid: Ints, base: int) -> None:
        keys = _keys(rows.rowid[places])
        known = keys != 0
        ordinals = (base + places[known]) * STEP + 1
        found.undo(ordinals.tolist(), xid[places[known]].tolist(), keys[known].tolist())

    def _plain(self, rows: Rows) -> Mask:
        return np.isin(rows.code, [queries.INSERT, queries.DELETE, queries.UPDATE])

    def _merged_rows(self, table: Ints, versions: list[Table]) -> Mask:
        """Pieces of large objects count only where they are put together."""
        merged = np.array([*map(self._tables.is_merged, versions), False], np.bool_)
        return merged[table]

    def _schema(self, rows: Rows) -> tuple[Table, Op] | None:
        """What the DDL in the first row is to its table."""
        owner, name, number = rows.owner[0], rows.table[0], int(rows.object[0])
        if rows.sql[0] and _TRUNCATE.match(rows.sql[0]):
            table = self._tables.find(owner, name, number)
            return (table, Op.TRUNCATE) if table is not None else None
        table = self._tables.changed(owner, name, number)
        return (table, Op.SCHEMA) if table is not None else None

    # -- what LogMiner has to say ------------------------------------------------------------------------------

    def _readable(self, rows: Rows, record: Mask) -> Mask:
        """STATUS 2 is no error as long as no reason is given: tables with LONG columns have it, too."""
        for place in np.flatnonzero(record & (rows.status == 2)).tolist():
            info = (rows.info[place] or "").strip()
            if not info or self._hybrid or self._failures == "dead-letter":
                continue  # hybrid: the columns are told by number, and decoding knows their names
            what = f"LogMiner could not read a change of {_named(rows, place)} at SCN {rows.scn[place]}: {info}."
            if self._failures == "fail":
                raise UnsupportedChange(what, hint=_STATUS_HINT)
            _LOG.warning("%s It is left out.", what)
            record[place] = False
        return record

    def _report(self, rows: Rows, ignored: Mask) -> None:
        for place in np.flatnonzero((rows.code == queries.MISSING_SCN) & ~ignored).tolist():
            self._report_gap(int(rows.scn[place]), rows.info[place])
        unsupported = np.flatnonzero((rows.code >= queries.UNSUPPORTED) & ~ignored)
        for place in unsupported.tolist():
            if self._tables.find(rows.owner[place], rows.table[place], int(rows.object[place])) is not None:
                _LOG.warning(
                    "LogMiner does not support a change of %s at SCN %d (%s): it is missing from the events.",
                    _named(rows, place),
                    rows.scn[place],
                    rows.info[place],
                )

    def _report_gap(self, scn: int, info: str | None) -> None:
        """Once: the unbuffered way reads of it in every pass."""
        if scn not in self._gaps:
            self._gaps.add(scn)
            _LOG.warning("The log has a gap at SCN %d: LogMiner says %s.", scn, info)


def _strings(texts: Texts) -> pa.Array:
    return pa.array(texts, pa.string())


def _keys(rowids: Texts) -> Ints:
    return rowid.keys(_strings(rowids))


def _has_sql(rows: Rows) -> Mask:
    sql = rows.sql
    return (sql != None) & (sql != b"") & (sql != _TEMPORARY)  # type: ignore[no-any-return]  # noqa: E711  elementwise


def _named(rows: Rows, place: int) -> str:
    return f"{rows.owner[place]}.{rows.table[place]}"


_STATUS_HINT = (
    "Set log.mining.strategy to hybrid, or event.processing.failure.handling.mode to warn, and take a new snapshot of "
    "the table."
)
