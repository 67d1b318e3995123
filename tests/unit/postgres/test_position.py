"""Positions: eight places for each LSN, and reading on from any of them skips nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.connectors.postgres import position
from tidelog.connectors.postgres.client import lsn_text

lsns = st.integers(1, (1 << 60) - 1).map(lambda n: n << 3)


@given(lsn=lsns, later=lsns)
def test_order_is_the_logs_order(lsn: int, later: int) -> None:
    assert (position.of_record(lsn) < position.of_record(later)) == (lsn < later)
    assert position.resume(position.of_record(lsn)) == lsn


@given(lsn=lsns)
def test_own_records_come_before_the_transaction_at_the_same_place(lsn: int) -> None:
    end, places = lsn, []
    while (at := position.of_own(end)) is not None:
        places.append(at)
        end = at + 1
    assert places == list(range(lsn, lsn + position.SLOTS - 1))
    assert all(at < position.of_record(lsn) and position.resume(at + 1) <= lsn for at in places)


@given(end=lsns)
def test_a_message_stands_before_whatever_starts_at_its_end(end: int) -> None:
    at = position.of_message(end)
    assert position.of_record(end - position.SLOTS) == at < end
    assert position.resume(at + 1) == end


@pytest.mark.parametrize(("text", "number"), [("0/0", 0), ("16/B374D848", 0x16B374D848), ("FFFFFFFF/FFFFFFF8", ~7)])
def test_texts(text: str, number: int) -> None:
    assert position.parse(text) == number & 0xFFFFFFFFFFFFFFFF


@given(lsn=lsns)
def test_texts_go_both_ways(lsn: int) -> None:
    assert position.parse(lsn_text(lsn)) == lsn
