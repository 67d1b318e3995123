"""Resume tokens, in each of their forms."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.connectors.mongodb import offset, token
from tidelog.core.offsets.compare import Order
from tidelog.errors import ConfigError

SECONDS = st.integers(0, (1 << 32) - 1)


def key(seconds: int, number: int, rest: str = "2B0229296E04") -> str:
    return f"82{seconds:08X}{number:08X}{rest}"


@given(SECONDS, SECONDS, st.binary(max_size=5))
def test_a_token_comes_back_with_all_it_has(seconds: int, number: int, bits: bytes) -> None:
    found = {"_data": key(seconds, number), "_typeBits": bits}
    assert token.decode(token.encode(found)) == found
    assert token.timestamp(found) == (seconds, number)
    assert token.encode(token.shown(found)) == token.encode(found)
    assert token.normal(token.encode(found)) == token.encode(found)


@given(SECONDS, SECONDS)
def test_bare_hexadecimal_and_binary_keys_are_read(seconds: int, number: int) -> None:
    text = key(seconds, number)
    assert token.decode(text) == {"_data": text}
    assert token.normal(text) == token.encode({"_data": text})
    assert token.timestamp({"_data": bytes.fromhex(text)}) == (seconds, number)


@given(st.binary(max_size=40))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigError):
        token.normal(base64.b64encode(data).decode())


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"_data": ""},
        {"_data": "zz"},
        {"_data": 5},
        {"_data": "8200"},
        {"_data": "00" * 9},
        {"_data": {"$binary": "?"}},
    ],
)
def test_what_has_no_cluster_time(found: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        token.timestamp(found)


def test_a_member_of_another_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="_x is neither a text nor binary"):
        token.encode({"_x": 5})


def test_extended_json_in_both_its_forms() -> None:
    old, new = {"$binary": "gkAB"}, {"$binary": {"base64": "gkAB", "subType": "00"}}
    assert (
        token.encode({"_typeBits": old})
        == token.encode({"_typeBits": new})
        == token.encode({"_typeBits": b"\x82@\x01"})
    )


def test_the_cluster_time_of_an_offset() -> None:
    assert offset.cluster_time((5, 1), None) == {"sec": 5, "ord": 1}
    assert offset.cluster_time(None, {"_data": key(5, 1)}) == {"sec": -1, "ord": -1}
    assert offset.cluster_time(None, None) == {"sec": 0, "ord": 0}


@given(SECONDS, SECONDS, SECONDS, SECONDS)
def test_tokens_order_as_their_cluster_times(a: int, b: int, c: int, d: int) -> None:
    first = {"sec": -1, "ord": -1, "resume_token": key(a, b)}
    second = {"sec": -1, "ord": -1, "resume_token": key(c, d)}
    expected = Order.SAME if (a, b) == (c, d) else Order.BEFORE if (a, b) < (c, d) else Order.AFTER
    assert offset.compare(first, second) is expected


def test_without_tokens_the_cluster_time_decides() -> None:
    assert offset.compare({"sec": 5, "ord": 1}, {"sec": 5, "ord": 2}) is Order.BEFORE
    assert offset.compare({"sec": 5, "ord": 1}, {"sec": -1, "ord": -1, "resume_token": key(4, 9)}) is Order.AFTER
    assert offset.compare({"sec": -1, "ord": -1}, {"sec": 5, "ord": 1}) is Order.UNRELATED


@pytest.mark.parametrize(("flag", "running"), [(True, True), ("true", True), (False, False), ("false", False)])
def test_a_running_snapshot(flag: object, running: bool) -> None:
    assert offset.snapshot_running({"sec": 0, "ord": 0, "initsync": flag}) is running


def test_words() -> None:
    placed = {"sec": 1666193824, "ord": 1, "resume_token": key(1, 1)}
    assert offset.describe(placed) == "Cluster time 2022-10-19 15:37:04 UTC, operation 1"
    assert offset.describe({"sec": 5, "ord": 1}).endswith("without a resume token")
    assert offset.describe({"sec": 0, "ord": 0, "initsync": True}) == "Not positioned yet, in the initial snapshot"
