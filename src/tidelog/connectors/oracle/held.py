"""Changes that are held until all rows of the log that tell them have come: `merging` joins these."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from tidelog.connectors.oracle import payload
from tidelog.connectors.oracle.redo import charsets, fragments, lobs, rowid
from tidelog.connectors.oracle.redo.dml import wrong
from tidelog.connectors.oracle.redo.fragments import Begun, Piece
from tidelog.connectors.oracle.redo.literals import hex_digits, is_empty
from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Change, Sql, Value
from tidelog.model.record import Op
from tidelog.model.schema import Table

_LOG = logging.getLogger("tidelog.oracle")
_UTF16 = "utf-16-le"
_EMPTY = {False: "EMPTY_CLOB()", True: "EMPTY_BLOB()"}
NO_ROW = rowid.NONE.encode()

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
            self.report(f"{name} was changed in place, and its value is not known: it is told as unavailable.")
        if self.derived and change.before == change.after and not spoilt:
            return None
        return payload.MERGED.to_bytes(2, "little") + self.raw[2 : self.prefix] + payload.merged(change).encode()

    def report(self, what: str) -> None:
        _LOG.warning("At SCN %d, in %s: %s", self.scn, self.table.qualified, what)


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
        nameless = self.by_rowid.get(NO_ROW, [])
        while nameless:
            entry = nameless.pop()
            if entry.op is Op.CREATE and not entry.lost and entry.rowids == {NO_ROW}:
                return entry
        return None

    def release(self) -> list[Entry]:
        """All before the value that is being written. What comes later for their rows is a change of its own."""
        last = self.entries.index(self.target.entry) if self.target is not None else len(self.entries)
        done, self.entries = self.entries[:last], self.entries[last:]
        self.by_key, self.by_rowid = {}, {}
        return done


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
