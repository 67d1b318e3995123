"""Character sets: a whole column of bytes at once gives what Python's codec gives value by value."""

from __future__ import annotations

import numpy as np
import pytest

from tidelog.connectors.iseries import ccsid


def column(
    values: list[bytes],
) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int64)
    return np.frombuffer(b"".join(values), np.uint8), offsets


def decoded(number: int, raw: bytes = bytes(range(256))) -> str:
    data, offsets = column([raw])
    found, failed = ccsid.texts(data, offsets, number, np.ones(1, np.bool_))
    assert not failed.any()
    return str(found[0].as_py())


@pytest.mark.parametrize(("number", "codec"), [(37, "cp037"), (500, "cp500"), (1026, "cp1026"), (1140, "cp1140")])
def test_a_set_of_single_bytes(number: int, codec: str) -> None:
    values = [bytes(range(256)), b"", "Größe €".encode(codec, "ignore"), b"\x40"]
    data, offsets = column(values)
    found, failed = ccsid.texts(data, offsets, number, np.array([True, True, True, False]))
    assert found.to_pylist() == [*(v.decode(codec) for v in values[:3]), None]
    assert not failed.any()


NATIONAL = {
    273: ("4a5a6ac0d0e0a17c44", "ÄÜöäüÖß§à"),
    277: ("7b7c5bc06ad04a674780", "ÆØÅæøå#$}@"),
    278: ("7b7c5bc06ad063ec71e0", "ÄÖÅäöå#@\\É"),
    280: ("c0d06a79a15ae0b1b5", "àèòùìéç#@"),
    284: ("7b6a69bbba", "Ññ#!^"),
    285: ("5b4aa1bcb1ba", "£$¯~[^"),
    297: ("c0d07ce06a4a7b5ab144", "éèàçù°£§#@"),
    871: ("7cc05a5f794ad0a1acbe", "ÐþÆÖðÞæö@\\"),
}
"""Bytes whose characters the code page's own chart shows."""


@pytest.mark.parametrize("number", NATIONAL)
def test_national_sets(number: int) -> None:
    raw, letters = NATIONAL[number]
    assert decoded(number, bytes.fromhex(raw)) == letters
    assert sorted(decoded(number)) == [chr(i) for i in range(256)], "each character of Latin-1 once"
    assert decoded(number, "Abz 019.,()".encode("cp037")) == "Abz 019.,()"


@pytest.mark.parametrize(
    ("number", "plain"),
    list(zip(range(1140, 1150), (37, 273, 277, 278, 280, 284, 285, 297, 500, 871), strict=True)),
)
def test_a_set_that_differs_by_the_euro(number: int, plain: int) -> None:
    assert decoded(number) == decoded(plain).replace("¤", "€")
    assert decoded(number).index("€") == (0x5A if plain in (277, 278) else 0x9F)


@pytest.mark.parametrize(("number", "codec"), [(1200, "utf-16-be"), (1208, "utf-8"), (932, "cp932")])
def test_a_set_of_several_bytes(number: int, codec: str) -> None:
    values = ["日本".encode(codec), "a".encode(codec), b""]
    data, offsets = column(values)
    found, failed = ccsid.texts(data, offsets, number, np.ones(3, np.bool_))
    assert found.to_pylist() == ["日本", "a", ""]
    assert not failed.any()


def test_bytes_that_are_no_text_are_told() -> None:
    data, offsets = column([b"ok", b"\xff\xfe"])
    found, failed = ccsid.texts(data, offsets, 1208, np.ones(2, np.bool_))
    assert failed.tolist() == [False, True]
    assert found.to_pylist() == ["ok", None]


def test_what_is_known() -> None:
    assert [number for number in (37, 273, 1141, 1148, 1208, 1200, 850) if not ccsid.known(number)] == []
    assert not ccsid.known(4711)
    assert not ccsid.known(0)
