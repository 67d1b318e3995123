"""commit_scn: every form that was ever written, and what was delivered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.connectors.oracle import scn
from tidelog.connectors.oracle.scn import CommitScn, Committed
from tidelog.core.offsets.compare import Order
from tidelog.errors import ConfigError

TRANSACTIONS = st.sets(st.sampled_from(["0a00", "0b00", "0c00"]), max_size=3).map(lambda found: tuple(sorted(found)))
COMMITTED = st.builds(Committed, st.integers(0, 5), TRANSACTIONS)
COMMITS = st.dictionaries(st.integers(1, 3), COMMITTED, max_size=3).map(CommitScn)


@given(COMMITS)
def test_it_comes_back_from_its_text(commits: CommitScn) -> None:
    assert scn.parse(str(commits) or None) == commits


@given(COMMITS)
def test_older_forms_lose_only_the_transactions(commits: CommitScn) -> None:
    old = ",".join(f"{c.scn}:00241f.00093ff0.0010:0:{thread}" for thread, c in commits.threads.items())
    assert scn.parse(old or None) == CommitScn({t: Committed(c.scn) for t, c in commits.threads.items()})


@pytest.mark.parametrize("value", [12345, "12345", "12345:00241f.00093ff0.0010:0:1", "12345:1:"])
def test_every_form_of_one_commit(value: object) -> None:
    assert str(scn.parse(value)) == "12345:1:"


@pytest.mark.parametrize(
    "value", ["", "x", "1:2", "1:2:3:4:5", "1:x:", "1:1:a_b", "1:1:a--b", "1:1:,", -1, 1.5, True, []]
)
def test_what_is_no_commit_scn(value: object) -> None:
    with pytest.raises(ConfigError):
        scn.parse(value)


@given(COMMITS, st.integers(1, 3), st.integers(0, 5), st.sampled_from(["0a00", "0B00", "0d00"]))
def test_what_was_recorded_is_handled(commits: CommitScn, thread: int, number: int, transaction: str) -> None:
    recorded = commits.record(thread, number, transaction)
    assert recorded.handled(thread, number, transaction)
    assert not recorded.handled(thread, number, "ffff")
    assert recorded.handled(thread, number - 1, None)
    assert not recorded.handled(thread, number + 1, transaction)
    assert not recorded.handled(9, number, transaction)


def test_transactions_of_one_scn_gather_and_a_higher_one_begins_anew() -> None:
    commits = scn.parse("100:1:aa").record(1, 100, "bb")
    assert str(commits) == "100:1:aa-bb"
    assert str(commits.record(1, 101, "cc").record(2, 7, "dd")) == "101:1:cc,7:2:dd"


@given(COMMITS, st.integers(0, 6))
def test_the_thread_that_is_behind_decides(commits: CommitScn, number: int) -> None:
    if not commits.threads:
        assert (commits.highest, commits.lowest) == (None, None)
        assert (commits.against(number), commits.against(None)) == (-1, 0)
        return
    lowest = min(c.scn for c in commits.threads.values())
    assert commits.lowest == lowest
    assert commits.against(number) == (lowest > number) - (lowest < number)
    assert commits.against(None) == 1
    raised = commits.with_scn(number)
    assert raised.against(number) == 0
    assert [c.transactions for c in raised.threads.values()] == [c.transactions for c in commits.threads.values()]


@given(COMMITS, COMMITS)
def test_the_order_of_commits(a: CommitScn, b: CommitScn) -> None:
    assert a.order(b) is b.order(a).reverse()
    assert (a.order(b) is Order.SAME) == (a == b)


def test_numbers() -> None:
    assert scn.parse_scn(5) == scn.parse_scn("5") == 5
    assert scn.parse_scn(None) is None
    for wrong in ("", "x", "-1", -1, 1.0, True, "1" * 21, 10**20):
        with pytest.raises(ConfigError):
            scn.parse_scn(wrong)
