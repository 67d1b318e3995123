"""Rows of the log as columns: continuations, NULLs, times, and pieces that can be looked at alone."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np

from tidelog.connectors.oracle import config, queries, row
from tidelog.connectors.oracle.row import Feed

NAMES = queries.columns(config.read({"database.user": "u", "database.dbname": "d"}))


def fetched(scn: int, sql: str | None = "x", csf: int = 0, **columns: Any) -> tuple[Any, ...]:
    told = {"SCN": scn, "SQL_REDO": sql, "CSF": csf, "OPERATION_CODE": 1, "XID": bytes(8), **columns}
    return tuple(told.get(name) for name in NAMES)


def test_a_statement_that_goes_on_is_joined() -> None:
    found = row.read([fetched(1), fetched(2, "a" * 4000, 1), fetched(2, "b", 1), fetched(2, "c"), fetched(3)], NAMES)
    assert found.sql.tolist() == ["x", "a" * 4000 + "bc", "x"]
    assert found.scn.tolist() == [1, 2, 3]


def test_a_statement_is_never_cut_between_two_fetches() -> None:
    feed = Feed(NAMES, whole=False)
    assert feed.push([fetched(1), fetched(2, "a", 1)]).sql.tolist() == ["x"]
    assert feed.holds
    assert feed.push([fetched(2, "b", 1)]).sql.tolist() == []
    assert feed.push([fetched(2, "c"), fetched(3)]).sql.tolist() == ["abc", "x"]
    assert not feed.holds


def test_an_scn_is_never_cut_where_that_matters() -> None:
    feed = Feed(NAMES, whole=True)
    assert feed.push([fetched(1), fetched(2), fetched(2)]).scn.tolist() == [1]
    assert feed.push([fetched(2)]).scn.tolist() == []
    assert feed.push([fetched(3, "a", 1)]).scn.tolist() == [2, 2, 2]
    assert feed.push([fetched(3, "b")]).scn.tolist() == []
    assert feed.finish().sql.tolist() == ["ab"]


def test_nulls_and_columns_that_are_left_out() -> None:
    found = row.read([fetched(1, None, THREAD=None, XID=None), fetched(2, SSN=7)], [*NAMES[:-1], "OTHER"])
    assert found.sql.tolist() == [None, "x"]
    assert found.thread.tolist() == [0, 0]
    assert found.ssn.tolist() == [0, 7]
    assert found.client.tolist() == [None, None]
    assert found.xid.tolist() == [0, 0]


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
