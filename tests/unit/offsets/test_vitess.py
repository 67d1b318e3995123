"""Vitess: vgtid, GTIDs of shards, epochs and their lineage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.offsets.samples import UUID, VGTID
from tidelog.connectors.vitess import epoch, gtid, vgtid
from tidelog.core.offsets.compare import Order
from tidelog.errors import ConfigError

KEY = {"table_name": "t", "lastpk": {"fields": [{"name": "id", "type": "INT64"}], "rows": [{"values": "1"}]}}


def shards(*gtids: str, keys: Any = ()) -> str:
    names = ("-80", "80-")
    listed = [{"keyspace": "k", "shard": s, "gtid": g} for s, g in zip(names, gtids, strict=False)]
    return json.dumps([{**shard, "table_p_ks": list(keys)} for shard in listed])


def test_the_text_is_canonical() -> None:
    loose = f'[ {{"gtid": "MySQL56/{UUID}:1-1513", "shard": "-80", "keyspace": "shop"}} ]'
    assert vgtid.normal(loose) == VGTID
    assert vgtid.normal(VGTID) == VGTID


@pytest.mark.parametrize(
    ("text", "copies"),
    [
        (shards("", f"a/{UUID}:1"), True),
        (shards("", "current"), True),
        (shards("current", "current"), False),
        (shards("a/h:1-2", "a/h:1-2"), False),
        (shards("a/h:1-2", "a/h:1-2", keys=[KEY]), True),
    ],
)
def test_when_tables_are_copied(text: str, copies: bool) -> None:
    assert vgtid.parse(text).copies is copies


def test_shards() -> None:
    found = vgtid.parse(shards("current", "a/h:1-2", keys=[KEY]))
    assert found.shard("80-") == found.shards[1]
    assert found.shard("x") is None
    assert found.local("80-").shards == (found.shards[1],)
    assert [(key.table, key.fields) for key in found.shards[0].keys] == [("t", ("id",))]
    assert vgtid.parse(str(found)) == found


@pytest.mark.parametrize(
    "listed",
    [
        [],
        {},
        [5],
        [{"keyspace": "k", "shard": "0"}],
        [{"keyspace": "", "shard": "0", "gtid": ""}],
        [{"keyspace": "k", "shard": 0, "gtid": ""}],
        [{"keyspace": "k", "shard": "0", "gtid": "x"}],
        [{"keyspace": "k", "shard": "0", "gtid": "", "table_pks": []}],
        [{"keyspace": "k", "shard": "0", "gtid": "", "table_p_ks": {}}],
        [{"keyspace": "k", "shard": "0", "gtid": "", "table_p_ks": [{"table_name": "t"}]}],
        [{"keyspace": "k", "shard": "0", "gtid": ""}] * 2,
    ],
)
def test_what_is_no_vgtid(listed: Any) -> None:
    with pytest.raises(ConfigError):
        vgtid.of(listed)


@pytest.mark.parametrize("text", ["[NaN]", "[" * 5000, "x", '["\\ud800"]'])
def test_what_is_no_json_in_a_vgtid(text: str) -> None:
    with pytest.raises(ConfigError):
        vgtid.parse(text)


def test_a_gtid() -> None:
    found = gtid.parse("MySQL56/host1:1-4:6-9,host2:2-10")
    assert (found.version, found.hosts, found.sequences, found.rank) == ("MySQL56", ("host1", "host2"), ("9", "10"), 19)
    assert gtid.parse("host1:1-9223372036854775807,host2:1").rank == 1 << 63
    assert gtid.parse("host1:1").version == ""
    for wrong in ("", "MySQL56", "MySQL56/", "MySQL56/host", "host:", "host:x"):
        with pytest.raises(ConfigError):
            gtid.parse(wrong)
    assert gtid.check("FilePos/binlog.000001:4") == "FilePos/binlog.000001:4"


@pytest.mark.parametrize(
    ("a", "b", "order"),
    [
        ("a/h:1-4", "a/h:1-5", Order.BEFORE),
        ("a/h:1-4,i:1", "a/h:1-4", Order.AFTER),
        ("a/h:1-4", "b/h:1-2:3-4", Order.SAME),
        ("a/h:1-4", "a/i:1-4", Order.UNRELATED),
        ("", "a/h:1", Order.BEFORE),
        ("", "current", Order.BEFORE),
        ("current", "a/h:1", Order.UNRELATED),
        ("MariaDB/0-1-2", "MariaDB/0-1-3", Order.UNRELATED),
    ],
)
def test_the_order_of_gtids(a: str, b: str, order: Order) -> None:
    assert gtid.order(a, b) is order
    assert gtid.order(b, a) is order.reverse()


@pytest.mark.parametrize(
    ("previous", "current", "following"),
    [
        ("a/h:1,i:1", "a/h:2,i:1", 5),
        ("a/h:1", "a/h:2,i:1", 5),
        ("a/h:1,i:1", "a/h:2", 6),
        ("a/h:1", "a/j:2", 6),
        ("a/h:1", "b/h:1", 5),
        ("", "a/h:1", 6),
        ("current", "a/h:1", 6),
        ("", "", 5),
        ("current", "", 5),
    ],
)
def test_an_epoch_rises_when_hosts_leave(previous: str, current: str, following: int) -> None:
    assert epoch.following(5, previous, current) == following


def test_epochs_of_all_shards() -> None:
    known = {"-80": 0, "80-": 4}
    assert epoch.of_shards(known, shards("", "a/h:1"), shards("a/h:1", "a/h:2")) == {"-80": 1, "80-": 4}
    with pytest.raises(ConfigError, match="vgtid before it"):
        epoch.of_shards(known, None, shards("a/h:1"))
    with pytest.raises(ConfigError, match="After a real GTID"):
        epoch.of_shards(known, shards("a/h:1"), shards(""))
    with pytest.raises(ConfigError, match="has no epoch"):
        epoch.of_shards({}, shards("a/h:1"), shards("a/h:1"))


def test_a_new_shard_begins_at_its_parents() -> None:
    before = json.dumps([{"keyspace": "k", "shard": "0", "gtid": "a/h:1"}])
    assert epoch.of_shards({"0": 3}, before, shards("a/h:1", "a/h:1")) == {"0": 3, "-80": 0, "80-": 0}
    assert epoch.of_shards({"0": 3}, before, shards("a/h:1"), inherit=True) == {"0": 3, "-80": 4}


@pytest.mark.parametrize(
    ("shard", "epochs", "inherited"),
    [
        ("-80", {"0": 1}, 2),
        ("80-C0", {"-80": 1, "80-": 3}, 4),
        ("4000-6000", {"-4000": 1, "4000-8000": 2}, 3),
        ("40-80", {"-4000": 5}, 0),
        ("-4000", {"40-80": 5}, 0),
        ("b750-b820", {"B7-b8": 1}, 2),
        ("80-", {}, 0),
        ("-", {"-80": 1, "80-": 3}, 4),
    ],
)
def test_lineage(shard: str, epochs: dict[str, int], inherited: int) -> None:
    assert epoch.inherited(shard, epochs) == inherited


@pytest.mark.parametrize("shard", ["80-30", "80-80", "x-y", "40-80-c0", "-00", "80-8000"])
def test_what_is_no_range(shard: str) -> None:
    with pytest.raises(ConfigError, match="is no range of a shard"):
        epoch.inherited(shard, {})


@pytest.mark.parametrize("text", ["[]", "{", '{"-80":-1}', '{"-80":"1"}', '{"-80":true}', '{"-80":1.5}', '{"a":NaN}'])
def test_what_are_no_epochs(text: str) -> None:
    with pytest.raises(ConfigError):
        epoch.normal(text)
