"""Cases of buffered mining: rows of the log go through a simulated LogMiner, the real tail and the real buffer."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from tests.oracle import redo
from tests.oracle.database import Database
from tests.oracle.driver import Server
from tests.oracle.literals import Column
from tests.oracle.redo import Work
from tidelog.connectors.oracle import client, config, position
from tidelog.connectors.oracle.buffered import BufferedTail
from tidelog.connectors.oracle.note import Note
from tidelog.contracts import Mixed, Portion
from tidelog.journal.buffer import Buffer
from tidelog.journal.files import Files

DECIDED_AGAINST: dict[str, str] = {}
"""`file/name` of a case, and why we answer differently."""

_CODES = {name.replace(" ", "_"): code for code, name in redo.OPERATIONS.items()}
_BY_TABLE = ("INSERT", "UPDATE", "DELETE", "INTERNAL")
_OPTIONS = {"database.user": "c##tide", "database.dbname": "FREE", "table.include.list": r"SHOP\.T"}
_MEMORY = 1 << 20

Given = Mapping[str, Any]


def run(file: str, case: Given) -> object:  # noqa: ARG001  one form for all
    given = case["input"]
    world = _World(given)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(client, "CONNECT", world.server.connect)
        return world.mined(folder)


class _World:
    """A database whose redo holds the events of a case, and nothing else."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._low, self._high = given.get("mine", (0, 0))
        self._database = Database(Random(0), first=self._low)
        self._table = self._database.create(
            "SHOP", "T", [Column("ID", "NUMBER", 22, 10, 0, False), Column("DATA", "CLOB", 4000)], ["ID"]
        )
        for number, enabled in given.get("threads", {}).items():
            if int(number) not in self._database.redo.threads:
                self._database.redo.enable(int(number))
            self._database.redo.threads[int(number)].enabled = enabled
        self._works: dict[str, Work] = {}
        for event in given["events"]:
            self._write(event)
        self._settle()
        self.server = Server(self._database)

    def _write(self, event: Given) -> None:
        kind = event["type"]
        thread, scn = event.get("thread", 1), event["scn"]
        work = self._works.setdefault(event["tx"], Work(_xid(event["tx"]), thread, "APP", None, scn))
        told: dict[str, Any] = {}
        if kind in _BY_TABLE:
            told = {"owner": "SHOP", "table": "T", "object": self._table.object, "sql": _sql(kind, event.get("data"))}
            told |= {"row_id": event.get("row_id", redo.NO_ROW), "rollback": event.get("rollback", 0)}
        if kind == "COMMIT":
            work.commit_scn = scn
        self._database.redo.write(thread, _CODES[kind], work, scn=scn, **told)

    def _settle(self) -> None:
        last = max([self._high, *(event["scn"] for event in self._given["events"])])
        self._database.redo.advance(last + 10 - self._database.scn)
        for number in self._database.redo.threads:
            self._database.redo.flush(number)

    # -- what comes of it ----------------------------------------------------------------------------------------

    def mined(self, folder: str) -> dict[str, Any]:
        options = {**_OPTIONS, "lob.enabled": str(self._given.get("lob_enabled", False)).lower()}
        tail = BufferedTail(config.read(options), 0, [], _MEMORY, Note(scn=self._low))
        buffer = Buffer(Files(folder), memory_bytes=_MEMORY, merging=tail.merging)
        portions: list[Portion] = []
        while tail.reached() < position.of_scn(self._high + 1) or not tail.quiet():
            found = tail.poll(0.0, True)
            if isinstance(found, Mixed):
                portions += buffer.add(found)
        tail.close()
        return self._answer(tail, buffer, portions)

    def _answer(self, tail: BufferedTail, buffer: Buffer, portions: list[Portion]) -> dict[str, Any]:
        names = {int.from_bytes(_xid(name), "big", signed=True): name for name in self._works}
        records = [r for p in portions for b in p.blocks for r in b.records.column("lsn").to_pylist()]
        open_ = buffer.open()
        answer: dict[str, Any] = {
            "open": [names[xid] for xid in open_],
            "emitted": len(records),
            "rolled_back": [e["tx"] for e in self._given["events"] if e["type"] == "ROLLBACK" and self._over(e, open_)],
            "read_from": tail.read_from(),
            "mine_from": tail.mine_from(),
        }
        if open_ or records:  # with none open, the last change that went out tells how far we are
            answer["oldest_scn"] = min(open_.values()) if open_ else records[-1]
        return answer

    def _over(self, event: Given, open_: Mapping[int, int]) -> bool:
        """Whether a rollback met a transaction."""
        slot = _xid(event["tx"])[:4]
        whole = [x for x in self._works if x != event["tx"] or not event["tx"].endswith("ffffffff")]
        met = [int.from_bytes(_xid(x), "big", signed=True) for x in whole if _xid(x)[:4] == slot]
        return bool(met) and not set(met) & open_.keys()


def _xid(name: str) -> bytes:
    """Ids of the case's own, or made from its names."""
    try:
        raw = bytes.fromhex(name)
    except ValueError:
        raw = b""
    return raw if len(raw) == 8 else zlib.crc32(name.encode()).to_bytes(4, "big") + b"\0\0\0\1"


def _sql(kind: str, data: str | None) -> str | None:
    value = "NULL" if data is None else data
    match kind:
        case "INSERT":
            return f'insert into "SHOP"."T"("ID","DATA") values (\'1\',{value});'
        case "UPDATE":
            return f'update "SHOP"."T" set "DATA" = {value} where "ID" = \'1\';'
        case "INTERNAL":
            return None
        case _:
            return 'delete from "SHOP"."T" where "ID" = \'1\';'
