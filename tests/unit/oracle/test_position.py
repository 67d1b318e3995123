"""Positions of commits: who shares an SCN, and what was delivered already."""

from __future__ import annotations

import pytest

from tidelog.connectors.oracle import position, scn
from tidelog.connectors.oracle.position import Commits
from tidelog.errors import ConfigError

A, B, C = (position.xid_of(f"0a0014000000000{n}") for n in "123")


def test_commits_that_share_an_scn_have_places_of_their_own() -> None:
    commits = Commits(0, scn.parse(None))
    places = [commits.place(1, 10, A), commits.place(2, 10, B), commits.place(1, 11, C)]
    assert places == [10 * 4096, 10 * 4096 + 1, 11 * 4096]
    assert commits.commit_scn() == "11:1:0a00140000000003,10:2:0a00140000000002"


def test_after_a_restart_each_commit_has_the_same_place() -> None:
    commits = Commits(10 * 4096 + 1, scn.parse("10:1:0a00140000000001"))
    assert [commits.place(1, 10, xid) for xid in (A, B)] == [None, 10 * 4096 + 1]


def test_a_commit_that_is_listed_is_delivered_whatever_the_order() -> None:
    commits = Commits(10 * 4096 + 2, scn.parse("10:1:0a00140000000001-0a00140000000003"))
    assert [commits.place(1, 10, xid) for xid in (B, C, A)] == [10 * 4096 + 2, None, None]


def test_an_older_note_lists_nothing_of_the_place() -> None:
    commits = Commits(10 * 4096 + 1, scn.parse("7:1:0a00140000000009"))
    assert [commits.place(1, 10, xid) for xid in (A, B)] == [None, 10 * 4096 + 1]


def test_an_older_note_of_the_same_scn_lists_some_of_the_place() -> None:
    commits = Commits(10 * 4096 + 2, scn.parse("10:1:0a00140000000001"))
    assert [commits.place(t, 10, xid) for t, xid in ((1, A), (2, B), (1, C))] == [None, None, 10 * 4096 + 2]
    assert commits.commit_scn() == "10:1:0a00140000000001-0a00140000000003,10:2:0a00140000000002"
    commits.again()
    assert [commits.place(t, 10, xid) for t, xid in ((1, A), (2, B), (1, C))] == [None] * 3


def test_a_thread_that_is_ahead_lists_nothing_of_the_place() -> None:
    commits = Commits(10 * 4096 + 2, scn.parse("12:1:0a00140000000009,10:2:0a00140000000002"))
    assert [commits.place(t, 10, xid) for t, xid in ((1, A), (2, B), (2, C))] == [None, None, 10 * 4096 + 2]


def test_each_redo_thread_has_its_own_mark() -> None:
    commits = Commits(90 * 4096, scn.parse("100:1:0a00140000000001,90:2:0a00140000000002"))
    assert commits.place(1, 95, C) is None
    assert commits.place(2, 95, C) == 95 * 4096 + 1
    assert commits.place(1, 100, A) is None


def test_a_pass_that_begins_again_counts_again() -> None:
    commits = Commits(0, scn.parse(None))
    commits.place(1, 10, A)
    commits.again()
    assert [commits.place(1, 10, A), commits.place(1, 10, B)] == [None, 10 * 4096 + 1]


def test_records_of_our_own_stand_behind_all_others_of_their_scn() -> None:
    commits = Commits(0, scn.parse(None))
    commits.place(1, 10, A)
    assert commits.own(10) == 10 * 4096 + 1
    assert commits.own(12) == 12 * 4096
    assert commits.place(1, 13, B) == 13 * 4096
    for _ in range(4095):
        commits.own(13)
    assert commits.own(13) is None


def test_ids() -> None:
    assert position.xid_text(position.xid_of("FF00140012345678")) == "ff00140012345678"
    assert position.is_partial(position.xid_of("0a001400ffffffff"))
    assert position.same_slot(position.xid_of("0a001400ffffffff"), position.xid_of("0a00140012345678"))
    with pytest.raises(ConfigError, match="no transaction id"):
        position.xid_of("tr_id")
