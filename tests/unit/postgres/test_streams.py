"""Framing of a log that streams, against a naive reader that takes one message after the other.

A script of transactions with savepoints is written twice: as the server sends it without streaming, and in pieces. What
comes out is the same, wherever the log is cut.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.postgres import wire_messages as wire

from tidelog.connectors.postgres import check, position
from tidelog.connectors.postgres.streams import Streams
from tidelog.connectors.postgres.turns import Turns, worth
from tidelog.connectors.postgres.versions import Versions, draft
from tidelog.connectors.postgres.wire import Relation, parse_relation
from tidelog.connectors.postgres.xids import Xids
from tidelog.contracts import Mixed, Portion
from tidelog.errors import CorruptState
from tidelog.model.record import Mark, Op
from tidelog.model.schema import Column, Table

NEXT_XID = (3 << 32) + 5
CLOCK = 1_800_000_000_000_000
T, U = 16_400, 16_401
Row = dict[str, Any]


def describe(relation: Relation, known: Table | None) -> Table:  # noqa: ARG001
    columns = tuple(Column(c.name, "int4", c.modifier) for c in relation.columns)
    return Table(relation.oid, relation.schema, relation.name, columns, (relation.columns[0].name,))


def framer(next_xid: int = NEXT_XID) -> Streams:
    return Streams(Versions(describe, ()), Xids(next_xid), lambda: ())


# -- the naive reader, and a naive buffer behind it ------------------------------------------------------------------


@dataclass
class Told:
    """A transaction as it was delivered: place, end, id, time, and its records (version, operation, payload, …)."""

    position: int
    end: int
    xid: int
    committed: int
    records: list[tuple[Any, ...]]


@dataclass
class Naive:
    """One message after the other; holds what is open, and delivers at the commit."""

    told: list[Told] = field(default_factory=list)
    open: dict[int, list[tuple[int, tuple[Any, ...]]]] = field(default_factory=dict)
    everybody: dict[int, tuple[int, Table]] = field(default_factory=dict)
    own: dict[int, dict[int, tuple[int, Table]]] = field(default_factory=dict)
    """Tables as they were told last, and when."""
    origins: dict[int, str] = field(default_factory=dict)
    speaks: int = 0
    streams: bool = False
    count: int = 0

    def read(self, raw: bytes) -> None:
        self.count += 1
        self.lsn, _, clock = struct.unpack_from(">QQq", raw, 1)
        self.clock, body, self.sub = clock + wire.EPOCH_US, raw[25:], 0
        if self.streams and chr(body[0]) in "RYIUDTM":
            self.sub, body = _wide(struct.unpack_from(">I", body, 1)[0]), body[:1] + body[5:]
        match chr(body[0]):
            case "B":
                self.speaks = _wide(struct.unpack_from(">I", body, 17)[0])
            case "C":
                self._commit(self.speaks, *struct.unpack_from(">QQq", body, 2))
            case "S":
                xid, first = struct.unpack_from(">IB", body, 1)
                self.speaks, self.streams = _wide(xid), True
                if first:
                    self.open[self.speaks], self.own[self.speaks] = [], {}
            case "E":
                self.streams = False
            case "c":
                xid, _, *rest = struct.unpack_from(">IBQQq", body, 1)
                for oid, told in self.own.pop(_wide(xid)).items():
                    self.everybody[oid] = max(told, self.everybody.get(oid, told), key=lambda pair: pair[0])
                self._commit(_wide(xid), *rest)
            case "A":
                top, sub = map(_wide, struct.unpack_from(">II", body, 1))
                self.own[top] = {}
                self.open[top] = [(key, row) for key, row in self.open[top] if key != sub and sub != top]
            case "O":
                self.origins[self.speaks] = body[9:-1].decode()
            case "R":
                table = describe(parse_relation(body), None)
                (self.own[self.speaks] if self.streams else self.everybody)[table.id] = (self.count, table)
            case "T":
                (count,) = struct.unpack_from(">I", body, 1)
                for oid in struct.unpack_from(f">{count}I", body, 6):
                    self._row("t", body, oid)
            case "M" if body[1]:
                self._row("m", body, None)
            case "M":
                (end,) = struct.unpack_from(">Q", body, 2)
                row = (None, "m", body, self.lsn, None)
                self.told.append(Told(end - 1, end, 0, self.clock, [row]))
            case "Y":
                pass
            case kind:
                self._row({"I": "c", "U": "u", "D": "d"}[kind], body, struct.unpack_from(">I", body, 1)[0])

    def _row(self, op: str, body: bytes, oid: int | None) -> None:
        tables = self.own[self.speaks] if self.streams else self.everybody
        version = None if oid is None else tables[oid][1].fingerprint
        row = (version, op, body, self.lsn, self.origins.get(self.speaks))
        self.open.setdefault(self.speaks, []).append((self.sub, row))

    def _commit(self, xid: int, at: int, end: int, committed: int) -> None:
        rows = [row for _, row in self.open.pop(xid, [])]
        if rows:
            self.told.append(Told(at | 7, end, xid, committed + wire.EPOCH_US, rows))


def _wide(xid: int) -> int:
    near = [((NEXT_XID >> 32) + d << 32) + xid for d in (-1, 0, 1)]
    return min(near, key=lambda x: abs(x - NEXT_XID))


def delivered(readings: Sequence[Mixed | Portion]) -> list[Told]:
    """What the journal would hold: portions as they come, and what a buffer makes of the rest, one record and one mark
    after the other."""
    open_: dict[int, list[tuple[int, tuple[Any, ...]]]] = {}
    told: list[Told] = []
    rows_at: dict[int, list[tuple[Any, ...]]] = {}
    for reading in readings:
        if isinstance(reading, Portion):
            told += _of_portion(reading, rows_at)
            continue
        assert not rows_at, "the rest of a transaction has to come first"
        for kind, row, version in _steps(reading):
            mine = open_.setdefault(row["xid"], [])
            match kind:
                case None:
                    shown = (version, chr(row["op"]), row["payload"], row["lsn"], row["origin"])
                    mine.append((row["position"], shown))
                    assert row["table_ordinal"] == row["committed"] == 0
                case Mark.BEGIN | Mark.ROLLBACK:
                    mine.clear()
                case Mark.UNDO_ALL:
                    mine[:] = [(key, shown) for key, shown in mine if key != row["key"]]
                case Mark.COMMIT:
                    rows = [shown for _, shown in open_.pop(row["xid"])]
                    if rows:
                        told.append(Told(row["position"], row["end"], row["xid"], row["committed"], rows))
    return told


def _of_portion(portion: Portion, rows_at: dict[int, list[tuple[Any, ...]]]) -> Iterator[Told]:
    """`rows_at` has the records of the transaction that is half read, by its place."""
    rows = [
        (None if b.table is None else b.table.fingerprint, r) for b in portion.blocks for r in b.records.to_pylist()
    ]
    for version, row in sorted(rows, key=lambda pair: (pair[1]["position"], pair[1]["ordinal"])):
        mine = rows_at.setdefault(row["position"], [])
        assert row["ordinal"] == len(mine)
        mine.append((version, chr(row["op"]), row["payload"], row["lsn"], row["origin"]))
    for one in portion.transactions.to_pylist():
        records = rows_at.pop(one["position"])
        assert one["events"] == len(records)
        yield Told(one["position"], one["end"], one["xid"], one["committed"], records)


def _steps(reading: Mixed) -> Iterator[tuple[Mark | None, Row, str | None]]:
    """Records and marks in the order of the log."""
    steps: list[tuple[Mark | None, Row, str | None]] = [
        (None, row, None if b.table is None else b.table.fingerprint)
        for b in reading.blocks
        for row in b.records.to_pylist()
    ]
    steps += [(Mark(chr(row["kind"])), row, None) for row in reading.marks.to_pylist()]
    steps.sort(key=lambda step: step[1]["ordinal"])
    assert [row["ordinal"] for _, row, _ in steps] == sorted({row["ordinal"] for _, row, _ in steps})
    return iter(steps)


# -- a server's log --------------------------------------------------------------------------------------------------


@dataclass
class Transaction:
    xid: int
    streams: bool
    origin: str | None
    steps: list[tuple[str, int, int]]
    """What, in which of its sub-transactions (0 is itself), on which table."""
    commits: bool


@dataclass
class Server:
    """Sends transactions piece by piece, the open ones in turns; each sees a relation before its first row."""

    lsn: int = 0x1000
    messages: list[bytes] = field(default_factory=list)
    told: dict[int, set[int]] = field(default_factory=dict)
    versions: dict[int, dict[int, int]] = field(default_factory=dict)

    def tell(self, body: bytes, *, sub: int = 0) -> None:
        self.lsn += 8
        streamed = body[:1] + struct.pack(">I", sub & 0xFFFFFFFF) + body[1:] if sub else body
        self.messages.append(wire.record(self.lsn, streamed, clock=CLOCK + self.lsn))

    def loose(self) -> None:
        self.lsn += 64
        self.tell(wire.message(self.lsn + 8, b"loose", transactional=False))

    def whole(self, one: Transaction) -> None:
        steps = [step for step in one.steps if step[0] != "abort"]
        commit = self.lsn + 8 * (3 * len(steps) + 20)
        self.tell(wire.begin(commit, CLOCK + one.xid % 1000, one.xid))
        if one.origin:
            self.tell(wire.origin(one.origin))
        for what, _, oid in steps:
            self._step(what, oid, 0, 0)
        self.lsn = commit - 8
        self.tell(wire.commit(commit, commit + 48, CLOCK + one.xid % 1000))
        self.lsn = commit + 48

    def piece(self, one: Transaction, steps: Sequence[tuple[str, int, int]], first: bool) -> None:
        self.tell(wire.stream_start(one.xid, first))
        if first:
            self.told[one.xid] = set()
            if one.origin:
                self.tell(wire.origin(one.origin))
        for what, nested, oid in steps:
            self._step(what, oid, one.xid, one.xid + nested)
        self.tell(wire.stream_stop())

    def abort(self, xid: int, sub: int) -> None:
        self.told[xid] = set()
        self.tell(wire.stream_abort(xid, sub))

    def commit(self, one: Transaction) -> None:
        at = self.lsn + 8
        self.tell(wire.stream_commit(one.xid, at, at + 40, CLOCK + one.xid % 1000))
        self.told.setdefault(0, set()).update(self.told.pop(one.xid))
        self.lsn = at + 40

    def _step(self, what: str, oid: int, xid: int, sub: int) -> None:
        told, versions = self.told.setdefault(xid, set()), self.versions.setdefault(0, {})
        if what == "alter":
            versions[oid] = versions.get(oid, 0) + 1
            for seen in self.told.values():
                seen.discard(oid)
            return
        if what == "message":
            self.tell(wire.message(self.lsn, b"inside", transactional=True), sub=sub)
            return
        oids = [T, U] if what == "truncate" else [oid]
        for one in oids:
            if one not in told:
                told.add(one)
                self.tell(wire.type_of(90_000 + one, "mood"), sub=sub)
                columns = ["id", *(f"c{i}" for i in range(versions.get(one, 0)))]
                self.tell(wire.relation(one, f"t{one}", columns), sub=sub)
        self.tell(wire.truncate(*oids) if what == "truncate" else wire.change(what, oid, f"at {self.lsn}"), sub=sub)


steps = st.lists(
    st.tuples(
        st.sampled_from([*"IIIUD", "truncate", "message", "alter", "abort"]),
        st.integers(0, 3),
        st.sampled_from([T, U]),
    ),
    max_size=12,
)
transactions = st.lists(
    st.tuples(st.booleans(), st.sampled_from([None, None, "north", "süd"]), steps, st.booleans()),
    min_size=1,
    max_size=5,
)


def log_of(script: Sequence[tuple[Any, ...]], dice: Any) -> list[bytes]:
    """Pieces of those that stream come in turns; whole ones and loose messages stand between them."""
    server = Server()
    ids = itertools.count(NEXT_XID - 500, 10)
    waiting = [Transaction(next(ids), *one) for one in script]
    begun: set[int] = set()
    while waiting:
        one = dice.draw(st.sampled_from(waiting))
        if dice.draw(st.integers(0, 6)) == 0:
            server.loose()
        if not one.streams:
            server.whole(one)
            waiting.remove(one)
            continue
        size = dice.draw(st.integers(1, 6))
        now, one.steps = one.steps[:size], one.steps[size:]
        _speak(server, one, now, one.xid not in begun)
        begun.add(one.xid)
        if not one.steps:
            server.commit(one) if one.commits else server.abort(one.xid, one.xid)
            waiting.remove(one)
    return server.messages


def _speak(server: Server, one: Transaction, now: Sequence[tuple[str, int, int]], first: bool) -> None:
    """A piece ends where a sub-transaction is rolled back; its other steps go on in another."""
    run: list[tuple[str, int, int]] = []
    for step in now:
        if step[0] != "abort":
            run.append(step)
            continue
        server.piece(one, run, first)
        if step[1]:
            server.abort(one.xid, one.xid + step[1])
        run, first = [], False
    server.piece(one, run, first)


# -- the laws --------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None, derandomize=True)
@given(script=transactions, data=st.data())
def test_framing_is_the_naive_reading_wherever_it_is_cut(script: list[Any], data: st.DataObject) -> None:
    messages = log_of(script, data)
    edges = sorted({0, len(messages), *data.draw(st.lists(st.integers(0, len(messages)), max_size=6))})
    reader, naive = framer(), Naive()
    readings = [reader.frame(messages[low:high]) for low, high in pairwise(edges)]
    for raw in messages:
        naive.read(raw)
    assert delivered(readings) == naive.told
    assert (reader.speaker, reader.streams) == (None, {})
    assert reader.versions.tables == {oid: table for oid, (_, table) in naive.everybody.items()}


@settings(max_examples=200, deadline=None, derandomize=True)
@given(script=transactions, data=st.data())
def test_what_comes_whole_needs_no_buffer_and_order_is_kept(script: list[Any], data: st.DataObject) -> None:
    messages = log_of(script, data)
    edges = sorted({0, len(messages), *data.draw(st.lists(st.integers(0, len(messages)), max_size=6))})
    reader, naive = Turns(describe, lambda: (), next_xid=NEXT_XID), Naive()
    readings = [found for low, high in pairwise(edges) for found in reader.frame(messages[low:high])]
    for raw in messages:
        naive.read(raw)
    assert delivered(readings) == naive.told
    assert reader.open is None
    assert reader.end == max([0, *(told.end for told in naive.told), *_empty_commits(readings)])
    if not any(one[0] for one in script):
        assert all(isinstance(found, Portion) for found in readings)


def _empty_commits(readings: Sequence[Mixed | Portion]) -> list[int]:
    """Where streams end of which nothing was left."""
    return [m["end"] for r in readings if isinstance(r, Mixed) for m in r.marks.to_pylist()]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(script=transactions, data=st.data())
def test_each_record_of_a_reading_has_a_place_of_its_own_and_blocks_are_in_order(
    script: list[Any], data: st.DataObject
) -> None:
    messages = log_of(script, data)
    reader, reached = framer(), 0
    for low, high in pairwise(sorted({0, len(messages) // 2, len(messages)})):
        reading = reader.frame(messages[low:high])
        seen: dict[tuple[int, int], int] = {}
        for block in reading.blocks:
            rows = block.records.to_pylist()
            assert [r["ordinal"] for r in rows] == sorted(r["ordinal"] for r in rows)
            for row in rows if block.table is not None else ():
                # Blocks of one table stand in the order of its versions: the buffer counts on it.
                key = (block.table.id, row["xid"])
                assert seen.get(key, -1) < row["ordinal"]
                seen[key] = row["ordinal"]
        ends = [m["end"] for m in reading.marks.to_pylist() if chr(m["kind"]) == Mark.COMMIT]
        assert ends == sorted(ends)
        reached = max([reached, *ends])
        assert reader.end == reading.resume == reached


def told_of(*parts: bytes) -> list[bytes]:
    return [wire.record(8 * (i + 1), body) for i, body in enumerate(parts)]


def in_stream(sub: int, body: bytes) -> bytes:
    return body[:1] + struct.pack(">I", sub) + body[1:]


RELATION = wire.relation(T, "t", ["id"])
WIDER = wire.relation(T, "t", ["id", "extra"])


def test_payloads_are_those_of_a_log_that_does_not_stream() -> None:
    change, message = wire.change("U", T, "value"), wire.message(8, b"text", transactional=True)
    stream = [wire.stream_start(9, True), *(in_stream(11, b) for b in (RELATION, change, message)), wire.stream_stop()]
    reading = framer(next_xid=5).frame(told_of(*stream))
    rows = [row for block in reading.blocks for row in block.records.to_pylist()]
    assert [(r["payload"], chr(r["op"]), r["xid"], r["position"]) for r in rows] == [
        (change, Op.UPDATE, 9, 11),
        (message, Op.MESSAGE, 9, 11),
    ]


def test_marks_say_what_becomes_of_a_transaction() -> None:
    log = told_of(
        wire.stream_start(9, True),
        in_stream(9, RELATION),
        in_stream(9, wire.change("I", T, "1")),
        in_stream(10, wire.change("I", T, "2")),
        wire.stream_stop(),
        wire.stream_abort(9, 10),
        wire.stream_start(20, True),
        in_stream(20, RELATION),
        in_stream(20, wire.change("I", T, "3")),
        wire.stream_stop(),
        wire.stream_abort(20, 20),
        wire.stream_commit(9, 0x400, 0x430, CLOCK),
    )
    marks = framer(next_xid=5).frame(log).marks.to_pylist()
    shown = [(Mark(chr(m["kind"])), m["xid"], m["key"], m["position"], m["end"], m["committed"]) for m in marks]
    assert shown == [
        (Mark.BEGIN, 9, 0, 8, 0, 0),
        (Mark.UNDO_ALL, 9, 10, 0, 0, 0),
        (Mark.BEGIN, 20, 0, 56, 0, 0),
        (Mark.ROLLBACK, 20, 20, 0, 0, 0),
        (Mark.COMMIT, 9, 0, 0x407, 0x430, CLOCK),
    ]


def test_an_abort_of_what_was_never_streamed_says_nothing() -> None:
    reader = framer(next_xid=5)
    whole = [wire.begin(0x400, CLOCK, 9), RELATION, wire.change("I", T, "1"), wire.commit(0x400, 0x430, CLOCK)]
    reading = reader.frame(told_of(wire.stream_abort(9, 10), *whole, wire.stream_abort(12, 12)))
    assert [Mark(chr(m["kind"])) for m in reading.marks.to_pylist()] == [Mark.COMMIT]


def test_a_stream_that_is_half_read_holds_nothing_back_and_a_whole_transaction_does() -> None:
    reader = Turns(describe, lambda: (), next_xid=5)
    reader.frame(told_of(wire.stream_start(9, True), in_stream(9, RELATION)))
    assert reader.open is None
    found = reader.frame(
        told_of(in_stream(9, wire.change("I", T, "1")), wire.stream_stop(), wire.begin(0x400, CLOCK, 12))
    )
    assert reader.open is not None
    found += reader.frame(told_of(RELATION, wire.change("I", T, "2"), wire.commit(0x400, 0x430, CLOCK)))
    assert reader.open is None
    assert [(type(f), worth(f)) for f in found] == [(Mixed, True), (Portion, False), (Portion, True)]


# -- versions of tables ----------------------------------------------------------------------------------------------


def versions_of(reading: Mixed) -> list[tuple[int, int]]:
    """For each record, its transaction and how many columns its table has."""
    rows = [(r, b.table) for b in reading.blocks for r in b.records.to_pylist() if b.table is not None]
    return [(r["xid"], len(t.columns)) for r, t in sorted(rows, key=lambda pair: pair[0]["ordinal"])]


def test_a_relation_of_a_rolled_back_stream_does_not_stay() -> None:
    reader = framer(next_xid=5)
    whole = [wire.begin(0x400, CLOCK, 30), wire.change("I", T, "1"), wire.commit(0x400, 0x430, CLOCK)]
    reader.frame(told_of(whole[0], RELATION, *whole[1:]))
    stream = [wire.stream_start(9, True), in_stream(9, WIDER), in_stream(9, wire.change("I", T, "1"))]
    assert versions_of(reader.frame(told_of(*stream, wire.stream_stop(), *whole))) == [(9, 2), (30, 1)]
    reader.frame(told_of(wire.stream_abort(9, 9)))
    assert len(reader.versions.tables[T].columns) == 1
    assert versions_of(reader.frame(told_of(*whole))) == [(30, 1)]


def test_a_relation_of_a_stream_is_everybodys_once_it_commits() -> None:
    reader = framer(next_xid=5)
    stream = [wire.stream_start(9, True), in_stream(9, WIDER), in_stream(9, wire.change("I", T, "1"))]
    whole = [wire.begin(0x400, CLOCK, 30), wire.change("I", T, "1"), wire.commit(0x400, 0x430, CLOCK)]
    reading = reader.frame(
        told_of(*stream, wire.stream_stop(), wire.stream_commit(9, 0x300, 0x330, CLOCK), *whole),
    )
    assert versions_of(reading) == [(9, 2), (30, 2)]


def test_a_rolled_back_part_takes_its_relations_with_it() -> None:
    reader = framer(next_xid=5)
    reader.frame(told_of(wire.stream_start(9, True), in_stream(9, RELATION), in_stream(9, wire.change("I", T, "1"))))
    reader.frame(told_of(in_stream(10, WIDER), in_stream(10, wire.change("I", T, "2")), wire.stream_stop()))
    reader.frame(told_of(wire.stream_abort(9, 10)))
    with pytest.raises(CorruptState, match=f"unknown relation {T}"):
        reader.frame(told_of(wire.stream_start(9, False), in_stream(9, wire.change("I", T, "3"))))


def test_what_everybody_learnt_since_is_newer_than_what_a_stream_was_told() -> None:
    reader = framer(next_xid=5)
    reader.frame(told_of(wire.stream_start(9, True), in_stream(9, RELATION), in_stream(9, wire.change("I", T, "1"))))
    reader.frame(told_of(wire.stream_stop(), wire.begin(0x400, CLOCK, 30), WIDER, wire.change("I", T, "1")))
    reader.frame(told_of(wire.commit(0x400, 0x430, CLOCK), wire.stream_commit(9, 0x500, 0x530, CLOCK)))
    assert len(reader.versions.tables[T].columns) == 2


def test_a_table_that_ddl_may_be_changing_is_described_when_it_commits() -> None:
    locked, asked = {T}, []

    def described(relation: Relation, known: Table | None) -> Table:
        asked.append((len(relation.columns), known))
        locked.clear()
        return describe(relation, known)

    reader = Streams(Versions(described, ()), Xids(5), lambda: locked)
    rows = [in_stream(9, RELATION), in_stream(9, wire.change("I", T, "1"))]
    first = reader.frame(told_of(wire.stream_start(9, True), *rows))
    second = reader.frame(told_of(in_stream(9, WIDER), in_stream(9, wire.change("I", T, "2")), wire.stream_stop()))
    narrow, wide = draft(parse_relation(RELATION)), draft(parse_relation(WIDER))
    assert [b.table for b in (*first.blocks, *second.blocks)] == [narrow, wide]
    assert (first.merged, second.merged) == ({narrow.fingerprint}, {narrow.fingerprint, wide.fingerprint})
    assert asked == []
    locked.clear()
    last = reader.frame(told_of(wire.stream_commit(9, 0x300, 0x330, CLOCK)))
    now = [describe(parse_relation(body), None) for body in (RELATION, WIDER)]
    assert asked == [(1, None), (2, now[0])]
    assert last.merged >= second.merged
    merging = reader.merging(9)
    assert [merging.feed(b)[0].table for b in (*first.blocks, *second.blocks)] == now
    assert reader.versions.tables[T] == now[1]


def test_a_table_that_a_rolled_back_stream_locked_is_never_described() -> None:
    reader = Streams(Versions(lambda *_: pytest.fail("nobody may ask"), ()), Xids(5), lambda: {T})
    rows = [wire.stream_start(9, True), in_stream(9, RELATION), in_stream(9, wire.change("I", T, "1"))]
    reader.frame(told_of(*rows, wire.stream_stop(), wire.stream_abort(9, 9)))
    assert reader.versions.tables == {}


# -- what else there is ----------------------------------------------------------------------------------------------


def test_records_of_our_own_stand_between() -> None:
    reader = Turns(describe, lambda: (), next_xid=5)
    newer = Table(T, "public", "t", (Column("id", "int4"), Column("extra", "int4")), ("id",))
    reader.frame(told_of(wire.stream_start(9, True), in_stream(9, RELATION), in_stream(9, wire.change("I", T, "1"))))
    at = position.of_own(0x200)
    assert at is not None
    own = reader.own(Op.SCHEMA, [newer], at, CLOCK)
    assert [(t.position, t.end, t.xid) for t in delivered([own])] == [(at, at + 1, 0)]
    assert reader.tables[T] == newer
    reader.frame(told_of(wire.stream_stop(), wire.stream_commit(9, 0x400, 0x430, CLOCK)))
    assert reader.tables[T] == newer  # what the catalog said since is newer
    assert reader.end == 0x430


@pytest.mark.parametrize("next_xid", [(1 << 32) + 5, (1 << 32) - 5, (7 << 32) + (1 << 31) + 9])
def test_ids_of_sub_transactions_get_their_epoch(next_xid: int) -> None:
    low = (next_xid - 3) & 0xFFFFFFFF
    log = [wire.stream_start(low, True), in_stream(low + 1, RELATION), in_stream(low + 1, wire.change("I", T, "1"))]
    reader = framer(next_xid=next_xid)
    reading = reader.frame(told_of(*log, wire.stream_stop(), wire.stream_abort(low, low + 1)))
    (row,) = reading.blocks[0].records.to_pylist()
    assert (row["xid"], row["position"]) == (next_xid - 3, next_xid - 2)
    assert reading.marks.to_pylist()[-1]["key"] == next_xid - 2


def test_a_transaction_that_comes_whole_has_no_key_and_moves_no_epoch() -> None:
    next_xid = (7 << 32) + (1 << 31) + 900
    low, reader = next_xid & 0xFFFFFFFF, framer(next_xid)
    piece = [wire.stream_start(low, True), in_stream(low, RELATION), in_stream(low, wire.change("I", T, "1"))]
    whole = [wire.begin(0x400, CLOCK, low + 1), RELATION, wire.change("I", T, "2"), wire.commit(0x400, 0x430, CLOCK)]
    for _ in range(2):
        reading = reader.frame(told_of(*piece, wire.stream_stop(), *whole, wire.stream_abort(low, low)))
        rows = [row for block in reading.blocks for row in block.records.to_pylist()]
        assert {(r["xid"], r["position"]) for r in rows} == {(next_xid, next_xid), (next_xid + 1, 0)}


def test_nothing_gives_nothing() -> None:
    reading = framer().frame([])
    assert (reading.blocks, reading.marks.num_rows) == ([], 0)


def test_what_is_no_pgoutput_is_refused() -> None:
    with pytest.raises(CorruptState, match="unknown kind 'Z'"):
        framer().frame([wire.record(8, b"Zebra")])
    with pytest.raises(CorruptState, match="goes on that never began"):
        framer().frame(told_of(wire.stream_start(9, False)))
    with pytest.raises(CorruptState, match="commits that never began"):
        framer().frame(told_of(wire.stream_commit(9, 0x400, 0x430, CLOCK)))


def test_a_server_that_cannot_stream_is_told_of() -> None:
    assert check.cannot_stream(140000) is None
    problem = check.cannot_stream(130012)
    assert problem is not None
    assert (problem.level, problem.subject) == ("error", "streaming")
    assert "PostgreSQL 13" in problem.meaning
