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


@pytest.mark.parametrize(("number", "codec"), [(37, "cp037"), (273, "cp273"), (500, "cp500"), (1140, "cp1140")])
def test_a_set_of_single_bytes(number: int, codec: str) -> None:
    values = [bytes(range(256)), b"", "Größe €".encode(codec, "ignore"), b"\x40"]
    data, offsets = column(values)
    found, failed = ccsid.texts(data, offsets, number, np.array([True, True, True, False]))
    assert found.to_pylist() == [*(v.decode(codec) for v in values[:3]), None]
    assert not failed.any()


def test_a_set_that_differs_by_the_euro() -> None:
    data, offsets = column([b"\x9f"])
    assert ccsid.texts(data, offsets, 1141, np.array([True]))[0].to_pylist() == ["€"]
    assert ccsid.texts(data, offsets, 273, np.array([True]))[0].to_pylist() == ["¤"]


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
    assert not ccsid.known(285)
    assert not ccsid.known(0)
