"""Transaction metadata: counts per collection, one BEGIN however often a transaction is met."""

from __future__ import annotations

from tidelog.core.transactions import Transaction, begin


def test_counts_and_end() -> None:
    transaction, told = begin(None, "571:1")
    assert told == [{"status": "BEGIN", "id": "571:1"}]
    for name in ("s.a", "s.b", "s.a"):
        transaction = transaction.event(name)
    assert transaction.total == 3
    assert transaction.end() == {
        "status": "END",
        "id": "571:1",
        "event_count": 3,
        "data_collections": [
            {"data_collection": "s.a", "event_count": 2},
            {"data_collection": "s.b", "event_count": 1},
        ],
    }


def test_an_event_leaves_the_transaction_before_it_alone() -> None:
    before = Transaction("1")
    assert before.event("s.a").total == 1
    assert before.total == 0


def test_met_again_half_way_it_goes_on() -> None:
    half = Transaction("571:1").event("s.a").event("s.b_1")
    found = Transaction.from_offset({"lsn": 5, **half.to_offset()})
    assert found == half
    again, told = begin(found, "571:1")
    assert (again, told) == (half, [])
    assert again.event("s.a").end()["event_count"] == 3


def test_another_one_starts_anew() -> None:
    other, told = begin(Transaction("571:1").event("s.a"), "572:2")
    assert (other, told) == (Transaction("572:2"), [{"status": "BEGIN", "id": "572:2"}])


def test_an_offset_outside_of_a_transaction() -> None:
    assert Transaction.from_offset({"lsn": 5}) is None
    assert Transaction.from_offset({"transaction_id": None, "lsn": 5}) is None
