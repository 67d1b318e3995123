"""A small simulated database, and what the real tails and the real buffer make of its log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.oracle.database import Database, Relation, Transaction
from tests.oracle.driver import Server
from tests.oracle.literals import Column
from tidelog.connectors.oracle import client, config, payload, position
from tidelog.connectors.oracle.buffered import BufferedTail
from tidelog.connectors.oracle.note import Note
from tidelog.connectors.oracle.redo import dml
from tidelog.connectors.oracle.redo.values import UNAVAILABLE
from tidelog.connectors.oracle.tail import MiningTail
from tidelog.connectors.oracle.unbuffered import UnbufferedTail
from tidelog.contracts import Block, Kept, Mixed, Portion
from tidelog.journal.buffer import Buffer
from tidelog.journal.files import Files
from tidelog.model.record import Op

BUFFERED, UNBUFFERED = "logminer", "logminer_unbuffered"
MODES = (BUFFERED, UNBUFFERED)
PLAIN = [Column("ID", "NUMBER", 22, 10, 0, nullable=False), Column("NAME", "VARCHAR2", 100)]
START = position.of_scn(1001)
LARGE = [*PLAIN, Column("BODY", "CLOB", 4000)]

Event = tuple[str, str, str, dict[str, str] | None]
"""Transaction, table, operation, and the row as it is after it; before it, when it is deleted."""


class World:
    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, adapter: str, **options: str) -> None:
        self.database = Database(Random(1), first=1000)
        self.table = self.database.create("SHOP", "T", PLAIN, ["ID"])
        self.server = Server(self.database)
        patch.setattr(client, "CONNECT", self.server.connect)
        pauses = {f"log.mining.sleep.time.{name}.ms": "0" for name in ("default", "min", "max", "increment")}
        given = {name.replace("_", "."): value for name, value in options.items()}
        self.config = config.read(
            {
                "database.user": "c##tide",
                "database.dbname": "FREE",
                "database.connection.adapter": adapter,
                "schema.include.list": "SHOP",
                "log.mining.low.watermark.interval.ms": "0",
                **pauses,
                **given,
            }
        )
        self.files = Files(str(folder))
        self.portions: list[Portion] = []
        self._buffers: dict[int, Buffer] = {}

    # -- work ----------------------------------------------------------------------------------------------------

    def begin(self, thread: int = 1, user: str = "APP", *, silent: bool = False) -> Transaction:
        self.database.redo.advance()
        return self.database.begin(thread, user, silent=silent)

    def committed(self, *keys: int, table: Relation | None = None) -> Transaction:
        """A transaction that inserts rows."""
        begun = self.begin()
        for key in keys:
            insert(begun, table or self.table, key)
        commit(begun)
        return begun

    def settle(self) -> int:
        self.database.redo.advance(2)
        for number in self.database.redo.threads:
            self.database.redo.flush(number)
        return self.database.scn - 1

    # -- capture -------------------------------------------------------------------------------------------------

    def tail(self, start: int = START, note: Note | None = None, kept: Kept | None = None) -> MiningTail:
        told = note or Note(scn=1000)
        if self.config.unbuffered:
            return UnbufferedTail(self.config, start, [], 1 << 20, told)
        return BufferedTail(self.config, start, [], 1 << 20, told, kept)

    def drained(self, tail: MiningTail | None = None, start: int = START) -> list[Event]:
        """All that is committed by now."""
        tail = tail or self.tail(start)
        try:
            return self.read(tail, start)
        finally:
            tail.close()

    def read(self, tail: MiningTail, start: int = START) -> list[Event]:
        """As far as the log goes now; the tail stays open, and may be read again."""
        goal = position.of_scn(self.settle() - 1)
        fresh = Buffer(self.files, memory_bytes=1 << 20, merging=tail.merging, start=start)
        buffer = self._buffers.setdefault(id(tail), fresh)
        for _ in range(300):
            found = tail.poll(0.0, True)
            if isinstance(found, Mixed):
                self.portions += buffer.add(found)
            if tail.reached() >= goal and tail.quiet():
                break
        else:
            raise AssertionError("the log does not come to its end")
        self.open = buffer.open()
        return self.events()

    def events(self) -> list[Event]:
        rows = [one for p in self.portions for b in p.blocks if b.table is not None for one in _events(b)]
        return [event for _, event in sorted(rows, key=lambda row: row[0])]

    def transactions(self) -> list[dict[str, Any]]:
        return [row for p in self.portions for row in p.transactions.to_pylist()]


def insert(by: Transaction, table: Relation, key: int, **values: Any) -> str:
    by.database.redo.advance()
    return by.insert(table, {c.name: values.get(c.name, key if c.name == "ID" else None) for c in table.columns})


def commit(by: Transaction, scn: int | None = None) -> int:
    by.database.redo.advance()
    return by.commit(scn)


def _events(block: Block) -> list[tuple[tuple[int, int], Event]]:
    assert block.table is not None
    found = payload.unpack(block.records.column("payload"))
    told = []
    for row, sql, merged in zip(block.records.to_pylist(), found.sql.to_pylist(), found.merged.tolist(), strict=True):
        op, image = Op(chr(row["op"])), None
        if op in (Op.CREATE, Op.UPDATE, Op.DELETE):
            change = payload.read_merged(sql) if merged else dml.parse(sql.decode(), block.table)
            values = change.before if op is Op.DELETE else change.after
            image = {k: str(v) for k, v in (values or {}).items() if v is not None and v is not UNAVAILABLE}
        told.append(
            ((row["position"], row["ordinal"]), (position.xid_text(row["xid"]), block.table.qualified, str(op), image))
        )
    return told


def keys(events: Sequence[Event]) -> list[str]:
    """Operation and key of each."""
    return [f"{op}{(row or {}).get('ID', '')}" for _, _, op, row in events]
