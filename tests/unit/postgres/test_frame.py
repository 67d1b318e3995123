"""Framing against a naive reader that takes one message after the other; the cuts between portions never show."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.postgres import wire_messages as wire

from tidelog.connectors.postgres import position
from tidelog.connectors.postgres.frame import Framer
from tidelog.connectors.postgres.wire import Relation, parse_relation
from tidelog.contracts import RECORDS, TRANSACTIONS, Portion
from tidelog.errors import CorruptState
from tidelog.model.record import Op
from tidelog.model.schema import Column, Table

NEXT_XID = (3 << 32) + 5
CLOCK = 1_800_000_000_000_000
Row = dict[str, Any]


def describe(relation: Relation, known: Table | None) -> Table:  # noqa: ARG001
    columns = tuple(Column(c.name, "int4", c.modifier) for c in relation.columns)
    return Table(relation.oid, relation.schema, relation.name, columns, (relation.columns[0].name,))


def framer(next_xid: int = NEXT_XID, **more: Any) -> Framer:
    return Framer(describe, next_xid=next_xid, with_collections=True, **more)


# -- a server's log ------------------------------------------------------------------------------------------------


@dataclass
class Server:
    """Writes a log: relations come before their first use and again after they changed."""

    lsn: int = 0x1000
    messages: list[bytes] = field(default_factory=list)
    versions: dict[int, int] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)
    transactions: int = 0

    def tell(self, body: bytes) -> None:
        self.lsn += 8
        self.messages.append(wire.record(self.lsn, body, clock=CLOCK + self.lsn))

    def transaction(self, xid: int, origin: str | None, steps: list[tuple[str, list[int]]]) -> None:
        commit = self.lsn + 8 * (3 * len(steps) + 20)
        committed = CLOCK + self.transactions
        self.transactions += 1
        self.tell(wire.begin(commit, committed, xid))
        if origin:
            self.tell(wire.origin(origin))
        for kind, oids in steps:
            self._step(kind, oids)
        self.lsn = commit
        self.messages.append(wire.record(commit, wire.commit(commit, commit + 48, committed), clock=CLOCK))
        self.lsn = commit + 48

    def _step(self, kind: str, oids: list[int]) -> None:
        if kind == "alter":
            self.versions[oids[0]] = self.versions.get(oids[0], 0) + 1
            self.told.discard(oids[0])
        elif kind == "message":
            self.tell(wire.message(self.lsn, b"inside", transactional=True))
        elif kind == "truncate":
            for oid in oids:
                self._relate(oid)
            self.tell(wire.truncate(*oids))
        else:
            self._relate(oids[0])
            self.tell(wire.change(kind, oids[0], f"at {self.lsn}"))

    def _relate(self, oid: int) -> None:
        if oid in self.told:
            return
        self.told.add(oid)
        version = self.versions.get(oid, 0)
        self.tell(wire.type_of(90_000 + oid, "mood"))
        # every third version has another name
        columns = ["id", *(f"c{i}" for i in range(version % 3))]
        self.tell(wire.relation(oid, f"t{oid}_{version // 3}", columns))

    def loose(self) -> None:
        """A message outside any transaction; the log tells where it ends, and the next record may begin there."""
        self.lsn += 64
        body = wire.message(self.lsn, b"loose", transactional=False)
        self.messages.append(wire.record(self.lsn, body, clock=CLOCK + self.lsn))


OIDS = [16_400, 16_401, 16_402]
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("IUD"), st.sampled_from(OIDS).map(lambda oid: [oid])),
        st.tuples(st.just("truncate"), st.lists(st.sampled_from(OIDS), min_size=1, max_size=3, unique=True)),
        st.tuples(st.just("message"), st.just([0])),
        st.tuples(st.just("alter"), st.sampled_from(OIDS).map(lambda oid: [oid])),
    ),
    max_size=8,
)
xids = st.integers(NEXT_XID - 1000, NEXT_XID + 1000)
origins = st.sampled_from([None, None, "north", "süd"])
script = st.lists(st.one_of(st.none(), st.tuples(xids, origins, steps)), min_size=1, max_size=8)


def log_of(parts: list[Any]) -> list[bytes]:
    server = Server()
    for part in parts:
        if part is None:
            server.loose()
        else:
            server.transaction(*part)
    return server.messages


# -- the naive reader ----------------------------------------------------------------------------------------------


@dataclass
class Naive:
    """One message after the other, nothing vectorised, no portions."""

    next_xid: int = NEXT_XID
    rows: list[tuple[str | None, Row]] = field(default_factory=list)
    transactions: list[Row] = field(default_factory=list)
    tables: dict[int, Table] = field(default_factory=dict)

    def read(self, raw: bytes) -> None:
        self.lsn, _, clock = struct.unpack_from(">QQq", raw, 1)
        self.clock = clock + wire.EPOCH_US
        self.raw, body = raw, raw[25:]
        self.size = getattr(self, "size", 0) + len(raw)
        match chr(body[0]):
            case "B":
                at, committed, xid = struct.unpack_from(">QqI", body, 1)
                self.at, self.committed, self.xid = at + 7, committed + wire.EPOCH_US, self._widen(xid)
                self.origin, self.events, self.size = None, 0, len(raw)
                self.by_table: dict[int, int] = {}
                self.by_name: dict[str, int] = {}
            case "C":
                self._commit(struct.unpack_from(">Q", body, 10)[0])
            case "O":
                self.origin = body[9:-1].decode()
            case "R":
                table = describe(parse_relation(body), None)
                self.tables[table.id] = table
            case "T":
                (count,) = struct.unpack_from(">I", body, 1)
                for oid in struct.unpack_from(f">{count}I", body, 6):
                    self._row("t", body, oid)
            case "M" if body[1]:
                self._row("m", body, None)
            case "M":
                self._loose(body)
            case "Y":
                pass
            case kind:
                self._row({"I": "c", "U": "u", "D": "d"}[kind], body, struct.unpack_from(">I", body, 1)[0])

    def _widen(self, xid: int) -> int:
        near = [((self.next_xid >> 32) + d << 32) + xid for d in (-1, 0, 1)]
        wide = min(near, key=lambda x: abs(x - self.next_xid))
        self.next_xid = max(self.next_xid, wide)
        return wide

    def _row(self, op: str, body: bytes, oid: int | None) -> None:
        place = 0
        if oid is not None:
            place = self.by_table.get(oid, 0)
            self.by_table[oid] = place + 1
            name = self.tables[oid].qualified
            self.by_name[name] = self.by_name.get(name, 0) + 1
        values = (self.at, self.events, place, self.xid, self.committed, self.lsn, ord(op), self.origin, body)
        self.rows.append((None if oid is None else self.tables[oid].fingerprint, _named(RECORDS.names, values)))
        self.events += 1

    def _commit(self, end: int) -> None:
        if self.events:
            names = json.dumps(self.by_name, sort_keys=True)
            values = (self.at, end, self.xid, self.committed, self.events, self.size, names, None)
            self.transactions.append(_named(TRANSACTIONS.names, values))

    def _loose(self, body: bytes) -> None:
        (end,) = struct.unpack_from(">Q", body, 2)
        values = (end - 1, 0, 0, 0, self.clock, self.lsn, ord("m"), None, body)
        self.rows.append((None, _named(RECORDS.names, values)))
        self.transactions.append(_named(TRANSACTIONS.names, (end - 1, end, 0, self.clock, 1, 0, None, None)))


def _named(names: list[str], values: tuple[Any, ...]) -> Row:
    return dict(zip(names, values, strict=True))


def rows_of(portions: list[Portion]) -> list[tuple[str | None, Row]]:
    found = [
        (None if b.table is None else b.table.fingerprint, row)
        for p in portions
        for b in p.blocks
        for row in b.records.to_pylist()
    ]
    return sorted(found, key=lambda pair: (pair[1]["position"], pair[1]["ordinal"]))


def transactions_of(portions: list[Portion]) -> list[Row]:
    rows = [row for p in portions for row in p.transactions.to_pylist()]
    for row in rows:
        if row["collections"] is not None:
            row["collections"] = json.dumps(json.loads(row["collections"]), sort_keys=True)
    return rows


# -- the laws ------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None, derandomize=True)
@given(parts=script, data=st.data())
def test_framing_is_the_naive_reading_wherever_it_is_cut(parts: list[Any], data: st.DataObject) -> None:
    messages = log_of(parts)
    cuts = data.draw(st.lists(st.integers(0, len(messages)), max_size=6))
    edges = sorted({0, len(messages), *cuts})
    reader, naive = framer(), Naive()
    portions = [reader.frame(messages[low:high]) for low, high in pairwise(edges)]
    for raw in messages:
        naive.read(raw)
    assert rows_of(portions) == naive.rows
    assert transactions_of(portions) == naive.transactions
    assert reader.open is None


@settings(max_examples=60, deadline=None, derandomize=True)
@given(parts=script, data=st.data())
def test_an_end_splits_what_is_complete_from_what_is_not(parts: list[Any], data: st.DataObject) -> None:
    messages = log_of(parts)
    edges = sorted({0, len(messages), *data.draw(st.lists(st.integers(0, len(messages)), max_size=6))})
    reader, reached = framer(), 0
    for low, high in pairwise(edges):
        portion = reader.frame(messages[low:high])
        ends = portion.transactions.column("end").to_pylist()
        assert portion.end == (ends[-1] if ends else 0)
        assert ends == sorted(ends)
        complete = set(portion.transactions.column("position").to_pylist())
        for block in portion.blocks:
            at = block.records.column("position").to_pylist()
            assert at == sorted(at)
            assert all(p >= reached for p in at)
            assert all((p in complete) == (p < portion.end) for p in at)
        reached = max(reached, portion.end)
    assert reader.end == reached


@settings(max_examples=60, deadline=None, derandomize=True)
@given(parts=script)
def test_reading_on_from_any_end_gives_everything_after_it(parts: list[Any]) -> None:
    """The server sends what commits at or after the LSN it is asked for: nothing between an end and it is skipped."""
    naive = Naive()
    for raw in log_of(parts):
        naive.read(raw)
    positions = [t["position"] for t in naive.transactions]
    assert positions == sorted(set(positions))
    for transaction, after in pairwise(naive.transactions):
        assert transaction["end"] <= after["position"]
        commit = after["position"] - 7 if after["xid"] else after["end"] - 64
        assert position.resume(transaction["end"]) <= commit


@pytest.mark.parametrize(
    ("next_xid", "low", "wide"),
    [
        ((1 << 32) + 5, 0xFFFFFFF0, 0xFFFFFFF0),  # handed out just before the wrap
        ((1 << 32) + 5, 7, (1 << 32) + 7),
        ((1 << 32) - 5, 3, (1 << 32) + 3),  # handed out since we asked
        ((1 << 32) - 5, 0xFFFFFFF0, 0xFFFFFFF0),
        ((7 << 32) + (1 << 31), 0, 7 << 32),
        (1000, 999, 999),
    ],
)
def test_transaction_ids_get_their_epoch(next_xid: int, low: int, wide: int) -> None:
    server = Server()
    server.transaction(low, None, [("I", [OIDS[0]])])
    portion = framer(next_xid).frame(server.messages)
    assert portion.transactions.column("xid").to_pylist() == [wide]
    assert portion.blocks[0].records.column("xid").to_pylist() == [wide]


def test_ids_grow_over_the_wrap_within_one_session() -> None:
    reader, server = framer((1 << 32) - 2), Server()
    for xid in range((1 << 32) - 2, (1 << 32) + 3):
        server.transaction(xid, None, [("I", [OIDS[0]])])
    seen = [reader.frame(server.messages[i : i + 1]) for i in range(len(server.messages))]
    assert [t["xid"] for t in transactions_of(seen)] == list(range((1 << 32) - 2, (1 << 32) + 3))


def test_a_message_and_the_commit_that_touches_it_stand_apart() -> None:
    """The message's record ends where the commit's begins: acknowledging the one must not skip the other."""
    server = Server()
    server.loose()
    ended = server.lsn
    body = [wire.begin(ended, CLOCK, 9), wire.relation(OIDS[0], "t", ["id"]), wire.change("I", OIDS[0], "1")]
    server.messages += [wire.record(ended, b) for b in [*body, wire.commit(ended, ended + 48, CLOCK)]]
    found = transactions_of([framer().frame(server.messages)])
    assert [(t["position"], t["end"]) for t in found] == [(ended - 1, ended), (ended + 7, ended + 48)]
    assert position.resume(found[0]["end"]) <= ended


def test_records_of_our_own_stand_before_what_comes_next() -> None:
    reader, server = framer(), Server()
    server.transaction(9, None, [("I", [OIDS[0]])])
    portion = reader.frame(server.messages)
    newer = Table(OIDS[0], "public", "renamed", (Column("id", "int4"),), ("id",))
    at = position.of_own(portion.end)
    assert at == portion.end
    own = reader.own(Op.SCHEMA, [newer], at, CLOCK)
    assert (own.end, [b.table for b in own.blocks]) == (at + 1, [newer])
    assert own.blocks[0].records.to_pylist()[0]["position"] == at
    assert own.transactions.to_pylist()[0]["events"] == 1
    assert position.resume(own.end) == portion.end
    assert position.of_own(portion.end + 7) is None


def test_a_relation_that_comes_again_after_a_record_of_our_own_counts() -> None:
    """A column is added and dropped again, each unnoticed by rows: the next row is as it was at first."""
    reader, server = framer(), Server()
    server.transaction(9, None, [("I", [OIDS[0]])])
    first = reader.frame(server.messages).blocks[0].table
    assert first is not None
    wider = Table(OIDS[0], "public", "t", (*first.columns, Column("extra", "int4")), ("id",))
    reader.own(Op.SCHEMA, [wider], reader.end, CLOCK)
    server.messages.clear()
    server.told.clear()
    server.transaction(10, None, [("I", [OIDS[0]])])
    assert [b.table for b in reader.frame(server.messages).blocks] == [first]


def test_a_known_table_is_no_news() -> None:
    server = Server()
    server.transaction(9, None, [("I", [OIDS[0]]), ("I", [OIDS[0]])])
    known = describe(parse_relation(wire.relation(OIDS[0], f"t{OIDS[0]}_0", ["id"])), None)
    blocks = framer(tables=[known]).frame(server.messages).blocks
    assert [(b.table, b.records.num_rows) for b in blocks] == [(known, 2)]


def test_a_relation_in_the_same_words_may_be_another() -> None:
    """A column can take the name of one that was dropped: the catalog is asked once for each log that is read."""
    asked: list[Table | None] = []

    def numbered(relation: Relation, known: Table | None) -> Table:
        asked.append(known)
        columns = tuple(Column(c.name, "int4", number=len(asked)) for c in relation.columns)
        return Table(relation.oid, relation.schema, relation.name, columns)

    reader, server = Framer(numbered, next_xid=NEXT_XID), Server()
    for xid in range(9, 12):
        server.transaction(xid, None, [("I", [OIDS[0]]), ("I", [OIDS[0]])])
        server.told.clear()
    first = reader.frame(server.messages)
    assert [(b.table.columns[0].number, b.records.num_rows) for b in first.blocks if b.table] == [(1, 6)]
    second = reader.frame(server.messages)
    assert [(b.table.columns[0].number, b.records.num_rows) for b in second.blocks if b.table] == [(2, 6)]
    assert [known is None for known in asked] == [True, False]


def test_an_abort_of_a_stream_that_nobody_asked_for_says_nothing() -> None:
    server = Server()
    server.transaction(9, None, [("I", [OIDS[0]])])
    stray = [wire.record(8, wire.stream_abort(9, 10)), *server.messages, wire.record(8, wire.stream_abort(12, 12))]
    reader = framer()
    portion = reader.frame(stray)
    assert (portion.transactions.column("events").to_pylist(), reader.open) == ([1], None)


def test_what_is_no_pgoutput_is_refused() -> None:
    with pytest.raises(CorruptState, match="unknown kind 'Z'"):
        framer().frame([wire.record(8, b"Zebra")])
    orphan = [wire.record(8, wire.begin(64, CLOCK, 9)), wire.record(16, wire.change("I", 77, "1"))]
    with pytest.raises(CorruptState, match="unknown relation 77"):
        framer().frame(orphan)
