"""Records that were taken back: the vectorised answer against a plain stack."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.core.undo import undone

STEPS = st.lists(st.tuples(st.sampled_from("rrruua"), st.sampled_from([1, 2, -(2**63), 2**63 - 1])), max_size=40)


def plain(steps: list[tuple[str, int]]) -> list[bool]:
    """Whole keys first, then one by one: what an undo of all took is no record that a later undo could find."""
    keys = [key for kind, key in steps if kind == "r"]
    lost = [False] * len(keys)
    for wanted in ("a", "u"):
        count = 0
        for kind, key in steps:
            if kind == "r":
                count += 1
            elif kind == wanted:
                found = [i for i in range(count) if keys[i] == key and not lost[i]]
                for i in found if wanted == "a" else found[-1:]:
                    lost[i] = True
    return lost


@given(STEPS)
@settings(max_examples=500)
def test_undone_is_what_a_stack_would_take(steps: list[tuple[str, int]]) -> None:
    before, records, undos = 0, [], []
    for kind, key in steps:
        if kind == "r":
            records.append((before, key))
            before += 1
        else:
            undos.append((before, key, kind == "a"))
    ordinals, keys = (np.array([r[i] for r in records], np.int64) for i in (0, 1))
    at, undo_keys = (np.array([u[i] for u in undos], np.int64) for i in (0, 1))
    whole = np.array([u[2] for u in undos], np.bool_)
    assert undone(ordinals, keys, at, undo_keys, whole).tolist() == plain(steps)


def test_an_undo_that_finds_nothing_takes_nothing() -> None:
    one = np.array([0], np.int64)
    assert undone(one, one + 5, one, one + 5, np.array([False])).tolist() == [False]
    assert undone(one, one + 5, one + 1, one + 6, np.array([True])).tolist() == [False]
