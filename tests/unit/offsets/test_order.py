"""Which of two offsets is further, and an offset in words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.offsets.samples import DOCUMENTS, UUID
from tidelog import connectors
from tidelog.connectors.postgres import offset as postgres
from tidelog.core.offsets import compare, moments
from tidelog.core.offsets.compare import CONSEQUENCES, Order
from tidelog.errors import ConfigError

BINLOG = {"file": "b.000003", "pos": 100}


@pytest.mark.parametrize(
    ("name", "a", "b", "order"),
    [
        ("postgres", {"lsn": 5}, {"lsn": 6}, Order.BEFORE),
        ("postgres", {"lsn": 9, "lsn_proc": 7, "lsn_commit": 5}, {"lsn": 5}, Order.SAME),
        ("postgres", {"lsn": 9, "lsn_proc": 7}, {"lsn": 6}, Order.AFTER),
        ("mysql", BINLOG, {**BINLOG, "pos": 99}, Order.AFTER),
        ("mysql", {**BINLOG, "file": "b.999999"}, {**BINLOG, "file": "b.1000000"}, Order.BEFORE),
        ("mysql", BINLOG, {**BINLOG, "file": "other.000003"}, Order.UNRELATED),
        ("mysql", BINLOG, {**BINLOG, "event": 2}, Order.BEFORE),
        ("mysql", {**BINLOG, "event": 2, "row": 1}, {**BINLOG, "event": 2}, Order.AFTER),
        ("mysql", {**BINLOG, "gtids": f"{UUID}:1-5"}, {"file": "a.1", "pos": 4, "gtids": f"{UUID}:1-6"}, Order.BEFORE),
        ("mysql", {**BINLOG, "gtids": f"{UUID}:1-5", "event": 1}, {**BINLOG, "gtids": f"{UUID}:1-5"}, Order.AFTER),
        ("mysql", {**BINLOG, "gtids": f"{UUID}:1-5"}, {**BINLOG, "gtids": f"{UUID}:2-6"}, Order.UNRELATED),
        ("mysql", {**BINLOG, "gtids": f"{UUID}:1-5"}, BINLOG, Order.SAME),
        ("mariadb", {**BINLOG, "gtids": "0-1-5"}, {**BINLOG, "gtids": "0-2-6"}, Order.BEFORE),
        ("mariadb", {**BINLOG, "gtids": "0-1-5,1-1-1"}, {**BINLOG, "gtids": "0-1-6"}, Order.UNRELATED),
        ("oracle", {"scn": "5"}, {"scn": "10"}, Order.BEFORE),
        ("oracle", {"scn": "5", "commit_scn": "7:1:"}, {"scn": "5", "commit_scn": "6:1:"}, Order.AFTER),
        ("oracle", {"scn": "6", "commit_scn": "6:1:"}, {"scn": "5", "commit_scn": "7:1:"}, Order.UNRELATED),
        ("oracle", {"scn": "5", "commit_scn": "7:1:a"}, {"scn": "5", "commit_scn": "7:1:a-b"}, Order.BEFORE),
        ("oracle", {"scn": "5", "txId": "a", "txSeq": 2}, {"scn": "5", "txId": "a", "txSeq": 3}, Order.BEFORE),
        ("oracle", {"scn": "5", "txId": "a"}, {"scn": "5", "txId": "b"}, Order.UNRELATED),
        ("oracle", {"scn": "5", "txId": "a"}, {"scn": "10", "txId": "b"}, Order.BEFORE),
        ("oracle", {"scn": "5", "txId": "a", "txSeq": 2}, {"scn": "6", "txId": "a", "txSeq": 1}, Order.UNRELATED),
        ("oracle", {"scn": "5", "txId": "a", "txSeq": 2}, {"scn": "5"}, Order.AFTER),
        (
            "oracle",
            {"scn": "5", "commit_scn": "7:1:a", "txId": "b", "txSeq": 9},
            {"scn": "5", "commit_scn": "9:1:b", "txId": "c", "txSeq": 1},
            Order.BEFORE,
        ),
        ("oracle", {"scn": "5", "scn_idx": 9}, {"scn": "6", "scn_idx": 1}, Order.BEFORE),
        ("oracle", {"lcr_position": "00ff"}, {"lcr_position": "0100"}, Order.BEFORE),
        ("oracle", {"lcr_position": "00ff"}, {"scn": "5"}, Order.UNRELATED),
        (
            "sqlserver",
            {"commit_lsn": "00000025:00000d98:00a2", "change_lsn": "00000025:00000d98:0003", "event_serial_no": 1},
            {"commit_lsn": "00000025:00000D98:00A2", "change_lsn": "00000025:00000d98:0003", "event_serial_no": 2},
            Order.BEFORE,
        ),
        ("sqlserver", {"commit_lsn": "00000026:00000000:0000"}, {"commit_lsn": "00000025:00000d98:00a2"}, Order.AFTER),
        (
            "iseries",
            {"offset.event_sequence": "9", "offset.receiver": "RECV009"},
            {"offset.event_sequence": "82", "offset.receiver": "RECV008"},
            Order.AFTER,
        ),
        (
            "iseries",
            {"offset.event_sequence": "9", "offset.receiver": "A1"},
            {"offset.event_sequence": "9", "offset.receiver": "B1"},
            Order.UNRELATED,
        ),
        (
            "iseries",
            {"offset.event_sequence": "9", "offset.receiver": "A1", "offset.processed": "true"},
            {"offset.event_sequence": "9", "offset.receiver": "A1", "offset.processed": "false"},
            Order.AFTER,
        ),
        (
            "iseries",
            {"offset.event_sequence": "null"},
            {"offset.event_sequence": "1", "offset.receiver": "A"},
            Order.BEFORE,
        ),
        ("spanner", {}, {"offset": "2023-01-01T00:00:00Z"}, Order.BEFORE),
        ("spanner", {"offset": "2023-01-01T00:00:00.000000001Z"}, {"offset": "2023-01-01T00:00:00Z"}, Order.AFTER),
        ("spanner", {"offset": "2023-01-01T00:00:00.5Z"}, {"offset": "2023-01-01T00:00:00.500Z"}, Order.SAME),
    ],
)
def test_the_order(name: str, a: dict[str, Any], b: dict[str, Any], order: Order) -> None:
    module = connectors.offsets(name)
    assert module.compare(a, b) is order
    assert module.compare(b, a) is order.reverse()
    assert order.covers == (order in (Order.AFTER, Order.SAME))


ORDERS = st.lists(st.sampled_from(Order), max_size=4)


@given(ORDERS)
def test_several_lines_at_once(orders: list[Order]) -> None:
    found = compare.both(orders)
    assert compare.both(o.reverse() for o in orders) is found.reverse()
    assert (found is Order.SAME) == (set(orders) <= {Order.SAME})
    if found is Order.BEFORE:
        assert not any(o.covers for o in orders if o is not Order.SAME)


MAPS = st.dictionaries(st.integers(0, 2), st.integers(0, 2), max_size=3)


@given(MAPS, MAPS)
def test_maps_and_sets_agree(a: dict[int, int], b: dict[int, int]) -> None:
    """A line at n has delivered 0 to n."""
    these, those = ({(k, n) for k, far in found.items() for n in range(far + 1)} for found in (a, b))
    assert compare.of_maps(a, b) is compare.of_sets(these <= those, those <= these)


def test_each_order_has_its_consequence() -> None:
    assert set(CONSEQUENCES) == set(Order)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("postgres", "LSN 0/16C53F0, transaction 560, committed 2020-09-22 00:09:37 UTC"),
        ("postgres snapshot", "LSN 0/5, in a snapshot"),
        ("mysql snapshot", "mysql-bin.000003, position 154"),
        (
            "mariadb",
            "mariadb-bin.000002, position 342, after the transactions 0-112233-42, written 2020-09-22 00:09:37 UTC",
        ),
        ("oracle olr", "SCN 745688898023, index 7, transaction 0x0001.002.00000003"),
        ("oracle xstream", "LCR position 0000000000060001"),
        ("oracle snapshot", "SCN unknown, in a snapshot"),
        ("iseries", "Journal receiver RCV_LIB/RECV008, entry 82, delivered, written 1970-01-02 10:17:36 UTC"),
        ("iseries beginning", "The beginning of the journal"),
        ("sqlserver", "Commit LSN 00000025:00000d98:00a2, change LSN 00000025:00000d98:0003, event 1"),
        ("sqlserver snapshot", "Commit LSN 00000025:00000d98:00a2, in a snapshot"),
        ("vitess", f"shop/-80 after MySQL56/{UUID}:1-1513"),
        ("spanner", "Changes up to the commit at 2023-01-01T00:00:00.000000000Z"),
        ("spanner beginning", "Nothing delivered yet"),
    ],
)
def test_an_offset_in_words(kind: str, words: str) -> None:
    name, offset = DOCUMENTS[kind]
    assert connectors.offsets(name).describe(offset) == words


def test_a_moment_beyond_all_calendars() -> None:
    assert moments.utc(10**30) == f"{10**30} µs after 1970"
    assert moments.utc(-1) == "1969-12-31 23:59:59 UTC"


def test_ours_is_a_right_document() -> None:
    written = postgres.document(23876599, 560, 1600733377000000)
    assert postgres.DOCUMENT.read(written) == written
    assert postgres.position_of(written) == written["lsn_commit"]
    assert postgres.DOCUMENT.problems(postgres.document(23876599, 0, 0)) == ()
    assert postgres.DOCUMENT.partition.problems(postgres.DOCUMENT.partition.write(server="s")) == ()


@pytest.mark.parametrize("wrong", [{}, {"txId": 5}, {"lsn": "5"}, {"lsn": True}, {"lsn": 5, "txId": 1.5}])
def test_where_reading_goes_on_must_be_told(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        postgres.position_of(wrong)
