"""Receivers as a chain, ranges in it, and positions that grow whatever the numbers and the clock do."""

from __future__ import annotations

from builtins import range as numbers
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.connectors.iseries import offset, position, range, receivers
from tidelog.connectors.iseries.position import Place
from tidelog.connectors.iseries.range import Range, Spot
from tidelog.connectors.iseries.receivers import Receiver
from tidelog.errors import PositionLost, UnsupportedChange


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5), st.booleans()), min_size=1, max_size=8))
def test_positions_grow_along_the_chain(steps: list[tuple[int, int, bool]]) -> None:
    """Receivers attached at any minute, with numbers that go on or begin anew."""
    made: list[Receiver] = []
    for i, (minute, count, reset) in enumerate(steps):
        first = 1 if reset or not made else made[-1].last + 1
        made.append(Receiver(f"R{i}", "L", first, first + count - 1, f"R{i + 1}", "L", minute=minute))
    made[-1] = replace(made[-1], next=None)
    chain = receivers.chain(made, made[-1].name)
    assert [r.name for r in chain] == [r.name for r in made]
    places = [(r, r.first + i) for r in chain for i in numbers(r.last - r.first + 1)]
    positions = [position.of(r.minute, s) for r, s in places]
    assert positions == sorted(set(positions))
    for (receiver, sequence), at in zip(places, positions, strict=True):
        found = chain[receivers.index_of(chain, position.place(at))]
        assert found is receiver or (found.last + 1 == sequence and found.next == receiver.name)


@given(st.integers(0, 2**24), st.integers(0, position.SEQUENCE_MAX))
def test_a_position_is_a_place(minute: int, sequence: int) -> None:
    assert position.place(position.of(minute, sequence)) == Place(minute, sequence)
    assert position.of(minute, sequence) < 2**63


def test_a_number_too_large_says_what_to_do() -> None:
    with pytest.raises(UnsupportedChange, match="sequence number") as refused:
        position.of(1, position.SEQUENCE_MAX + 1)
    assert "SEQOPT(*RESET)" in refused.value.hint


def test_minutes_stay_with_those_who_had_them() -> None:
    old, young = Receiver("A", "L", 1, 9, "B", "L", minute=50), Receiver("B", "L", 1, 5, minute=10)
    chain = receivers.chain([young, old], "B")
    assert [r.minute for r in chain] == [50, 51]
    anchor = {r.shown: r.minute for r in chain}
    assert receivers.chain([young], "B", anchor)[0].minute == 51
    assert receivers.chain([young], "B")[0].minute == 10


def test_times_are_read_in_both_forms() -> None:
    assert receivers.moment("2026-03-01-08.09.10.123456") == datetime(2026, 3, 1, 8, 9, 10, 123456)
    assert receivers.moment("2026-03-01 08:09:10.123") == datetime(2026, 3, 1, 8, 9, 10, 123000)


def test_a_circle_of_receivers_ends() -> None:
    two = [Receiver("A", "L", 1, 2, "B", "L"), Receiver("B", "L", 3, 4, "A", "L")]
    assert [r.name for r in receivers.chain(two, "B")] == ["A", "B"]


def test_who_holds_an_entry() -> None:
    chain = [Receiver("A", "L", 1, 9), Receiver("B", "L", 10, 20), Receiver("C", "L", 1, 5)]
    assert receivers.holder(chain, 2, 3) == 2
    assert receivers.holder(chain, 1, 3) == 0
    assert receivers.holder(chain, 2, 15) == 1
    with pytest.raises(PositionLost):
        receivers.holder(chain, 2, 99)


def test_a_range_stays_in_its_receiver() -> None:
    chain = [Receiver("A", "L", 1, 9, "B", "L"), Receiver("B", "L", 10, 20)]
    found = range.find(chain, Spot(9, "A", "L", processed=True), 100)
    assert found is not None
    assert (found.start.receiver, found.first, found.end) == ("B", 10, 20)
    done = range.find(chain, Spot(20, "B", "L", processed=True), 100)
    assert done is not None
    assert not done.call_needed
    assert range.find(chain, Spot(1, "X", "L"), 100) is None


def test_without_a_spot_the_chain_is_read_from_its_beginning() -> None:
    chain = [Receiver("A", "L", 5, 9, "B", "L"), Receiver("B", "L", 10, 20)]
    assert range.find(chain, None, 100) == Range(Spot(5, "A", "L"), 9)
    assert range.find([], None, 100) is None


@pytest.mark.parametrize("sequence", ["null", "0", None])
def test_an_offset_without_an_entry_is_the_beginning(sequence: str | None) -> None:
    told = {} if sequence is None else {offset.SEQUENCE: sequence}
    assert offset.spot_of({**told, offset.RECEIVER: "A", offset.LIBRARY: "L"}) is None


def test_the_beginning_is_written_as_a_text() -> None:
    written = offset.document(None, 0, snapshot_completed=True)
    assert (written[offset.SEQUENCE], written[offset.RECEIVER], written[offset.PROCESSED]) == ("null", "", "false")
    assert offset.DOCUMENT.read(written)[offset.SEQUENCE] == offset.UNSET
    assert offset.spot_of(written) is None


@pytest.mark.parametrize(
    ("entry", "seen"),
    [
        (Spot(7, "A", "L"), True),
        (Spot(7, "", ""), True),
        (Spot(8, "A", "L"), False),
        (Spot(7, "B", "L"), False),
        (Spot(7, "A", "M"), False),
        (Spot(7, "", "M"), False),
    ],
)
def test_an_entry_was_seen_in_its_own_receiver(entry: Spot, seen: bool) -> None:
    """Numbers may begin anew with a receiver: the same number elsewhere is another entry."""
    assert Spot(7, "A", "L", processed=True).skips(entry) is seen
    assert not Spot(7, "A", "L").skips(entry)
    assert Spot(7, "A", "L", processed=True).following == 8
    assert Spot(7, "A", "L").following == 7
