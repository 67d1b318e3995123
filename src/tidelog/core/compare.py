"""Two tables that should be equal: which rows are missing, extra or different.

Rows pair by key, the n-th of a key with the n-th of the same key, so a row that was written twice shows as extra.
Values are compared by what they mean, not by how a file spells them: null equals null, NaN equals NaN, 1.50 equals
1.5, and a text is a text whatever Arrow calls its type. Whole columns are compared at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.core.fold import encode
from tidelog.core.moments import legible

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MISSING, EXTRA, DIFFERENT = "missing", "extra", "different"


@dataclass(frozen=True)
class Difference:
    kind: str
    """`missing` in the target, `extra` in the target, or `different`."""
    key: tuple[tuple[str, Any], ...]
    columns: tuple[str, ...] = ()
    """The columns that differ."""
    source: tuple[Any, ...] = ()
    target: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Comparison:
    rows: int = 0
    """Rows of the source."""
    missing: int = 0
    extra: int = 0
    different: int = 0
    examples: tuple[Difference, ...] = ()

    @property
    def differences(self) -> int:
        return self.missing + self.extra + self.different

    def plus(self, other: Comparison, examples_max: int) -> Comparison:
        return Comparison(
            self.rows + other.rows,
            self.missing + other.missing,
            self.extra + other.extra,
            self.different + other.different,
            (self.examples + other.examples)[:examples_max],
        )


def compare(source: pa.Table, target: pa.Table, key: Sequence[str], *, examples_max: int = 10) -> Comparison:
    """Both hold the same columns; without a key, rows are compared as wholes."""
    names = list(key) or source.column_names
    source, target = _with_wide_offsets(source).combine_chunks(), _with_wide_offsets(target).combine_chunks()
    left, right = _pairs(source, target, names)
    missing = np.setdiff1d(np.arange(source.num_rows), left)
    extra = np.setdiff1d(np.arange(target.num_rows), right)
    wrong = _wrong(source.take(left), target.take(right), [c for c in source.column_names if c not in names])
    rows = np.flatnonzero(np.any(list(wrong.values()), axis=0)) if wrong else np.array([], np.int64)
    examples = [
        *_absent(MISSING, source, missing[:examples_max], names),
        *_absent(EXTRA, target, extra[:examples_max], names),
        *_changed(source, target, left, right, rows[:examples_max], wrong, names),
    ]
    return Comparison(source.num_rows, len(missing), len(extra), len(rows), tuple(examples[:examples_max]))


def _with_wide_offsets(table: pa.Table) -> pa.Table:
    """Texts and bytes addressed by 64 bits: a column of a range may hold more than the 2 GiB that 32 bits reach."""
    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    return table.cast(pa.schema([f.with_type(wide.get(f.type, f.type)) for f in table.schema]))


def _pairs(source: pa.Table, target: pa.Table, key: Sequence[str]) -> tuple[Ints, Ints]:
    """The row numbers of pairs, in the source's order."""
    columns = []
    for name in key:
        a, b = _aligned(source[name], target[name])
        columns.append(_codable(pa.chunked_array([*a.chunks, *b.chunks], a.type)))
    codes = encode(pa.table(columns, names=[str(i) for i in range(len(columns))]))
    first, second = codes[: source.num_rows], codes[source.num_rows :]
    span = len(codes) + 1
    _, left, right = np.intersect1d(
        first * span + _turn(first), second * span + _turn(second), assume_unique=True, return_indices=True
    )
    order = np.argsort(left, kind="stable")
    return left[order].astype(np.int64), right[order].astype(np.int64)


def _turn(codes: Ints) -> Ints:
    """The how-manieth row with its code each row is."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(codes) else np.array([], np.int64)
    turn = np.empty(len(codes), np.int64)
    turn[order] = np.arange(len(codes)) - np.repeat(starts, np.diff(np.r_[starts, len(codes)]))
    return turn


def _codable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """What cannot be a dictionary, such as a list, is told apart by its text."""
    return pa.chunked_array([pa.array(map(repr, column.to_pylist()))]) if pa.types.is_nested(column.type) else column


def _wrong(source: pa.Table, target: pa.Table, columns: Sequence[str]) -> dict[str, Mask]:
    found = {}
    for name in columns:
        differs = ~equal(source[name], target[name])
        if differs.any():
            found[name] = differs
    return found


def equal(a: pa.ChunkedArray, b: pa.ChunkedArray) -> Mask:
    """Row by row, whether two columns mean the same."""
    left, right = (_whole(column) for column in _aligned(a, b))
    return _equal(left, right)


def _equal(a: pa.Array, b: pa.Array) -> Mask:
    nulls = _mask(pc.is_null(a)), _mask(pc.is_null(b))
    if _is_list(a.type):
        same = _lists_equal(a, b)
    elif pa.types.is_struct(a.type):
        fields = range(a.type.num_fields)
        same = np.all([_equal(pc.struct_field(a, [i]), pc.struct_field(b, [i])) for i in fields], axis=0)
    elif pa.types.is_nested(a.type):
        same = np.array([x == y for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)], np.bool_)
    else:
        same = _mask(pc.equal(a, b))
    if pa.types.is_floating(a.type):
        same |= _mask(pc.is_nan(a)) & _mask(pc.is_nan(b))
    return np.where(nulls[0] | nulls[1], nulls[0] & nulls[1], same)


def _lists_equal(a: pa.Array, b: pa.Array) -> Mask:
    """Lists are equal when their lengths are and none of their elements differs."""
    lengths = pc.fill_null(pc.list_value_length(a), -1), pc.fill_null(pc.list_value_length(b), -1)
    same: Mask = _mask(pc.equal(*lengths))
    rows = np.flatnonzero(same)
    differs = ~_equal(pc.list_flatten(a.take(rows)), pc.list_flatten(b.take(rows)))
    owner = np.repeat(rows, np.maximum(lengths[0].to_numpy()[rows], 0))
    same[owner[differs]] = False
    return same


def _aligned(a: pa.ChunkedArray, b: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Both in one type that holds the values of both; texts if there is no better one."""
    if a.type == b.type:
        return a, b
    for kind in _common(a.type, b.type):
        try:
            return a.cast(kind), b.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            continue
    return _texts(a), _texts(b)


def _common(a: pa.DataType, b: pa.DataType) -> Iterator[pa.DataType]:
    if pa.types.is_decimal(a) and pa.types.is_decimal(b):
        yield pa.decimal256(76, max(a.scale, b.scale))
        return
    if pa.types.is_floating(a) and pa.types.is_floating(b):
        yield pa.float64()
        return
    if pa.types.is_integer(a) and pa.types.is_integer(b):
        yield pa.int64()
    yield a
    yield b
    yield pa.large_string()


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.large_string())])


def _absent(kind: str, table: pa.Table, rows: Ints, key: Sequence[str]) -> list[Difference]:
    return [Difference(kind, tuple(row.items())) for row in legible(table.select(list(key)).take(rows))]


def _changed(
    source: pa.Table, target: pa.Table, left: Ints, right: Ints, rows: Ints, wrong: dict[str, Mask], key: Sequence[str]
) -> Iterator[Difference]:
    ours, theirs = legible(source.take(left[rows])), legible(target.take(right[rows]))
    for row, mine, other in zip(rows, ours, theirs, strict=True):
        columns = tuple(name for name, differs in wrong.items() if differs[row])
        yield Difference(
            DIFFERENT,
            tuple((name, mine[name]) for name in key),
            columns,
            tuple(mine[c] for c in columns),
            tuple(other[c] for c in columns),
        )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _mask(values: pa.Array) -> Mask:
    found: Mask = np.array(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)
    return found
