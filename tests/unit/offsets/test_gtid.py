"""Sets of GTIDs, of MySQL and MariaDB: the algebra of sets holds, and equal sets are equal texts."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.offsets.samples import UUID
from tidelog.connectors.mariadb import gtid as mariadb
from tidelog.connectors.mysql import gtid as mysql
from tidelog.connectors.mysql.gtid import GtidSet
from tidelog.core.offsets import intervals
from tidelog.errors import ConfigError

OTHER = "7145bf69-d1ca-11e5-a588-0242ac110004"
SOURCES = (UUID, OTHER, f"{UUID}:blue", f"{UUID}:red")

NUMBERS = st.sets(st.integers(1, 12), max_size=8)
PLAIN = st.dictionaries(st.sampled_from(SOURCES), NUMBERS, max_size=4)
"""A set as what it is: numbers by source."""


def made(plain: dict[str, set[int]]) -> GtidSet:
    return GtidSet.of((source, [(n, n) for n in numbers]) for source, numbers in plain.items())


def members(found: GtidSet) -> set[tuple[str, int]]:
    return {(s, n) for s, parts in found.sources.items() for first, last in parts for n in range(first, last + 1)}


def pairs(plain: dict[str, set[int]]) -> set[tuple[str, int]]:
    return {(source, n) for source, numbers in plain.items() for n in numbers}


@given(PLAIN)
def test_a_set_comes_back_from_its_text(plain: dict[str, set[int]]) -> None:
    found = made(plain)
    assert mysql.parse(str(found)) == found
    assert members(found) == pairs(plain)
    assert mysql.normal(str(found)) == (str(found) or None)


@given(PLAIN, PLAIN)
def test_the_algebra_is_that_of_sets(a: dict[str, set[int]], b: dict[str, set[int]]) -> None:
    these, those = made(a), made(b)
    assert members(these.subtract(those)) == pairs(a) - pairs(b)
    assert members(these.union(those)) == pairs(a) | pairs(b)
    assert members(these.intersect(those)) == pairs(a) & pairs(b)
    assert these.within(those) == (pairs(a) <= pairs(b))
    assert (str(these) == str(those)) == (pairs(a) == pairs(b))
    assert these.subtract(those).union(these.intersect(those)) == these


@given(PLAIN, st.sampled_from(SOURCES), st.integers(1, 14))
def test_one_identifier(plain: dict[str, set[int]], source: str, number: int) -> None:
    assert made(plain).contains(f"{source}:{number}") == ((source, number) in pairs(plain))


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5)), max_size=6))
def test_intervals_are_sorted_disjoint_and_apart(found: list[tuple[int, int]]) -> None:
    normal = intervals.normal((first, first + length) for first, length in found)
    assert all(a[1] + 1 < b[0] for a, b in itertools.pairwise(normal))
    assert {n for f, length in found for n in range(f, f + length + 1)} == {
        n for first, last in normal for n in range(first, last + 1)
    }
    assert all(intervals.contains(normal, first) for first, _ in found)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        (f"{UUID}:1-191:192-199", f"{UUID}:1-199"),
        (f"{UUID}:5:1-3", f"{UUID}:1-3:5"),
        (f"{OTHER}:1,\r\n {UUID}:1-2,\n{UUID}:3", f"{UUID}:1-3,{OTHER}:1"),
        (UUID.replace("-", "").upper() + ":7", f"{UUID}:7"),
        (f"{UUID}:1-3:Blue:1-5:red:1", f"{UUID}:1-3,{UUID}:blue:1-5,{UUID}:red:1"),
    ],
)
def test_other_spellings_of_a_set(text: str, normal: str) -> None:
    assert mysql.normal(text) == normal


@pytest.mark.parametrize(
    "text",
    ["x:1", UUID, f"{UUID}:", f"{UUID}:3-1", f"{UUID}:0", f"{UUID}:tag", f"{UUID}:1-2-3", f"{UUID}:1:-", "0-1-2"],
)
def test_what_is_no_set(text: str) -> None:
    with pytest.raises(ConfigError):
        mysql.parse(text)


def test_filters() -> None:
    found = mysql.parse(f"{UUID}:1-5:blue:1-2,{OTHER}:9")
    assert str(found.retain(lambda uuid: uuid == UUID)) == f"{UUID}:1-5,{UUID}:blue:1-2"
    assert str(found.retain_known(mysql.parse(f"{UUID}:blue:7"))) == f"{UUID}:blue:1-2"


GTIDS = st.builds(mariadb.Gtid, st.integers(0, 2), st.integers(1, 3), st.integers(0, 9))
POSITIONS = st.lists(GTIDS, max_size=5).map(mariadb.GtidSet.of)


@given(POSITIONS, POSITIONS)
def test_positions_of_mariadb(a: mariadb.GtidSet, b: mariadb.GtidSet) -> None:
    assert mariadb.parse(str(a)) == a
    assert a.within(a.union(b))
    assert b.within(a.union(b))
    assert a.within(b) == (not a.subtract(b).gtids)
    far_a, far_b = a.reached(), b.reached()
    assert a.within(b) == all(far <= far_b.get(domain, -1) for domain, far in far_a.items())


def test_a_failover_does_not_matter_to_mariadb() -> None:
    assert mariadb.parse("0-2-892554529").within(mariadb.parse("0-1-964871206"))
    assert not mariadb.parse("0-1-100").within(mariadb.parse("1-1-100"))
    assert mariadb.parse("0-1-100,0-2-200").sequences(0) == (100, 200)
    assert mariadb.parse("0-1-100").sequences(9) is None
    assert str(mariadb.parse("0-1-100,1-2-3").retain(lambda source: source == "1-2")) == "1-2-3"
    assert mariadb.parse("1-2-3").contains(mariadb.Gtid(1, 2, 3))


@pytest.mark.parametrize("text", ["1-2", "1-2-3-4", "a-b-c", f"{1 << 32}-1-1", f"1-1-{1 << 64}", UUID + ":1"])
def test_what_is_no_position_of_mariadb(text: str) -> None:
    with pytest.raises(ConfigError, match="is no GTID of MariaDB"):
        mariadb.parse(text)
