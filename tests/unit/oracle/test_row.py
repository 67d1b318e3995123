"""Rows of the log as columns: continuations, NULLs, times, and pieces that can be looked at alone."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np

from tidelog.connectors.oracle import config, queries, row
from tidelog.connectors.oracle.row import Feed

NAMES = queries.columns(config.read({"database.user": "u", "database.dbname": "d"}))


def fetched(scn: int, sql: bytes | None = b"x", csf: int = 0, **columns: Any) -> tuple[Any, ...]:
    told = {"SCN": scn, "SQL_REDO": sql, "CSF": csf, "OPERATION_CODE": 1, "XID": bytes(8), **columns}
    return tuple(told.get(name) for name in NAMES)


def test_a_statement_that_goes_on_is_joined() -> None:
    found = row.read([fetched(1), fetched(2, b"a" * 4000, 1), fetched(2, b"b", 1), fetched(2, b"c"), fetched(3)], NAMES)
    assert found.sql.tolist() == [b"x", b"a" * 4000 + b"bc", b"x"]
    assert found.scn.tolist() == [1, 2, 3]


def test_a_statement_may_be_cut_inside_a_character() -> None:
    one, other = "Käse".encode()[:2], "Käse".encode()[2:]
    assert row.read([fetched(1, one, 1), fetched(1, other)], NAMES).sql.tolist() == ["Käse".encode()]


def test_a_statement_is_never_cut_between_two_fetches() -> None:
    feed = Feed(NAMES, whole=False)
    assert feed.push([fetched(1), fetched(2, b"a", 1)]).sql.tolist() == [b"x"]
    assert feed.holds
    assert feed.push([fetched(2, b"b", 1)]).sql.tolist() == []
    assert feed.push([fetched(2, b"c"), fetched(3)]).sql.tolist() == [b"abc", b"x"]
    assert not feed.holds


def test_an_scn_is_never_cut_where_that_matters() -> None:
    feed = Feed(NAMES, whole=True)
    assert feed.push([fetched(1), fetched(2), fetched(2)]).scn.tolist() == [1]
    assert feed.push([fetched(2)]).scn.tolist() == []
    assert feed.push([fetched(3, b"a", 1)]).scn.tolist() == [2, 2, 2]
    assert feed.push([fetched(3, b"b")]).scn.tolist() == []
    assert feed.finish().sql.tolist() == [b"ab"]


def test_nulls_and_columns_that_are_left_out() -> None:
    found = row.read([fetched(1, None, THREAD=None, XID=None), fetched(2, SSN=7)], [*NAMES[:-1], "OTHER"])
    assert found.sql.tolist() == [None, b"x"]
    assert found.thread.tolist() == [0, 0]
    assert found.ssn.tolist() == [0, 7]
    assert found.client.tolist() == [None, None]
    assert found.xid.tolist() == [0, 0]


def test_the_greatest_scn_means_none() -> None:
    found = row.read([fetched(1, COMMIT_SCN=2**64 - 1), fetched(2, COMMIT_SCN=7)], NAMES)
    assert found.commit_scn.tolist() == [0, 7]


def test_times_are_those_of_the_servers_clock() -> None:
    noon = datetime(2024, 2, 29, 12)
    found = row.read([fetched(1, TIMESTAMP=noon), fetched(2, TIMESTAMP=None)], NAMES, ahead_us=3_600_000_000)
    eleven = np.datetime64("2024-02-29T11:00:00", "us").astype(np.int64)
    assert found.time_us.tolist() == [eleven, 0]


def test_ids_keep_their_bytes() -> None:
    xid = bytes.fromhex("ff001400000f4240")
    assert row.read([fetched(1, XID=xid)], NAMES).xid.tolist() == [int.from_bytes(xid, "big", signed=True)]


def test_no_rows() -> None:
    assert len(row.read([], NAMES)) == 0
