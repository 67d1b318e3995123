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
from tests.iseries.select import told
from tests.iseries.system import File, System, named
from tidelog.connectors.iseries import client, config, connector, position
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


@pytest.mark.parametrize("width", [1, 15_995, 15_996, 15_997, 31_996, 31_997])
def test_an_image_comes_as_long_as_it_is(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """The system pads what is asked for by a length: neither short images nor the last pieces of long ones grow."""
    file = replace(ORDERS, fields=(ORDERS.fields[0], Field("WIDE", "CHAR", width, ccsid=37)))
    rig = Rig(monkeypatch, file, replace(ORDERS, name="WIDER", fields=(Field("X", "CHAR", 32_700, ccsid=37),)))
    tail = rig.tail()
    rig.system.row("PT", file, 1, (7, "x"))
    (mixed,) = read(tail)
    (block,) = mixed.blocks
    assert block.table is not None
    (row,) = rig.source.decoder().typed(block.records, block.table, rig.source.selection()).rows.to_pylist()
    assert (row["ID"], row["WIDE"]) == (7, "x".ljust(width))
    assert len(block.records.column("payload")[0].as_py()) < width + 100


def test_memory_is_counted_by_what_images_are(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    tail = rig.source.tail(rig.source.prepare(), (), 1 << 18)  # of which a quarter is for images
    for i in range(500):
        rig.insert(i)
    mixed = tail.poll(0, True)
    assert mixed is not None
    assert sum(block.records.num_rows for block in mixed.blocks) == 500


@pytest.mark.parametrize("ending", ["RB", "CN"])
def test_a_roll_back_ends_its_transaction_also_when_it_is_ended_early(rig: Rig, ending: str) -> None:
    tail = rig.tail()
    cycle = rig.system.begin()
    rig.insert(1, cycle)
    rig.insert(2, cycle)
    rig.system.row("DR", ORDERS, 2, (2, "abcd"), cycle)
    rig.system.write("C", ending, cycle=cycle)
    assert marks(read(tail)) == [("BEGIN", cycle), ("UNDO", cycle), ("ROLLBACK", cycle)]


def test_columns_in_another_set_than_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = (ORDERS.fields[0], Field("T", "VARCHAR", 8, ccsid=65535), Field("F", "CHAR", 4, ccsid=65535))
    file = replace(ORDERS, fields=fields)
    rig = Rig(monkeypatch, file)
    row = (1, "Größe".encode("cp273"), b"\x4a\x40\x40\x40")
    tail = rig.tail()
    rig.system.row("PT", file, 1, row)
    (block,) = read(tail)[0].blocks
    assert block.table is not None
    plain = rig.source.decoder().typed(block.records, block.table, rig.source.selection()).rows.to_pylist()[0]
    assert (plain["T"], plain["F"]) == row[1:]
    source = connector.create({**SETTINGS, "from.ccsid": "65535", "to.ccsid": "1141"})
    (table,) = source.tables()
    text = source.decoder().typed(block.records, table, source.selection()).rows.to_pylist()[0]
    assert (text["T"], text["F"]) == ("Größe", "Ä   ")


@pytest.mark.parametrize("given", [{"from.ccsid": "65535"}, {"to.ccsid": "37"}, {"from.ccsid": "37", "to.ccsid": "9"}])
def test_a_set_is_read_as_one_that_is_known(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"to\.ccsid"):
        connector.create({**SETTINGS, **given})


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
        ({"fields": (Field("ID", "INTEGER", 4), Field("X", "CHAR", 4, ccsid=4711))}, "The column X has CCSID 4711"),
        ({"fields": (Field("ID", "INTEGER", 4), Field("D", "XML", 0))}, "The column D is XML"),
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


def test_a_column_that_cannot_be_read_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it stands, and how wide it is, is known."""
    foreign = (Field("X", "CHAR", 4, ccsid=4711), Field("V", "VARCHAR", 6, ccsid=4711), Field("G", "VARG", 3, ccsid=9))
    file = replace(ORDERS, fields=(*foreign, *ORDERS.fields))
    rig = Rig(monkeypatch, file)
    rig.source = connector.create({**SETTINGS, "column.exclude.list": r"SHOP\.ORDERS\.[XVG]"})
    tail = rig.tail()
    rig.system.row("PT", file, 1, (b"\1\2\3\4", b"\5", b"\6\7", 1, "abcd"))
    (block,) = read(tail)[0].blocks
    assert block.table is not None
    decoder, selection = rig.source.decoder(), rig.source.selection()
    (row,) = decoder.typed(block.records, block.table, selection).rows.to_pylist()
    assert (row["ID"], row["NAME"]) == (1, "abcd")
    texts = decoder.texts(block.records, block.table, selection).rows.to_pylist()[0]
    assert (texts["X"], texts["V"], texts["G"], texts["ID"]) == ("\\x01020304", "\\x05", "\\x0607", "1")


def test_who_may_not_read_entries_is_told_by_the_check(rig: Rig) -> None:
    """The journal's attributes and receivers are shown to whom its entries are not."""
    rig.server.authorities = {"*USE"}
    wrong = [f for f in rig.source.check() if f.level == "error"]
    assert [f.subject for f in wrong] == ["check"]
    assert "*OBJEXIST" in wrong[0].cure


def test_settings_and_hints_name_the_authority_that_is_needed() -> None:
    (user,) = [s for s in config.SETTINGS if s.name == "database.user"]
    assert "*OBJEXIST" in user.meaning
    assert "*OBJEXIST" in client.AUTHORITIES


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
        (told("SHOP in *LIBL type *FILE not found.", "42704"), ConfigError),
        (told("Not allowed.", "42501"), ConfigError),
        (told("Entry 42704 of receiver 42501 is busy.", "57033"), TransientError),
        (RuntimeError("Job 442501/QUSER/X42704 has ended; SQLSTATE=08001."), TransientError),
        (RuntimeError("SQLSTATE: 42704, the view is missing."), ConfigError),
        (RuntimeError("File XCPF7053Y can't be locked."), TransientError),
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
