"""Many changes of a row become one: what a merge by key needs, and nothing else.

Law: the last change wins *per column*. An update that left a column out (unchanged TOAST) takes it from the latest
earlier change of that row in the batch; where none tells, the value stays in the target (`keeps`). A key change ends
the old key's row and goes on as the new key's: what the batch cannot tell is in the target under the key the row had
when the batch began (`origins`). Rows that were read are, at the end of a batch, what its events have led to: in a
sink they come last; in a window they come first, and the events continue them.

The work is done on *touches*: every row touches its key once, a key change touches the old key too (it dies there).
Each touch links to the touch whose values it continues; following the links is pointer jumping over whole arrays, so
nothing loops over rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.core.large import take
from tidelog.core.metadata import BEFORE, COMMIT_TS, DELETED, META, OP, STAMPS, UNCHANGED, hidden
from tidelog.errors import UnsupportedChange
from tidelog.model.schema import Table

ROW = hidden("row")

CREATE, UPDATE, DELETE, READ, TRUNCATE = range(5)
_OPS = tuple("cudrt")

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Run:
    """Rows in the shape of the newest version, in log order; `conform` in `core.evolve` makes them."""

    rows: pa.Table
    unknown: frozenset[str] = frozenset()
    """Columns whose value the version that wrote these rows could not tell."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """What `_unchanged` calls a column that has another name by now."""
    whole: bool = False
    """The old images tell every column: what is null there was NULL."""


@dataclass(frozen=True)
class Folded:
    """One change per key. Apply it at once: `origins` speak of the target as it was before."""

    truncate: bool
    """Empty the target first."""
    truncated_at: pa.Scalar | None
    upserts: pa.Table
    """The table's columns, the `STAMPS` of the last change and, for a soft fold, `DELETED`."""
    keeps: Mapping[str, Mask]
    """Per column the upserts whose value stays what the target has; columns without such rows are left out."""
    origins: pa.Table
    """`ROW` (index of an upsert) and the key under which the target has the values that upsert keeps."""
    deletes: pa.Table
    """Keys that end, with the stamps of their last change; empty for a soft fold."""

    @property
    def empty(self) -> bool:
        return not (self.truncate or self.upserts.num_rows or self.deletes.num_rows)


def fold(runs: Sequence[Run], key: Sequence[str], *, soft: bool = False, reads_last: bool = False) -> Folded:
    """Fold the runs of one table. `soft`: deletes become upserts that keep all values and say `DELETED`. Rows that
    were read are what the log's events change, or with `reads_last` what all of them have led to."""
    log = _Log.of(runs, reads_last)
    touches = _Touches.of(log, tuple(key))
    winners = touches.winners()
    alive = touches.alive[winners]
    kept = winners if soft else winners[alive]
    upserts, keeps, origins = _resolve(log, touches, kept, soft)
    gone = winners[:0] if soft else winners[~alive]
    deletes = _columns(touches.keys, gone, log.rows, touches.row[gone], (*key, *STAMPS))
    return Folded(log.truncate, log.truncated_at, upserts, keeps, origins, deletes)


def carry(folded: Folded, key: Sequence[str], found: pa.Table) -> Folded:
    """Settle the origins with the target's rows `found` under their keys; a row that is not there gives nulls."""
    at = match(folded.origins.select(list(key)), found, key)
    rows = folded.origins[ROW].to_numpy()
    upserts, keeps = folded.upserts, {}
    for name, mask in folded.keeps.items():
        wanted = mask[rows]
        if wanted.any():
            upserts = assign(upserts, name, rows[wanted], found[name], at[wanted])
        left = mask.copy()
        left[rows] = False
        keeps[name] = left
    return replace(folded, upserts=upserts, keeps=_some(keeps), origins=folded.origins[:0])


def answer(folded: Folded, key: Sequence[str], columns: Sequence[str], found: pa.Table) -> Folded:
    """Take `columns` that no change of the batch told from `found`, the source's rows of today, by the present key;
    a column that it lacks stays as it is."""
    upserts, keeps = folded.upserts, dict(folded.keeps)
    at = match(upserts.select(list(key)), found, key)
    for name in (c for c in columns if c in keeps and c in found.column_names):
        rows = np.flatnonzero(keeps[name] & (at >= 0))
        upserts = assign(upserts, name, rows, found[name], at[rows])
        keeps[name] = keeps[name] & (at < 0)
    told = replace(folded, upserts=upserts, keeps=_some(keeps))
    needed = gaps(told)[folded.origins[ROW].to_numpy()]
    return replace(told, origins=folded.origins.filter(pa.array(needed)))


def gaps(folded: Folded) -> Mask:
    """The upserts that keep a value of the target."""
    found = np.zeros(folded.upserts.num_rows, np.bool_)
    for mask in folded.keeps.values():
        found |= mask
    return found


def give_up(folded: Folded, rows: Ints) -> Folded:
    """Without the upserts `rows`, whose values nobody can tell: a row that the target has under such a key is another
    one, and ends. (A soft fold has no deletes; there it stays for the event that takes the key on.)"""
    left = np.ones(folded.upserts.num_rows, np.bool_)
    left[rows] = False
    deletes = folded.deletes
    if DELETED not in folded.upserts.column_names:
        deletes = pa.concat_tables([deletes, take(folded.upserts.select(deletes.column_names), pa.array(rows))])
    at = folded.origins[ROW].to_numpy()
    origins = folded.origins.filter(pa.array(left[at]))
    numbers = pa.array((np.cumsum(left) - 1)[at[left[at]]], pa.int64())
    return replace(
        folded,
        upserts=folded.upserts.filter(pa.array(left)),
        keeps=_some({name: mask[left] for name, mask in folded.keeps.items()}),
        origins=origins.set_column(0, ROW, numbers),
        deletes=deletes,
    )


def match(keys: pa.Table, found: pa.Table, key: Sequence[str]) -> Ints:
    """For each of `keys` the index of its row in `found`, or -1."""
    both = pa.concat_tables([keys.select(list(key)), found.select(list(key)).cast(keys.select(list(key)).schema)])
    codes = encode(both)
    where = np.full(len(codes) + 1, -1, np.int64)
    where[codes[keys.num_rows :]] = np.arange(found.num_rows)
    return where[codes[: keys.num_rows]]


def without_negative_zeros(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """The column with 0.0 for -0.0. Databases and merges regard the two as one key, and dictionaries as two values."""
    return pc.add(column, pa.scalar(0, column.type)) if pa.types.is_floating(column.type) else column


def encode(keys: pa.Table) -> Ints:
    """A small number per row, equal for equal keys; all below the number of rows."""
    codes = np.zeros(keys.num_rows, np.int64)
    for i, column in enumerate(keys.columns):
        own, size = _encode(column)
        if i:  # codes < rows and own < size: their pair fits, and encoding it again keeps the numbers small
            own, _ = _encode(pa.array(codes * size + own))
        codes = own
    return codes


def _encode(column: pa.ChunkedArray | pa.Array) -> tuple[Ints, int]:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    whole = without_negative_zeros(whole)
    coded = whole.dictionary_encode(null_encoding="encode")
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.unify_dictionaries().combine_chunks()
    return coded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(coded.dictionary) + 1


@dataclass(frozen=True)
class _Log:
    """The rows that count, in the order in which they apply."""

    rows: pa.Table
    op: Ints
    absent: Mapping[str, Mask]
    whole: Mask
    """The rows whose old image tells every column."""
    truncate: bool
    truncated_at: pa.Scalar | None

    @staticmethod
    def of(runs: Sequence[Run], reads_last: bool) -> _Log:
        rows = pa.concat_tables([run.rows for run in runs])
        op = pc.index_in(rows[OP], value_set=pa.array(_OPS)).to_numpy().astype(np.int64)
        absent, whole = _absent(runs, rows.num_rows), np.concatenate([_whole(run) for run in runs])
        ends = np.flatnonzero(op == TRUNCATE)
        stamp = rows[COMMIT_TS][int(ends[-1])] if len(ends) else None
        order = _order(op, ends, reads_last)
        if order is not None:
            rows, op, absent = take(rows, pa.array(order)), op[order], {c: m[order] for c, m in absent.items()}
            whole = whole[order]
        return _Log(rows.combine_chunks(), op, _some(absent), whole, len(ends) > 0, stamp)


def _order(op: Ints, ends: Ints, reads_last: bool) -> Ints | None:
    """Reads before the log, or after it; a truncate voids all that applies before it. None: as they are."""
    reads = op == READ
    log, read = np.flatnonzero(~reads), np.flatnonzero(reads)
    if len(ends):
        left: Ints = log[log > ends[-1]]
        return np.concatenate([left, read]) if reads_last else left
    if not len(log) or not len(read):
        return None
    return np.concatenate([log, read] if reads_last else [read, log])


def _absent(runs: Sequence[Run], total: int) -> dict[str, Mask]:
    """Per column the rows that do not tell its value."""
    masks: dict[str, Mask] = {}
    start = 0
    for run in runs:
        end = start + run.rows.num_rows
        for name in run.unknown:
            masks.setdefault(name, np.zeros(total, np.bool_))[start:end] = True
        for name, rows in _unchanged(run):
            masks.setdefault(name, np.zeros(total, np.bool_))[rows + start] = True
        start = end
    return masks


def _unchanged(run: Run) -> list[tuple[str, Ints]]:
    lists = run.rows[UNCHANGED].combine_chunks()
    if lists.null_count == len(lists):
        return []
    parents = pc.list_parent_indices(lists).to_numpy()
    names = pc.list_flatten(lists).dictionary_encode()
    codes = names.indices.to_numpy()
    known = [(run.aliases.get(n, n), i) for i, n in enumerate(names.dictionary.to_pylist())]
    return [(name, parents[codes == i]) for name, i in known if name in run.rows.column_names]


@dataclass(frozen=True)
class _Touches:
    """Which key is touched by which row, in order. `move` names the touch where a key change leaves its old key."""

    keys: pa.Table
    codes: Ints
    row: Ints
    op: Ints
    alive: Mask
    move: Ints

    @staticmethod
    def of(log: _Log, key: tuple[str, ...]) -> _Touches:
        keys = log.rows.select(list(key))
        row, count = np.arange(keys.num_rows), keys.num_rows
        alive, move = log.op != DELETE, np.full(count, -1, np.int64)
        old = _old_keys(log.rows[BEFORE], key)
        moved = row[:0] if old is None else _moved(keys, old, log.op, log.whole)
        if old is None or not len(moved):
            return _Touches(keys, encode(keys), row, log.op, alive, move)
        keys = pa.concat_tables([keys, old.take(moved)]).combine_chunks()
        order = np.argsort(np.concatenate([row * 2 + 1, moved * 2]), kind="stable")
        place = np.argsort(order)  # where each touch stands once they are in order
        move = np.concatenate([move, np.full(len(moved), -1, np.int64)])
        move[moved] = place[count:]
        row = np.concatenate([row, moved])
        alive = np.concatenate([alive, np.zeros(len(moved), np.bool_)])
        return _Touches(
            keys.take(order), encode(keys)[order], row[order], log.op[row[order]], alive[order], move[order]
        )

    def winners(self) -> Ints:
        """The last touch of each key, in log order."""
        last = np.full(len(self.codes), -1, np.int64)
        last[self.codes] = np.arange(len(self.codes))  # of repeated indices the last assignment stays
        return np.sort(last[last >= 0])

    @cached_property
    def links(self) -> Ints:
        """The touch whose values each touch continues, -1 where a row begins or the batch does not know."""
        before = self._before
        follows = np.where(self.move >= 0, before[self.move], before)
        begins = self.alive & ((self.op == CREATE) | (self.op == READ))
        broken = begins | (follows < 0) | ~self.alive[follows]
        return np.where(broken, -1, follows)

    @cached_property
    def _before(self) -> Ints:
        """The previous touch of the same key, -1 for the first."""
        order = np.argsort(self.codes, kind="stable")
        same = self.codes[order[1:]] == self.codes[order[:-1]]
        before = np.full(len(order), -1, np.int64)
        before[order[1:][same]] = order[:-1][same]
        return before

    @cached_property
    def whole(self) -> tuple[Ints, Mask]:
        """`told` for the columns that every row tells."""
        return self.told(None)

    def told(self, absent: Mask | None) -> tuple[Ints, Mask]:
        """For each touch the touch that has its value of a column, or the root of its links, and which it is."""
        known = self.alive if absent is None else self.alive & ~absent[self.row]
        at = np.where(known | (self.links < 0), np.arange(len(known)), self.links)
        todo = np.flatnonzero(at != np.arange(len(at)))
        while len(todo):
            further = at[at[todo]]
            todo = todo[further != at[todo]]
            at[todo] = at[at[todo]]
        return at, known


def _old_keys(before: pa.ChunkedArray, key: tuple[str, ...]) -> pa.Table | None:
    if before.null_count == len(before):
        return None
    names = [f.name for f in before.type]
    parts = [dict(zip(names, chunk.flatten(), strict=True)) for chunk in before.chunks]
    return pa.table({name: pa.chunked_array([p[name] for p in parts]) for name in key})


def _whole(run: Run) -> Mask:
    valid: Mask = pc.is_valid(run.rows[BEFORE]).to_numpy()
    return valid & run.whole


def _moved(keys: pa.Table, old: pa.Table, op: Ints, whole: Mask) -> Ints:
    """The updates that changed the key, also from NULL and to it; an old image that is not `whole` says nothing about
    a key of which it lacks a part."""
    differs, known = np.zeros(len(op), np.bool_), op == UPDATE
    for name in keys.column_names:
        new, was = keys[name], old[name]
        present = pc.is_valid(was).to_numpy()
        known &= present | whole
        differs |= pc.fill_null(pc.not_equal(new, was), False).to_numpy() | (pc.is_valid(new).to_numpy() != present)
    return np.flatnonzero(known & differs)


def _resolve(log: _Log, touches: _Touches, kept: Ints, soft: bool) -> tuple[pa.Table, dict[str, Mask], pa.Table]:
    key = touches.keys.column_names
    names = [c for c in log.rows.column_names if c not in META]
    dead = ~touches.alive[kept]
    upserts = _columns(touches.keys, kept, log.rows, touches.row[kept], (*names, *STAMPS))
    if soft:
        upserts = upserts.append_column(DELETED, pa.array(dead))
    keeps, rooted = {}, np.full(len(kept), -1, np.int64)
    partial = [c for c in names if c not in key and (c in log.absent or dead.any())]
    for name in partial:
        at, known = touches.told(log.absent[name]) if name in log.absent else touches.whole
        source = at[kept]
        keeps[name] = ~known[source]
        index = pa.array(touches.row[source], mask=keeps[name])
        upserts = upserts.set_column(names.index(name), upserts.field(name), take(log.rows[name], index))
        rooted[keeps[name]] = source[keeps[name]]
    return upserts, _some(keeps), _origins(touches, kept, rooted)


def _origins(touches: _Touches, kept: Ints, rooted: Ints) -> pa.Table:
    """Where an upsert's unknown values are in the target, if not under its own key."""
    rows = np.flatnonzero(rooted >= 0)
    root = rooted[rows]
    at = np.where(touches.move[root] >= 0, touches.move[root], root)
    elsewhere = (touches.codes[at] != touches.codes[kept[rows]]) & (touches.op[root] == UPDATE)
    keys = touches.keys.take(at[elsewhere])
    return keys.add_column(0, ROW, pa.array(rows[elsewhere], pa.int64()))


def _columns(keys: pa.Table, touch: Ints, rows: pa.Table, row: Ints, names: Sequence[str]) -> pa.Table:
    """`names` with the key of the touch and the rest of the row: a death by key change has the old key."""
    own = keys.take(touch)
    rest = take(rows.select([n for n in names if n not in keys.column_names]), pa.array(row))
    columns = [own[n] if n in keys.column_names else rest[n] for n in names]
    return pa.table(columns, schema=pa.schema([rows.schema.field(n) for n in names]))


def assign(table: pa.Table, name: str, rows: Ints, values: pa.ChunkedArray, at: Ints) -> pa.Table:
    """Set `name` in some rows from `values[at]`; -1 gives null."""
    column, count = table[name], table.num_rows
    new = take(values.cast(column.type), pa.array(at, mask=at < 0))
    pick = np.arange(count)
    pick[rows] = count + np.arange(len(rows))
    both = pa.chunked_array([*column.chunks, *new.chunks], column.type)
    return table.set_column(table.column_names.index(name), table.field(name), take(both, pa.array(pick)))


def _some(masks: Mapping[str, Mask]) -> dict[str, Mask]:
    return {name: mask for name, mask in masks.items() if mask.any()}


def in_order(runs: Sequence[tuple[Table, pa.Table]]) -> list[tuple[Table, pa.Table]]:
    """A batch's runs in the order in which they apply: the log, then what was read, which it has led to."""
    split = [(table, rows, pc.equal(rows[OP], "r")) for table, rows in runs]
    if not any(pc.any(read).as_py() for _, _, read in split):
        return list(runs)
    parts = [(table, rows.filter(pc.invert(read))) for table, rows, read in split]
    parts += [(table, rows.filter(read)) for table, rows, read in split]
    return [(table, rows) for table, rows in parts if rows.num_rows]


def moves(run: Run, key: Sequence[str]) -> tuple[Ints, pa.Table]:
    """The updates that changed the key, and the key that each of them left."""
    keys, old = run.rows.select(list(key)), _old_keys(run.rows[BEFORE], tuple(key))
    if old is None:
        return np.zeros(0, np.int64), keys[:0]
    op = pc.index_in(run.rows[OP], value_set=pa.array(_OPS)).to_numpy().astype(np.int64)
    moved = _moved(keys, old, op, _whole(run))
    return moved, old.take(pa.array(moved)).cast(keys.schema)


def leaves_out(run: Run) -> bool:
    """Whether one of the changes does not tell all of its row."""
    return bool(run.unknown) or bool(_unchanged(run))


def require_keys(rows: pa.Table, key: Sequence[str], table: str) -> None:
    """A change without its whole key cannot be applied: the key changed under the batch's feet."""
    changes = rows.filter(pc.not_equal(rows[OP], "t"))
    nameless = [k for k in key if changes[k].null_count]
    if nameless:
        raise UnsupportedChange(
            f"Changes of {table} come without a value of the key column {nameless[0]}.",
            hint="The table's key changed while its old changes were on the way. Start the pipeline again: it then "
            "reads the table anew.",
        )
