"""Which records of a transaction were taken back before it committed.

A mixed log tells a rollback to a savepoint by undoing: one record at a time, the newest first, by the key of its row
(Oracle, IBM i), or all records of a sub-transaction at once (PostgreSQL). An undo that finds nothing to take back
takes nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def undone(ordinals: Ints, keys: Ints, at: Ints, undo_keys: Ints, whole: Mask) -> Mask:
    """Of records by their ordinals and keys, those that do not count. Each undo stands before the record of the
    ordinal `at`; a `whole` one takes all records of its key so far."""
    lost = np.zeros(len(keys), np.bool_)
    for which, find in ((whole, _all_of), (~whole, _newest)):
        touched = np.flatnonzero(~lost & np.isin(keys, undo_keys[which]))
        if len(touched):
            lost[touched] = find(ordinals[touched], keys[touched], at[which], undo_keys[which])
    return lost


def _all_of(ordinals: Ints, keys: Ints, at: Ints, undo_keys: Ints) -> Mask:
    names, which = np.unique(undo_keys, return_inverse=True)
    last = np.zeros(len(names), np.int64)
    np.maximum.at(last, which, at)
    return ordinals < last[np.searchsorted(names, keys)]


def _newest(ordinals: Ints, keys: Ints, at: Ints, undo_keys: Ints) -> Mask:
    """Records open brackets and undos close them: a record is taken back if the depth falls below its own later on."""
    places = np.concatenate([2 * ordinals, 2 * at - 1])
    both = np.concatenate([keys, undo_keys])
    steps = np.concatenate([np.ones(len(keys), np.int64), -np.ones(len(undo_keys), np.int64)])
    order = np.lexsort((places, both))
    group = np.cumsum(np.concatenate([[0], np.diff(both[order]) != 0]))
    depth = np.cumsum(steps[order]) + group * (2 * len(order) + 2)  # a later key never reaches an earlier one's depth
    lowest = np.minimum.accumulate(depth[::-1])[::-1]
    taken = np.empty(len(order), np.bool_)
    taken[order] = lowest < depth
    return taken[: len(keys)]
