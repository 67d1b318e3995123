"""The journal's hard cases, one by one: lost and partial receivers, new numbers, transactions from before the start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.iseries.driver import Server, refused
from tests.iseries.records import Field
from tests.iseries.run import OPTIONS
from tests.iseries.system import File, System, named
from tidelog.connectors.iseries import client, connector, position
from tidelog.connectors.iseries.connector import IseriesConnector
from tidelog.connectors.iseries.tail import IseriesTail
from tidelog.contracts import Mixed
from tidelog.errors import ConfigError, PositionLost, TransientError
from tidelog.model.record import Mark

ORDERS = File("SHOP", "ORDERS", (Field("ID", "INTEGER", 4), Field("NAME", "CHAR", 4, ccsid=37)), key=("ID",))
SETTINGS = {**OPTIONS, "table.include.list": r"SHOP\.\w+"}


class Rig:
    def __init__(self, patch: pytest.MonkeyPatch, *files: File) -> None:
        self.system = System(list(files) or [ORDERS])
        self.server = Server(self.system)
        patch.setattr(client, "CONNECT", self.server.connect)
        self.source: IseriesConnector = connector.create(SETTINGS)

    def tail(self, start: int | None = None, **more: Any) -> IseriesTail:
        at = self.source.prepare() if start is None else start
        return self.source.tail(at, more.pop("known", ()), 1 << 20, **more)

    def insert(self, id: int, cycle: int = 0) -> int:
        return self.system.row("PT", ORDERS, id, (id, "abcd"), cycle)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    made = Rig(monkeypatch)
    yield made
    made.source.close()


def read(tail: IseriesTail) -> list[Mixed]:
    """Everything that there is."""
    found = []
    for _ in range(50):
        mixed = tail.poll(0, True)
        if mixed is not None:
            found.append(mixed)
    return found


def marks(mixed: list[Mixed]) -> list[tuple[str, int]]:
    rows = [row for one in mixed for row in one.marks.to_pylist()]
    return [(Mark(chr(row["kind"])).name, row["xid"]) for row in rows]


def records(mixed: list[Mixed]) -> list[tuple[str, int]]:
    rows = [row for one in mixed for block in one.blocks for row in block.records.to_pylist()]
    return [(chr(row["op"]), row["xid"]) for row in sorted(rows, key=lambda row: row["lsn"])]


def test_rows_outside_a_transaction_commit_at_once(rig: Rig) -> None:
    tail = rig.tail()
    first, second = rig.insert(1), rig.insert(2)
    found = read(tail)
    assert records(found) == [("c", -first), ("c", -second)]
    assert marks(found) == [("COMMIT", -first), ("COMMIT", -second)]


def test_a_transaction_from_before_the_start_is_read_from_its_beginning(rig: Rig) -> None:
    cycle = rig.system.begin()
    rig.insert(1, cycle)
    rig.system.attach()
    tail = rig.tail()
    rig.system.write("C", "CM", cycle=cycle)
    found = read(tail)
    assert records(found) == [("c", cycle)]
    assert marks(found) == [("BEGIN", cycle), ("COMMIT", cycle)]


def test_a_transaction_whose_beginning_is_deleted_stops_with_what_to_do(rig: Rig) -> None:
    cycle = rig.system.begin()
    rig.insert(1, cycle)
    rig.system.attach()
    tail = rig.tail()
    del rig.system.receivers[0]
    rig.insert(2, cycle)
    with pytest.raises(PositionLost, match="beginning is gone") as lost:
        read(tail)
    assert "new snapshot" in lost.value.hint


def test_numbers_that_begin_anew_still_move_forward(rig: Rig) -> None:
    tail = rig.tail()
    before = rig.source.log_end()
    rig.insert(1)
    rig.insert(3)
    rig.system.attach(reset=True)
    rig.insert(2)
    found = read(tail)
    positions = [row["position"] for one in found for row in one.marks.to_pylist()]
    assert positions == sorted(positions)
    assert positions[0] >= before
    assert [position.place(p).sequence for p in positions] == [2, 3, 2]


def test_a_place_keeps_its_number_when_older_receivers_go(rig: Rig) -> None:
    """The clock was set back, so the younger receiver counts as later than its clock says."""
    rig.insert(1)
    rig.system.clock -= timedelta(hours=1)
    rig.system.attach(reset=True)
    rig.insert(2)
    tail = rig.tail(rig.source.reach())
    found = read(tail)
    last = found[-1].marks.to_pylist()[-1]
    del rig.system.receivers[0]
    fresh = connector.create(SETTINGS)
    assert fresh.tail(last["end"], (), 1 << 20, note=last["note"]).seen() == last["end"]
    with pytest.raises(PositionLost):
        connector.create(SETTINGS).tail(last["end"], (), 1 << 20)


def test_a_deleted_receiver_is_lost(rig: Rig) -> None:
    start = rig.source.prepare()
    rig.insert(1)
    rig.system.clock += timedelta(minutes=5)
    rig.system.attach()
    del rig.system.receivers[0]
    with pytest.raises(PositionLost, match="is gone: the chain begins with RCVLIB/RCV0002") as lost:
        rig.tail(start)
    assert "DLTRCV" in lost.value.hint


def test_a_receiver_that_goes_while_it_is_read_is_lost(rig: Rig) -> None:
    tail = rig.tail()
    rig.insert(1)
    rig.system.attach()

    def lose(sql: str) -> None:
        if "DISPLAY_JOURNAL" in sql and len(rig.system.receivers) > 1:
            del rig.system.receivers[0]

    rig.server.before = lose
    with pytest.raises(PositionLost, match="CPF7053"):
        read(tail)


def test_a_partial_receiver_breaks_the_chain(rig: Rig) -> None:
    start = rig.source.prepare()
    rig.insert(1)
    rig.system.attach()
    rig.system.receivers[0].status = "PARTIAL"
    with pytest.raises(PositionLost):
        rig.tail(start)
    assert position.place(rig.source.reach()).sequence == rig.system.receivers[1].first


def test_an_old_image_waits_for_its_new_one(rig: Rig) -> None:
    rig.insert(1)
    tail = rig.tail()
    before = rig.system.row("UB", ORDERS, 1, (1, "abcd"))
    other = rig.insert(2)
    assert records(read(tail)) == []
    assert not tail.quiet()
    assert position.place(tail.seen()).sequence == before
    update = rig.system.row("UP", ORDERS, 1, (1, "efgh"))
    assert records(read(tail)) == [("c", -other), ("u", -update)]
    assert tail.quiet()


def test_a_table_in_a_new_library_is_met(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "table.include.list", r".*")
    tail = connector.create(SETTINGS).tail(rig.source.log_end(), (), 1 << 20)
    fresh = replace(ORDERS, library="NEWLIB", fields=(*ORDERS.fields, Field("WIDE", "CHAR", 20_000, ccsid=37)))
    rig.system.create(fresh)
    sequence = rig.system.row("PT", fresh, 1, (1, "abcd", "x"))
    found = read(tail)
    assert ("c", -sequence) in records(found)
    block = found[-1].blocks[-1]
    assert block.table is not None
    decoded = rig.source.decoder().typed(block.records, block.table, rig.source.selection()).rows
    assert decoded.column("WIDE")[0].as_py() == "x".ljust(20_000)


def test_a_file_that_is_cleared_is_a_truncate(rig: Rig) -> None:
    tail = rig.tail()
    rig.system.write("F", "CR", named(ORDERS))
    assert [op for op, _ in records(read(tail))] == ["t"]


# -- offsets -------------------------------------------------------------------------------------------------------


def test_an_offset_names_the_last_commit_and_leads_back_to_it(rig: Rig) -> None:
    tail = rig.tail()
    sequence = rig.insert(1)
    (commit,) = read(tail)[0].marks.to_pylist()
    document = rig.source.document(commit["end"], 1, commit["committed"], commit["note"])
    assert document["offset.event_sequence"] == str(sequence)
    assert document["offset.receiver"] == "RCV0001"
    assert document["offset.processed"] == "true"
    assert all(isinstance(value, str) for value in document.values())
    assert rig.source.position_of(document) == commit["end"]
    assert rig.source.position_of({"offset.event_sequence": "null"}) == rig.source.reach()


def test_an_offset_without_a_commit_names_the_next_entry(rig: Rig) -> None:
    end = rig.source.prepare()
    document = rig.source.document(end, 0, 0, None)
    assert document["offset.processed"] == "false"
    assert rig.source.position_of(document) == end


def test_times_are_in_utc(rig: Rig) -> None:
    rig.system.zone = 20_000
    tail = rig.tail()
    shown = rig.system.clock
    rig.insert(1)
    (commit,) = read(tail)[0].marks.to_pylist()
    seconds = (shown - timedelta(hours=2) - shown.__class__(1970, 1, 1)).total_seconds()
    assert commit["committed"] == round(seconds * 1_000_000)
    assert json.loads(commit["note"])["time"] == int(seconds)


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"journal": None}, "None of the captured tables is journaled"),
        ({"images": "*AFTER"}, "deletes tell no row"),
        ({"fields": (Field("ID", "INTEGER", 4), Field("DOC", "CLOB", 1000, ccsid=37))}, "no known place"),
        ({"fields": (Field("ID", "INTEGER", 4), Field("X", "CHAR", 4, ccsid=4711))}, "CCSID 4711"),
    ],
)
def test_a_table_that_cannot_be_captured_is_refused(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], says: str
) -> None:
    made = Rig(monkeypatch, replace(ORDERS, **change))
    with pytest.raises(ConfigError, match=says):
        made.source.prepare()
    found = made.source.check()
    assert [f for f in found if f.level == "error"]
    assert all(f.cure for f in found if f.level != "ok")


def test_a_sound_system_passes_the_check(rig: Rig) -> None:
    rig.system.attach()
    assert [f.level for f in rig.source.check()] == ["ok", "ok", "ok"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (refused("CPF7060", "Object ORDERS in library SHOP not found."), TransientError),
        (refused("CPF9802", "Not authorized to object QSQJRN in JRNLIB."), ConfigError),
        (refused("CPF9801", "Object RCV0001 in library RCVLIB not found."), PositionLost),
        (refused("CPF7054", "FROM and TO values not valid."), PositionLost),
        (OSError("broken pipe"), TransientError),
        (RuntimeError("a secret password"), TransientError),
    ],
)
def test_errors_of_the_system_become_ours(rig: Rig, error: Exception, expected: type[Exception]) -> None:
    def fail(_: str) -> None:
        raise error

    rig.server.before = fail
    with pytest.raises(expected) as raised:
        rig.source.log_end()
    assert "secret" not in str(raised.value)
