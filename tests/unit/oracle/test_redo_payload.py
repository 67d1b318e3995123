"""Records of Oracle as bytes, and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidelog.connectors.oracle import payload
from tidelog.connectors.oracle.payload import HEADER, RELAXED, SHOWN
from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Change, Sql
from tidelog.model.record import Op


def packed() -> pa.BinaryArray:
    return payload.pack(
        code=[1, 2, 0],
        sql=["insert …", "delete", None],
        thread=[1, 2, 1],
        flags=[0, SHOWN, SHOWN | RELAXED],
        sequence=np.array([5, 6, 2**40]),
        ssn=7,
        time_us=[-1, 0, 2**50],
        start_scn=2**60,
        rowid=["AAAR/aAANAAAAPtAAA", None, "AAAR/aAANAAAAPtAAB"],
        rs_id=[" 0x00010e.0000a6f1.0010 ", None, ""],
        user=["SCOTT", None, "É"],
        info=pa.array([None, "x" * 300, ""]),
    )


def test_what_is_packed_comes_out() -> None:
    found = payload.unpack(packed())
    assert found.head["code"].tolist() == [1, 2, 0]
    assert found.head["thread"].tolist() == [1, 2, 1]
    assert found.head["sequence"].tolist() == [5, 6, 2**40]
    assert found.head["time_us"].tolist() == [-1, 0, 2**50]
    assert found.head["start_scn"].tolist() == [2**60] * 3
    assert found.texts("rowid").to_pylist() == ["AAAR/aAANAAAAPtAAA", None, "AAAR/aAANAAAAPtAAB"]
    assert found.texts("rs_id").to_pylist() == [" 0x00010e.0000a6f1.0010 ", None, None]
    assert found.user.to_pylist() == ["SCOTT", None, "É"]
    assert found.client.to_pylist() == [None, None, None]
    assert found.info.to_pylist() == [None, "x" * 300, None]
    assert found.sql.to_pylist() == ["insert …".encode(), b"delete", b""]
    assert found.merged.tolist() == [False, False, True]
    assert found.flagged(SHOWN).tolist() == [False, True, True]
    assert not found.damaged.any()


def test_a_part_of_a_block_and_none() -> None:
    assert payload.unpack(packed()[1:2]).sql.to_pylist() == [b"delete"]
    assert len(payload.unpack(packed()[:0]).head) == 0


def test_damaged_bytes_are_found_and_spoil_nothing_else() -> None:
    sound = packed()[0].as_py()
    long = bytearray(sound)
    long[HEADER.itemsize - 6 : HEADER.itemsize] = b"\xff" * 6
    found = payload.unpack(pa.array([b"", sound[:50], sound, bytes(long), None], pa.binary()))
    assert found.damaged.tolist() == [True, True, False, True, True]
    assert found.user[2].as_py() == "SCOTT"
    assert found.sql[2].as_py() == "insert …".encode()
    assert payload.unpack(pa.array([b"abc"], pa.binary())).damaged.tolist() == [True]


def test_a_merged_change_keeps_what_its_values_are() -> None:
    change = Change(Op.UPDATE, {"A": None, "B": UNAVAILABLE}, {"A": "it's", "B": Sql("HEXTORAW('0a')")})
    found = payload.read_merged(payload.merged(change))
    assert found == change
    assert found.after is not None
    assert isinstance(found.after["B"], Sql)
    assert not isinstance(found.after["A"], Sql)
