"""Row ids, alone and by the column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.connectors.oracle.redo import rowid
from tidelog.connectors.oracle.redo.rowid import ALPHABET, NONE, RowId
from tidelog.errors import UnsupportedChange


@given(st.text(ALPHABET, min_size=18, max_size=18))
def test_a_row_id_is_the_same_after_being_read(text: str) -> None:
    assert str(rowid.parse(text)) == text


def test_its_parts() -> None:
    assert rowid.parse("AAASJqAANAAAAnkAAI") == RowId(object=74346, file=13, block=2532, row=8)


@pytest.mark.parametrize("text", [None, "", "A" * 17, "A" * 19, "A" * 17 + "é", "A" * 17 + "-"])
def test_what_is_none_is_refused(text: str | None) -> None:
    with pytest.raises(UnsupportedChange):
        rowid.parse(text)


def test_keys_tell_rows_apart() -> None:
    texts = [str(RowId(o, f, b, r)) for o in (7, 8) for f in (1, 1023) for b in (5, 4_000_000) for r in (0, 700)]
    found = rowid.keys(pa.array(texts))
    assert len(set(found.tolist())) == len(texts)
    assert 0 not in found


def test_blocks_of_a_large_file_need_the_bits_of_the_file() -> None:
    texts = [str(RowId(7, 0, block, 1)) for block in (5, 5 + (1 << 22), 5 + (1 << 31))]
    assert len(set(rowid.keys(pa.array(texts)).tolist())) == len(texts)


def test_no_row_id_has_the_key_0() -> None:
    np.testing.assert_array_equal(rowid.keys(pa.array([NONE, None, "", "?" * 18], pa.string())), [0, 0, 0, 0])
