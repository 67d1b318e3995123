"""Joins the rows of the log that tell one change of a table with large objects.

LogMiner tells a large value apart from its row: after the INSERT or UPDATE come rows that begin a value (a locator, an
XML document, a string of 32K) and rows that write it, piece by piece. Rows belong together by the key of their table
row; a value that is begun without such a change before it is an UPDATE of its own. Everything keeps its place in the
transaction, also beside other tables, and comes out at the latest when the transaction ends.

What we decide, where the log is not clear:
- An UPDATE joins the change before it only where Oracle itself has split one change: it sets nothing but large columns,
  and one of the two has no row id yet. Two UPDATEs of a user stay two.
- A value that is begun again in the same change, and written from its first character on, is another change.
- A value is set as a whole by a trim to nothing and pieces, or by pieces from its first place on and a trim to where
  they end. Pieces alone, LOB_ERASE and other LOB_TRIM change a part of a value. If that is not known, the row is told
  all the same, with the value as unavailable, and reported; nothing is lost without a word.
- A value that comes out as it was, because nothing was written, is no change.
- An undo takes back the whole change of its row, with all that was written into it. A row with an empty large value may
  be inserted without a row id, which its undo has all the same: then the newest such INSERT of the table is meant,
  because undo goes from the newest change to the oldest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from tidelog.connectors.oracle import draft, payload, queries
from tidelog.connectors.oracle.dispatch import UNDO
from tidelog.connectors.oracle.held import NO_ROW, Entry, Key, Queue, Target, Written
from tidelog.connectors.oracle.redo import dml, fragments
from tidelog.connectors.oracle.redo.fragments import Begun
from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Value, is_large
from tidelog.contracts import Block
from tidelog.errors import UnsupportedChange
from tidelog.model.record import Op
from tidelog.model.schema import Table

_HELD_BYTES_MAX = 32 << 20
_CUT = re.compile(r"dbms_lob\.(trim|erase)\s*\(\s*\w+\s*,\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)
_TAKES_BACK = {queries.DELETE: Op.CREATE, queries.INSERT: Op.DELETE, queries.UPDATE: Op.UPDATE}
_BEGINS = {
    queries.SELECT_LOB_LOCATOR: fragments.locator,
    queries.XML_BEGIN: fragments.xml_begin,
    queries.LONG_BEGIN: fragments.string_begin,
}


class RowMerging:
    """Of one transaction. `skip`: so many of its events were delivered already. `undone`: some of it may be taken back,
    so nothing is let go before its end."""

    def __init__(self, charset: str = "AL32UTF8", *, skip: int = 0, undone: bool = False) -> None:
        self._charset = charset
        self._skip = skip
        self._holds = undone or skip > 0
        self._held = 0
        self._queues: dict[int, Queue] = {}

    def feed(self, block: Block) -> Sequence[Block]:
        assert block.table is not None
        queue = self._queues.setdefault(block.table.id, Queue())
        for entry, code, flags, row_id in _rows(block, block.table):
            self._held += len(entry.raw)
            self._take(queue, entry, code, flags, row_id)
        if self._holds or self._held < _HELD_BYTES_MAX:
            return []
        self._held = 0
        return self._blocks([entry for each in self._queues.values() for entry in each.release()])

    def close(self) -> Sequence[Block]:
        everything = [entry for queue in self._queues.values() for entry in queue.entries]
        self._queues = {}
        return self._blocks(everything)

    # -- rows --------------------------------------------------------------------------------------------------

    def _take(self, queue: Queue, entry: Entry, code: int, flags: int, row_id: bytes) -> None:
        if flags & UNDO:
            _undo(queue, code, row_id)
        elif code in _TAKES_BACK:
            _change(queue, entry, row_id)
        elif code in _BEGINS:
            _begin(queue, entry, code, row_id)
        elif code == queries.DDL:
            queue.by_key, queue.target = {}, None
            queue.entries.append(entry)
        else:
            self._write(queue, entry, code)

    def _write(self, queue: Queue, entry: Entry, code: int) -> None:
        target = queue.target
        if target is None:
            entry.report("a piece of a large value came without its beginning, and is left out.")
            return
        try:
            self._write_into(queue, target, entry, code)
        except UnsupportedChange as unsupported:
            target.value.unknown = True
            entry.report(unsupported.message)

    def _write_into(self, queue: Queue, target: Target, entry: Entry, code: int) -> None:
        match code:
            case queries.XML_WRITE:
                part = fragments.xml_bytes(entry.sql)
                target.value.document += [part] if part is not None else []
            case queries.LONG_WRITE:
                target.value.pieces.append(fragments.string_write(entry.sql))
            case queries.LOB_WRITE:
                piece = fragments.lob_write(entry.sql)
                if target.again is not None:
                    target = queue.target = self._continued(queue, target, anew=piece.offset == 0)
                target.value.pieces.append(piece)
            case _:
                self._cut(queue, target, entry)

    def _cut(self, queue: Queue, target: Target, entry: Entry) -> None:
        """LOB_TRIM and LOB_ERASE."""
        found = _CUT.search(entry.sql)
        if found is None:
            target.value.unknown = True
            return
        what, amount, offset = found[1].lower(), int(found[2]), int(found[3] or 1) - 1
        if target.again is not None:
            target = queue.target = self._continued(queue, target, anew=what == "trim" and not amount)
        target.value.cut(what, amount, offset, self._charset)

    def _continued(self, queue: Queue, target: Target, *, anew: bool) -> Target:
        """A value that was begun again in the same change: written from the start, it is another change."""
        assert target.again is not None
        if not anew or target.value.is_blank:
            return replace(target, again=None)
        known = target.value.value(self._charset)
        following = _derive(queue, target.again, target.begun, target.row_id)
        following.value.initial = known
        return following

    # -- what comes out ----------------------------------------------------------------------------------------

    def _blocks(self, entries: Iterable[Entry]) -> list[Block]:
        told = [(entry, shown) for entry in entries if not entry.lost and (shown := entry.shown(self._charset))]
        if self._skip:
            told = sorted(told, key=lambda pair: pair[0].ordinal)[self._skip :]
            self._skip = 0
        return [
            _block(table, list(some)) for (_, table), some in groupby(told, key=lambda pair: _version(pair[0].table))
        ]


def _version(table: Table) -> tuple[str, Table]:
    return table.fingerprint, table


def _rows(block: Block, table: Table) -> Iterator[tuple[Entry, int, int, bytes]]:
    """The records of a block one by one, with code, flags and row id."""
    records = block.records
    found = payload.unpack(records.column("payload"))
    names = ("ordinal", "xid", "lsn", "op", "payload")
    columns = [records.column(name).to_pylist() for name in names]
    heads = zip(found.head["code"].tolist(), found.head["flags"].tolist(), found.head["rowid"].tolist(), strict=True)
    for row, sql, (code, flags, row_id) in zip(zip(*columns, strict=True), found.sql.to_pylist(), heads, strict=True):
        ordinal, xid, scn, op, raw = row
        entry = Entry(table, ordinal, xid, scn, Op(chr(op)), raw, len(raw) - len(sql))
        yield entry, code, flags, row_id or NO_ROW


def _block(table: Table, told: Sequence[tuple[Entry, bytes]]) -> Block:
    numbers = np.array([(e.ordinal, e.xid, e.scn) for e, _ in told], np.int64).reshape(len(told), 3)
    return draft.block(
        table,
        key=np.zeros(len(told), np.int64),
        ordinal=numbers[:, 0],
        xid=numbers[:, 1],
        scn=numbers[:, 2],
        op=[ord(entry.op) for entry, _ in told],
        payload=pa.array([shown for _, shown in told], pa.binary()),
    )


# -- changes -------------------------------------------------------------------------------------------------------


def _key(table: Table, row: Mapping[str, Value]) -> Key:
    names = table.key or tuple(c.name for c in table.columns if not is_large(c))
    return tuple(row.get(name) for name in names)


def _change(queue: Queue, entry: Entry, row_id: bytes) -> None:
    queue.target = None
    try:
        change = dml.parse(entry.sql, entry.table)
    except UnsupportedChange:  # decoding says so, and what becomes of it is a setting
        queue.add(entry, None, row_id)
        return
    before, after = change.before, change.after
    known = queue.by_key.pop(_key(entry.table, before), None) if before is not None else None
    if known is not None and after is not None and before is not None and _is_split(known, row_id, before, after):
        assert known.after is not None
        known.after |= {name: value for name, value in after.items() if before[name] != value}
        known.joined = True
        queue.join(known, row_id)
        queue.by_key[_key(entry.table, known.after)] = known
        return
    entry.before, entry.after = (None if image is None else dict(image) for image in (before, after))
    queue.add(entry, None if after is None else _key(entry.table, after), row_id)


def _is_split(known: Entry, row_id: bytes, before: Mapping[str, Value], after: Mapping[str, Value]) -> bool:
    """Whether Oracle has made two statements of one change."""
    if known.lost or known.after is None or not (row_id == NO_ROW or known.rowids == {NO_ROW}):
        return False
    return all(is_large(known.table.column(name)) for name, value in after.items() if before[name] != value)


def _begin(queue: Queue, entry: Entry, code: int, row_id: bytes) -> None:
    begun = _BEGINS[code](entry.sql, entry.table)
    known = queue.find(_key(entry.table, begun.row))
    written = known.values.get(begun.column) if known is not None else None
    again = written is not None and not written.is_fresh
    if known is None or known.after is None or (again and code != queries.SELECT_LOB_LOCATOR):
        _derive(queue, entry, begun, row_id)
    else:
        queue.join(known, row_id)
        queue.target = _target(known, begun, row_id, entry if again else None)


def _derive(queue: Queue, entry: Entry, begun: Begun, row_id: bytes) -> Target:
    """A change of which only the value is told."""
    row = {c.name: begun.row.get(c.name, UNAVAILABLE if is_large(c) else None) for c in entry.table.columns}
    entry.before, entry.after, entry.derived = row, dict(row), True
    queue.add(entry, _key(entry.table, row), row_id)
    queue.target = _target(entry, begun, row_id)
    return queue.target


def _target(entry: Entry, begun: Begun, row_id: bytes, again: Entry | None = None) -> Target:
    entry.joined = True
    entry.values.setdefault(begun.column, Written((entry.after or {}).get(begun.column), binary=begun.binary))
    return Target(entry, begun, row_id, again)


def _undo(queue: Queue, code: int, row_id: bytes) -> None:
    """Take back the newest change of the row that this kind of undo can take back."""
    wanted = _TAKES_BACK.get(code)
    queue.target = None
    if wanted is None or row_id == NO_ROW:
        return
    for entry in reversed(queue.by_rowid.get(row_id, [])):
        if entry.lost:
            continue
        if entry.op is wanted:
            entry.lost = True
            return
        if wanted is Op.UPDATE and entry.op is Op.CREATE and entry.values:
            entry.values.popitem()  # what was written into a new row later on
            return
    unplaced = queue.unplaced() if wanted is Op.CREATE else None
    if unplaced is not None:
        unplaced.lost = True
