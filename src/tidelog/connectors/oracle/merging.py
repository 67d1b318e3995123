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

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from tidelog.connectors.oracle import draft, payload, queries
from tidelog.connectors.oracle.dispatch import UNDO
from tidelog.connectors.oracle.redo import charsets, dml, fragments, lobs, rowid
from tidelog.connectors.oracle.redo.dml import wrong
from tidelog.connectors.oracle.redo.fragments import Begun, Piece
from tidelog.connectors.oracle.redo.literals import hex_digits, is_empty
from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Change, Sql, Value, is_large
from tidelog.contracts import Block
from tidelog.errors import UnsupportedChange
from tidelog.model.record import Op
from tidelog.model.schema import Table

_LOG = logging.getLogger("tidelog.oracle")
_HELD_BYTES_MAX = 32 << 20
_CUT = re.compile(r"dbms_lob\.(trim|erase)\s*\(\s*\w+\s*,\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)
_TAKES_BACK = {queries.DELETE: Op.CREATE, queries.INSERT: Op.DELETE, queries.UPDATE: Op.UPDATE}
_NO_ROW = rowid.NONE.encode()
_UTF16 = "utf-16-le"
_EMPTY = {False: "EMPTY_CLOB()", True: "EMPTY_BLOB()"}
_BEGINS = {
    queries.SELECT_LOB_LOCATOR: fragments.locator,
    queries.XML_BEGIN: fragments.xml_begin,
    queries.LONG_BEGIN: fragments.string_begin,
}

Row = dict[str, Value]
Key = tuple[Value, ...]


@dataclass
class Written:
    """A value that is written in pieces."""

    initial: Value
    pieces: list[Piece] = field(default_factory=list)
    document: list[str | bytes] = field(default_factory=list)
    """Of XML: it may be cut inside a character."""
    binary: bool = False
    unknown: bool = False
    was_cut: bool = False

    def value(self, charset: str) -> Value:
        if self.unknown:
            return UNAVAILABLE
        if self.document:
            raw = b"".join(part for part in self.document if isinstance(part, bytes))
            return charsets.decode(raw, charset) + "".join(part for part in self.document if isinstance(part, str))
        return lobs.written(self.initial, self.pieces)

    @property
    def is_fresh(self) -> bool:
        return not (self.pieces or self.document or self.unknown or self.was_cut)

    @property
    def is_blank(self) -> bool:
        """Cut, and nothing was written since."""
        return self.was_cut and not self.pieces

    def cut(self, what: str, amount: int, offset: int, charset: str) -> None:
        """Trim to `amount`, or erase so much from `offset` on."""
        now = self.value(charset)
        if what == "trim" and not amount:
            now, self.unknown = Sql(_EMPTY[self.binary]), False
        elif what == "trim" and now is UNAVAILABLE and not self.unknown:
            now = lobs.beginning(self.pieces, amount)
        if not isinstance(now, str):
            self.unknown = True
            return
        empty = isinstance(now, Sql) and is_empty(now)
        self.initial, self.pieces, self.was_cut = now if empty else _cut(now, what, amount, offset), [], True


@dataclass(eq=False)
class Entry:
    """A change on its way: where it stands, and what is known of it. One without images passes as it came."""

    table: Table
    ordinal: int
    xid: int
    scn: int
    op: Op
    raw: bytes
    prefix: int
    """So much of `raw` comes before the redo SQL."""
    before: Row | None = None
    after: Row | None = None
    values: dict[str, Written] = field(default_factory=dict)
    rowids: set[bytes] = field(default_factory=set)
    joined: bool = False
    """Told by more than one row."""
    derived: bool = False
    """There was no INSERT or UPDATE: a value was begun, and that was all."""
    lost: bool = False

    @property
    def sql(self) -> str:
        try:
            return self.raw[self.prefix :].decode()
        except UnicodeDecodeError:
            raise wrong("it is no valid UTF-8") from None

    def image(self, charset: str) -> Change:
        told = {name: written.value(charset) for name, written in self.values.items() if not written.is_fresh}
        return Change(self.op, self.before, {**(self.after or {}), **told})

    def shown(self, charset: str) -> bytes | None:
        """The payload; None if nothing has changed."""
        if not self.joined:
            return self.raw
        change = self.image(charset)
        spoilt = [name for name, w in self.values.items() if not w.is_fresh and w.value(charset) is UNAVAILABLE]
        for name in spoilt:
            _report(self, f"{name} was changed in place, and its value is not known: it is told as unavailable.")
        if self.derived and change.before == change.after and not spoilt:
            return None
        return payload.MERGED.to_bytes(2, "little") + self.raw[2 : self.prefix] + payload.merged(change).encode()


def _report(entry: Entry, what: str) -> None:
    _LOG.warning("At SCN %d, in %s: %s", entry.scn, entry.table.qualified, what)


@dataclass
class Target:
    """The value that is being written."""

    entry: Entry
    begun: Begun
    row_id: bytes
    again: Entry | None = None
    """The row that began it once more, in the same change."""

    @property
    def value(self) -> Written:
        return self.entry.values[self.begun.column]


@dataclass
class Queue:
    """The changes of one table, in the order of the log."""

    entries: list[Entry] = field(default_factory=list)
    by_key: dict[Key, Entry] = field(default_factory=dict)
    by_rowid: dict[bytes, list[Entry]] = field(default_factory=dict)
    target: Target | None = None

    def add(self, entry: Entry, key: Key | None, row_id: bytes) -> None:
        self.entries.append(entry)
        self.join(entry, row_id)
        if key is not None:
            self.by_key[key] = entry

    def join(self, entry: Entry, row_id: bytes) -> None:
        if row_id not in entry.rowids:
            entry.rowids.add(row_id)
            self.by_rowid.setdefault(row_id, []).append(entry)

    def find(self, key: Key) -> Entry | None:
        found = self.by_key.get(key)
        return None if found is None or found.lost else found

    def unplaced(self) -> Entry | None:
        """The newest new row for which the log has told no row id; those that are passed over never will be one."""
        nameless = self.by_rowid.get(_NO_ROW, [])
        while nameless:
            entry = nameless.pop()
            if entry.op is Op.CREATE and not entry.lost and entry.rowids == {_NO_ROW}:
                return entry
        return None

    def release(self) -> list[Entry]:
        """All before the value that is being written. What comes later for their rows is a change of its own."""
        last = self.entries.index(self.target.entry) if self.target is not None else len(self.entries)
        done, self.entries = self.entries[:last], self.entries[last:]
        self.by_key, self.by_rowid = {}, {}
        return done


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
            _report(entry, "a piece of a large value came without its beginning, and is left out.")
            return
        try:
            self._write_into(queue, target, entry, code)
        except UnsupportedChange as unsupported:
            target.value.unknown = True
            _report(entry, unsupported.message)

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
        yield entry, code, flags, row_id or _NO_ROW


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
    if known.lost or known.after is None or not (row_id == _NO_ROW or known.rowids == {_NO_ROW}):
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
    if wanted is None or row_id == _NO_ROW:
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


def _cut(value: str, what: str, amount: int, offset: int) -> Value:
    """A text or `HEXTORAW('…')`, trimmed to `amount`, or with so much of it blank from `offset` on."""
    digits = hex_digits(value) if isinstance(value, Sql) else None
    unit, blank = (1, b"\0") if digits is not None else (2, b" \0")
    content = bytes.fromhex(digits) if digits is not None else _text(value)
    if what == "trim":
        content = content[: amount * unit]
    else:
        size = max(0, min(amount, len(content) // unit - offset))
        content = content[: offset * unit] + blank * size + content[(offset + size) * unit :]
    return Sql(f"HEXTORAW('{content.hex()}')") if digits is not None else content.decode(_UTF16, "replace")


def _text(value: str) -> bytes:
    text = fragments.plain(value)
    return b"" if isinstance(value, Sql) and is_empty(value) else str(text).encode(_UTF16, "surrogatepass")
